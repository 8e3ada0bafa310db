"""Free port blocks for tests that start real servers."""

from __future__ import annotations

import os
import random
import socket


def free_port_block(size: int) -> int:
    """Return the first of `size` consecutive loopback ports that are free now.

    The start is drawn from the process id, so that test processes running at the same time
    look in different places.
    """
    rng = random.Random(os.getpid() ^ int.from_bytes(os.urandom(4), "big"))
    for _ in range(200):
        base = rng.randrange(20000, 32000 - size)
        if all(_is_free(base + i) for i in range(size)):
            return base
    raise RuntimeError(f"no block of {size} free ports between 20000 and 32000")


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
