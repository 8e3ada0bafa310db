"""What all commits of a table say together: which offsets of which topics it has."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from imago_spark.errors import TableError
from imago_spark.pipelines.tables.table import REJECTS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import Column

    from imago_client.message_queue import MessageQueue
    from imago_spark.pipelines.tables.commits import Commit, DataFile
    from imago_spark.pipelines.tables.table import TableWriter

MOVE_LOOKS: Final = 20
MOVE_PAUSE_S: Final = 0.05
"""How long readers let a run move the files of its last commit, which it may have died over."""
Range = tuple[int, int]
Ranges = dict["MessageQueue", list[Range]]


@dataclass(slots=True)
class History:
    """What commits say of a table's present topics."""

    last: Commit
    ranges: dict[MessageQueue, list[Range]] = field(default_factory=dict)
    """The offsets that the table has of each queue, joined, in order."""
    expired: dict[MessageQueue, list[Range]] = field(default_factory=dict)
    """Those that it had, and has not any more."""
    since: dict[tuple[str, str], int] = field(default_factory=dict)
    """The commit from which on a topic's rows are those of the present one."""

    def add(self, commit: Commit) -> None:
        """Take in the next commit."""
        for place in {(one.queue.topic, one.queue.shard) for one in commit.landed}:
            before, now = self.last.incarnations.get(place), commit.incarnations.get(place)
            if before is not None and now is not None and not before.is_same(now):
                self.since[place] = commit.number
                for queue in [one for one in self.ranges if (one.topic, one.shard) == place]:
                    del self.ranges[queue]
                    self.expired.pop(queue, None)
        for one in commit.landed:
            had = self.ranges.setdefault(one.queue, [])
            if had and had[-1][1] == one.start:
                had[-1] = (had[-1][0], one.end)
            else:
                had.append((one.start, one.end))
        for one in commit.expired:
            self.ranges[one.queue] = without(self.ranges[one.queue], (one.start, one.end))
            self.expired.setdefault(one.queue, []).append((one.start, one.end))
        self.last = commit

    def had(self, queue: MessageQueue) -> list[Range]:
        """Return the offsets that the table has, or had, of a queue, joined."""
        found: list[Range] = []
        for start, end in sorted([*self.ranges[queue], *self.expired.get(queue, ())]):
            if found and found[-1][1] >= start:
                found[-1] = (found[-1][0], max(end, found[-1][1]))
            else:
                found.append((start, end))
        return found

    def gaps(self, queue: MessageQueue) -> list[Range]:
        """Return what lies between the ranges of a queue, expired ones among them."""
        had = self.had(queue)
        return [(one[1], other[0]) for one, other in pairwise(had)]


def commits_of(table: TableWriter) -> list[Commit]:
    """Return all commits, the first one first. TableError: there is none."""
    last = table.read_last()
    if last is None:
        raise TableError(f"{table.path}: is no table: it has no commit")
    return [table.read(number) for number in range(last.number + 1)]


def present_files(commits: Sequence[Commit]) -> list[tuple[int, DataFile]]:
    """Return the files that were not taken away since, each with the number of its commit."""
    gone = {path for commit in commits for path in commit.removed}
    return [
        (commit.number, file)
        for commit in commits
        for file in commit.files
        if file.path not in gone
    ]


def history_of(commits: list[Commit]) -> History:
    """Return what they say together."""
    found = History(commits[0])
    for commit in commits:
        found.add(commit)
    return found


def number_of(history: History) -> Column:
    """Return the number of the commit that a row's file is of: of the last one, if not moved."""
    named = F.split_part(F.col("_metadata.file_name"), F.lit("-"), F.lit(1)).try_cast("long")
    return F.coalesce(named, F.lit(history.last.number))


def without(parts: Sequence[Range], gone: Range) -> list[Range]:
    """Return what is left of ranges."""
    return sorted([*clipped(parts, 0, gone[0]), *clipped(parts, gone[1], None)])


def clipped(parts: Sequence[Range], low: int, high: int | None) -> list[Range]:
    """Return what of ranges lies from `low` up to, not including, `high`."""
    ends = [(max(low, start), end if high is None else min(high, end)) for start, end in parts]
    return [one for one in ends if one[0] < one[1]]


class Lake:
    """A table, as its commits say that it is, for those who read it."""

    def __init__(self, table: TableWriter, pause: Callable[[float], None] = time.sleep) -> None:
        self.table, self._pause = table, pause
        self.commits = commits_of(table)
        self.history = history_of(self.commits)

    def refresh(self) -> None:
        """Take in the commits that others have made meanwhile. TableError: it is another table."""
        if self.table.identity != self.identity:
            raise TableError(
                f"{self.table.path}: was removed and made anew meanwhile; start this run again"
            )
        last = self.table.read_last()
        for number in range(self.commits[-1].number + 1, last.number + 1 if last else 0):
            self.commits.append(self.table.read(number))
            self.history.add(self.commits[-1])

    @property
    def identity(self) -> str:
        """Which table these commits are of, whatever stands at its path now."""
        return self.commits[0].run

    def files(
        self, part: Ranges | None = None, *, since: int = 0, rejects: bool = False
    ) -> list[str]:
        """Return the files of commits from `since` on that may have rows of these offsets."""
        wanted = {
            commit.number
            for commit in self.commits[since:]
            if part is None
            or commit.removed  # what it has of which queue, its files say
            or any(clipped(part.get(one.queue, ()), one.start, one.end) for one in commit.landed)
        }
        last = self.commits[-1].number  # only its files may be on their way
        found = [
            (file, number == last)
            for number, file in self.present()
            if number in wanted and file.path.startswith(f"{REJECTS}/") == rejects
        ]
        self._let_move([file for file, is_last in found if is_last])
        return [self._where(file) if is_last else self._path(file) for file, is_last in found]

    def _path(self, file: DataFile) -> str:
        return str(self.table.path / file.path)

    def _where(self, file: DataFile) -> str:
        """Return where a file is, also if who committed it has died before he moved it."""
        place = Path(os.path.normpath(self.table.place(file)))
        return str(place) if place.exists() else self._path(file)

    def _let_move(self, files: Sequence[DataFile]) -> None:
        for _ in range(MOVE_LOOKS):
            if all((self.table.path / file.path).exists() for file in files):
                return
            self._pause(MOVE_PAUSE_S)

    def present(self) -> list[tuple[int, DataFile]]:
        """Return the files that the table has, each with the number of its commit."""
        return present_files(self.commits)
