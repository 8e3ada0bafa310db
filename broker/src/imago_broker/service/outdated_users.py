"""Whether this broker may know users as they no longer are: then it serves nobody who needs one.

A member that does not lead knows what its copy of the log says. Where the copy has fallen behind,
the master may have deleted a user, or taken a right away, that counts here still. For a moment that
is the delay that every copy has; behind it a client is sent elsewhere, as by a broker that is not
ready. The holder of the admin token and other brokers, who are no users, are served.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_broker.ports import Clock

logger = logging.getLogger(__name__)

CURRENT_MS_MAX: Final = 10_000
"""How long users count as they were when this member's copy was last known to be in sync."""


class OutdatedUsers:
    """Compares when the copy was in sync last with the time. A broker that is alone has no copy."""

    def __init__(self, clock: Clock, changed: Callable[[], None]) -> None:
        """`changed` is called when users begin to count, or to count no more."""
        self.why = ""
        """Why nobody's rights are known here now; "": they are."""
        self._clock, self._changed = clock, changed
        self._is_current: Callable[[], bool] | None = None
        self._current_ms: int | None = None

    def follow(self, is_current: Callable[[], bool]) -> None:
        """Ask this from now on whether the copy is in sync; until it first is, nobody is known."""
        self._is_current = is_current
        self.look()

    def look(self) -> None:
        """Ask now: with each change of this member's role, and once a second."""
        if self._is_current is None:
            return
        now_ms = self._clock.monotonic_ms()
        if self._is_current():
            self._current_ms = now_ms
        self._tell(self._reason(now_ms))

    def _reason(self, now_ms: int) -> str:
        if self._current_ms is None:
            return (
                "this broker's copy of the log is not in sync yet: users may have changed"
                " while it was away"
            )
        if now_ms - self._current_ms < CURRENT_MS_MAX:
            return ""
        return "this broker's copy of the log is not in sync any more: users may have changed since"

    def _tell(self, why: str) -> None:
        if why == self.why:
            return
        self.why = why
        if self._current_ms is not None:  # at a start it is no news
            logger.log(
                logging.WARNING if why else logging.INFO,
                "users_%s reason=%s",
                "outdated" if why else "current",
                why or "this broker's copy of the log is in sync",
            )
        self._changed()
