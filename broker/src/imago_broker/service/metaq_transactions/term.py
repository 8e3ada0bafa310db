"""What is known of MetaQ's transactions during one leadership, and what was counted of them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from imago_broker.core.transactions.metaq_transaction import (
    MetaqTransactionError,
    TransactionProblem,
)
from imago_broker.core.transactions.transactions import Border
from imago_broker.service.log_walk import NotReadableNowError
from imago_broker.service.metaq_transactions.decided import DecidedBatches
from imago_broker.service.puts.put_status import PutStatus

if TYPE_CHECKING:
    import asyncio

    from imago_broker.core.transactions.metaq_transactions import OpenTransactions

logger = logging.getLogger(__name__)

EndTold = Callable[[PutStatus | MetaqTransactionError], None]
"""Told how the writing down went; an error says why it was not tried."""


def lost(why: str) -> MetaqTransactionError:
    """Return the error for messages that cannot be put any more."""
    return MetaqTransactionError(TransactionProblem.LOST, why)


def refusal_of(error: Exception) -> MetaqTransactionError:
    """Return why nothing was written, for who waits for it; what nobody expected is logged."""
    if isinstance(error, MetaqTransactionError):
        return error
    if isinstance(error, NotReadableNowError):
        why = f"the log cannot be read now, try again: {error}"
        return MetaqTransactionError(TransactionProblem.FAILED, why)
    logger.error("metaq_transaction_failed", exc_info=error)
    return MetaqTransactionError(TransactionProblem.FAILED, str(error) or type(error).__name__)


class Unseen:
    """What waits until prepared records can be read: done once, also where a leadership ends.

    No closure that knows itself: requests would stay until the garbage collector comes.
    """

    __slots__ = ("_then", "_waiting")

    def __init__(self, waiting: list[Callable[[], None]], then: Callable[[], None]) -> None:
        self._waiting, self._then = waiting, then
        waiting.append(self)

    def __call__(self) -> None:
        """Do it, unless it was done."""
        if self in self._waiting:
            self._waiting.remove(self)
            self._then()


@dataclass(slots=True, eq=False)
class MetaqTerm:
    """What is known during one leadership."""

    open: OpenTransactions
    prepared_border: Border = field(default_factory=Border)
    outcome_border: Border = field(default_factory=Border)
    ready: bool = False
    """Whether it is known what is prepared."""
    over: bool = False
    held: list[Callable[[], None]] = field(default_factory=list)
    """What waits until it is ready."""
    unseen: list[Callable[[], None]] = field(default_factory=list)
    """What waits until prepared records can be read."""
    expiry: asyncio.TimerHandle | None = None
    since_note: int = 0
    unnoted_from: int | None = None
    """Log offset of the first record since the note."""
    generation: int = 0
    decided: DecidedBatches = field(default_factory=DecidedBatches)
    publishing: set[str] = field(default_factory=set)
    """Sinks for which a mark is being written."""

    def become_ready(self) -> None:
        """Let those go on that waited for it."""
        self.ready = True
        held, self.held = self.held, []
        for each in held:
            each()


@dataclass(slots=True)
class MetaqTransactionCounts:
    """What has happened since the start."""

    begun: int = 0
    prepared: int = 0
    committed: int = 0
    rolled_back: int = 0
    expired: int = 0
    """Rolled back since their time was over."""
    abandoned: int = 0
    """Rolled back since their connections were gone."""
    lost: int = 0
    """Prepared ones of which the log lost messages."""
    published: int = 0
    """Micro-batches of sinks."""
