"""One commit-log record: built, scanned, decoded, and turned into MetaQ's stored form.

The hot part is that of the active twin (:mod:`imago_wire.hot`);
:mod:`imago_wire.record_format.layout` draws the bytes.
"""

from __future__ import annotations

from imago_wire.crc import crc31
from imago_wire.record_format import properties as names
from imago_wire.record_format.entries import (
    ENTRY_BODY,
    ENTRY_BORN_HOST,
    ENTRY_PROPERTIES,
    ENTRY_TAIL,
    PLACED_PHYSICAL_OFFSET,
    PLACED_QUEUE_OFFSET,
    Entry,
    Placed,
)
from imago_wire.record_format.layout import (
    BLANK_SIZE,
    blank_record,
    record_size,
)
from imago_wire.records._index_py import key_hash
from imago_wire.records._scan_py import RecordView, Scan, ScanStop
from imago_wire.records.record_twins import (
    QueueTail,
    RecordBuilder,
    key_entries,
    make_entry,
    metaq_block,
    metaq_entry,
    metaq_form,
    scan_records,
    view_record,
)
from imago_wire.records.stored import (
    StoredMessage,
    decode_record,
    host_bytes,
    host_text,
    offset_message_id,
)

__all__ = [
    "BLANK_SIZE",
    "ENTRY_BODY",
    "ENTRY_BORN_HOST",
    "ENTRY_PROPERTIES",
    "ENTRY_TAIL",
    "PLACED_PHYSICAL_OFFSET",
    "PLACED_QUEUE_OFFSET",
    "Entry",
    "Placed",
    "QueueTail",
    "RecordBuilder",
    "RecordView",
    "Scan",
    "ScanStop",
    "StoredMessage",
    "blank_record",
    "decode_record",
    "host_bytes",
    "host_text",
    "key_entries",
    "key_hash",
    "make_entry",
    "metaq_block",
    "metaq_entry",
    "metaq_form",
    "metaq_shape",
    "offset_message_id",
    "record_size",
    "scan_records",
    "view_record",
]


def metaq_shape(inflated: bytes, properties: bytes) -> tuple[int, int]:
    """Return length and checksum of MetaQ's form of a compressed body, for make_entry().

    ``properties`` are the client's: their TAGS becomes the attribute in front of the body.
    """
    tags = names.find(properties, b"TAGS")
    if tags is not None:
        inflated = len(tags).to_bytes(4, "big") + tags + inflated
    return len(inflated), crc31(inflated)
