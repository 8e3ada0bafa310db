"""Requests that access control refused: counted, and told without filling the log."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from imago_broker.ports import Clock

log = logging.getLogger(__name__)

LOGGED_PEERS_MAX: Final = 1000
LOG_SECONDS: Final = 60


class DenialLog:
    """One line for each peer and minute: a client that is denied must not fill the log."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._said: dict[str, int] = {}
        self.count = 0
        """Requests that were denied."""

    def note(self, address: str, what: str, reason: str) -> None:
        """Count a denial, and tell it if this peer had none in this minute."""
        self.count += 1
        minute = self._clock.monotonic_ms() // (LOG_SECONDS * 1000)
        if self._said.get(address) == minute:
            return
        if len(self._said) >= LOGGED_PEERS_MAX:
            self._said.clear()
        self._said[address] = minute
        log.warning("access_denied peer=%s %s reason=%s", address, what, ascii(reason[:200])[1:-1])
