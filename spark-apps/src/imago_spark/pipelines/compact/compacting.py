"""Merge the small files of a table of ingest or parse into larger ones; let old days go.

    python -m imago_spark.pipelines.compact --config FILE [--epoch N] [--dry-run]

FILE is the configuration of the run that writes the table; that run goes on meanwhile. In its part
`[config]` there may be:

    fileBytes = 134217728     # about how large a file becomes
    filesMin = 4              # fewer small ones are left as they are
    keepDays = 90             # days before the last 90 go; unless given, all stay

Files of one queue and day are read, sorted by offset, written again as one, and compared with what
they were. One commit then names the new files and those that they replace. It belongs to no run:
the one that writes the table takes it in and goes on. Whatever dies, the table has each row once;
readers that list the folder miss the rows of the files that are being replaced from the removal of
these to the move of the new one, or if it dies there until the next run of either application.

`--dry-run` writes nothing. Both print one line of JSON: how many `files` become `into` how many,
how many rows `expired`, and rows of the table.

Exit codes: 0 done, 1 failed, 2 wrong configuration, 5 another run took over.
"""

from __future__ import annotations

import json
import logging
import shutil
import sys
import time
from datetime import UTC, datetime
from functools import reduce
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from pyspark.sql import functions as F  # noqa: N812 - its usual name
from pyspark.sql.types import StructType

from imago_spark.errors import SourceError, TableError
from imago_spark.pipelines import application, parse, settings
from imago_spark.pipelines.compact.upkeep import StoredFile, chunks, groups, is_old, is_present
from imago_spark.pipelines.reports import Fence
from imago_spark.pipelines.settings import count_in
from imago_spark.pipelines.tables import contract
from imago_spark.pipelines.tables.commits import DataFile, Landed, Upkeep
from imago_spark.pipelines.tables.footers import content_of
from imago_spark.pipelines.tables.history import Lake
from imago_spark.pipelines.tables.table import TableWriter

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from imago_spark.pipelines.settings import IngestSettings
    from imago_spark.pipelines.tables.commits import Commit

log = logging.getLogger(__name__)

OWN: Final = ("fileBytes", "filesMin", "keepDays")
FILE_BYTES: Final = 128 << 20
FILES_MIN: Final = 4
FILES_AT_ONCE: Final = 1000
"""That one commit replaces."""
ATTEMPT_SECONDS_MAX: Final = 86_400
"""What is older was left behind by a run that died, and is removed."""
Group = tuple[StoredFile, ...]


def build(spark: SparkSession, table: Path, found: Sequence[Group]) -> DataFrame:
    """Return the rows of groups, each in one partition, by offset, with the group's number."""
    paths = [[str(table / one.file.path) for one in group] for group in found]
    every = [path for group in paths for path in group]
    seen = spark.read.option("mergeSchema", "true").parquet(*every).schema
    schema = StructType([one for one in seen.fields if one.name not in ("date", "rejected")])
    frames = [
        spark.read.schema(schema)
        .parquet(*group)
        .select(*schema.names, F.lit(number).alias("_group"))
        .coalesce(1)
        .sortWithinPartitions("_group", "offset")
        for number, group in enumerate(paths)
    ]
    return reduce(lambda one, other: one.union(other), frames)


class Compaction:
    """One run over a table."""

    def __init__(
        self,
        given: IngestSettings,
        fence: Callable[[], None],
        now: Callable[[], float] = time.time,
    ) -> None:
        self.table = TableWriter(given.path)
        self._folder = given.path / "_imago" / "compacting"
        self._fence, self._now = fence, now
        self._file_bytes = count_in(given.own, "fileBytes", FILE_BYTES) or FILE_BYTES
        self._files_min = count_in(given.own, "filesMin", FILES_MIN) or FILES_MIN
        self._keep_days = count_in(given.own, "keepDays", None)
        self.lake = Lake(self.table)
        if contract.application_of(self.table) == "aggregate":
            raise TableError(f"{given.path}: is a table of aggregate: its rows are of no queue")

    def old(self) -> list[StoredFile]:
        """Return the files of days that are no longer kept."""
        today = datetime.fromtimestamp(self._now(), UTC).date()
        return [
            self.stored(number, file)
            for number, file in self.lake.present()
            if is_old(file.path, today, self._keep_days)
        ]

    def small(self, less: Sequence[StoredFile] = ()) -> list[Group]:
        """Return the groups of small files that become one file each."""
        gone = {one.file.path for one in less}
        files = [
            self.stored(number, file)
            for number, file in self.lake.present()
            if file.bytes < self._file_bytes and file.path not in gone
        ]
        how = {"file_bytes": self._file_bytes, "files_min": max(2, self._files_min)}
        return list(groups(files, self.lake.history, **how))

    def stored(self, number: int, file: DataFile) -> StoredFile:
        """Return a file of the table with what its footer says."""
        return StoredFile(file, number, content_of(self.table.place(file)))

    def expire(self, old: Sequence[StoredFile]) -> int:
        """Take files out of the table; return how many rows they had."""
        if not old:
            return 0
        expired = tuple(
            Landed(one.content.queue, one.content.start, one.content.end)
            for one in old
            if is_present(one, self.lake.history)
        )
        rows = sum(one.file.rows for one in old)
        damaged = sum(one.content.damaged for one in old)
        removed = tuple(one.file.path for one in old)
        self._commit(Upkeep(removed=removed, expired=expired, rows=rows, damaged=damaged))
        return rows

    def merge(self, spark: SparkSession, found: Sequence[Group]) -> None:
        """Write groups as one file each, and have the table take these for those."""
        began = self._now()
        attempt = self._folder / uuid4().hex
        build(spark, self.table.path, found).write.partitionBy("_group").parquet(str(attempt))
        files = [self._merged(attempt, number, group) for number, group in enumerate(found)]
        if self._now() - began > ATTEMPT_SECONDS_MAX:
            raise TableError(f"{attempt}: took more than a day: make fileBytes smaller")
        removed = tuple(one.file.path for group in found for one in group)
        self._commit(Upkeep(removed=removed, files=tuple(files)))
        shutil.rmtree(attempt, ignore_errors=True)

    def _merged(self, attempt: Path, number: int, group: Group) -> DataFile:
        """Return a new file. TableError: it does not have the rows of those that it replaces."""
        paths = list((attempt / f"_group={number}").glob("*.parquet"))
        contents = [content_of(path) for path in paths]
        olds = [one.content for one in group]
        wanted = (
            olds[0].queue,
            min(one.start for one in olds),
            max(one.end for one in olds),
            sum(one.rows for one in olds),
            sum(one.damaged for one in olds),
        )
        found = [(one.queue, one.start, one.end, one.rows, one.damaged) for one in contents]
        if found != [wanted]:
            raise TableError(f"{attempt}: {found}, but the files to replace have {wanted}")
        staged = f"../{paths[0].relative_to(attempt.parent.parent).as_posix()}"
        return DataFile(staged, group[0].folder, wanted[3], paths[0].stat().st_size)

    def _commit(self, done: Upkeep) -> None:
        self._fence()
        self.table.maintain(done)
        self.lake.refresh()

    def clear(self) -> None:
        """Remove what runs have left behind that died."""
        for left in self._folder.iterdir() if self._folder.exists() else ():
            if self._now() - left.stat().st_mtime > ATTEMPT_SECONDS_MAX:
                shutil.rmtree(left) if left.is_dir() else left.unlink()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as a program."""
    parser = application.parser("compact", __doc__)
    parser.add_argument("--dry-run", action="store_true", help="say what would be merged")
    asked = parser.parse_args(arguments)
    if asked.config is None:
        return application.refused("compact", "--config is missing")
    application.log_lines()
    try:
        given = settings.load(asked.config, asked.epoch, (*parse.OWN, *OWN))
        for name, default in (("fileBytes", FILE_BYTES), ("filesMin", 2), ("keepDays", None)):
            count_in(given.own, name, default)
    except SourceError as error:
        return application.refused("compact", error)
    return application.guarded(lambda: _run(asked, given))


def _run(asked: argparse.Namespace, given: IngestSettings) -> int:
    fence = Fence(given)
    fence()
    work = Compaction(given, fence)
    last: Commit | None = work.table.read_last() if asked.dry_run else work.table.join()
    old = work.old()
    found = work.small(old)
    told: dict[str, Any] = {"files": sum(map(len, found)), "into": len(found)}
    if asked.dry_run:
        expired = sum(one.file.rows for one in old)
        print(json.dumps(told | {"expired": expired, "rows": last.rows if last else 0}), flush=True)
        return 0
    work.clear()
    told["expired"] = work.expire(old)
    if found:
        spark = application.spark("compact", asked)
        try:
            for chunk in chunks(found, FILES_AT_ONCE):
                work.merge(spark, chunk)
        finally:
            spark.stop()
    print(json.dumps(told | {"rows": work.table.last.rows}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
