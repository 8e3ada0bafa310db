"""Keeps what a worker would give back or look through again and again.

By default the C library gives blocks of megabytes back at once, and each new one costs a page fault
every 4 KiB: more than reading, decoding and sending what is in it. And PySpark collects garbage
after each task, which looks at every object of the modules that are loaded: as much again.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
from functools import cache
from typing import Final

_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
"""Of glibc's `mallopt`."""
KEPT_BYTES: Final = 64 << 20
"""A worker keeps no more than this above what it uses."""
_MAPPED_FROM_BYTES: Final = 32 << 20
"""Larger blocks are given back one by one, as glibc wants it at most."""


@cache
def settle() -> None:
    """Do both once in a process, when its modules are loaded."""
    gc.freeze()
    keep_freed_memory()


@cache
def keep_freed_memory() -> None:
    """Ask the C library; others than glibc cannot be asked."""
    with contextlib.suppress(AttributeError, OSError):
        library = ctypes.CDLL(None)
        library.mallopt(_MMAP_THRESHOLD, _MAPPED_FROM_BYTES)
        library.mallopt(_TRIM_THRESHOLD, KEPT_BYTES)
