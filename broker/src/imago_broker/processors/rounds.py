"""What all connections put in one loop turn at one level: appended, and answered, in one go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_broker.core.puts.acknowledgement import Acknowledgement
    from imago_wire.records.record import Entry

PeerT = TypeVar("PeerT")
AskedT = TypeVar("AskedT")


class Round(Generic[PeerT, AskedT]):
    """Entries, and beside each of them what its answer needs.

    `runs` says whose they are: (connection, index of its first put, index after its last). A round
    may grow for as long as its entries are the newest of the turn, so that no put overtakes one
    that its connection made before.
    """

    __slots__ = ("asked", "born_ms", "entries", "level", "runs")

    def __init__(self, level: Acknowledgement, born_ms: int = 0) -> None:
        """`born_ms` is that of messages which do not say when they were made."""
        self.level = level
        self.born_ms = born_ms
        self.entries: list[Entry] = []
        self.asked: list[AskedT] = []
        self.runs: list[tuple[PeerT, int, int]] = []

    def one_by_one(self) -> Iterator[Round[PeerT, AskedT]]:
        """Return the same as rounds of one message each."""
        for peer, first, end in self.runs:
            for index in range(first, end):
                alone: Round[PeerT, AskedT] = Round(self.level, self.born_ms)
                alone.entries.append(self.entries[index])
                alone.asked.append(self.asked[index])
                alone.runs.append((peer, 0, 1))
                yield alone
