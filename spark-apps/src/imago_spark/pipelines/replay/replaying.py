"""Send a slice of a table of ingest or parse to a topic again, each of its rows once.

    python -m imago_spark.pipelines.replay --config FILE [--epoch N] [--dry-run]

The configuration is that of ingest (`pipelines.settings`): `path` is the table, `topics` are those
of its topics that are replayed, `maxRowsPerTrigger` is about how many rows one step has (100000),
`checkpoint` is a folder that remembers which steps are done. In its part `[config]`:

    id = "refunds-again"          # names the replay: the same one goes on where it was
    topic = "orders-replayed"     # where to; none of topics
    rowsPerSecond = 1000          # over all; may be changed from run to run
    queueBy = "key"               # as of the sink
    assign = '{"orders": {"shard-0": [0]}}'     # the slice, in the words of the source
    startingOffsets = '{"orders": {"shard-0": {"0": 500}}}'
    endingTimestamp = "2026-11-21T08:00:00Z"
    rows = "table"                # of parse also "rejects": bodies that were no events
    fieldPrefix = ""              # as the run of parse has it: fields lose it again
    onDamage = "fail"             # or "skip": leave out rows that are damaged or have no body

The first run counts the slice's rows and plans its steps; later runs keep that plan. A step is one
batch of a sink that `id` and plan name: brokers take each of its rows once, whatever is killed and
run again within the seven days for which they remember it. Without its checkpoint a replay is
planned anew: it goes on if the table is the same, or else is refused.

A message has the key, the tags and the body that the table has, and the property `REPLAY_OF` with
topic, shard, queue and offset of the original. Rows of parse are written as JSON of their fields.

`--dry-run` sends and writes nothing, and prints how many rows and bytes each step has. Without it
the run prints one line of JSON at its end. SIGTERM ends it after the step.

Exit codes: 0 done, 1 failed or stopped before the end, 2 wrong configuration, 5 another run took
over.
"""

from __future__ import annotations

import json
import logging
import sys
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from imago_client.errors import UsageError
from imago_client.message_queue import MessageQueue
from imago_spark.errors import SourceError, TableError
from imago_spark.pipelines import application, audit, settings, streaming
from imago_spark.pipelines.late_workers import run_stream
from imago_spark.pipelines.replay import journal, slices
from imago_spark.pipelines.reports import Fence
from imago_spark.pipelines.tables import contract
from imago_spark.pipelines.tables.history import Lake
from imago_spark.pipelines.tables.table import TableWriter
from imago_spark.schema import CHECKED

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pyspark.sql import Column, DataFrame, SparkSession

    from imago_spark.pipelines.replay.slices import Plan, Slice
    from imago_spark.pipelines.settings import IngestSettings
    from imago_spark.pipelines.tables.history import Ranges

log = logging.getLogger(__name__)

ORIGIN: Final = "REPLAY_OF"
"""Property of a message with the place of its original."""
STEPS_LISTED_MAX: Final = 100
"""Steps that a dry run lists; it has the sums of all."""
_PLACE: Final = ("topic", "shard", "queue")


def rows_of(spark: SparkSession, lake: Lake, wanted: Slice, part: Ranges) -> DataFrame | None:
    """Return the rows of these offsets as messages, with `crc_ok`; None: there is no file."""
    files = lake.files(part, rejects=wanted.rejects)
    if not files:
        return None
    rows = audit.present(spark, files, lake.history).where(audit.within(part))
    if (times := _times(wanted, part)) is not None:
        rows = rows.where(times)
    origin = F.format_string("%s/%s/%d/%d", *_PLACE, "offset")
    kept = [name for name in ("key", "tags", "flag") if name in rows.columns]
    return rows.select(
        *_PLACE,
        "offset",
        *kept,
        _body(lake, wanted, rows.columns).alias("value"),
        F.create_map(F.lit(ORIGIN), origin).alias("properties"),
        F.coalesce(CHECKED, F.lit(False)).alias(CHECKED),
    )


def _body(lake: Lake, wanted: Slice, known: Sequence[str]) -> Column:
    if wanted.rejects:
        return F.col("reject_value")
    if not (fields := contract.fields_of(lake.table)):
        return F.col("value")
    names = [(name, name.removeprefix(wanted.prefix)) for name in fields if name in known]
    event = F.struct(*(F.col(name).alias(plain) for name, plain in names))
    return F.to_json(event).cast("binary")


def _times(wanted: Slice, part: Ranges) -> Column | None:
    found: Column | None = None
    at = F.col("store_time")
    for queue in part:
        since, until = wanted.since.of(queue), wanted.until.of(queue)
        for bound in (
            at >= F.timestamp_millis(F.lit(since)) if since is not None else None,
            at < F.timestamp_millis(F.lit(until)) if until is not None else None,
        ):
            if bound is not None:
                one = ~_is_of(queue) | bound
                found = one if found is None else found & one
    return found


def _is_of(queue: MessageQueue) -> Column:
    return (
        (F.col("topic") == queue.topic)
        & (F.col("shard") == queue.shard)
        & (F.col("queue") == queue.queue_id)
    )


def _is_whole() -> Column:
    return F.col(CHECKED) & F.col("value").isNotNull()


def build(spark: SparkSession, lake: Lake, wanted: Slice, part: Ranges) -> DataFrame:
    """Return the messages of a step: one partition, in an order that no other run changes."""
    rows = rows_of(spark, lake, wanted, part)
    if rows is None:
        raise TableError(f"{lake.table.path}: the files of a step are gone")
    whole = rows.where(_is_whole()).coalesce(1).sortWithinPartitions(*_PLACE, "offset")
    return whole.drop("topic", CHECKED)


def plan(spark: SparkSession, lake: Lake, wanted: Slice) -> Plan:
    """Count the rows of a slice, and cut it into steps."""
    ranges = slices.chosen(lake.history, wanted)
    rows = rows_of(spark, lake, wanted, ranges)
    sums = {"rows": 0, "bytes": 0, "left_out": 0}
    found: dict[MessageQueue, tuple[int, int]] = {}
    is_whole = _is_whole()
    for row in [] if rows is None else (
        rows.groupBy(*_PLACE)
        .agg(
            F.count_if(is_whole).alias("rows"),
            F.coalesce(F.sum(F.when(is_whole, F.length("value"))), F.lit(0)).alias("bytes"),
            F.count_if(~is_whole).alias("left_out"),
            F.min("offset").alias("first"),
            F.max("offset").alias("last"),
        )
        .collect()
    ):  # fmt: skip
        found[MessageQueue(row.topic, row.shard, row.queue)] = (row.first, row.last + 1)
        sums = {name: had + row[name] for name, had in sums.items()}
    return slices.planned(wanted, lake.identity, lake.history, ranges, found, **sums)


def listed(spark: SparkSession, lake: Lake, wanted: Slice, made: Plan) -> list[dict[str, Any]]:
    """Return what each of the first steps of a plan sends."""
    rows = rows_of(spark, lake, wanted, made.ranges) if made.steps else None
    if rows is None:
        return []
    step = F.lit(None).cast("long")
    for queue, (low, high) in made.spans.items():
        at = F.expr(f"(offset - {low}) * {made.steps} div {high - low}")
        step = F.when(_is_of(queue), at).otherwise(step)
    counted = (
        rows.where(_is_whole())
        .groupBy(step.alias("step"))
        .agg(F.count(F.lit(1)).alias("rows"), F.sum(F.length("value")).alias("bytes"))
        .orderBy("step")
        .limit(STEPS_LISTED_MAX)
    )
    return [row.asDict() for row in counted.collect()]


def send(spark: SparkSession, lake: Lake, wanted: Slice, made: Plan, step: int) -> None:
    """Write one step to the topic; what of it is there already is not sent once more."""
    frame = build(spark, lake, wanted, made.part(step))
    writer = frame.write.format("imago").options(**wanted.sink)
    writer = writer.option("sinkId", f"{wanted.id}-{made.sink}").option("sinkBatch", str(step))
    writer.option("rowsPerSecond", str(wanted.rows_per_second)).mode("append").save()


def replay(
    spark: SparkSession,
    lake: Lake,
    wanted: Slice,
    kept: journal.Journal,
    may_write: Callable[[], None],
    stopped: Callable[[], bool],
) -> None:
    """Send the steps that are left, until one of the callables says not to."""
    made = kept.plan
    for step in range(kept.done, made.steps):
        if stopped():
            return
        lake.refresh()
        made.check(lake.identity, lake.history, step)
        may_write()
        run_stream(lambda step=step: send(spark, lake, wanted, made, step))  # type: ignore[misc]
        kept.finish(step)
        log.info("step %d of %d is sent", step + 1, made.steps)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as a program."""
    parser = application.parser("replay", __doc__)
    parser.add_argument("--dry-run", action="store_true", help="say what each step would send")
    asked = parser.parse_args(arguments)
    if asked.config is None:
        return application.refused("replay", "--config is missing")
    application.log_lines()
    try:
        given = settings.load(asked.config, asked.epoch, slices.OWN)
        wanted = slices.slice_of(given)
        place = journal.place(given.checkpoint, wanted)
    except (SourceError, UsageError) as error:
        return application.refused("replay", error)
    return application.guarded(lambda: _run(asked, given, wanted, place))


def _run(asked: argparse.Namespace, given: IngestSettings, wanted: Slice, place: Path) -> int:
    stop, fence = streaming.StopSignal(), Fence(given)
    stop.install()
    fence()
    lake, kept = Lake(TableWriter(given.path)), journal.read(place, wanted)
    spark = application.spark("replay", asked)
    try:
        if asked.dry_run:
            return _dry_run(spark, lake, wanted, kept)
        kept = kept or _begun(place, plan(spark, lake, wanted), wanted)
        journal.claim(given.path, wanted, kept)
        kept.write()
        before = kept.done
        replay(spark, lake, wanted, kept, fence, lambda: stop.asked)
    finally:
        spark.stop()
    if kept.done < kept.plan.steps:
        why = f"stopped after step {kept.done} of {kept.plan.steps}: run it again to go on"
        return application.ended(application.EXIT_FAILED, why)
    print(json.dumps(_told(kept.plan) | {"before": before}), flush=True)
    return 0


def _begun(place: Path, made: Plan, wanted: Slice) -> journal.Journal:
    """Return the journal of a new plan. TableError: it has rows that were not to be left out."""
    if made.left_out and not wanted.skips_damaged:
        raise TableError(
            f"{made.left_out} of {made.rows + made.left_out} rows are damaged or have no body;"
            ' set onDamage = "skip" to leave them out'
        )
    return journal.Journal(place, made)


def _told(made: Plan) -> dict[str, Any]:
    sums = {"rows": made.rows, "bytes": made.bytes, "leftOut": made.left_out}
    return sums | {"steps": made.steps}


def _dry_run(spark: SparkSession, lake: Lake, wanted: Slice, kept: journal.Journal | None) -> int:
    made = kept.plan if kept else plan(spark, lake, wanted)
    told = _told(made) | {"before": kept.done if kept else 0}
    print(json.dumps(told | {"list": listed(spark, lake, wanted, made)}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
