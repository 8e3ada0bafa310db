"""Half messages that go into the log by one append, and are open from when they are there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.service.transactions.transaction_log import unique_of
from imago_wire.hot import Half, open_halves
from imago_wire.records.record import ENTRY_PROPERTIES, PLACED_PHYSICAL_OFFSET, PLACED_QUEUE_OFFSET

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_broker.service.transactions.term import Term
    from imago_wire.records.record import Entry, Placed
    from imago_wire.remoting.scanning.items import AskedSend


class HalfRun:
    """Some of an append's entries: half messages, in their order."""

    __slots__ = ("_coming", "_term", "_ticket", "immunity_ms", "limited")

    def __init__(self, term: Term, immunity_ms: int, *, limited: bool) -> None:
        """`immunity_ms`: how long nobody is asked about them; `limited`: they say so themselves."""
        self._term = term
        self._ticket = term.half_border.begin()
        self._coming = term.halves.coming()
        self.immunity_ms, self.limited = immunity_ms, limited

    def note(self, taken: Sequence[tuple[int, str, str]]) -> None:
        """Note all there are: which entry, its producer's group, who began it. It may grow."""
        self._coming.noted = taken

    def part(self, index: int) -> HalfRun | None:
        """Return a run of one entry, once this one has failed; None: it is no half message."""
        for at, group, owner in self._coming.noted:
            if at == index:
                alone = HalfRun(self._term, self.immunity_ms, limited=self.limited)
                alone.note([(0, group, owner)])
                return alone
        return None

    def failed(self) -> None:
        """Say that they did not get into the log."""
        halves = self._term.halves
        self._term.half_border.report(self._ticket, 0)
        halves.come(self._coming)
        for _, group, owner in self._coming.noted:
            halves.count(group, owner, -1)

    def arrived(
        self,
        entries: list[Entry],
        placed: list[Placed],
        now_ms: int,
        asked: list[AskedSend] | None = None,
    ) -> int:
        """Say where the append's entries are; return how many transactions are open by that."""
        term, noted = self._term, self._coming.noted
        halves, until_ms = term.halves, now_ms + self.immunity_ms
        halves.come(self._coming)
        if not noted:
            term.half_border.report(self._ticket, 0)
            return 0
        first, last = (placed[noted[at][0]][PLACED_QUEUE_OFFSET] for at in (0, -1))
        if asked and first >= halves.known_end:
            kept: list[Half] = []
            size = open_halves(
                noted, entries, placed, asked, until_ms, self.limited, halves.by_offset, kept
            )
            term.recent.add_all(kept, size)
        else:
            for index, group, owner in noted:
                self._open(entries[index], placed[index], group, owner, until_ms)
        term.half_border.report(self._ticket, last + 1)
        return len(noted)

    def _open(self, entry: Entry, place: Placed, group: str, owner: str, until_ms: int) -> None:
        unique = unique_of(entry[ENTRY_PROPERTIES]).encode()
        offset, physical_offset = place[PLACED_QUEUE_OFFSET], place[PLACED_PHYSICAL_OFFSET]
        half = Half(offset, physical_offset, group, unique, until_ms, self.limited)
        half.owner = owner
        if self._term.halves.add(half):
            self._term.recent.add(half, entry)
