"""Messages of other MetaQ masters as entries of our log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_wire.crc import crc31
from imago_wire.errors import ProtocolError
from imago_wire.hot import metaq_entry

if TYPE_CHECKING:
    from imago_wire.records.record import Entry, QueueTail


def copied_entry(
    tail: QueueTail,
    body: bytes,
    flag: int,
    checksum: int,
    born_ms: int,
    born_host: bytes,
    message_id: int,
) -> Entry:
    """Return the entry of a master's message. ChecksumError: the checksum is not the body's.

    An attribute that no property can hold stays in the body: positions must not move.
    """
    try:
        return metaq_entry(tail, body, flag, checksum, born_ms, born_host, message_id)
    except ProtocolError:
        if not message_id or (checksum != -1 and crc31(body) != checksum):
            raise
        return metaq_entry(tail, body, flag & ~1, checksum, born_ms, born_host, message_id)
