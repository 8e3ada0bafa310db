"""What a peer can do wrong, as far as bytes alone can tell."""

from __future__ import annotations


class ProtocolError(Exception):
    """The peer broke the protocol: answer once if possible, then close."""


class LimitExceededError(ProtocolError):
    """A line, frame, body or property list is longer than this side accepts."""

    def __init__(self, what: str, *, size: int, size_max: int) -> None:
        super().__init__(f"{what}: {size} bytes, the limit is {size_max}")
        self.what, self.size, self.size_max = what, size, size_max


class RecordError(ProtocolError):
    """These bytes are not one whole, undamaged commit-log record."""


class ChecksumError(ProtocolError):
    """A checksum that came with the bytes does not match them."""

    def __init__(self, *, expected: int, actual: int) -> None:
        super().__init__(f"checksum {actual}, expected {expected}")
        self.expected, self.actual = expected, actual
