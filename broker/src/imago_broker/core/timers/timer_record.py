"""What a broker writes down of timers that it fires, and how it reads that again.

All timers that fire together are one append: first a firing record, which names them, then their
messages in the same order, each marked with where it was parked. Whatever a crash or a cut leaves
of that append is a beginning of it, so that the log itself says which timers have fired: those
whose messages follow the record. Only the last firing record may be followed by too few; the next
one states by how many it was.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from imago_wire.errors import WrongError
from imago_wire.record_format.layout import WAITING_PLACE as _PLACE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_HEAD: Final = struct.Struct(">BqII")
_VERSION: Final = 1


class Firing(NamedTuple):
    """Timers that fire together, by queue and offset."""

    fired: Sequence[tuple[int, int]]
    """Those whose messages follow the record, in their order."""
    dropped: Sequence[tuple[int, int]] = ()
    """Those that have no place any more: nothing follows of them."""
    broken: tuple[int, int] | None = None
    """An earlier record, by its offset, and how many messages follow that one instead of all."""


def firing_body(
    fired: bytes | bytearray,
    dropped: bytes | bytearray = b"",
    broken: tuple[int, int] | None = None,
) -> bytes:
    """Return the body of a firing record: see `Firing`; places are as the record has them."""
    offset, count = broken or (-1, 0)
    return _HEAD.pack(_VERSION, offset, count, len(fired) // _PLACE.size) + fired + dropped


def decode_firing(body: bytes) -> Firing:
    """Read the same. ValueError: it is none."""
    left = len(body) - _HEAD.size
    if left < 0 or left % _PLACE.size:
        raise WrongError(f"{len(body)} bytes are no firing record")
    version, offset, count, fired = _HEAD.unpack_from(body)
    places = list(_PLACE.iter_unpack(body[_HEAD.size :]))
    if version != _VERSION or fired > len(places):
        raise WrongError(f"firing record of version {version} with {fired} of {len(places)} places")
    return Firing(places[:fired], places[fired:], (offset, count) if offset >= 0 else None)


def mark_of(queue_id: int, offset: int) -> bytes:
    """Return the value of a fired message's mark."""
    return b"%d-%d" % (queue_id, offset)


def done_places(records: Iterable[tuple[int, Firing]]) -> list[tuple[int, int]]:
    """Return what firing records, by their offset, say is done: fired or dropped."""
    read = dict(records)
    kept = {offset: len(firing.fired) for offset, firing in read.items()}
    for firing in read.values():
        if firing.broken is not None:
            offset, count = firing.broken
            kept[offset] = count
    done: list[tuple[int, int]] = []
    for offset, firing in read.items():
        done += firing.fired[: kept[offset]]
        done += firing.dropped
    return done
