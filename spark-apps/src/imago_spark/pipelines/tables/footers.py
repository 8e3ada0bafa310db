"""What staged Parquet files contain, read back from the files themselves.

One Spark task writes the rows of one range of one queue, so each file holds rows of one queue.
Parquet keeps the smallest and largest value of each column, which name the range. A commit records
what was written, not what was requested.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from imago_client.message_queue import MessageQueue
from imago_spark.errors import TableError
from imago_spark.pipelines.tables.bucket import files_of
from imago_spark.pipelines.tables.commits import DataFile, Landed, StagedBatch
from imago_spark.schema import CHECKED

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pyarrow import fs

    from imago_spark.pipelines.tables.bucket import LakeBucket


@dataclass(frozen=True, slots=True)
class FileContent:
    """The rows of one file: of one queue, from `start` up to, not including, `end`."""

    queue: MessageQueue
    start: int
    end: int
    rows: int
    damaged: int


def staged(
    attempt: Path,
    query: str,
    batch: int,
    names: Iterable[str] | None = None,
    bucket: LakeBucket | None = None,
) -> StagedBatch:
    """Return the content of an attempt's folder, to commit as a batch of a checkpoint.

    `names`: those of its files that count, where tasks may have left others. `bucket`: where the
    folder is, unless it is one of this machine.
    TableError: rows of a queue are missing, or a file holds rows of several queues.
    """
    files: list[DataFile] = []
    contents: list[FileContent] = []
    paths = attempt.rglob("*.parquet") if names is None else map(attempt.joinpath, names)
    place = files_of(bucket)
    for path in sorted(paths):
        content = content_of(path, place)
        name = path.relative_to(attempt.parent).as_posix()
        size = place.get_file_info(str(path)).size
        files.append(DataFile(name, "", content.rows, size))
        contents.append(content)
    damaged = sum(content.damaged for content in contents)
    return StagedBatch(query, batch, tuple(files), tuple(_whole(contents)), damaged)


def _whole(contents: Iterable[FileContent]) -> Iterable[Landed]:
    by_queue: dict[MessageQueue, list[FileContent]] = {}
    for content in contents:
        by_queue.setdefault(content.queue, []).append(content)
    for queue, parts in sorted(by_queue.items()):
        start, end = min(one.start for one in parts), max(one.end for one in parts)
        rows = sum(one.rows for one in parts)
        if rows != end - start:
            raise TableError(f"{queue}: {rows} rows were written of offsets {start} to {end - 1}")
        yield Landed(queue, start, end)


def content_of(path: Path, files: fs.FileSystem | None = None) -> FileContent:
    """Read the footer of a file. TableError: it holds rows of several queues, or says too little.

    Where a row is damaged, `crc_ok` is read, too.
    """
    import pyarrow.parquet as pq

    with pq.ParquetFile(str(path), filesystem=files) as file:
        bounds = _bounds(file.metadata, ("topic", "shard", "queue", "offset", CHECKED))
        topic, shard, queue = (_one(path, name, bounds) for name in ("topic", "shard", "queue"))
        first, last = bounds["offset"]
        damaged = 0
        if not bounds[CHECKED][0]:
            column = file.read(columns=[CHECKED]).column(0)
            damaged = sum(1 for good in column.to_pylist() if not good)
        rows = file.metadata.num_rows
    return FileContent(MessageQueue(topic, shard, queue), first, last + 1, rows, damaged)


def _bounds(metadata: Any, names: Iterable[str]) -> dict[str, tuple[Any, Any]]:
    """Return the smallest and largest value of columns; TableError: a file lacks them."""
    places = {metadata.schema.column(at).path: at for at in range(metadata.num_columns)}
    found: dict[str, tuple[Any, Any]] = {}
    for name in names:
        groups = [
            metadata.row_group(group).column(places[name]).statistics
            for group in range(metadata.num_row_groups)
        ]
        if not groups or not all(one is not None and one.has_min_max for one in groups):
            raise TableError(f"a staged file has no bounds of column {name!r}")
        found[name] = (min(one.min for one in groups), max(one.max for one in groups))
    return found


def _one(path: Path, name: str, bounds: dict[str, tuple[Any, Any]]) -> Any:
    low, high = bounds[name]
    if low != high:
        raise TableError(f"{path}: holds rows of {name} {low!r} and {high!r}")
    return low
