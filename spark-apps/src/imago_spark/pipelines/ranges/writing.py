"""What a task does: read a range of a queue, write its rows as Parquet, say which files those are.

A file's name is its attempt's own. So a task that Spark runs twice leaves files that nobody counts.
"""

from __future__ import annotations

import uuid
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from imago_spark import broker
from imago_spark.columns.decode import decode_batches
from imago_spark.columns.memory import settle
from imago_spark.pipelines.tables.bucket import files_of
from imago_spark.schema import CHECKED, CORE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from imago_spark.offsets import QueueRange
    from imago_spark.options import SourceOptions
    from imago_spark.pipelines.tables.bucket import LakeBucket

ROW_GROUP_BYTES: Final = 32 << 20
"""Of Arrow's buffers: what a writer keeps of a day before it becomes a part of its file."""
NO_DATE: Final = "__HIVE_DEFAULT_PARTITION__"
"""Spark's name for the folder of rows without a value."""
_DAY_US: Final = 86_400_000_000
_OF_FEW_VALUES: Final = [
    "topic",
    "shard",
    "queue",
    "tags",
    "flag",
    "sys_flag",
    "born_time",
    "store_time",
    "born_host",
    "reconsume_times",
]
"""Columns for which a dictionary pays."""


def write_range(
    options: SourceOptions,
    wanted: QueueRange,
    attempt: Path,
    bucket: LakeBucket | None = None,
    *,
    group_bytes: int = ROW_GROUP_BYTES,
) -> list[str]:
    """Write the rows of a range, a file a day; return where, below the attempt's folder."""
    settle()
    files = files_of(bucket)
    days: dict[str, _DayFile] = {}
    name = f"{uuid.uuid4().hex}.parquet"
    try:
        broker.check_incarnation(options, wanted)
        for piece in broker.pieces(options, wanted):
            for batch in decode_batches(
                piece.body, wanted.queue, (*CORE, CHECKED), end_offset=wanted.end
            ):
                for day, rows in _by_day(batch):
                    if day not in days:
                        days[day] = _DayFile(files, attempt / day / name, group_bytes)
                    days[day].add(rows)
        broker.check_incarnation(options, wanted)
    finally:
        for one in days.values():
            one.close()
    return [f"{day}/{name}" for day in days]


def _by_day(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Cut a batch where the day of storing changes, which hardly ever happens."""
    stored = batch.column("store_time")
    days = stored.fill_null(0).cast(pa.int64()).to_numpy() // _DAY_US
    days[stored.is_null().to_numpy(zero_copy_only=False)] = np.iinfo(np.int64).max
    borders = [0, *(np.flatnonzero(np.diff(days)) + 1).tolist(), len(days)]
    for start, end in pairwise(borders):
        yield _folder(int(days[start])), batch.slice(start, end - start)


def _folder(day: int) -> str:
    if day == np.iinfo(np.int64).max:
        return f"date={NO_DATE}"
    return f"date={np.datetime64(day, 'D')}"


class _DayFile:
    """One file in the making; made when it has its first part."""

    def __init__(self, files: fs.FileSystem, path: Path, group_bytes: int) -> None:
        self._files, self._path, self._group_bytes = files, path, group_bytes
        self._writer: Any = None
        self._kept: list[pa.RecordBatch] = []
        self._size = 0

    def add(self, rows: pa.RecordBatch) -> None:
        self._kept.append(rows)
        self._size += rows.nbytes
        if self._size >= self._group_bytes:
            self._write()

    def close(self) -> None:
        if self._kept:
            self._write()
        if self._writer is not None:
            self._writer.close()

    def _write(self) -> None:
        whole = pa.Table.from_batches(self._kept)
        if self._writer is None:
            if isinstance(self._files, fs.LocalFileSystem):  # a bucket has no folders
                self._path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(
                str(self._path),
                whole.schema,
                filesystem=self._files,
                compression="zstd",
                compression_level=1,
                use_dictionary=_OF_FEW_VALUES,
                # As Spark writes them: files of both kinds may be in one table.
                use_deprecated_int96_timestamps=True,
            )
        self._writer.write_table(whole, row_group_size=len(whole))
        self._kept, self._size = [], 0
