"""Clocks that a test turns."""

from __future__ import annotations


class ManualClock:
    """`imago_broker.ports.Clock` that stands still until `advance`."""

    def __init__(self, epoch_ms: int = 1_700_000_000_000, monotonic_ms: int = 1_000) -> None:
        self._epoch_ms = epoch_ms
        self._monotonic_ms = monotonic_ms

    def epoch_ms(self) -> int:
        return self._epoch_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def advance(self, ms: int) -> None:
        """Let time pass."""
        self._epoch_ms += ms
        self._monotonic_ms += ms

    def step(self, ms: int) -> None:
        """Set the wall clock forward, or back, while no time passes."""
        self._epoch_ms += ms
