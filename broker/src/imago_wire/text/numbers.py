"""Decimal numbers as Java's parseInt and parseLong read them, restricted to ASCII digits."""

from __future__ import annotations

from imago_wire.errors import ProtocolError


def parse_i32(text: str) -> int:
    """Return the number. ProtocolError: it is none, or beyond 32 bits."""
    return _parse(text, 31)


def parse_i64(text: str) -> int:
    """Return the number. ProtocolError: it is none, or beyond 64 bits."""
    return _parse(text, 63)


def _parse(text: str, bits: int) -> int:
    digits = text[1:] if text.startswith(("-", "+")) else text
    if not digits.isascii() or not digits.isdigit():
        raise ProtocolError(f"{text[:32]!r} is no number")
    value = int(text)
    if not -1 << bits <= value < 1 << bits:
        raise ProtocolError(f"{text[:32]} does not fit into {bits + 1} bits")
    return value
