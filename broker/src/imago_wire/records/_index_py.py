"""Units and keys of records, for views: the plain Python reference of the compiled ``_index_c``.

Reached through :mod:`imago_wire.hot` and :mod:`imago_wire.records.record`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from isal.isal_zlib import crc32

from imago_wire.errors import RecordError
from imago_wire.record_format.layout import (
    KEY_ENTRY,
    POSITION_UNIT,
    SYS_ROLLBACK,
    SYS_TRANSACTION_MASK,
    UNIT,
)
from imago_wire.record_format.properties import find
from imago_wire.record_format.record_fields import read_layout
from imago_wire.records._scan_py import stop_at, view_record

if TYPE_CHECKING:
    from imago_wire.crc import Buffer
    from imago_wire.record_format.entries import QueueTail
    from imago_wire.records._scan_py import RecordView


class Indexed(NamedTuple):
    """What index_records() did."""

    end: int
    """Where the records end whose units are in their queues."""
    stopped_at: int
    """Where the last of them starts when it is of the topic to stop at, else -1."""
    store_ms: int
    """The newest store time, 0 without records."""
    metaq_id: int
    """The highest MetaQ id, -1 without any."""
    reason: str
    """Why the record at ``end`` cannot follow in its queue; empty when all is well."""


FindTail: TypeAlias = Callable[[bytes, int, int, int, int], "QueueTail | None"]
"""Topic, queue id, and of the first record: queue offset, physical offset, MetaQ position. The tail
to which units of this queue go; None: to no queue."""


def index_records(data: Buffer, find_tail: FindTail, stop_topic: bytes) -> Indexed:
    """Append the units of whole records to their queues' tails, as build() did on the leader.

    Ends behind the first record of ``stop_topic``, which may change what the tails are: that is
    why each tail is asked for once only. The records are taken as they are: whole_records() has
    verified them.
    """
    tails: dict[tuple[bytes, int], QueueTail | None] = {}
    at = store_ms = 0
    metaq_id = -1
    while at < len(data):
        try:
            view = view_record(data, at)
        except RecordError as error:
            return Indexed(at, -1, store_ms, metaq_id, str(error))
        if view.has_unit:
            key = view.topic, view.queue_id
            if key not in tails:
                place, position = view.physical_offset, view.metaq_position
                tails[key] = find_tail(*key, view.queue_offset, place, position)
            tail = tails[key]
            if tail is not None:
                reason = _add_unit(tail, view)
                if reason:
                    return Indexed(at, -1, store_ms, metaq_id, reason)
        store_ms, metaq_id = max(store_ms, view.store_ms), max(metaq_id, view.metaq_id)
        at += view.size
        if view.topic == stop_topic:
            return Indexed(at, view.at, store_ms, metaq_id, "")
    return Indexed(at, -1, store_ms, metaq_id, "")


def _add_unit(tail: QueueTail, view: RecordView) -> str:
    """Append the units of one record; return why that cannot be done."""
    if view.queue_offset != tail.next_offset:
        return f"queue offset {view.queue_offset} where {tail.next_offset} follows"
    if tail.dual:
        if view.metaq_position < 0:
            return "no MetaQ position"
        tail.positions += POSITION_UNIT.pack(view.metaq_position, view.metaq_size)
        tail.next_position = view.metaq_position + view.metaq_size
    tail.units += UNIT.pack(view.physical_offset, view.size, view.tag_code)
    tail.next_offset += 1
    return ""


def key_hash(topic: bytes, key: bytes) -> int:
    """Return the 32-bit hash under which the key index holds a message: CRC-32 of topic#key."""
    return crc32(key, crc32(b"#", crc32(topic)))


def key_entries(records: Buffer, physical_offset: int) -> bytes:
    """Return 12-byte entries (u32 key hash, i64 physical offset) of each UNIQ_KEY and KEYS token.

    ``records`` starts at ``physical_offset``; what follows the last whole record is left out. A
    rolled-back half message has no entries.
    """
    entries: list[bytes] = []
    at = 0
    while stop_at(records, at) is None:
        try:
            layout = read_layout(records, at)
        except RecordError:
            break
        if layout.sys_flag & SYS_TRANSACTION_MASK != SYS_ROLLBACK:
            topic = bytes(records[layout.topic_at : layout.topic_at + layout.topic_size])
            properties = bytes(records[layout.properties_at : at + layout.size])
            place = physical_offset + at
            entries += [KEY_ENTRY.pack(key_hash(topic, key), place) for key in _keys(properties)]
        at += layout.size
    return b"".join(entries)


def _keys(properties: bytes) -> list[bytes]:
    keys = [find(properties, b"UNIQ_KEY") or b""]
    keys += (find(properties, b"KEYS") or b"").split(b" ")
    return [key for key in keys if key]
