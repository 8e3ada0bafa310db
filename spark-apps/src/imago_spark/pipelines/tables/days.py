"""Folders of figures, one a day: what a run has of a day takes the place of what was there.

`PATH/date=2026-11-21/*.parquet`. Nothing is added to: a run that dies and comes again leaves each
figure once. Only between two renames a day may be missing.
"""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from imago_spark.errors import OptionError
from imago_spark.pipelines.tables import contract
from imago_spark.pipelines.tables.history import Lake
from imago_spark.pipelines.tables.table import TableWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession

DAYS: Final = 2
"""Today and the day before: what came last belongs to one of them."""


def input_of(own: Mapping[str, object], path: Path) -> Path:
    """Return the table that is read. OptionError: it is none, or the folder that is written."""
    text = own.get("input")
    if not isinstance(text, str) or not text.startswith("/"):
        raise OptionError(f"config.input: {text!r}, must be the folder of a table, like /lake/x")
    if Path(text) == path:
        raise OptionError("config.input: is path, too: figures need a folder of their own")
    return Path(text)


def since_of(days: int, now: datetime) -> str:
    """Return the first of so many days, of which today is the last, in UTC."""
    first = max(datetime(1970, 1, 1, tzinfo=UTC), now - timedelta(days=days - 1))
    return first.date().isoformat()


def messages(spark: SparkSession, options: Mapping[str, str]) -> DataFrame | None:
    """Return the rows of a table of ingest, of `topics` and from the day `since` on; None: no file.

    OptionError: it is a table of something else.
    """
    table = TableWriter(Path(options["input"]))
    if (kind := contract.application_of(table)) != contract.INGEST:
        raise OptionError(f"config.input: {options['input']} is of {kind}, must be one of ingest")
    files = Lake(table).files()
    if not files:
        return None
    rows = spark.read.option("mergeSchema", "true").parquet(*files)
    topics = options["topics"].split(",")
    is_new = F.col("store_time") >= F.lit(options["since"]).cast("timestamp")
    return rows.where(F.col("topic").isin(*topics) & is_new)


def write(frame: DataFrame, path: Path, may_write: Callable[[], None]) -> int:
    """Put the days of a frame into their places; return how many rows they have."""
    import pyarrow.parquet as pq

    draft = path / "_imago" / uuid4().hex
    frame.write.partitionBy("date").parquet(str(draft / "new"))
    rows: int = sum(pq.read_metadata(one).num_rows for one in draft.rglob("*.parquet"))
    may_write()
    (draft / "old").mkdir()
    for day in sorted((draft / "new").glob("date=*")):
        place = path / day.name
        if place.exists():
            place.rename(draft / "old" / day.name)
        day.rename(place)
    shutil.rmtree(draft)
    return rows
