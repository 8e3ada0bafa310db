"""Progress of long work on standard error, where a person watches."""

from __future__ import annotations

import sys
import time

_EVERY_S = 0.5


class Pace:
    """Counts, and tells now and then how fast it goes."""

    def __init__(self, what: str, total: int | None = None) -> None:
        self._what, self._total = what, total
        self._began = self._told = time.monotonic()
        self._is_watched = sys.stderr.isatty()
        self._ended: float | None = None
        self.count = 0
        self.size = 0

    def add(self, count: int, size: int) -> None:
        """Note `count` more messages of `size` bytes together."""
        self.count += count
        self.size += size
        now = time.monotonic()
        if self._is_watched and now - self._told >= _EVERY_S:
            self._told = now
            of = f" of {self._total:,}" if self._total is not None else ""
            sys.stderr.write(f"\r{self._what} {self.count:,}{of}, {self.rate:,.0f}/s \033[K")
            sys.stderr.flush()

    def end(self) -> None:
        """Stop the clock and clear the line."""
        self._ended = time.monotonic()
        if self._is_watched:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()

    @property
    def seconds(self) -> float:
        """From the beginning until the end, or until now."""
        return (self._ended or time.monotonic()) - self._began

    @property
    def rate(self) -> float:
        """Messages a second."""
        return self.count / max(1e-9, self.seconds)
