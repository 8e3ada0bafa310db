"""Which files of a table become one, and which go: from commits and footers alone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from imago_spark.pipelines.tables.commits import DataFile
    from imago_spark.pipelines.tables.footers import FileContent
    from imago_spark.pipelines.tables.history import History


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file that the table has, and what its footer says of it."""

    file: DataFile
    number: int
    """Of the commit that added it."""
    content: FileContent

    @property
    def folder(self) -> str:
        return self.file.path.rpartition("/")[0]


def is_present(one: StoredFile, history: History) -> bool:
    """Whether its rows are those of the topic that has its name now."""
    queue = one.content.queue
    return one.number >= history.since.get((queue.topic, queue.shard), 0)


def groups(
    files: Iterable[StoredFile], history: History, *, file_bytes: int, files_min: int
) -> Iterator[tuple[StoredFile, ...]]:
    """Yield what becomes one file each: of one queue and day, neighbours, not too large together.

    Files of a topic that was deleted and made anew since stay as they are: by their commit's number
    its rows are told from those of the present one.
    """
    small = [one for one in files if one.file.bytes < file_bytes and is_present(one, history)]
    small.sort(key=lambda one: (one.folder, one.content.queue, one.content.start))
    for _, same in groupby(small, key=lambda one: (one.folder, one.content.queue)):
        group: list[StoredFile] = []
        for one in same:
            if group and sum(had.file.bytes for had in group) + one.file.bytes > file_bytes:
                if len(group) >= files_min:
                    yield tuple(group)
                group = []
            group.append(one)
        if len(group) >= files_min:
            yield tuple(group)


def is_old(path: str, today: date, keep_days: int | None) -> bool:
    """Whether a file is of a day that is no longer kept."""
    if keep_days is None:
        return False
    day = next((part[5:] for part in path.split("/") if part.startswith("date=")), "")
    try:
        return date.fromisoformat(day) < today - timedelta(days=keep_days)
    except ValueError:
        return False  # rows without a time are kept


def chunks(
    found: Sequence[tuple[StoredFile, ...]], files_max: int
) -> Iterator[list[tuple[StoredFile, ...]]]:
    """Yield groups that are merged by one commit."""
    chunk: list[tuple[StoredFile, ...]] = []
    for group in found:
        if chunk and sum(map(len, chunk)) + len(group) > files_max:
            yield chunk
            chunk = []
        chunk.append(group)
    if chunk:
        yield chunk
