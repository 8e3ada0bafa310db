"""What all commits of a table say together: which offsets of which topics it has."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from imago_spark.errors import TableError

if TYPE_CHECKING:
    from imago_client.message_queue import MessageQueue
    from imago_spark.pipelines.table import Commit, TableWriter

Range = tuple[int, int]


@dataclass(slots=True)
class History:
    """What commits say of a table's present topics."""

    last: Commit
    ranges: dict[MessageQueue, list[Range]] = field(default_factory=dict)
    """The offsets that the table has of each queue, joined, in order."""
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
        for one in commit.landed:
            had = self.ranges.setdefault(one.queue, [])
            if had and had[-1][1] == one.start:
                had[-1] = (had[-1][0], one.end)
            else:
                had.append((one.start, one.end))
        self.last = commit

    def gaps(self, queue: MessageQueue) -> list[Range]:
        """Return what lies between the ranges of a queue."""
        had = self.ranges[queue]
        return [(one[1], other[0]) for one, other in pairwise(had)]


def commits_of(table: TableWriter) -> list[Commit]:
    """Return all commits, the first one first. TableError: there is none."""
    last = table.read_last()
    if last is None:
        raise TableError(f"{table.path}: is no table: it has no commit")
    return [table.read(number) for number in range(last.number + 1)]


def history_of(commits: list[Commit]) -> History:
    """Return what they say together."""
    found = History(commits[0])
    for commit in commits:
        found.add(commit)
    return found
