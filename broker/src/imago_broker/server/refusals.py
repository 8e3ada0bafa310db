"""Callers that were turned away: counted, and told in one line a second."""

from __future__ import annotations

import logging

logger = logging.getLogger(__name__)


class Refusals:
    """Those of one port. `say` is called once a second."""

    def __init__(self, event: str = "connection_refused") -> None:
        """`event` is what the line is called."""
        self.count = 0
        self._event = event
        self._unsaid = 0
        self._quiet = False
        """Whether a line was written since the last `say`."""
        self._last = ""

    def note(self, reason: str, *, port: int, peer: str, held: int) -> None:
        """Count a caller; answer the first one of a second at once."""
        self.count += 1
        self._unsaid += 1
        self._last = f"port={port} peer={peer} held={held} reason={reason}"
        if not self._quiet:
            self._write()

    def say(self) -> None:
        """Tell of those since the last line, if there are any."""
        self._quiet = False
        if self._unsaid:
            self._write()

    def _write(self) -> None:
        logger.warning("%s count=%d %s", self._event, self._unsaid, self._last)
        self._unsaid = 0
        self._quiet = True
