"""Messages as clients see them: pulled records, batch bodies, and records made for a client.

A pulled body is whole commit-log records, one after the other; `imago_wire.record_format.layout`
draws them.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from imago_wire.crc import crc31
from imago_wire.record_format import properties as names
from imago_wire.record_format.layout import (
    AFTER_STORE_HOST,
    BODY_BYTES_MAX,
    HEAD,
    HOST_V6_SIZE,
    MAGIC_V1,
    MAGIC_V2,
    SYS_BORN_V6,
    SYS_COMPRESSED,
    SYS_STORE_V6,
    TOPIC_BYTES_V1_MAX,
)
from imago_wire.records.stored import StoredMessage, decode_record
from imago_wire.remoting.batches import BatchEntry, check_sizes, encode_batch
from imago_wire.remoting.scanning.twins import scan_batch

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "MESSAGES_MAX",
    "BatchEntry",
    "decode_batch",
    "decode_births",
    "decode_messages",
    "encode_batch",
    "encode_births",
    "encode_message",
]

MESSAGES_MAX: Final = 1 << 16
"""How many messages one body may hold."""

_SHORT: Final = Struct(">h")
_LONG: Final = Struct(">q")


def decode_messages(
    body: bytes, *, inflate: bool = True, inflate_bytes_max: int = BODY_BYTES_MAX
) -> list[StoredMessage]:
    """Decode the body of a pull, query or view. ProtocolError: one of the records is damaged.

    Compressed messages are inflated, all of them together to no more than `inflate_bytes_max`.
    """
    messages: list[StoredMessage] = []
    at, room = 0, inflate_bytes_max
    while at < len(body):
        message = decode_record(body, at, inflate=inflate, inflate_bytes_max=room)
        messages.append(message)
        at += message.size
        if inflate and message.sys_flag & SYS_COMPRESSED:
            room -= len(message.body)
    return messages


def encode_message(message: StoredMessage) -> bytes:
    """Return the record of a message for a client, `size` and `body_crc` computed again.

    For what a broker shows to a client without having stored it so: the message of a transaction
    check or of a consumption on demand. The body must be as `sys_flag` says, compressed or not.
    """
    topic = message.topic.encode()
    properties = names.encode(message.properties)
    check_sizes(topic, properties)
    short_topic = len(topic) <= TOPIC_BYTES_V1_MAX
    parts = [
        message.born_host,
        _LONG.pack(message.store_ms),
        message.store_host,
        AFTER_STORE_HOST.pack(message.reconsume_times, message.prepared_offset, len(message.body)),
        message.body,
        bytes([len(topic)]) if short_topic else _SHORT.pack(len(topic)),
        topic,
        _SHORT.pack(len(properties)),
        properties,
    ]
    head = HEAD.pack(
        HEAD.size + sum(map(len, parts)),
        MAGIC_V1 if short_topic else MAGIC_V2,
        crc31(message.body),
        message.queue_id,
        message.flag,
        message.queue_offset,
        message.physical_offset,
        _with_host_bits(message),
        message.born_ms,
    )
    return b"".join((head, *parts))


def _with_host_bits(message: StoredMessage) -> int:
    sys_flag = message.sys_flag & ~(SYS_BORN_V6 | SYS_STORE_V6)
    if len(message.born_host) == HOST_V6_SIZE:
        sys_flag |= SYS_BORN_V6
    if len(message.store_host) == HOST_V6_SIZE:
        sys_flag |= SYS_STORE_V6
    return sys_flag


_BIRTHS: Final = "IMAGO_BORN"


def encode_births(born_ms: Sequence[int]) -> str:
    """Return a batch's property that says when each of its messages was born.

    It is of the request, and not stored: each record has its own time. Empty: all at one time,
    which the request's header says.
    """
    first = born_ms[0]
    if all(each == first for each in born_ms):
        return ""
    return f"{_BIRTHS}\x01{','.join(str(each - first) for each in born_ms)}\x02"


def decode_births(properties: bytes, first_ms: int, count: int) -> list[int] | None:
    """Return when each message of a batch was born; None: all as its header says, or so many
    times are not there."""
    value = names.find(properties, _BIRTHS.encode())
    if value is None:
        return None
    try:
        found = [first_ms + int(part) for part in value.split(b",", count)]
    except ValueError:
        return None
    fits = len(found) == count and all(0 <= each < 1 << 63 for each in found)
    return found if fits else None


def decode_batch(data: bytes, *, entries_max: int = MESSAGES_MAX) -> list[BatchEntry]:
    """Return the messages of a batch request's body. ProtocolError: sizes that do not fit."""
    return [BatchEntry(*entry) for entry in scan_batch(data, entries_max)]
