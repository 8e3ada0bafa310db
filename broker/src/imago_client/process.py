"""What a client takes from the process it runs in: its address, its clocks, its randomness."""

from __future__ import annotations

import os
import random
import socket
import time
from typing import TYPE_CHECKING

from imago_client.core.state import ClientState

if TYPE_CHECKING:
    from imago_client.config import ClientConfig


def own_address() -> str:
    """Return this machine's IPv4 address as others may see it, for ids; sends no packet."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        address: str = probe.getsockname()[0]
        return address


def new_state(config: ClientConfig) -> ClientState:
    """Return the state of a new client of this process."""
    return ClientState(
        config,
        host=own_address(),
        process_id=os.getpid,
        rng=random.Random(os.urandom(16)),  # noqa: S311 - spreads load, keeps no secret
        clock_s=time.monotonic,
        clock_ms=lambda: time.time_ns() // 1_000_000,
    )
