"""Files of the log that brokers of tests take from the disk: small ones, since many run at once."""

from __future__ import annotations

from typing import Final

SEGMENT_BYTES: Final = 16 << 20
"""As shipped it is 256 MiB a broker, and as much again for the file that comes next."""
SMALL_SEGMENTS: Final = ("--set", f"store.segment_bytes_max={SEGMENT_BYTES}")
"""Options of `imago up`; the same setting behind them counts more."""
