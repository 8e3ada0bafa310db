"""Whether figures are those of their input: computed once more, from all rows that were counted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from imago_spark.pipelines.aggregate.aggregating import build
from imago_spark.pipelines.aggregate.reading import MICROS, stored, within
from imago_spark.pipelines.aggregate.windows import Aggregation, aggregation
from imago_spark.pipelines.tables import contract
from imago_spark.pipelines.tables.commits import Landed
from imago_spark.pipelines.tables.history import Lake
from imago_spark.pipelines.tables.table import TableWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from imago_spark.pipelines.settings import IngestSettings
    from imago_spark.pipelines.tables.commits import Commit

FLOATING = ("float", "double")
"""Their sums depend on the order of rows."""
SHOWN = 20


def of_table(given: IngestSettings, table: TableWriter, last: Commit) -> Aggregation:
    """Return what a table of figures is of, as it says itself."""
    mark, fields = last.mark, contract.fields_of(table)
    own = {"input": mark["input"], "by": ",".join(mark["by"]), "time": mark["time"]}
    own["window"] = f"{mark['windowSeconds']}s"
    names = [name for name in fields if name not in (*mark["by"], "window_start", "window_end")]
    parts = (name.partition("_") for name in names)
    own["measures"] = ", ".join(f"{one}({of})" if of else one for one, _, of in parts)
    source = contract.fields_of(TableWriter(Path(mark["input"])))
    wanted = replace(given, path=table.path, topics=tuple(mark["topics"]), own=own)
    return aggregation(wanted, source)


def figures_differ(
    spark: SparkSession, given: IngestSettings, figures: Lake
) -> Iterator[tuple[str, str]]:
    """Yield kind and description of what is not as the input says."""
    last = figures.history.last
    files = figures.files()
    if not last.mark or not files:
        return
    how = of_table(given, figures.table, last)
    found = spark.read.parquet(*files)
    for row in (
        found.groupBy("window_start", *how.by).count().where("count > 1").limit(SHOWN).collect()
    ):
        yield "twice", f"figure {_named(row, how)}: is there {row['count']} times"
    if last.mark.get("late"):
        return  # nobody knows any more which rows those were
    source = Lake(TableWriter(how.input))
    if any(commit.expired for commit in source.commits):
        return  # what was counted has gone
    rows = stored(spark, source, how, 0)
    through = last.mark["through"]
    if rows is None or through is None:
        return
    counted = [Landed(queue, 0, end) for queue, end in last.ends.items()]
    rows = rows.where(~F.col("_former") & within(counted, new=True))
    rows = rows.where(F.col("_at") < through * MICROS)
    yield from _compared(build(rows, how, through), found, how)


def _compared(wanted: DataFrame, found: DataFrame, how: Aggregation) -> Iterator[tuple[str, str]]:
    exact = [name for name, kind in how.fields.items() if kind not in FLOATING]
    for rows, less, what in (
        (wanted, found, "the rows of the input give it, the table does not have it so"),
        (found, wanted, "the table has it, the rows of the input do not give it"),
    ):
        left = rows.select(*exact).exceptAll(less.select(*exact))
        for row in left.orderBy("window_start", *how.by).limit(SHOWN).collect():
            yield "figure", f"figure {_named(row, how)}: {what}"


def _named(row: object, how: Aggregation) -> str:
    key = ", ".join(str(getattr(row, name)) for name in how.by)
    return f"{getattr(row, 'window_start').isoformat()} of {key}"  # noqa: B009
