"""Ends of transactions at the start of a read: the plain Python reference.

The compiled twin is part of `_remoting_c`. Whatever is not as the known clients write it is left
for a closer look.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from imago_wire.errors import ProtocolError
from imago_wire.record_format.entries import ENTRY_PROPERTIES
from imago_wire.record_format.properties import find
from imago_wire.remoting.codes import RequestCode
from imago_wire.remoting.command import SerializeType
from imago_wire.remoting.frame import HEADER_BYTES_MAX, check_frame_size, check_header_size
from imago_wire.remoting.header import decode_raw_header
from imago_wire.remoting.peer import OWN_VERSION
from imago_wire.remoting.scanning._granting_py import signer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_wire.remoting.scanning.granting import Grants
    from imago_wire.remoting.scanning.halves import Half

COMMIT: Final = 8
"""As the request has it; to roll back is 12."""

_OFFSET: Final = re.compile(r"[0-9]{1,18}\Z", re.ASCII)
_FIELDS: Final = (
    "producerGroup", "tranStateTableOffset", "commitLogOffset", "commitOrRollback", "msgId",
)  # fmt: skip
_JSON_DONE: Final = (
    b'{"code":0,"flag":1,"language":"JAVA","opaque":%d,"serializeTypeCurrentRPC":"JSON",'
    b'"version":%d}'
)


_HEAD_SIZE: Final = 19
"""Of a frame that says what its code is; any that ends a transaction has more."""


def may_be_end(data: bytes | bytearray | memoryview, at: int) -> bool:
    """Whether one look at the frame at `at` leaves it open that it ends a transaction."""
    head = bytes(data[at : at + _HEAD_SIZE])
    if len(head) < _HEAD_SIZE:
        return False
    if head[4] == SerializeType.ROCKETMQ:
        return int.from_bytes(head[8:10], "big") == RequestCode.END_TRANSACTION
    return head[8:16] != b'{"code":' or head[16:] == b"37,"


def take_ends(
    data: bytes | bytearray | memoryview,
    at: int,
    limits: tuple[int, int],
    opened: Mapping[int, Half],
    outcomes: tuple[object, object],
    asker: object,
    taken: list[Half],
    grants: Grants | None = None,
) -> int:
    """Take the ends of transactions that stand at `at`, one behind the other.

    `limits` are the bytes of a frame and the count. Each half message that a connection, the
    `asker`, ends gets its outcome, one of `outcomes` (commit, roll back), and is added to `taken`.
    Returns where the first frame begins that is anything else, was asked for by the broker, or
    means one of `opened` that is not known by all it says, or is ended already.
    """
    frame_bytes_max, count_max = limits
    for _ in range(count_max):
        try:
            end = _frame_end(data, at, frame_bytes_max)
            frame = b"" if end is None else bytes(data[at:end])
            asked = _read(frame) if frame else None
            half = None if asked is None else _half_of(asked, frame, opened, grants)
        except ProtocolError:
            break
        if asked is None or half is None:
            break
        half.ending = outcomes[0] if asked.outcome == COMMIT else outcomes[1]
        half.asker, half.opaque, half.form, half.oneway = asker, *asked[:3]
        taken.append(half)
        at += len(frame)
    return at


def _half_of(
    asked: _AskedEnd, frame: bytes, opened: Mapping[int, Half], grants: Grants | None
) -> Half | None:
    half = opened.get(asked.offset)
    if (
        half is None
        or half.physical_offset != asked.place
        or half.unique != asked.unique.encode()
        or half.group != asked.group
        or half.limited
        or half.ending is not None
    ):
        return None
    if grants is not None and not _may_end(asked, frame, half, grants):
        return None
    return half


def _may_end(asked: _AskedEnd, frame: bytes, half: Half, grants: Grants) -> bool:
    """Whether its user may send to the half message's topic, and to the one that it names."""
    own = None if half.entry is None else find(half.entry[ENTRY_PROPERTIES], b"REAL_TOPIC")
    if not own:
        return False
    header_end = check_header_size(frame, 0, HEADER_BYTES_MAX)
    user = signer(frame[4:header_end], frame[header_end:], grants)
    topics = {own.decode("utf-8", "replace"), asked.topic} - {""}
    return user is not None and all(user.publish[topic] for topic in topics)


def _frame_end(data: bytes | bytearray | memoryview, at: int, frame_bytes_max: int) -> int | None:
    if len(data) - at < 8:
        return None
    end = at + 4 + check_frame_size(data, at, frame_bytes_max)
    check_header_size(data, at, HEADER_BYTES_MAX)
    return None if end > len(data) else end


class _AskedEnd(NamedTuple):
    """What the end of a transaction says."""

    opaque: int
    form: int
    oneway: bool
    group: str
    offset: int
    place: int
    outcome: int
    unique: str
    topic: str


def _read(frame: bytes) -> _AskedEnd | None:
    header_end = check_header_size(frame, 0, HEADER_BYTES_MAX)
    command = decode_raw_header(frame[4:header_end], b"")
    if command.code != RequestCode.END_TRANSACTION or command.is_response:
        return None
    values = [command.ext.get(name) for name in _FIELDS]
    checked = command.ext.get("fromTransactionCheck", "false")
    if None in values or checked != "false":
        return None
    group, offset, place, outcome, unique = (value or "" for value in values)
    if not _OFFSET.match(offset) or not _OFFSET.match(place) or outcome not in {"8", "12"}:
        return None
    opaque, form, topic = command.opaque, int(command.serialize), command.ext.get("topic", "")
    numbers = int(offset), int(place), int(outcome)
    return _AskedEnd(opaque, form, command.is_oneway, group, *numbers, unique, topic)


def answer_done(opaque: int, serialize: int) -> bytes:
    """Return the frame that answers a request with nothing but success, in its own form."""
    if serialize:
        return b"\0\0\0\x19\x01\0\0\x15\0\0\0%b%b\0\0\0\x01\0\0\0\0\0\0\0\0" % (
            OWN_VERSION.to_bytes(2, "big"),
            opaque.to_bytes(4, "big", signed=True),
        )
    header = _JSON_DONE % (opaque, OWN_VERSION)
    return b"%b\0\0%b%b" % (
        (len(header) + 4).to_bytes(4, "big"), len(header).to_bytes(2, "big"), header
    )  # fmt: skip
