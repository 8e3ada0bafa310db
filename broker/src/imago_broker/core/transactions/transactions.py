"""Open transactions: half messages whose producers have not said yet what becomes of them. Pure.

A half message is open from when it is in the log until a *mark* in the log names it: committed,
rolled back or given up. Here stands what is open, what is just being ended, and for the newest
ended ones how they ended, so that who repeats himself is answered as the first time. All is known
by the offset in the queue of half messages. Times are arguments, in milliseconds of any one clock.

=========================  ==========================  ====================================
known of the half message  its producer says           verdict
=========================  ==========================  ====================================
open                       any outcome                 END: write it down
being ended, or ended      the same outcome            REPEAT: nothing to do but to answer
being ended, or ended      another outcome             CONTRADICTED: the first one counts
anything else              any outcome                 UNKNOWN
=========================  ==========================  ====================================
"""

from __future__ import annotations

from collections import Counter, deque
from enum import Enum
from typing import TYPE_CHECKING

from imago_wire.hot import Half, close_halves

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from imago_wire.remoting.scanning.halves import ClosedHalves

REMEMBERED_MAX = 20_000
"""Ended ones whose outcome is remembered at least; at most twice as many are."""


class Outcome(Enum):
    """How a transaction ended. The values stand in marks."""

    COMMITTED = "c"
    ROLLED_BACK = "r"
    GIVEN_UP = "x"
    """Checked too often: the message was moved to those that a person has to check."""

    @property
    def has_message(self) -> bool:
        """Whether the message is put somewhere, behind its mark."""
        return self is not Outcome.ROLLED_BACK


class OutcomeVerdict(Enum):
    """What to do about an outcome that a producer reports."""

    END = "end"
    REPEAT = "repeat"
    CONTRADICTED = "contradicted"
    UNKNOWN = "unknown"


class Border:
    """Up to which offset of a queue everything that was begun is known.

    Appends get their places in the order in which they are begun, but are reported in any order.
    """

    __slots__ = ("_begun", "offset")

    def __init__(self, offset: int = 0) -> None:
        self.offset = offset
        self._begun: deque[list[int]] = deque()

    def begin(self) -> list[int]:
        """Note an append; hand what this returns to `report`."""
        ticket = [-1]
        self._begun.append(ticket)
        return ticket

    def report(self, ticket: list[int], next_offset: int) -> None:
        """Say where an append ended; 0: it was not made."""
        ticket[0] = next_offset
        begun = self._begun
        while begun and begun[0][0] >= 0:
            self.offset = max(self.offset, begun.popleft()[0])


class ComingHalves:
    """Half messages on their way into the log, which count as open once somebody asks.

    `noted` are entries of an append, each with its producer's group and who began it. It may grow
    meanwhile.
    """

    __slots__ = ("_counted", "_halves", "noted")

    def __init__(self, halves: OpenHalves) -> None:
        self._halves, self._counted = halves, 0
        self.noted: Sequence[tuple[int, str, str]] = ()

    def count(self) -> None:
        """Count those that are not counted yet."""
        noted = self.noted
        if self._counted < len(noted):
            whose = Counter([(group, owner) for _, group, owner in noted[self._counted :]])
            self._counted = len(noted)
            for (group, owner), number in whose.items():
                self._halves.count(group, owner, number)


class OpenHalves:
    """All that is open on one leader."""

    def __init__(self) -> None:
        self.by_offset: dict[int, Half] = {}
        """For the passes over many of them, which change it."""
        self._groups: dict[str, int] = {}
        self._owners: dict[str, int] = {}
        self._coming: list[ComingHalves] = []
        self._counted = 0
        self._ended: dict[int, Outcome] = {}
        self._ended_before: dict[int, Outcome] = {}
        """Those before, all forgotten at once: a dictionary's first key is far to seek once many
        are gone."""
        self.known_end = 0
        """Below it, what is not open has ended."""

    def __len__(self) -> int:
        return len(self.by_offset)

    def __iter__(self) -> Iterator[int]:
        return iter(self.by_offset)

    def get(self, offset: int) -> Half | None:
        """Return an open half message, also one that is being ended."""
        return self.by_offset.get(offset)

    @property
    def counted(self) -> int:
        """How many all groups together have open, or on their way into the log."""
        self._count_coming()
        return self._counted

    def of_group(self, group: str) -> int:
        """Return how many a group of producers has open, or on their way into the log."""
        self._count_coming()
        return self._groups.get(group, 0)

    def of_owner(self, owner: str) -> int:
        """Return how many somebody has begun under this leader that are open, or on their way."""
        self._count_coming()
        return self._owners.get(owner, 0)

    def coming(self) -> ComingHalves:
        """Return what to note half messages in that are on their way: until they have `come`."""
        coming = ComingHalves(self)
        self._coming.append(coming)
        return coming

    def come(self, coming: ComingHalves) -> None:
        """Say that what was on its way is in the log, or will never be; it stays counted."""
        coming.count()
        self._coming.remove(coming)

    def _count_coming(self) -> None:
        for coming in self._coming:
            coming.count()

    def count(self, group: str, owner: str, by: int) -> None:
        """Count some more of a group of producers, begun by somebody, or less."""
        self._counted += by
        _count(self._groups, group, by)
        if owner:
            _count(self._owners, owner, by)

    def restore(self, offset: int, checks: int) -> None:
        """Take over one of the log, unless it came in since: nothing else is known of it yet."""
        if offset not in self.by_offset:
            self.by_offset[offset] = Half(offset, checks=checks)

    def recognise(self, half: Half) -> bool:
        """Note what the record of a restored one says; false where it was known already."""
        known = self.by_offset.get(half.offset)
        if known is None or known.group:
            return False
        known.physical_offset, known.immune_until_ms = half.physical_offset, half.immune_until_ms
        known.group, known.unique, known.limited = half.group, half.unique, half.limited
        known.owner = half.owner
        self.count(half.group, half.owner, 1)
        return True

    def add(self, half: Half) -> bool:
        """Take one that was just appended and is counted; false: it is known from the log."""
        if half.offset < self.known_end:
            self.count(half.group, half.owner, -1)
            self.recognise(half)
            return False
        self.by_offset[half.offset] = half
        return True

    def judge(self, offset: int, outcome: Outcome) -> OutcomeVerdict:
        """Return what the table above says."""
        known = self.outcome_of(offset)
        if known is None:
            return OutcomeVerdict.END if offset in self.by_offset else OutcomeVerdict.UNKNOWN
        return OutcomeVerdict.REPEAT if known is outcome else OutcomeVerdict.CONTRADICTED

    def outcome_of(self, offset: int) -> Outcome | None:
        """Return how a half message ended or is just being ended, while that is remembered."""
        half = self.by_offset.get(offset)
        if half is not None:
            ending: Outcome | None = half.ending
            return ending
        return self._ended.get(offset) or self._ended_before.get(offset)

    def end(self, offset: int, outcome: Outcome | None) -> Half | None:
        """Note that the log has the outcome; None: the message is lost, nothing can be done."""
        half = self.by_offset.pop(offset, None)
        if half is not None and half.group:
            self.count(half.group, half.owner, -1)
        if outcome is not None:
            self._ended[offset] = outcome
            self._forget()
        return half

    def end_all(self, halves: list[Half]) -> ClosedHalves:
        """Note that the log has how all these end."""
        closed = close_halves(halves, self.by_offset, self._ended)
        for group, owner, number in closed.whose:
            self.count(group, owner, -number)
        self._forget()
        return closed

    def _forget(self) -> None:
        if len(self._ended) >= REMEMBERED_MAX:
            self._ended_before, self._ended = self._ended, {}

    def due(self, offset: int, now_ms: int) -> bool:
        """Whether a producer has to be asked about it in a round of now."""
        half = self.by_offset.get(offset)
        return half is not None and half.ending is None and half.immune_until_ms <= now_ms


def _count(counts: dict[str, int], name: str, by: int) -> None:
    """Change a count; one of 0 takes no place."""
    left = counts.get(name, 0) + by
    if left:
        counts[name] = left
    else:
        del counts[name]
