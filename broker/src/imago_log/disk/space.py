"""Views that find no room, or no file descriptor: they wait.

The store refuses messages meanwhile. Everything that a view holds can be made again, so neither is
a reason to stop. Only the log itself must not fail, and its files are reserved before they are
written.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

from imago_log.errors import NO_ROOM, DiskFullError, NoSpaceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from imago_log.disk.vfs import Vfs

logger = logging.getLogger(__name__)

PROBE_BYTES = 1 << 20


class Space:
    """Whether the views of one store have room."""

    def __init__(self, vfs: Vfs, probe: Path) -> None:
        self._vfs, self._probe = vfs, probe
        self.short = False
        """A write found no room; set in any thread."""

    @contextlib.contextmanager
    def awaited(self) -> Iterator[None]:
        """Put off the work done within when the disk has no room."""
        try:
            yield
        except NoSpaceError as error:
            if not self.short:
                logger.warning("disk.no-space error=%s: messages are refused meanwhile", error)
            self.short = True

    @contextlib.contextmanager
    def log_awaited(self) -> Iterator[None]:
        """The same for records of the log that do not even fit the reserve."""
        try:
            yield
        except DiskFullError as error:
            if not self.short:
                logger.warning("disk.no-space-in-log error=%s: nothing is freed meanwhile", error)
            self.short = True

    def awaiting(self, job: Callable[[], None]) -> Callable[[], None]:
        """Return a job that ends quietly, undone, when the disk has no room."""

        def run() -> None:
            with self.awaited():
                job()

        return run

    def hope(self) -> None:
        """Assume that there is room until a write finds none."""
        self.short = False

    def look(self) -> None:
        """See whether there is room again."""
        if self.short and self._has(PROBE_BYTES) is None:
            self.short = False
            logger.warning("disk.space-again")

    def require(self, size: int) -> None:
        """Raise DiskFullError unless there is room for so many bytes, and for small files."""
        error = self._has(size + PROBE_BYTES)
        if error is not None and error.errno in NO_ROOM:
            used_ratio = self._vfs.disk_usage(self._probe.parent).ratio
            raise DiskFullError(used_ratio=used_ratio, limit_ratio=1.0) from error

    def _has(self, size: int) -> OSError | None:
        """Return why so many bytes cannot be had; None: they can."""
        try:
            fd = self._vfs.open(self._probe, create=True)
            try:
                self._vfs.allocate(fd, size)
            finally:
                self._vfs.close(fd)
                self._vfs.unlink(self._probe)
        except OSError as error:
            return error
        return None
