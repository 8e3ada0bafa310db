"""Sequence numbers of idempotent producers, on the wire and in the record.

A producer sends three properties with each message: its id `__IMAGO_PID` (1 to 16 hexadecimal
digits), its epoch `__IMAGO_EPOCH` and the message's number `__IMAGO_SEQ` (decimal, 63 bits), which
counts from 0 in each queue and epoch. The broker stores them as one property of its own,
`__IMAGO_SENT`, with the value ``id.epoch.number``. Consumers see that one; when a client echoes the
properties of what it consumed it is taken for what it is, and not for a claim to be that producer.

With access control an id belongs to a user: what is stored, and counted by, is the id and a tag of
the user's name behind it. So nobody goes on with, or ends, what somebody else's producer began.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import blake2b
from typing import Final, NamedTuple

from imago_wire.errors import ProtocolError
from imago_wire.record_format import properties as names

PREFIX: Final = b"__IMAGO_"
"""All properties whose names begin so are taken off an incoming message."""
SENT: Final = b"__IMAGO_SENT"
TIMER_MARK: Final = b"__IMAGO_TIMER"
"""Property of a message that waited for a time of its own: where it was parked."""
MARK: Final = SENT + names.NAME_END
"""Bytes that no record of a sequenced message lacks."""
NUMBER_MAX: Final = (1 << 63) - 1
ID_SIZE: Final = 16
"""Digits of the id that a producer sends, and as many of the tag of its user."""

_WIRE_NAMES: Final = (names.IMAGO_PRODUCER_ID, names.IMAGO_PRODUCER_EPOCH, names.IMAGO_SEQUENCE)
_WIRE: Final = tuple(name.encode() for name in _WIRE_NAMES)
_PRODUCER: Final = re.compile(rb"[0-9a-fA-F]{1,16}\Z")
_NUMBER: Final = re.compile(rb"[0-9]{1,19}\Z")
_WIRE_END: Final = re.compile(
    rb"__IMAGO_PID\x01([0-9a-f]{16})\x02__IMAGO_EPOCH\x01([0-9]{1,18})\x02"
    rb"__IMAGO_SEQ\x01([0-9]{1,18})\x02?\Z"
)
_STORED: Final = re.compile(rb"([0-9a-f]{16}(?:[0-9a-f]{16})?)\.([0-9]{1,19})\.([0-9]{1,19})\Z")


class Sequence(NamedTuple):
    """Who sent a message, in which of its lives, and which message of the queue it is."""

    producer: str
    """16 lower-case hexadecimal digits; of a user 16 more."""
    epoch: int
    number: int


def producer_text(producer: int) -> str:
    """Return a 64-bit producer id as it is written everywhere."""
    return f"{producer:016x}"


@lru_cache(maxsize=1024)
def user_tag(user: str) -> str:
    """Return what tells a user's producers from others' of the same ids: 16 hexadecimal digits."""
    return blake2b(user.encode("utf-8", "replace"), digest_size=ID_SIZE // 2).hexdigest()


def tag_of(producer: str) -> str:
    """Return the tag in a producer's id; empty: it is of no user."""
    return producer[ID_SIZE:]


def sent_id(producer: str) -> str:
    """Return the id as its producer sends it."""
    return producer[:ID_SIZE]


def wire_properties(sequence: Sequence) -> str:
    """Return the three properties, as a producer sends them."""
    values = (sequence.producer, str(sequence.epoch), str(sequence.number))
    return "".join(
        f"{name}\x01{value}\x02" for name, value in zip(_WIRE_NAMES, values, strict=True)
    )


def wire_numbers(first: Sequence, count: int) -> list[bytes]:
    """Return the same of so many messages, from the first one's number on, encoded."""
    head, end = number_borders(first)
    return [b"%b%d%b" % (head, first.number + index, end) for index in range(count)]


def number_borders(first: Sequence) -> tuple[bytes, bytes]:
    """Return what is before and behind a message's number in them."""
    head, _, end = wire_properties(first).encode().rpartition(b"%d" % first.number)
    return head, end


def read_wire(properties: bytes) -> Sequence | None:
    """Return the sequence that a message claims; None unless all three properties are there.

    ProtocolError: one of them has a value that cannot be.
    """
    found = [names.find(properties, name) for name in _WIRE]
    if None in found:
        return None
    producer, epoch, number = (value or b"" for value in found)
    if not _PRODUCER.match(producer):
        raise ProtocolError(f"{_WIRE_NAMES[0]} {producer[:32]!r}: 1 to 16 hexadecimal digits")
    return Sequence(
        producer_text(int(producer, 16)),
        _number(_WIRE_NAMES[1], epoch),
        _number(_WIRE_NAMES[2], number),
    )


def split_wire(properties: bytes) -> tuple[bytes, Sequence] | None:
    """Return the other properties and the sequence, where it is at the end, as we write it."""
    match = _WIRE_END.search(properties)
    if match is None:
        return None
    return properties[: match.start()], Sequence(match[1].decode(), int(match[2]), int(match[3]))


def _number(name: str, text: bytes) -> int:
    value = int(text) if _NUMBER.match(text) else -1
    if not 0 <= value <= NUMBER_MAX:
        raise ProtocolError(f"{name} {text[:32]!r}: a number of 0 to {NUMBER_MAX}")
    return value


def without(properties: bytes) -> bytes:
    """Return the property string less everything that only these pages give a meaning."""
    if properties.find(PREFIX) < 0:
        return properties
    parts = properties.split(names.VALUE_END)
    return names.VALUE_END.join(part for part in parts if not part.startswith(PREFIX))


def stored_property(sequence: Sequence) -> bytes:
    """Return the property that a record carries."""
    return b"%b%b.%d.%d\x02" % (
        MARK,
        sequence.producer.encode(),
        sequence.epoch,
        sequence.number,
    )


def read_stored(properties: bytes) -> Sequence | None:
    """Return the sequence of a record, or None."""
    match = _STORED.match(names.find(properties, SENT) or b"")
    if match is None:
        return None
    return Sequence(match[1].decode(), int(match[2]), int(match[3]))
