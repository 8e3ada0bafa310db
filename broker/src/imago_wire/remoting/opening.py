"""What the first bytes of a connection tell: frames, TLS, a proxy's greeting, or a stranger."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final


class Opening(Enum):
    """What speaks at the other end."""

    FRAMES = auto()
    TLS = auto()
    PROXY_V1 = auto()
    PROXY_V2 = auto()
    HTTP2 = auto()


OPENING_BYTES: Final = 12
"""As many bytes as `opening_of` ever needs."""

_MARKS: Final = (
    (b"\x16\x03", Opening.TLS),
    (b"PROXY ", Opening.PROXY_V1),
    (b"\r\n\r\n\x00\r\nQUIT\n", Opening.PROXY_V2),
    (b"PRI * HTTP/2", Opening.HTTP2),
)


def opening_of(data: bytes | bytearray) -> Opening | None:
    """Return what begins so, or None while the bytes may still become something else.

    A frame's first byte is 0 or 1, since no frame is longer than 16 MiB: it is known at once.
    """
    head = bytes(data[:OPENING_BYTES])
    for mark, opening in _MARKS:
        if head.startswith(mark):
            return opening
        if mark.startswith(head):
            return None
    return Opening.FRAMES
