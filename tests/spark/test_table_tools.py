"""A real table in a real Spark: what gets into it, and what an audit finds."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from imago_client import Message, batches
from imago_spark.errors import TableError
from imago_spark.pipelines.audit import EXIT_DIFFERENCES, audit, main
from imago_spark.pipelines.landing import Landing, Shape
from imago_spark.pipelines.settings import IngestSettings
from imago_spark.pipelines.tables.table import TableWriter

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from imago_client.blocking import Client

pytestmark = [pytest.mark.spark, pytest.mark.processes]

ROWS = 1000


def land(spark: SparkSession, into: Landing, settings: IngestSettings, *range_: str) -> None:
    """Land offsets of a topic as a stream's micro-batch does, without Spark's stream."""
    names = ("startingOffsets", "endingOffsets")
    options = settings.source_options() | dict(zip(names, range_, strict=True))
    spark.sparkContext.setLocalProperty("sql.streaming.queryId", "q")
    into(spark.read.format("imago").options(**options).load(), into.table.last.batch + 1)


def landed(
    spark: SparkSession, cluster: str, client: Client, topic: str, folder: Path
) -> IngestSettings:
    """Fill a topic and land it in three commits; return the settings of that."""
    client.admin.create_topic(topic, queues=2)
    messages = [
        Message(topic, b"%d" % n, keys=(f"k{n}",), tags="odd" if n % 2 else "even")
        for n in range(ROWS)
    ]
    for batch in batches(messages, bytes_max=5_000):
        client.producer().send_batch(batch)
    settings = IngestSettings(
        bootstrap=cluster,
        topics=(topic,),
        path=folder / "lake",
        checkpoint=str(folder / "checkpoint"),
        rows_max=300,
    )
    table = TableWriter(settings.path)
    table.begin()
    into = Landing(table, lambda: None, settings, Shape())
    consumer = client.pull_consumer("reader")
    ends = {queue.queue_id: consumer.max_offset(queue) for queue in consumer.queues(topic)}
    cuts = [
        json.dumps({topic: {"shard-0": {str(q): end * part // 3 for q, end in ends.items()}}})
        for part in range(4)
    ]
    for start, end in pairwise(cuts):
        land(spark, into, settings, start, end)
    assert (table.last.rows, table.last.number) == (ROWS, 3)
    return settings


def test_a_checkpoint_that_had_read_before_there_was_a_table_is_refused(
    spark: SparkSession, cluster: str, client: Client, tmp_path: Path
) -> None:
    client.admin.create_topic("to-move", queues=1)
    for n in range(5):
        client.producer().send(Message("to-move", b"%d" % n))
    settings = IngestSettings(
        bootstrap=cluster, topics=("to-move",), path=tmp_path / "lake", checkpoint="/none"
    )
    table = TableWriter(settings.path)
    table.begin()
    into = Landing(table, lambda: None, settings, Shape())
    start = '{"to-move": {"shard-0": {"0": 3}}}'
    said = r"to-move/shard-0/0: offsets 0 to 2 would be missing: the checkpoint is of another table"
    with pytest.raises(TableError, match=said):
        land(spark, into, settings, start, "latest")
    assert table.last.rows == 0
    assert isinstance(into.failed, TableError), "the run says this, and no trace of Spark's"
    from_latest = replace(settings, from_latest=True)
    land(spark, Landing(table, lambda: None, from_latest, Shape()), settings, start, "latest")
    assert table.last.rows == 2


def test_audit_finds_what_differs_between_a_table_and_its_topic(
    spark: SparkSession,
    cluster: str,
    client: Client,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings = landed(spark, cluster, client, "to-audit", tmp_path)
    config = tmp_path / "pipeline.toml"
    config.write_text(
        f'bootstrap = "{cluster}"\ntopics = ["to-audit"]\npath = "{settings.path}"\n'
        'checkpoint = "/none"\n'
    )
    assert main(["--config", str(config)]) == 0
    told = audit(settings, spark)
    assert (told["differences"], told["compared"], told["behind"]) == (0, ROWS, 0), told
    client.producer().send(Message("to-audit", b"later"))
    assert audit(settings, None)["behind"] == 1
    write = partial(pq.write_table, use_deprecated_int96_timestamps=True)  # as Spark does
    # One row with another body, one twice, one gone: in files that stay as large as they were.
    first, second, *_ = sorted(settings.path.glob("date=*/*.parquet"))
    rows = pq.read_table(first, partitioning=None)
    values = rows.column("value").to_pylist()
    values[3] = b"x"
    changed = rows.set_column(rows.schema.get_field_index("value"), "value", [values])
    write(changed.cast(rows.schema), first)
    rows = pq.read_table(second, partitioning=None)
    write(rows.take([0, 0, *range(2, rows.num_rows)]), second)
    (first.parent / "copy.parquet").write_bytes(first.read_bytes())
    found = audit(settings, spark)["list"]
    capsys.readouterr()
    assert main(["--config", str(config)]) == EXIT_DIFFERENCES
    assert json.loads(capsys.readouterr().out)["differences"] == 3
    kinds = Counter(one["kind"] for one in found)
    assert kinds == {"file": 3, "other row": 1, "twice": 1, "missing": 1}, found
    twice, missing = (
        next(one for one in found if one["kind"] == kind) for kind in ("twice", "missing")
    )
    assert missing["from"] == twice["from"] + 1
    assert twice["what"] == "the files have it 2 times"
