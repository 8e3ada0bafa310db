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

from collections import OrderedDict, deque
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

REMEMBERED_MAX = 20_000
"""Ended ones whose outcome is remembered."""


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


@dataclass(slots=True, eq=False)
class Half:
    """One open half message."""

    physical_offset: int = -1
    """Where its record is; -1: not looked up yet."""
    group: str = ""
    """Of its producer; empty: not looked up yet."""
    unique: str = ""
    """The id that its producer gave it."""
    immune_until_ms: int = 0
    """Before this nobody asks its producer."""
    limited: bool = False
    """Its own immunity ends what its producer may say unasked."""
    checks: int = 0
    """How often its producer was asked."""
    ending: Outcome | None = None
    """What is being written down about it."""
    owner: str = ""
    """Who began it, and so whose share it is of; empty: one of a former leader."""


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


class OpenHalves:
    """All that is open on one leader."""

    def __init__(self) -> None:
        self._open: dict[int, Half] = {}
        self._groups: dict[str, int] = {}
        self._owners: dict[str, int] = {}
        self._ended: OrderedDict[int, Outcome] = OrderedDict()
        """In order: of a plain dictionary the first key is far to seek once many are gone."""
        self.counted = 0
        """How many all groups together have open, or on their way into the log."""
        self.known_end = 0
        """Below it, what is not open has ended."""

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[int]:
        return iter(self._open)

    def get(self, offset: int) -> Half | None:
        """Return an open half message, also one that is being ended."""
        return self._open.get(offset)

    def of_group(self, group: str) -> int:
        """Return how many a group of producers has open, or on their way into the log."""
        return self._groups.get(group, 0)

    def of_owner(self, owner: str) -> int:
        """Return how many somebody has begun under this leader that are open."""
        return self._owners.get(owner, 0)

    def count(self, group: str, owner: str, by: int) -> None:
        """Count one that is on its way into the log (1), or one that did not get there (-1)."""
        self.counted += by
        _count(self._groups, group, by)
        if owner:
            _count(self._owners, owner, by)

    def restore(self, offset: int, checks: int) -> None:
        """Take over one of the log, of which nothing else is known yet."""
        self._open[offset] = Half(checks=checks)

    def recognise(self, offset: int, half: Half) -> bool:
        """Note what the record of a restored one says; false where it was known already."""
        known = self._open.get(offset)
        if known is None or known.group:
            return False
        half.checks, half.ending = known.checks, known.ending
        self._open[offset] = half
        self.count(half.group, half.owner, 1)
        return True

    def add(self, offset: int, half: Half) -> bool:
        """Take one that was just appended and is counted; false: it is known from the log."""
        if offset < self.known_end:
            self.count(half.group, half.owner, -1)
            self.recognise(offset, half)
            return False
        self._open[offset] = half
        return True

    def add_new(self, halves: Mapping[int, Half]) -> None:
        """Take some that were just appended and are counted, at or above `known_end`."""
        self._open.update(halves)

    def judge(self, offset: int, outcome: Outcome) -> OutcomeVerdict:
        """Return what the table above says."""
        known = self.outcome_of(offset)
        if known is None:
            return OutcomeVerdict.END if offset in self._open else OutcomeVerdict.UNKNOWN
        return OutcomeVerdict.REPEAT if known is outcome else OutcomeVerdict.CONTRADICTED

    def outcome_of(self, offset: int) -> Outcome | None:
        """Return how a half message ended or is just being ended, while that is remembered."""
        half = self._open.get(offset)
        return self._ended.get(offset) if half is None else half.ending

    def begin(self, offset: int, outcome: Outcome) -> None:
        """Note that an outcome is being written down."""
        self._open[offset].ending = outcome

    def failed(self, offset: int) -> None:
        """Note that it could not be."""
        half = self._open.get(offset)
        if half is not None:
            half.ending = None

    def end(self, offset: int, outcome: Outcome | None) -> Half | None:
        """Note that the log has the outcome; None: the message is lost, nothing can be done."""
        half = self._open.pop(offset, None)
        if half is not None and half.group:
            self.count(half.group, half.owner, -1)
        if outcome is not None:
            self._remember(offset, outcome)
        return half

    def end_all(self, ended: Iterable[tuple[int, Outcome]]) -> None:
        """Note that the log has all these outcomes."""
        opened, remembered = self._open, self._ended
        groups, owners = dict[str, int](), dict[str, int]()
        for offset, outcome in ended:
            half = opened.pop(offset, None)
            if half is not None and (group := half.group):
                groups[group] = groups.get(group, 0) + 1
                if owner := half.owner:
                    owners[owner] = owners.get(owner, 0) + 1
            remembered[offset] = outcome
        while len(remembered) > REMEMBERED_MAX:
            remembered.popitem(last=False)
        for group, count in groups.items():
            self.counted -= count
            _count(self._groups, group, -count)
        for owner, count in owners.items():
            _count(self._owners, owner, -count)

    def _remember(self, offset: int, outcome: Outcome) -> None:
        self._ended[offset] = outcome
        if len(self._ended) > REMEMBERED_MAX:
            self._ended.popitem(last=False)

    def due(self, offset: int, now_ms: int) -> bool:
        """Whether a producer has to be asked about it in a round of now."""
        half = self._open.get(offset)
        return half is not None and half.ending is None and half.immune_until_ms <= now_ms


def _count(counts: dict[str, int], name: str, by: int) -> None:
    """Change a count; one of 0 takes no place."""
    left = counts.get(name, 0) + by
    if left:
        counts[name] = left
    else:
        del counts[name]
