"""What a connection holds of a command whose end has not come, and what is done about too much."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from imago_broker.core.budget import InputBudget

log = logging.getLogger(__name__)

STEP_BYTES = 4096
"""What a connection may hold more than was counted: less than that is not worth a call."""
CROWDED_PART = 8
"""Where connections together hold this part of the budget, what comes next is looked at sooner:
most of it may be of callers who would be refused."""
PATIENCE_SECONDS = 1.0
"""How long a full budget of input waits before connections are ended."""


class InputSession(Protocol):
    """The connection whose input is counted."""

    @property
    def address(self) -> str:
        """The peer's address."""
        ...

    def steer_reading(self) -> None:
        """Read, or do not."""

    def abort(self) -> None:
        """End the connection."""


class Unfinished:
    """The account of one connection; `InputHolder` for the budget."""

    __slots__ = ("_budget", "_session", "counted")

    def __init__(self, budget: InputBudget, session: InputSession) -> None:
        self.counted = 0
        """Bytes that are counted; what the connection holds may differ by some from it."""
        self._budget = budget
        self._session: InputSession | None = session

    def end(self) -> None:
        """Let go of the session, which is gone: together they would stay until a collection."""
        self.left(0)
        self._session = None

    @property
    def waits(self) -> bool:
        """Whether the connection is not to be read: the budget of all connections is used up."""
        return self._budget.waits(self)

    def crowded(self) -> bool:
        """Whether all connections together hold much."""
        return self._budget.held >= self._budget.bytes_max // CROWDED_PART

    def note(self, size: int) -> None:
        """Say how much is held; a little more than before is left to the next sweep."""
        if size - self.counted >= STEP_BYTES:
            self.grown(size)

    def grown(self, size: int) -> None:
        """Say how much is held now of the command that was begun."""
        self.counted = size
        self._budget.count(self, size, again=False)

    def left(self, size: int) -> None:
        """Say how much is held of the next command: the one before was whole, or is given up."""
        if self.counted or size >= STEP_BYTES:
            self.counted = size
            self._budget.count(self, size, again=True)

    def steer(self) -> None:
        """Read, or do not, as `waits` says now."""
        if self._session is not None:
            self._session.steer_reading()

    def drop(self) -> None:
        """End the connection: room is needed for others."""
        self.counted = 0
        if self._session is not None:
            log.info("connection_aborted peer=%s reason=input_full", self._session.address)
            self._session.abort()


class InputGuard:
    """Relieves a budget that stays full for a second."""

    def __init__(self, budget: InputBudget) -> None:
        self._budget = budget
        self._timer: asyncio.TimerHandle | None = None
        budget.watched_by(self)

    def calm(self) -> None:
        """Relieve nothing: there is room again."""
        self.close()

    def close(self) -> None:
        """Wait for nothing more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def full(self) -> None:
        """Relieve the budget in a while, unless it is calm by then."""
        log.warning("input_full held=%d limit=%d", self._budget.held, self._budget.bytes_max)
        self._plan()

    def _plan(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(PATIENCE_SECONDS, self._relieve)

    def _relieve(self) -> None:
        before = self._budget.dropped
        self._plan()  # again, unless relieving it is enough
        self._budget.relieve()
        log.warning(
            "input_relieved dropped=%d held=%d", self._budget.dropped - before, self._budget.held
        )
