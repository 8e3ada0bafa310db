"""Free port blocks for tests that start real servers."""

from __future__ import annotations

import os
import random
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_FIRST, _END = 20000, 32000
"""Below the ports that the kernel gives away by itself."""
_WORKERS_MAX = 4


class _Range:
    """The ports that belong to this process, gone through once before any comes again."""

    def __init__(self, first: int, end: int) -> None:
        self._first, self._end = first, end
        # Runs that know nothing of each other begin in different places.
        self._next = random.SystemRandom().randrange(first, end)

    def blocks(self, size: int) -> Iterator[int]:
        """The first ports of blocks, once round the range."""
        passed = 0
        while passed < self._end - self._first:
            if self._next + size > self._end:
                passed += self._end - self._next
                self._next = self._first
            base = self._next
            self._next += size
            passed += size
            yield base


def _own_range() -> _Range:
    """Servers bind their ports only later: workers of one run must not be given the same ones."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
    if not worker.isdigit():
        return _Range(_FIRST, _END)
    width = (_END - _FIRST) // _WORKERS_MAX
    first = _FIRST + int(worker) % _WORKERS_MAX * width
    return _Range(first, first + width)


_range = _own_range()


def free_port_block(size: int) -> int:
    """Return the first of `size` consecutive loopback ports that are free now."""
    for base in _range.blocks(size):
        if all(_is_free(base + i) for i in range(size)):
            return base
    raise RuntimeError(f"no block of {size} free ports between {_FIRST} and {_END}")


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
