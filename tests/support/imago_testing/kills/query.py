"""The driver that is killed: copies a topic to a topic, by transactions, and to Parquet.

`python -m imago_testing.kills.query BOOTSTRAP FOLDER` goes on from its checkpoints, ends once it
has read all that is there, and then writes what the copies have to `FOLDER/found.json`.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from imago_spark.pipelines.late_workers import run_stream
from imago_spark.pipelines.session import session

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

SOURCE, COPY = "orders", "copies"
ROWS_OF_BATCH: Final = 250


def main() -> None:
    """Copy, then say what is there."""
    bootstrap, folder = sys.argv[1], Path(sys.argv[2])
    spark = session("kills", cores=2, memory="1g", is_short=True, tries=4)
    spark.sparkContext.setLogLevel("ERROR")
    running = {kind: _started(spark, bootstrap, folder, kind) for kind in ("topic", "table")}

    def end(kind: str) -> None:
        query = running.pop(kind, None) or _started(spark, bootstrap, folder, kind)
        query.awaitTermination()

    for kind in list(running):  # Spark's ten seconds for a Python are short on a busy machine
        run_stream(partial(end, kind))
    copies = spark.read.format("imago").options(
        bootstrap=bootstrap, subscribe=COPY, columns="value"
    )
    found = {
        "topic": _numbers(copies.load().select("value").collect()),
        "table": _numbers(spark.read.parquet(str(folder / "table")).select("value").collect()),
    }
    unfinished = folder / "found.partial"
    unfinished.write_text(json.dumps(found))
    unfinished.rename(folder / "found.json")


def _started(spark: SparkSession, bootstrap: str, folder: Path, kind: str) -> StreamingQuery:
    stream = (
        spark.readStream.format("imago")
        .options(bootstrap=bootstrap, subscribe=SOURCE, startingOffsets="earliest")
        .options(maxOffsetsPerTrigger=str(ROWS_OF_BATCH), columns="key,value")
        .load()
        .repartition(2)  # in another order each time that a task is repeated
    )
    writer: DataStreamWriter = stream.writeStream
    if kind == "topic":
        writer = writer.format("imago").options(
            bootstrap=bootstrap, topic=COPY, delivery="transaction", sendBytes="8192"
        )
    else:
        writer = writer.format("parquet").option("path", str(folder / "table"))
    checkpoint = str(folder / f"checkpoint-{kind}")
    return writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()


def _numbers(rows: list[Row]) -> list[int]:
    return sorted(int(bytes(row.value)) for row in rows)


if __name__ == "__main__":
    main()
