"""The hash of a tag, by which a consume queue is filtered: Java's ``String.hashCode``."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

_BLANKS: Final = "".join(map(chr, range(33)))
"""What Java trims; other blanks of Unicode are part of a tag."""


def named_tags(expression: str) -> frozenset[str]:
    """Return the tags that an expression names between its `||`."""
    return frozenset(tag for part in expression.split("||") if (tag := part.strip(_BLANKS)))


def java_hash(text: str) -> int:
    """Return ``h = 31*h + unit`` over UTF-16 code units, as a signed 32-bit number."""
    value = 0
    if text.isascii():
        for unit in text.encode("ascii"):
            value = (31 * value + unit) & 0xFFFF_FFFF
    else:
        data = text.encode("utf-16-be", "surrogatepass")
        for high, low in zip(data[::2], data[1::2], strict=True):
            value = (31 * value + (high << 8 | low)) & 0xFFFF_FFFF
    return value - (1 << 32) if value >> 31 else value


def tag_code(tags: bytes | None) -> int:
    """Return the code in a consume-queue unit for the value of TAGS; 0 for none."""
    return java_hash(tags.decode("utf-8", "replace")) if tags else 0


cached_tag_code = lru_cache(maxsize=4096)(tag_code)
"""tag_code() for the hot path: few different tags are in use at a time."""
