"""Messages of JSON, Avro or Protobuf become a typed table; misfits its rejects, with the reason.

    python -m imago_spark.pipelines.parse --config FILE [--epoch N] [--dry-run]

The configuration is that of ingest (`pipelines.settings`) and, in its part `[config]`:

    schema = "id bigint, amount double, at timestamp, customer struct<name: string>"
    required = "id, at"            # fields without which an event is none
    fieldPrefix = ""               # before the names of fields: those of messages are taken
    timestampFormat = ""           # of Spark's patterns, unless times are in ISO 8601
    rejectedPercentMax = 100       # a batch with a larger share is not taken: the run fails
    bodyFormat = "json"            # or avro, protobuf
    schemaFile = "/lake/order.avsc"    # of Avro; of Protobuf a set of descriptors
    message = "shop.Order"         # of Protobuf: which one of them
    headerBytes = 5                # in front of Avro or Protobuf, if there are any

A row of the table has the fields, and of its message topic, shard, queue, offset, key, tags,
msg_id, born_time, store_time and crc_ok. `PATH/_rejects` has the same columns for messages that
do not fit, with `reject_reason` and their body in `reject_value`. Both are written by one commit:
each message is in one of the two, once, whatever dies in between.

`--dry-run` reads what is there, writes nothing, and prints how many messages would be rejected, and
for what reasons, each with the place of one. Without it the run prints one line of JSON at its end:
rows, rows whose body does not match its checksum, rows that this run rejected.

Exit codes: 0 done, 1 failed, 2 wrong configuration, 5 another run took over.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Final

from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.types import StringType, StructField, StructType

from imago_spark.errors import OptionError, RejectedError
from imago_spark.pipelines import application, settings, streaming
from imago_spark.pipelines.forms import choosing
from imago_spark.pipelines.forms.choosing import BodyForm, form_of, with_json
from imago_spark.pipelines.landing import Shape, checked
from imago_spark.pipelines.tables.commits import REJECTED
from imago_spark.schema import CHECKED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import Column, DataFrame, SparkSession

    from imago_spark.pipelines.settings import IngestSettings
    from imago_spark.pipelines.tables.commits import StagedBatch

OWN: Final = (
    *("schema", "required", "fieldPrefix", "timestampFormat", "rejectedPercentMax"),
    *choosing.OWN,
)
OF_MESSAGE: Final = (
    *("topic", "shard", "queue", "offset", "key", "tags", "msg_id", "born_time", "store_time"),
    CHECKED,
)
"""Columns of a message that its row keeps."""
ADDED: Final = ("date", "rejected", "reject_reason", "reject_value")
_CORRUPT: Final = "_imago_corrupt"
JSON_FORM: Final = BodyForm()
_SHOWN: Final = 5
"""Reasons in the message about a batch that is not taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsing:
    """How bodies become fields."""

    schema: StructType
    required: tuple[str, ...] = ()
    prefix: str = ""
    timestamp_format: str = ""
    rejected_percent_max: int = 100
    form: BodyForm = JSON_FORM

    @property
    def fields(self) -> dict[str, str]:
        """The table's fields with their types."""
        return {self.prefix + one.name: one.dataType.simpleString() for one in self.schema.fields}

    @property
    def shape(self) -> Shape:
        """What its table is made of."""
        return Shape(
            application="parse",
            rows=self.rows,
            folders=("rejected", "date"),
            fields=self.fields,
            check=self.check,
        )

    def rows(self, messages: DataFrame) -> DataFrame:
        """Return a row for each message: its fields, or why it has none."""
        schema = StructType([*self.schema.fields, StructField(_CORRUPT, StringType())])
        options = {"columnNameOfCorruptRecord": _CORRUPT, "mode": "PERMISSIVE"}
        if self.timestamp_format:
            options["timestampFormat"] = self.timestamp_format
        text = F.col("_text")
        parsed = with_json(checked(messages), self.form).withColumn(
            "_event", F.from_json(text, schema, options)
        )
        known = parsed.withColumn("reject_reason", self._reason(text))
        is_rejected = F.col("reject_reason").isNotNull()
        return known.select(
            *(F.col(name) for name in OF_MESSAGE),
            *(
                F.when(~is_rejected, F.col("_event")[one.name]).alias(self.prefix + one.name)
                for one in self.schema.fields
            ),
            F.col("reject_reason"),
            F.when(is_rejected, F.col("value")).alias("reject_value"),
            is_rejected.alias("rejected"),
            F.col("date"),
        )

    def _reason(self, text: Column) -> Column:
        """Return why a message is no event, null if it is one."""
        event = F.col("_event")
        has_required = [event[name].isNotNull() for name in self.required]
        # from_json takes the first object, and passes over what stands behind it. What ends an
        # array ends no object: in both of them the text is the one value only if it is one value.
        in_array = F.json_array_length(F.concat(F.lit("["), text, F.lit("]"))) == 1
        keys = F.json_object_keys(F.concat(F.lit('{"v":'), text, F.lit("}")))
        is_one = F.coalesce(in_array & (F.size(keys) == 1), F.lit(False))
        whole = is_one & F.regexp_replace(text, r"^\s+", "").startswith("{")
        fits = [
            F.col(CHECKED),
            F.coalesce(F.is_valid_utf8(text), F.lit(False)),
            whole,
            event[_CORRUPT].isNull(),
            *has_required,
        ]
        reason = (
            F.when(F.col("value").isNull(), "the body does not inflate")
            .when(~F.col(CHECKED), "the body is damaged: its checksum differs")
            .when(F.col("_why").isNotNull(), F.col("_why"))
            .when(~F.is_valid_utf8(text), "the body is no UTF-8")
            .when(~whole, "the body is no JSON object")
        )
        found = F.try_parse_json(text)
        for one in self.schema.fields:
            given = F.variant_get(found, f"$['{one.name}']", "variant")
            is_given = given.isNotNull() & ~F.is_variant_null(given)
            kind = one.dataType.simpleString()
            reason = reason.when(
                is_given & event[one.name].isNull(), f"field {one.name!r} is no {kind}"
            )
        reason = reason.when(event[_CORRUPT].isNotNull(), "a nested field is of another type")
        for name in self.required:
            reason = reason.when(event[name].isNull(), f"field {name!r} is missing")
        good = reduce(lambda one, other: one & other, fits)
        return F.when(good, F.lit(None)).otherwise(F.coalesce(reason, F.lit("does not fit")))

    def check(self, added: StagedBatch, attempt: Path) -> None:
        """RejectedError: more of a batch is rejected than may be."""
        if added.rejected * 100 <= self.rejected_percent_max * added.rows:
            return
        listed = "; ".join(_reasons(attempt))
        raise RejectedError(
            f"{added.rejected} of {added.rows} messages of the batch would be rejected, more than"
            f" {self.rejected_percent_max} %: {listed}; nothing of it was written: mend the schema,"
            " or raise rejectedPercentMax"
        )


def _reasons(attempt: Path) -> list[str]:
    """Return the most frequent reasons in a staged batch, each with the place of one message."""
    import pyarrow.parquet as pq

    counted: Counter[str] = Counter()
    places: dict[str, str] = {}
    for file in sorted(attempt.glob(f"{REJECTED}/*/*.parquet")):
        columns = ["reject_reason", "topic", "shard", "queue", "offset"]
        for row in pq.read_table(file, columns=columns, partitioning=None).to_pylist():
            reason = row["reject_reason"]
            counted[reason] += 1
            places.setdefault(
                reason, f"{row['topic']}/{row['shard']}/{row['queue']} at {row['offset']}"
            )
    found = counted.most_common(_SHOWN)
    return [f"{number} × {reason} ({places[reason]})" for reason, number in found]


def parsing(own: Mapping[str, object], schema: StructType) -> Parsing:
    """Return what an application's own names say. OptionError: one is wrong."""
    prefix = str(own.get("fieldPrefix", ""))
    names = [one.name for one in schema.fields]
    for name in names:
        if "'" in name or name == _CORRUPT:
            raise OptionError(f"config.schema: {name!r} cannot be the name of a field")
        if prefix + name in (*OF_MESSAGE, *ADDED):
            raise OptionError(
                f"config.schema: {prefix + name!r} is a column of messages; set"
                ' fieldPrefix = "event_", or the like'
            )
    required = _names(own.get("required", ""))
    for name in required:
        if name not in names:
            raise OptionError(f"config.required: {name!r} is no field of the schema")
    return Parsing(
        schema=schema,
        required=required,
        prefix=prefix,
        timestamp_format=str(own.get("timestampFormat", "")),
        rejected_percent_max=_percent(own.get("rejectedPercentMax", 100)),
        form=form_of(own),
    )


def _names(value: object) -> tuple[str, ...]:
    listed = value if isinstance(value, list) else str(value).split(",")
    return tuple(str(one).strip() for one in listed if str(one).strip())


def _percent(value: object) -> int:
    text = str(value)
    if isinstance(value, bool) or not text.isdecimal() or int(text) > 100:
        raise OptionError(f"config.rejectedPercentMax: {value!r}, must be 0 to 100")
    return int(text)


def _schema(own: Mapping[str, object]) -> StructType:
    """Read the DDL, which needs Spark's JVM. OptionError: it is none."""
    text = own.get("schema")
    if not isinstance(text, str) or not text.strip():
        raise OptionError('config.schema: is missing: schema = "id bigint, at timestamp"')
    try:
        found = StructType.fromDDL(text)
    except PySparkException as error:
        first = str(error).strip().splitlines()[0]
        raise OptionError(f"config.schema: {first}") from None
    if not isinstance(found, StructType) or not found.fields:
        raise OptionError("config.schema: names no field")
    return found


def of_settings(wanted: IngestSettings) -> Parsing:
    """Return how a configuration file has messages parsed; needs a session, which reads the DDL."""
    return parsing(wanted.own, _schema(wanted.own))


def build(spark: SparkSession, options: Mapping[str, str], how: Parsing) -> DataFrame:
    """Return a row for each message of the topics: its fields, or why it is rejected."""
    return how.rows(spark.read.format("imago").options(**{"columns": "core", **options}).load())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as a program."""
    parser = application.parser("parse", __doc__)
    parser.add_argument("--dry-run", action="store_true", help="count what would be rejected")
    asked = parser.parse_args(arguments)
    if asked.config is None:
        return application.refused("parse", "--config is missing")
    application.log_lines()
    try:
        wanted = settings.load(asked.config, asked.epoch, OWN)
    except OptionError as error:
        return application.refused("parse", error)
    spark = application.spark("parse", asked)
    try:
        how = of_settings(wanted)
        if asked.dry_run:
            return _dry_run(spark, wanted, how)
    except OptionError as error:
        spark.stop()
        return application.refused("parse", error)
    return streaming.run(wanted, lambda: spark, how.shape)


def _dry_run(spark: SparkSession, wanted: IngestSettings, how: Parsing) -> int:
    source = {"bootstrap": wanted.bootstrap, "subscribe": ",".join(wanted.topics)}
    rows = build(spark, source, how).groupBy("reject_reason")
    place = F.format_string("%s/%s/%d at %d", "topic", "shard", "queue", "offset")
    counted = rows.agg(F.count(F.lit(1)).alias("rows"), F.first(place).alias("example")).collect()
    rejects = [one.asDict() for one in counted if one.reject_reason is not None]
    rejects.sort(key=lambda one: (-one["rows"], one["reject_reason"]))
    told = {
        "rows": sum(one.rows for one in counted),
        "rejected": sum(one["rows"] for one in rejects),
        "reasons": rejects,
    }
    print(json.dumps(told, ensure_ascii=False), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
