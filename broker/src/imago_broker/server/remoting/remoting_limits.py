"""What one connection of the remoting protocol may cost."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RemotingLimits:
    """What one connection may cost. Bytes and milliseconds."""

    frame_bytes_max: int = 16 << 20
    output_bytes_pause: int = 1 << 20
    """Above this nothing more is read from the peer until it has read its answers."""
    output_bytes_max: int = 32 << 20
    """A peer that lets more than this pile up unread is cut off."""
    idle_ms: int = 120_000
    input_stall_ms: int = 30_000
    """A frame that is not whole after this ends the connection."""
    output_stall_ms: int = 30_000
    """A peer that takes none of its answers for this long is cut off."""
    calls_max: int = 1024
    """Requests of ours to the client that wait for its answer."""
