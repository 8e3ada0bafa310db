"""A stored message taken apart so that it can be put again: given back, delayed, dead.

Properties stay the bytes that the client sent. Decoding and encoding them again would lose what a
client may well have put there (a value with 0x01 in it), and with it the message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from imago_broker.model.names import META_TOPIC, WITHHELD_TOPICS
from imago_wire.record_format import properties as props
from imago_wire.record_format.record_fields import read_layout, read_reserved
from imago_wire.record_format.sequences import SENT, TIMER_MARK
from imago_wire.records.record import offset_message_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_log.store import MessageStore

VALUE_END = b"\x02"
_NOT_COPIED = frozenset({*props.RESERVED_NAMES, SENT, TIMER_MARK})
"""Made again for the copy; or true of the original alone, as a producer's number is."""

COPIES_AT_ONCE: Final = 32
COPIES_LOOKED_MAX: Final = 1024
"""Of messages that have one id."""


class StoredCopy(NamedTuple):
    """What is kept of a message when it is put again. Times are epoch milliseconds."""

    size: int
    """Of the record, in bytes."""
    topic: str
    body: bytes
    properties: bytes
    """The client's, without those that the record builder makes again."""
    flag: int
    sys_flag: int
    born_ms: int
    born_host: bytes
    reconsume_times: int
    store_ms: int
    store_host: bytes
    queue_offset: int
    physical_offset: int
    unit_tag: int | None
    """What the unit holds in place of the tag's hash; of a delayed message when it is due."""

    @property
    def offset_message_id(self) -> str:
        """The id that says where the message is stored."""
        return offset_message_id(self.store_host, self.physical_offset)

    def text(self, name: bytes) -> str:
        """Return one property as text; empty when there is none."""
        return (props.find(self.properties, name) or b"").decode("utf-8", "replace")


def read_copy(data: bytes, at: int = 0) -> StoredCopy:
    """Take the record at `at` apart. RecordError: no whole record is there."""
    fields = read_layout(data, at)
    properties_end = fields.properties_at + fields.properties_size
    born_host_at = fields.store_host_at - 8 - fields.born_host_size
    topic = data[fields.topic_at : fields.topic_at + fields.topic_size]
    return StoredCopy(
        size=fields.size,
        topic=topic.decode("utf-8", "replace"),
        body=data[fields.body_at : fields.body_at + fields.body_size],
        properties=props.without(data[fields.properties_at : properties_end], _NOT_COPIED),
        flag=fields.flag,
        sys_flag=fields.sys_flag,
        born_ms=fields.born_ms,
        born_host=data[born_host_at : fields.store_host_at - 8],
        reconsume_times=fields.reconsume_times,
        store_ms=fields.store_ms,
        store_host=data[fields.store_host_at : fields.body_at - 16],
        queue_offset=fields.queue_offset,
        physical_offset=fields.physical_offset,
        unit_tag=read_reserved(data, fields.properties_at, properties_end).unit_tag,
    )


def joined(properties: bytes, more: bytes) -> bytes:
    """Return two property strings as one; 4.9 clients leave out the last separator."""
    if properties and not properties.endswith(VALUE_END):
        return properties + VALUE_END + more
    return properties + more


def is_metadata(record: bytes) -> bool:
    """Whether a whole record is the broker's own, which is shown to nobody: users are in there."""
    fields = read_layout(record, 0)
    end = fields.topic_at + fields.topic_size
    return record[fields.topic_at : end] == META_TOPIC.encode()


def is_withheld(record: bytes) -> bool:
    """Whether a whole record is none that a consumer may be given: others' that waits, or ours."""
    fields = read_layout(record, 0)
    end = fields.topic_at + fields.topic_size
    return record[fields.topic_at : end].decode("utf-8", "replace") in WITHHELD_TOPICS


def with_default(properties: bytes, name: str, value: str) -> bytes:
    """Return the properties with one more, unless it is there already."""
    if props.find(properties, name.encode()) is not None:
        return properties
    return joined(properties, f"{name}\x01{value}\x02".encode())


def with_value(properties: bytes, name: str, value: str) -> bytes:
    """Return the properties with one set."""
    kept = props.without(properties, (name.encode(),))
    return joined(kept, f"{name}\x01{value}\x02".encode())


class TooManyCopiesError(Exception):
    """More messages have one id than are looked at."""


def named_copies(store: MessageStore, topic: str, unique: str, end_ms: int) -> Iterator[StoredCopy]:
    """Yield what `named_records` does, without the records."""
    return (copy for _, copy in named_records(store, topic, unique, end_ms))


def named_records(
    store: MessageStore, topic: str, unique: str, end_ms: int
) -> Iterator[tuple[bytes, StoredCopy]]:
    """Yield the messages of a topic that have this key or id, the newest before the others.

    A producer that repeats itself stores them more than once: TooManyCopiesError, once so many were
    looked at that there may be more.
    """
    seen: set[int] = set()
    count = COPIES_AT_ONCE
    while True:
        records = store.find_key(topic, unique, 0, end_ms, count)
        for record in reversed(records):
            copy = read_copy(record)
            if copy.physical_offset not in seen:
                seen.add(copy.physical_offset)
                yield record, copy
        if len(records) < count:
            return
        if len(seen) >= COPIES_LOOKED_MAX:
            raise TooManyCopiesError
        oldest_ms = read_copy(records[0]).store_ms
        if oldest_ms < end_ms:
            end_ms, count = oldest_ms, COPIES_AT_ONCE
        else:  # all are of one millisecond
            count *= 2
