"""Seeded changes to bytes: the same seed gives the same inputs again."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

SIZE_MAX: Final = 1 << 14
"""Longer inputs only take time: each decoder's limits are below, or tested on their own."""

INTERESTING_BYTES: Final = b"\x00\x01\x02\x0a\x0d\x20\x22\x2d\x30\x3a\x5c\x7b\x7d\x7f\x80\xc3\xff"
INTERESTING_NUMBERS: Final = (
    b"-1", b"0", b"1", b"127", b"255", b"32767", b"65536", b"2147483647", b"2147483648",
    b"-2147483648", b"4294967295", b"9223372036854775807", b"9223372036854775808",
    b"-9223372036854775809", b"00000000000000000001", b"1e9", b"+5", b"",
)  # fmt: skip
INTERESTING_SIZES: Final = (0, 1, -1, 2, 7, 255, 32767, 65535, 1 << 20, (1 << 31) - 1, -(1 << 31))
_NUMBER: Final = re.compile(rb"-?\d+")


def _flip(rng: random.Random, data: bytearray, _corpus: Sequence[bytes]) -> None:
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _set(rng: random.Random, data: bytearray, _corpus: Sequence[bytes]) -> None:
    data[rng.randrange(len(data))] = rng.choice(INTERESTING_BYTES)


def _set_size(rng: random.Random, data: bytearray, _corpus: Sequence[bytes]) -> None:
    at, width = rng.randrange(len(data)), rng.choice((2, 4, 8))
    size = rng.choice(INTERESTING_SIZES) + rng.choice((0, 0, len(data)))
    data[at : at + width] = (size & (1 << 8 * width) - 1).to_bytes(width, "big")


def _set_number(rng: random.Random, data: bytearray, _corpus: Sequence[bytes]) -> None:
    numbers = list(_NUMBER.finditer(data))
    if numbers:
        start, end = rng.choice(numbers).span()
        data[start:end] = rng.choice(INTERESTING_NUMBERS)


def _insert(rng: random.Random, data: bytearray, _corpus: Sequence[bytes]) -> None:
    at = rng.randrange(len(data) + 1)
    data[at:at] = rng.randbytes(rng.randrange(1, 9))


def _delete(rng: random.Random, data: bytearray, _corpus: Sequence[bytes]) -> None:
    at = rng.randrange(len(data))
    del data[at : at + rng.choice((1, 1, 2, 4, 8, 64))]


def _repeat(rng: random.Random, data: bytearray, _corpus: Sequence[bytes]) -> None:
    at = rng.randrange(len(data))
    piece = data[at : at + rng.choice((1, 4, 16, 256))]
    data[at:at] = piece * rng.choice((1, 2, 8))


def _cut(rng: random.Random, data: bytearray, _corpus: Sequence[bytes]) -> None:
    del data[rng.randrange(len(data)) :]


def _append(rng: random.Random, data: bytearray, corpus: Sequence[bytes]) -> None:
    data += rng.choice(corpus)


def _splice(rng: random.Random, data: bytearray, corpus: Sequence[bytes]) -> None:
    other = rng.choice(corpus)
    if other:
        at = rng.randrange(len(other))
        start = rng.randrange(len(data))
        data[start : start + rng.choice((0, 8, 64))] = other[at : at + rng.choice((4, 16, 128))]


_CHANGES: Final[Sequence[Callable[[random.Random, bytearray, Sequence[bytes]], None]]] = (
    _flip, _set, _set_size, _set_number, _insert, _delete, _repeat, _cut, _append, _splice,
)  # fmt: skip


def mutated(rng: random.Random, corpus: Sequence[bytes]) -> bytes:
    """Return one of the corpus, changed a few times."""
    data = bytearray(rng.choice(corpus))
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3, 5, 8))):
        if not data:
            data += rng.randbytes(rng.randrange(1, 64))
        rng.choice(_CHANGES)(rng, data, corpus)
    return bytes(data[:SIZE_MAX])
