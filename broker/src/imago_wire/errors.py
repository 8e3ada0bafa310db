"""What a peer can do wrong, as far as bytes alone can tell."""

from __future__ import annotations

from typing import Final

_PYTHONS: Final = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError)


class ToldError(Exception):
    """Says in our words what is wrong with a value: whoever sent it may read that."""


class WrongError(ToldError, ValueError):
    """A value is not one that belongs there."""


class WrongKindError(ToldError, TypeError):
    """A value is not of the kind that belongs there."""


def in_our_words(error: BaseException, otherwise: str = "a value cannot be read") -> str:
    """Return what an error says if the words are ours; else `otherwise`.

    Whose value it was that could not be read is not to read what Python, or a library, says of it:
    ``invalid literal for int() with base 10``. Ours say it by their kind, whichever code raised
    them: what is below `ToldError`, and what is none of the kinds that Python raises itself.
    """
    is_ours = isinstance(error, ToldError) or not isinstance(error, _PYTHONS)
    return (str(error) if is_ours else "") or otherwise


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
