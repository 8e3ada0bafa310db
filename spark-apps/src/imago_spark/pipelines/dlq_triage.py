"""Dead letters, put together by what they have in common.

    python -m imago_spark.pipelines.dlq_triage --config FILE [--epoch N] [--dry-run]

FILE names the topics of dead letters (`topics = ["%DLQ%billing"]`) and where groups go (`path`). In
its part `[config]`:

    samples = 3     # bodies that are kept of each group

What makes a group: the topic that the message was sent to first, the exception that its body or
properties name, and the shape of its body: the fields of a JSON object, or else its text without
numbers and quoted words. Each dead letter is in exactly one group. Groups are Parquet in
`PATH/date=…`, one picture a day, the newest: `fingerprint`, `dead_in`, `topic`, `exception`,
`shape`, `rows`, `first_at`, `last_at`, `tries`, and `samples` with place, key and body.

`--dry-run` writes nothing. Both print one line of JSON: rows, `groups`, how many of them are `new`
since the picture before, the `oldest` message, and the largest groups as `list`.

Exit codes: 0 done, 1 failed, 2 wrong configuration, 5 another run took over.
"""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from imago_spark.errors import TableError
from imago_spark.pipelines import application
from imago_spark.pipelines.reports import Fence
from imago_spark.pipelines.settings import count_in
from imago_spark.pipelines.tables import days

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import Column, DataFrame, SparkSession

    from imago_spark.pipelines.settings import IngestSettings

OWN: Final = ("samples",)
SAMPLES: Final = 3
SHOWN: Final = 20
SHAPE_SIZE: Final = 160
BODY_SIZE: Final = 500
COLUMNS: Final = "topic,shard,queue,offset,key,value,store_time,reconsume_times,properties"
_EXCEPTION: Final = r"([A-Za-z_][A-Za-z0-9_.$]*(?:Exception|Error))\b"
_QUOTED: Final = r"\"[^\"]*\"|'[^']*'"
_NUMBER: Final = r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|0x[0-9a-fA-F]+|[0-9]+"


def build(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """Return the groups of the dead letters that the source's options name; `samples` is ours."""
    source = {name: said for name, said in options.items() if name != "samples"}
    rows = spark.read.format("imago").options(**source, columns=COLUMNS).load()
    return groups(rows, int(options.get("samples", SAMPLES)))


def groups(rows: DataFrame, samples: int) -> DataFrame:
    """Return the groups of dead letters."""
    text = F.when(F.is_valid_utf8(F.col("value").cast("string")), F.col("value").cast("string"))
    had = F.col("properties")
    origin = F.coalesce(had["DLQ_ORIGIN_TOPIC"], had["RETRY_TOPIC"], F.col("topic"))
    told = F.concat_ws(" ", text, F.map_values(had))
    place = F.format_string("%s/%s/%d at %d", "topic", "shard", "queue", "offset")
    known = rows.select(
        F.col("topic").alias("dead_in"),
        origin.alias("topic"),
        F.regexp_extract(told, _EXCEPTION, 1).alias("exception"),
        _shape(text).alias("shape"),
        "store_time",
        "reconsume_times",
        F.struct(place.alias("place"), "key", F.substring(text, 1, BODY_SIZE).alias("body")).alias(
            "sample"
        ),
    )
    named = ("dead_in", "topic", "exception", "shape")
    found = known.groupBy(*named).agg(
        F.count(F.lit(1)).alias("rows"),
        F.min("store_time").alias("first_at"),
        F.max("store_time").alias("last_at"),
        F.max("reconsume_times").alias("tries"),
        F.slice(F.array_sort(F.collect_list("sample")), 1, samples).alias("samples"),
    )
    print_ = F.substring(F.sha2(F.concat_ws("\0", *named), 256), 1, 12)
    return found.select(print_.alias("fingerprint"), *found.columns)


def _shape(text: Column) -> Column:
    fields = F.concat_ws(", ", F.array_sort(F.json_object_keys(text)))
    plain = F.regexp_replace(F.regexp_replace(text, _QUOTED, '""'), _NUMBER, "#")
    return (
        F.when(text.isNull(), "no text")
        .when(F.json_object_keys(text).isNotNull(), F.concat(F.lit("{"), fields, F.lit("}")))
        .otherwise(F.substring(plain, 1, SHAPE_SIZE))
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as a program."""
    return application.run_once("dlq_triage", __doc__, OWN, _checked, _run, arguments)


def _checked(given: IngestSettings) -> None:
    count_in(given.own, "samples", SAMPLES)


def _run(spark: SparkSession, asked: argparse.Namespace, given: IngestSettings) -> dict[str, Any]:
    # By a pattern, since there is no topic of dead letters before the first of them.
    pattern = "|".join(map(re.escape, given.topics))
    options = {"bootstrap": given.bootstrap, "subscribePattern": pattern, "includeSystem": "true"}
    samples = count_in(given.own, "samples", SAMPLES) or SAMPLES
    rows = spark.read.format("imago").options(**options, columns=COLUMNS).load().cache()
    found = groups(rows, samples).cache()
    try:
        count = rows.count()
        listed = found.orderBy(F.desc("rows"), "fingerprint").collect()
        if (held := sum(one.rows for one in listed)) != count:
            raise TableError(f"{count} dead letters, but {held} in groups: run it again")
        before = _before(spark, given.path)
        if not asked.dry_run and listed:
            dated = found.withColumn("date", F.lit(datetime.now(UTC).date()))
            days.write(dated, given.path, Fence(given))
    finally:
        found.unpersist()
        rows.unpersist()
    oldest = min((one.first_at for one in listed), default=None)
    return {
        "rows": count,
        "groups": len(listed),
        "new": sum(one.fingerprint not in before for one in listed),
        "oldest": None if oldest is None else oldest.isoformat(),
        "list": [_told(one.asDict()) for one in listed[:SHOWN]],
    }


def _before(spark: SparkSession, path: Path) -> set[str]:
    """Return the groups of the newest picture."""
    pictures = sorted(path.glob("date=*"))
    if not pictures:
        return set()
    rows = spark.read.parquet(str(pictures[-1])).select("fingerprint").collect()
    return {row.fingerprint for row in rows}


def _told(one: dict[str, Any]) -> dict[str, Any]:
    kept = {name: one[name] for name in ("fingerprint", "rows", "topic", "exception", "shape")}
    return kept | {"example": one["samples"][0]["place"]}


if __name__ == "__main__":
    sys.exit(main())
