"""When expired files go: by the store's schedule, or by that of their topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imago_broker.config.cron import Cron, CronError

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import tzinfo

OPEN_MS: Final = 10 * 60_000
"""How long after a time that a schedule names files go: a few at each look, all in the end."""

SCHEDULES_MAX: Final = 10_000
"""Expressions that are remembered."""


class _Schedule:
    """One expression. Between two looks any time may pass."""

    def __init__(self, cron: Cron, now_ms: int, zone: tzinfo | None) -> None:
        self._cron, self._zone = cron, zone
        self._next_ms = cron.next_after(now_ms, zone)
        self._open_until_ms = 0

    def due(self, now_ms: int) -> bool:
        if self._next_ms is not None and now_ms >= self._next_ms:
            self._open_until_ms = now_ms + OPEN_MS
            self._next_ms = self._cron.next_after(now_ms, self._zone)
        return now_ms < self._open_until_ms


class DeletionTimes:
    """All schedules in use, each made when it is first asked for."""

    def __init__(self, now: Callable[[], int], store: str, *, zone: tzinfo | None = None) -> None:
        """`store`: the schedule of whatever has none of its own; "": always."""
        self._now, self._store, self._zone = now, store, zone
        self._schedules: dict[str, _Schedule | None] = {}

    def due(self, expression: str | None) -> bool:
        """Return whether expired files go now; None: those of the store."""
        text = self._store if expression is None else expression
        if not text:
            return True
        now_ms = self._now()
        if text not in self._schedules:
            if len(self._schedules) >= SCHEDULES_MAX:
                self._schedules.clear()  # those still in use are made again
            self._schedules[text] = self._made(text, now_ms)
        schedule = self._schedules[text]
        return schedule is None or schedule.due(now_ms)

    def _made(self, text: str, now_ms: int) -> _Schedule | None:
        try:
            return _Schedule(Cron.parse(text), now_ms, self._zone)
        except CronError:
            return None  # whoever set it was told; here files must not pile up for ever
