"""What a peer has not taken of its answers: counted in a budget of all connections, and timed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from imago_broker.core.budget import OutputBudget


class WriteBacklog:
    """The account of one connection."""

    __slots__ = ("_budget", "_counted", "_since")

    def __init__(self, budget: OutputBudget) -> None:
        self._budget = budget
        self._counted = 0
        self._since: tuple[int, int] | None = None
        """Bytes that wait, and since when no fewer."""

    def count(self, size: int) -> None:
        """Say how many bytes wait now."""
        self._budget.release(self._counted)
        self._budget.hold(size)
        self._counted = size
        if not size:
            self._since = None

    def stalled_ms(self, waiting: int, now_ms: int) -> int:
        """Return how long the peer has taken nothing of what waits for it; slow is not stalled."""
        if not waiting:
            self._since = None
            return 0
        if self._since is None or waiting != self._since[0]:
            self._since = (waiting, now_ms)
        return now_ms - self._since[1]
