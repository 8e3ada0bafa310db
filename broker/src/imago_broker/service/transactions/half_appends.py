"""Half messages that go into the log by one append, and are open from when they are there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.core.transactions import Half
from imago_broker.service.transactions.transaction_log import unique_of
from imago_wire.record import ENTRY_PROPERTIES, PLACED_PHYSICAL_OFFSET, PLACED_QUEUE_OFFSET
from imago_wire.remoting.items import ASKED_UNIQUE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_broker.service.transactions.term import Term
    from imago_wire.record import Entry, Placed
    from imago_wire.remoting.items import AskedSend


class HalfRun:
    """Some of an append's entries: half messages, in their order."""

    __slots__ = ("_halves", "_term", "_ticket", "immunity_ms", "limited")

    def __init__(self, term: Term, immunity_ms: int, *, limited: bool) -> None:
        """`immunity_ms`: how long nobody is asked about them; `limited`: they say so themselves."""
        self._term = term
        self._ticket = term.half_border.begin()
        self._halves: list[tuple[int, str, str]] = []
        self.immunity_ms, self.limited = immunity_ms, limited

    def note(self, taken: Sequence[tuple[int, str]], owner: str) -> None:
        """Count those that were added to what `taken` had, by entry, with the producer's group.

        `owner` is who began them.
        """
        for index, group in taken[len(self._halves) :]:
            self._halves.append((index, group, owner))
            self._term.halves.count(group, owner, 1)

    def part(self, index: int) -> HalfRun | None:
        """Return a run of one entry, once this one has failed; None: it is no half message."""
        for at, group, owner in self._halves:
            if at == index:
                alone = HalfRun(self._term, self.immunity_ms, limited=self.limited)
                alone.note([(0, group)], owner)
                return alone
        return None

    def failed(self) -> None:
        """Say that they did not get into the log."""
        self._term.half_border.report(self._ticket, 0)
        for _, group, owner in self._halves:
            self._term.halves.count(group, owner, -1)

    def arrived(
        self,
        entries: Sequence[Entry],
        placed: Sequence[Placed],
        now_ms: int,
        asked: Sequence[AskedSend] = (),
    ) -> int:
        """Say where the append's entries are; return how many transactions are open by that."""
        halves, until_ms, limited = self._term.halves, now_ms + self.immunity_ms, self.limited
        opened, kept, known_end, end = dict[int, Half](), [], halves.known_end, 0
        for index, group, owner in self._halves:
            place, entry = placed[index], entries[index]
            if asked:
                unique = asked[index][ASKED_UNIQUE].decode()
            else:
                unique = unique_of(entry[ENTRY_PROPERTIES])
            offset = place[PLACED_QUEUE_OFFSET]
            half = Half(
                place[PLACED_PHYSICAL_OFFSET], group, unique, until_ms, limited, owner=owner
            )
            if offset >= known_end:
                opened[offset] = half
                kept.append((entry, place))
            else:
                halves.add(offset, half)
            end = offset + 1
        halves.add_new(opened)
        self._term.recent.add_all(kept)
        self._term.half_border.report(self._ticket, end)
        return len(self._halves)
