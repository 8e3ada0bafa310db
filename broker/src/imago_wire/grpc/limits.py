"""What one HTTP/2 connection may cost, before anybody knows whose it is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Http2Limits:
    """Of one connection. Counts without a time are of one second: `tick` begins the next."""

    streams_max: int = 1024
    """Calls that are under way."""
    header_bytes_max: int = 16 << 10
    """Of one call's headers: as they come, and as they are written out."""
    continuations_max: int = 8
    """Frames over which one call's headers may be spread."""
    message_bytes_max: int = 16 << 20
    buffered_bytes_max: int = 32 << 20
    """Of messages that are not whole, on all streams together."""
    window_bytes: int = 4 << 20
    """What a peer may send ahead on the connection."""
    stream_window_bytes: int = 1 << 20
    """What a peer may send ahead on one stream."""
    settings_max: int = 64
    """Of one frame; clients send seven at most."""
    resets_max: int = 500
    """Calls that the peer takes back before their answers."""
    control_frames_max: int = 2_000
    """Settings, pings and empty frames: each costs work and brings nothing."""
