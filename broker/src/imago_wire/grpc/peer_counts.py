"""What one peer has done so far, against its limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_wire.grpc.frames import H2Error
from imago_wire.grpc.header_blocks import BrokenError

if TYPE_CHECKING:
    from imago_wire.grpc.limits import Http2Limits


class PeerCounts:
    """Of one connection. BrokenError: too much."""

    def __init__(self, limits: Http2Limits) -> None:
        self._limits = limits
        self._received = self._controls = self._resets = 0

    def tick(self) -> None:
        """Begin the next second."""
        self._controls = self._resets = 0

    def control(self, count: int = 1) -> None:
        """Count frames that cost work and bring nothing."""
        self._controls += count
        if self._controls > self._limits.control_frames_max:
            raise BrokenError(H2Error.ENHANCE_YOUR_CALM, "too many frames that ask for nothing")

    def reset(self) -> None:
        """Count a call that was taken back, or that there is no room for."""
        self._resets += 1
        if self._resets > self._limits.resets_max:
            raise BrokenError(H2Error.ENHANCE_YOUR_CALM, "too many calls were taken back")

    def receive(self, size: int) -> int:
        """Count data; return how much room the peer is given back."""
        self._received += size
        if self._received > self._limits.window_bytes:
            raise BrokenError(H2Error.FLOW_CONTROL_ERROR, "more than the window")
        if self._received * 2 < self._limits.window_bytes:
            return 0
        room, self._received = self._received, 0
        return room
