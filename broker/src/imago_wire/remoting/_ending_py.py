"""Ends of transactions at the start of a read: the plain Python reference.

The compiled twin is part of `_remoting_c`. Whatever is not as the known clients write it is left
for a closer look.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from imago_wire.errors import ProtocolError
from imago_wire.remoting.codes import RequestCode
from imago_wire.remoting.command import SerializeType
from imago_wire.remoting.frame import HEADER_BYTES_MAX, check_frame_size, check_header_size
from imago_wire.remoting.header import decode_raw_header
from imago_wire.remoting.peer import OWN_VERSION

if TYPE_CHECKING:
    from imago_wire.remoting.items import AskedEnd

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
    frame_bytes_max: int,
    count_max: int,
    ends: list[AskedEnd],
) -> None:
    """Add what the ends of transactions say that stand at `at`, one behind the other.

    Ends at the first frame that is anything else, says neither commit nor roll back, or was asked
    for by the broker.
    """
    for _ in range(count_max):
        try:
            end = _frame_end(data, at, frame_bytes_max)
            found = None if end is None else _read(bytes(data[at:end]), end)
        except ProtocolError:
            return
        if found is None:
            return
        ends.append(found)
        at = found[-1]


def _frame_end(data: bytes | bytearray | memoryview, at: int, frame_bytes_max: int) -> int | None:
    if len(data) - at < 8:
        return None
    end = at + 4 + check_frame_size(data, at, frame_bytes_max)
    check_header_size(data, at, HEADER_BYTES_MAX)
    return None if end > len(data) else end


def _read(frame: bytes, end: int) -> AskedEnd | None:
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
    opaque, form = command.opaque, int(command.serialize)
    return (
        opaque, form, command.is_oneway, group, int(offset), int(place), int(outcome), unique,
        command.ext.get("topic", ""), end,
    )  # fmt: skip


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
