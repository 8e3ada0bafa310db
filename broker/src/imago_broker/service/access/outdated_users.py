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
        self._ask: Callable[[], str] | None = None
        self._current_ms: int | None = None

    def follow(self, ask: Callable[[], str]) -> None:
        """Ask this from now on why the copy may be behind; until it first is not, nobody counts."""
        self._ask = ask
        self.look()

    def look(self) -> None:
        """Ask now: with each change of this member's role, and once a second."""
        if self._ask is None:
            return
        now_ms, behind = self._clock.monotonic_ms(), self._ask()
        if not behind:
            self._current_ms = now_ms
        last_ms = self._current_ms
        counts = last_ms is not None and now_ms - last_ms < CURRENT_MS_MAX
        self._tell("" if counts else f"{behind}; users may have changed elsewhere")

    def _tell(self, why: str) -> None:
        before, self.why = self.why, why
        if bool(before) == bool(why):
            return
        if why and self._current_ms is not None:  # at a start it is no news
            logger.warning("users_outdated reason=%s", why)
        elif not why:
            logger.info("users_current")
        self._changed()
