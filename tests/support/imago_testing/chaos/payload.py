"""Message bodies that say who sent them, and whether they came back unchanged."""

from __future__ import annotations

import zlib
from hashlib import blake2b
from struct import Struct
from typing import TYPE_CHECKING

from imago_testing.chaos.history import Key

if TYPE_CHECKING:
    import random

_HEAD = Struct(">4sIIII")
_KEY = Struct(">II")
_MAGIC = b"CHAO"
_LARGE_SHARE = 0.01
_SMALL_BYTES_MAX = 1500
_LARGE_BYTES_MAX = 60_000


def encode(key: Key, rng: random.Random, *, filler_bytes: int | None = None) -> bytes:
    """Return a body for the message: mostly some hundred bytes, now and then many thousand."""
    if filler_bytes is None:
        large = rng.random() < _LARGE_SHARE
        filler_bytes = rng.randrange(_LARGE_BYTES_MAX if large else _SMALL_BYTES_MAX)
    filler = rng.randbytes(filler_bytes)
    return _HEAD.pack(_MAGIC, key.producer, key.number, len(filler), _sum(key, filler)) + filler


def content(attribute: str | None, body: bytes) -> int:
    """Return a digest of a message: attribute (tags) and body."""
    head = b"-" if attribute is None else b"+" + attribute.encode() + b"\n"
    return int.from_bytes(blake2b(head + body, digest_size=8).digest(), "big")


def decode(body: bytes) -> Key | None:
    """Return whose message it is; None when anything in it is not as it was sent."""
    if len(body) < _HEAD.size:
        return None
    magic, producer, number, size, checksum = _HEAD.unpack_from(body)
    filler = body[_HEAD.size :]
    key = Key(producer, number)
    if magic != _MAGIC or len(filler) != size or _sum(key, filler) != checksum:
        return None
    return key


def _sum(key: Key, filler: bytes) -> int:
    return zlib.crc32(filler, zlib.crc32(_KEY.pack(key.producer, key.number)))
