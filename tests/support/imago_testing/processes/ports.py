"""Free ports for servers that tests start: each process of tests has a range that is its own.

Servers bind their ports later than a test chooses them. Two workers that probe the same range would
both find a port free, and one of their servers would fail. So every process that asks for ports
first leases one range of many: it holds the lock of a file until it ends, however it ends.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

FIRST: Final = 20000
END: Final = 32000
"""Below the ports that the kernel hands out."""
WIDTH: Final = 400
"""Ports of one lease; 30 processes may hold one at the same time."""


class Lease:
    """A range of ports that no other process of tests chooses from while this one lives."""

    def __init__(self, folder: Path) -> None:
        """Lease a range that is free now; `folder` has the locks of all ranges."""
        folder.mkdir(parents=True, exist_ok=True)
        self.first, self._held = _lease(folder)
        self._next = self.first

    def blocks(self, size: int) -> Iterator[int]:
        """Yield the first ports of blocks, once round the range: a port comes back late."""
        end = self.first + WIDTH
        for _ in range(WIDTH // size):
            base = self._next if self._next + size <= end else self.first
            self._next = base + size
            yield base

    def give_back(self) -> None:
        """Let others have the range."""
        self._held.close()


def _lease(folder: Path) -> tuple[int, IO[str]]:
    firsts = list(range(FIRST, END, WIDTH))
    # A range that was in use a moment ago may have connections in TIME_WAIT: begin anywhere.
    random.SystemRandom().shuffle(firsts)
    for first in firsts:
        held = (folder / f"{first}.lock").open("w")
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            held.close()
        else:
            return first, held
    raise RuntimeError(
        f"{len(firsts)} processes hold every range of ports below {folder}: wait until some end"
    )


@cache
def _lease_of(_pid: int) -> Lease:
    return Lease(Path(tempfile.gettempdir()) / f"imago-test-ports-{os.getuid()}")


def free_port_block(size: int) -> int:
    """Return the first of `size` consecutive loopback ports that are free now."""
    # By process: a fork must not choose from the range of its parent.
    lease = _lease_of(os.getpid())
    for base in lease.blocks(size):
        if all(_is_free(base + i) for i in range(size)):
            return base
    raise RuntimeError(f"no block of {size} free ports from {lease.first} to {lease.first + WIDTH}")


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
