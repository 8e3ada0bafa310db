"""What all commits of a table say together: which offsets of which topics it has."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from imago_spark.errors import TableError
from imago_spark.pipelines.tables.table import REJECTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_client.message_queue import MessageQueue
    from imago_spark.pipelines.tables.commits import Commit, DataFile
    from imago_spark.pipelines.tables.table import TableWriter

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


def without(parts: Sequence[Range], gone: Range) -> list[Range]:
    """Return what is left of ranges."""
    return sorted([*clipped(parts, 0, gone[0]), *clipped(parts, gone[1], None)])


def clipped(parts: Sequence[Range], low: int, high: int | None) -> list[Range]:
    """Return what of ranges lies from `low` up to, not including, `high`."""
    ends = [(max(low, start), end if high is None else min(high, end)) for start, end in parts]
    return [one for one in ends if one[0] < one[1]]


class Lake:
    """A table, as its commits say that it is, for those who read it."""

    def __init__(self, table: TableWriter) -> None:
        self.table = table
        self.commits = commits_of(table)
        self.history = history_of(self.commits)

    def refresh(self) -> None:
        """Take in the commits that others have made meanwhile."""
        last = self.table.read_last()
        for number in range(self.commits[-1].number + 1, last.number + 1 if last else 0):
            self.commits.append(self.table.read(number))
            self.history.add(self.commits[-1])

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
        return [
            str(self.table.path / file.path)
            for number, file in self.present()
            if number in wanted and file.path.startswith(f"{REJECTS}/") == rejects
        ]

    def present(self) -> list[tuple[int, DataFile]]:
        """Return the files that the table has, each with the number of its commit."""
        return present_files(self.commits)
