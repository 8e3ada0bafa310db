"""MetaQ's stored form of messages, on disk and inside ``value``, and its message ids.

A message is a 20-byte header (body length, checksum, id, flag) and the body as it was put. Flag
bit 0 says that the body starts with an attribute: its length as 4 bytes, then UTF-8 text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from imago_wire.crc import Buffer, crc31
from imago_wire.errors import ChecksumError, LimitExceededError, ProtocolError
from imago_wire.record_format.layout import METAQ_EPOCH_MS, METAQ_HEADER, METAQ_HEADER_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator

FLAG_ATTRIBUTE: Final = 1
ORIGINAL_EPOCH_MS: Final = 1303895660503
"""The origin of the time in the ids of original MetaQ brokers."""
CLIENT_BODY_BYTES_MAX: Final = 2097152
"""Longer bodies are invalid to original clients (their ``max_read_buffer_size``)."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a fetched block."""

    at: int
    """Where its header starts in the block."""
    size: int
    """With its header."""
    id: int
    flag: int
    body: bytes
    """As put, attribute included."""
    attribute: str | None
    payload: bytes


def encode_message(message_id: int, flag: int, body: bytes) -> bytes:
    """Return the stored form."""
    return METAQ_HEADER.pack(len(body), crc31(body), message_id, flag) + body


def encode_body(payload: bytes, attribute: str | None) -> tuple[int, bytes]:
    """Return flag and body of a put. An empty attribute is one; None is none."""
    if attribute is None:
        return 0, payload
    text = attribute.encode()
    return FLAG_ATTRIBUTE, len(text).to_bytes(4, "big") + text + payload


def split_body(flag: int, body: bytes) -> tuple[str | None, bytes]:
    """Return attribute and payload. ProtocolError: the flag promises an attribute in vain."""
    if not flag & FLAG_ATTRIBUTE:
        return None, body
    size = int.from_bytes(body[:4], "big", signed=True)
    if len(body) < 4 or not 0 <= size <= len(body) - 4:
        raise ProtocolError(f"attribute of {size} bytes in a body of {len(body)}")
    return body[4 : 4 + size].decode("utf-8", "replace"), body[4 + size :]


def parse_block(data: Buffer, *, body_bytes_max: int = CLIENT_BODY_BYTES_MAX) -> Iterator[Message]:
    """Yield the whole messages of a block; a cut one at the end is left for the next fetch.

    ChecksumError, LimitExceededError, ProtocolError: the message there is invalid. The messages
    before it have been yielded.
    """
    at = 0
    while len(data) - at >= METAQ_HEADER_SIZE:
        length, checksum, message_id, flag = METAQ_HEADER.unpack_from(data, at)
        if length < 0:
            raise ProtocolError(f"message body of {length} bytes")
        if length > body_bytes_max:
            raise LimitExceededError("message body", size=length, size_max=body_bytes_max)
        start = at + METAQ_HEADER_SIZE
        if len(data) < start + length:
            return
        body = bytes(data[start : start + length])
        if crc31(body) != checksum:
            raise ChecksumError(expected=checksum, actual=crc31(body))
        attribute, payload = split_body(flag, body)
        size = METAQ_HEADER_SIZE + length
        yield Message(at, size, message_id, flag, body, attribute, payload)
        at += size


class MessageId(NamedTuple):
    """The parts of a 64-bit message id."""

    timestamp_ms: int
    broker_id: int
    sequence: int

    @classmethod
    def of(cls, value: int, *, epoch_ms: int = METAQ_EPOCH_MS) -> MessageId:
        """Take an id apart. Original brokers have another epoch, and since 1.4.5 no clock."""
        return cls((value >> 22) + epoch_ms, value >> 12 & 0x3FF, value & 0xFFF)

    def value(self, *, epoch_ms: int = METAQ_EPOCH_MS) -> int:
        """Return the id."""
        return (self.timestamp_ms - epoch_ms) << 22 | self.broker_id << 12 | self.sequence
