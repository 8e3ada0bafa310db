"""What is known of transactions during one leadership, and what has been counted of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from imago_broker.core.transactions.transactions import Border, OpenHalves, Outcome
from imago_broker.service.puts.put_status import PutStatus
from imago_broker.service.transactions.recent_halves import RecentHalves
from imago_wire.errors import WrongError

if TYPE_CHECKING:
    from imago_wire.hot import Half


class TransactionRefusedError(WrongError):
    """Nothing comes of a half message or of an outcome: the text says why."""


Ended = Callable[[PutStatus | str], None]
"""Told how the writing down of an outcome went; a text says why it was not tried."""


@dataclass(slots=True, eq=False)
class Term:
    """What is known during one leadership."""

    halves: OpenHalves = field(default_factory=OpenHalves)
    half_border: Border = field(default_factory=Border)
    mark_border: Border = field(default_factory=Border)
    ready: bool = False
    """Whether it is known what is open."""
    over: bool = False
    held: list[Callable[[], None]] = field(default_factory=list)
    recent: RecentHalves = field(default_factory=RecentHalves)
    queue: list[Half] = field(default_factory=list)
    """Those of which it is to be written down how they end."""
    turn: int = 0
    """Goes up each time that this is read."""
    scheduled: bool = False
    """Whether the queue is read when the turn ends."""
    ended_end: int = 0
    """Above all half messages that have ended."""
    since_note: int = 0
    generation: int = 0
    noted: tuple[int, int] = (0, 0)


@dataclass(slots=True)
class TransactionCounts:
    """What has happened since the start."""

    opened: int = 0
    committed: int = 0
    rolled_back: int = 0
    given_up: int = 0
    lost: int = 0
    repeated: int = 0
    checks: int = 0
    unasked: int = 0
    """Checks for which no producer of the group was connected."""

    def ended(self, outcome: Outcome, count: int) -> None:
        """Count outcomes that are in the log."""
        if outcome is Outcome.COMMITTED:
            self.committed += count
        elif outcome is Outcome.ROLLED_BACK:
            self.rolled_back += count
        else:
            self.given_up += count
