"""Write records: the plain Python reference of the compiled ``_record_c``.

Everything here is reached through :mod:`imago_wire.hot` and :mod:`imago_wire.records.record`; the
two twins give equal results and equal errors on every input.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from imago_wire.crc import crc31
from imago_wire.errors import ChecksumError, LimitExceededError, ProtocolError
from imago_wire.record_format.entries import (
    ENTRY_BODY,
    ENTRY_BORN_HOST,
    ENTRY_PROPERTIES,
    ENTRY_SHAPE,
    ENTRY_SYS_FLAG,
    ENTRY_TAIL,
    ENTRY_UNIT_TAG,
    Entries,
    Entry,
    EntryRun,
    Placed,
    QueueTail,
)
from imago_wire.record_format.layout import (
    AFTER_STORE_HOST,
    BLANK_SIZE,
    BODY_BYTES_MAX,
    CLIENT_PROPERTIES_BYTES_MAX,
    CRC32_PREFIX,
    CRC32_SIZE,
    FIXED_SIZE_V4,
    HEAD,
    HOST_V4_SIZE,
    HOST_V6_SIZE,
    MAGIC_V1,
    MAGIC_V2,
    METAQ_BROKER_ID_MAX,
    METAQ_CRC_PREFIX,
    METAQ_EPOCH_MS,
    METAQ_HEADER_SIZE,
    METAQ_ID_PREFIX,
    METAQ_LEN_PREFIX,
    METAQ_PLACE_SIZE,
    METAQ_POS_PREFIX,
    METAQ_SHAPE_SIZE,
    POSITION_UNIT,
    SYS_BORN_V6,
    SYS_COMMIT,
    SYS_COMPRESSED,
    SYS_PREPARED,
    SYS_STORE_V6,
    TOPIC_BYTES_MAX,
    TOPIC_BYTES_V1_MAX,
    UNIT,
    UNIT_TAG_PREFIX,
    UNIT_TAG_SIZE,
    crc_digits,
    record_size,
)
from imago_wire.record_format.properties import NAME_END, VALUE_END, find, strip_reserved
from imago_wire.record_format.tags import cached_tag_code

if TYPE_CHECKING:
    from collections.abc import Sequence

I32_MAX: Final = 0x7FFF_FFFF
I64_MAX: Final = 0x7FFF_FFFF_FFFF_FFFF
I64_MASK: Final = 0xFFFF_FFFF_FFFF_FFFF

STORE_MS_MAX: Final = METAQ_EPOCH_MS + (1 << 41) - 1
"""In the year 2089 the time in a MetaQ id is used up."""

METAQ_ID_END: Final = 1 << 62
"""Ids that others gave are below, so that there are always more above: years off for any clock."""

_ATTRIBUTE_FLAG: Final = 1

PARTS_SIZE_MAX: Final = (
    record_size(TOPIC_BYTES_MAX, 0, 0, born_host_size=HOST_V6_SIZE, store_host_size=HOST_V6_SIZE)
    - TOPIC_BYTES_MAX
)
"""All of a record but topic, client's properties and body."""


def make_entry(
    tail: QueueTail,
    body: bytes,
    properties: bytes = b"",
    *,
    flag: int = 0,
    sys_flag: int = 0,
    born_ms: int,
    born_host: bytes,
    reconsume_times: int = 0,
    prepared_offset: int = 0,
    unit_tag: int | None = None,
    metaq_shape: tuple[int, int] | None = None,
) -> Entry:
    """Return what build() takes, checked once, so that build() cannot fail half-way.

    ``born_host`` is 8 or 20 bytes: address, then the port as 4 bytes. ``unit_tag`` replaces the
    hash of TAGS in the consume-queue unit. ``metaq_shape`` is what record.metaq_shape() returned
    for a compressed body; without it such a body cannot go to a dual queue.
    """
    _check_sizes(body, properties, born_host)
    _check_i32("flag", flag)
    _check_i32("sys flag", sys_flag)
    _check_i32("reconsume times", reconsume_times)
    _check_i64("born timestamp", born_ms)
    _check_i64("prepared offset", prepared_offset)
    if unit_tag is not None:
        _check_i64("unit tag", unit_tag)
    shape = _checked_shape(tail, sys_flag, metaq_shape)
    return (
        tail, body, properties, flag, sys_flag, born_ms, born_host, reconsume_times,
        prepared_offset, unit_tag, shape, -1,
    )  # fmt: skip


def make_entries(
    tail: QueueTail, messages: Sequence[tuple[bytes, bytes, int]], born_ms: int, born_host: bytes
) -> list[Entry]:
    """Return the entries of several messages to one queue: body, properties and flag of each."""
    return [
        make_entry(tail, body, properties, flag=flag, born_ms=born_ms, born_host=born_host)
        for body, properties, flag in messages
    ]


def metaq_entry(
    tail: QueueTail,
    body: bytes,
    flag: int,
    checksum: int,
    born_ms: int,
    born_host: bytes,
    metaq_id: int | None = None,
) -> Entry:
    """Return the entry of a MetaQ put. The attribute becomes TAGS, the payload the body.

    `metaq_id` is that of a committed transaction's message, which was told its id before, or one
    that another master gave: negative ones too, but not 0. A checksum of -1 is none.
    ChecksumError: it is not the body's. ProtocolError: the attribute holds 0x01 or 0x02.
    LimitExceededError: it is longer than a property list may be. An attribute that cannot be
    parsed (a length beyond the body, no UTF-8) stays in the body.
    """
    body_crc = -1
    if checksum != -1:
        body_crc = crc31(body)
        if body_crc != checksum:
            raise ChecksumError(expected=checksum, actual=body_crc)
    properties = b""
    if flag & _ATTRIBUTE_FLAG:
        attribute = parse_attribute(body)
        if attribute is not None:
            if NAME_END in attribute or VALUE_END in attribute:
                raise ProtocolError("the attribute holds a character 0x01 or 0x02")
            properties = b"TAGS\x01" + attribute + VALUE_END
            body, body_crc = body[4 + len(attribute) :], -1
    _check_sizes(body, properties, born_host)
    _check_i32("flag", flag)
    _check_i64("born timestamp", born_ms)
    if metaq_id is not None and (not metaq_id or not -I64_MAX - 1 <= metaq_id < METAQ_ID_END):
        raise ProtocolError(f"MetaQ id {metaq_id}")
    sys_flag = 0 if metaq_id is None else SYS_COMMIT
    return (
        tail, body, properties, flag, sys_flag, born_ms, born_host, 0, 0, None, metaq_id, body_crc,
    )  # fmt: skip


def parse_attribute(body: bytes) -> bytes | None:
    """Return the attribute that a MetaQ body starts with, or None where it cannot be parsed."""
    if len(body) < 4:
        return None
    size = int.from_bytes(body[:4], "big")
    if size > len(body) - 4:
        return None
    attribute = body[4 : 4 + size]
    try:
        attribute.decode()
    except UnicodeDecodeError:
        return None
    return attribute


def _check_sizes(body: bytes, properties: bytes, born_host: bytes) -> None:
    if len(body) > BODY_BYTES_MAX:
        raise LimitExceededError("body", size=len(body), size_max=BODY_BYTES_MAX)
    if len(properties) > CLIENT_PROPERTIES_BYTES_MAX:
        raise LimitExceededError(
            "properties", size=len(properties), size_max=CLIENT_PROPERTIES_BYTES_MAX
        )
    if len(born_host) not in (HOST_V4_SIZE, HOST_V6_SIZE):
        raise ProtocolError(f"born host of {len(born_host)} bytes")


def _check_i32(what: str, value: int) -> None:
    if not -I32_MAX - 1 <= value <= I32_MAX:
        raise ProtocolError(f"{what} {value} is no 32-bit number")


def _check_i64(what: str, value: int) -> None:
    if not -I64_MAX - 1 <= value <= I64_MAX:
        raise ProtocolError(f"{what} {value} is no 64-bit number")


def _checked_shape(
    tail: QueueTail, sys_flag: int, shape: tuple[int, int] | None
) -> tuple[int, int] | None:
    if not sys_flag & SYS_COMPRESSED or not tail.dual:
        return None
    if shape is None:
        if not _has_unit(sys_flag):
            return None
        raise ProtocolError("a compressed body of a dual queue needs its inflated shape")
    length, checksum = shape
    if not 0 <= length <= BODY_BYTES_MAX or not 0 <= checksum <= I32_MAX:
        raise ProtocolError(f"inflated shape {length}, {checksum}")
    return shape


def _has_unit(sys_flag: int) -> bool:
    """Prepared and rolled-back half messages (0x4, 0xC) are in the log but in no queue."""
    return not sys_flag & SYS_PREPARED


def entries_size_max(entries: Entries) -> int:
    """Return an upper bound in bytes of all entries' records; -1 where a tail is dead."""
    each = [one for entry in entries for one in EntryRun.each(entry)]
    if any(entry[ENTRY_TAIL].next_offset < 0 for entry in each):
        return -1
    return len(each) * PARTS_SIZE_MAX + sum(
        [
            len(entry[ENTRY_TAIL].topic) + len(entry[ENTRY_BODY]) + len(entry[ENTRY_PROPERTIES])
            for entry in each
        ]
    )


class RecordBuilder:
    """Turns entries into the bytes of the log, and gives out offsets, positions and ids."""

    def __init__(self, store_host: bytes, metaq_broker_id: int, last_metaq_id: int) -> None:
        if len(store_host) not in (HOST_V4_SIZE, HOST_V6_SIZE):
            raise ProtocolError(f"store host of {len(store_host)} bytes")
        if not 0 <= metaq_broker_id <= METAQ_BROKER_ID_MAX:
            raise ProtocolError(f"MetaQ broker id {metaq_broker_id}, at most 1023")
        if not 0 <= last_metaq_id <= I64_MAX:
            raise ProtocolError(f"last MetaQ id {last_metaq_id}")
        self._store_host = store_host
        self._sys_flag_host = SYS_STORE_V6 if len(store_host) == HOST_V6_SIZE else 0
        self._broker_bits = metaq_broker_id << 12
        self.last_metaq_id = last_metaq_id
        """Every later id is greater, whatever the clock does."""
        self.with_properties = False
        """Whether any message of the last build came with properties, among them its keys."""

    def build(
        self,
        entries: Entries,
        start: int,
        physical_offset: int,
        store_ms: int,
        room: int,
    ) -> tuple[bytes, list[Placed]]:
        """Return the records of entries[start:] that fit, and where each one is.

        Ends before the first record that would leave less than 8 bytes of ``room`` (bytes up to
        the segment's end). Advances each tail and appends to its units.
        """
        if not (0 <= store_ms <= STORE_MS_MAX and 0 <= physical_offset <= I64_MAX and start >= 0):
            raise ProtocolError(f"store time {store_ms}, log offset {physical_offset}, {start}")
        records: list[bytes] = []
        placed: list[Placed] = []
        room -= BLANK_SIZE
        self.with_properties = False
        for entry in islice(entries, min(start, len(entries)), None):
            sized, places = [self._sized(one) for one in EntryRun.each(entry)], list[Placed]()
            whole = sum(size for *_, size in sized)
            if whole > room:
                break
            room -= whole
            for one, properties, tags, size in sized:
                self.with_properties = self.with_properties or bool(properties)
                place = self._place(one, tags, physical_offset, store_ms, size)
                records.append(self._record(one, properties, place, store_ms))
                places.append(place)
                physical_offset += size
            is_run = isinstance(entry, EntryRun)
            placed.append((*places[0][:2], whole, -1, -1) if is_run else places[0])
        return b"".join(records), placed

    def _sized(self, entry: Entry) -> tuple[Entry, bytes, bytes | None, int]:
        properties, tags = _client_properties(entry[ENTRY_PROPERTIES])
        return entry, properties, tags, self._size(entry, len(properties))

    def _size(self, entry: Entry, properties_size: int) -> int:
        tail = entry[ENTRY_TAIL]
        size = (
            FIXED_SIZE_V4 + len(entry[ENTRY_BODY]) + properties_size + len(tail.topic) + CRC32_SIZE
        )
        size += len(self._store_host) + len(entry[ENTRY_BORN_HOST]) - 2 * HOST_V4_SIZE
        if len(tail.topic) > TOPIC_BYTES_V1_MAX:
            size += 1
        if _has_unit(entry[ENTRY_SYS_FLAG]):
            if entry[ENTRY_UNIT_TAG] is not None:
                size += UNIT_TAG_SIZE
            if tail.dual:
                inflated = isinstance(entry[ENTRY_SHAPE], tuple)
                size += _METAQ_SIZE_WITH_SHAPE if inflated else METAQ_PLACE_SIZE
        return size

    def _place(
        self, entry: Entry, tags: bytes | None, physical_offset: int, store_ms: int, size: int
    ) -> Placed:
        """Give out the record's offsets and id, and append the units of the views."""
        tail, unit_tag = entry[ENTRY_TAIL], entry[ENTRY_UNIT_TAG]
        if not _has_unit(entry[ENTRY_SYS_FLAG]):
            return (0, physical_offset, size, -1, -1)
        queue_offset = tail.next_offset
        tail.next_offset = queue_offset + 1
        code = cached_tag_code(tags) if unit_tag is None else unit_tag
        tail.units += UNIT.pack(physical_offset, size, code)
        if not tail.dual:
            return (queue_offset, physical_offset, size, -1, -1)
        position, shape = tail.next_position, entry[ENTRY_SHAPE]
        if isinstance(shape, tuple):
            metaq_size = METAQ_HEADER_SIZE + shape[0]
        else:
            metaq_size = METAQ_HEADER_SIZE + len(entry[ENTRY_BODY])
            if tags is not None:
                metaq_size += 4 + len(tags)
        tail.next_position = position + metaq_size
        tail.positions += POSITION_UNIT.pack(position, metaq_size)
        if isinstance(shape, int):
            self.last_metaq_id = max(self.last_metaq_id, shape)
            return (queue_offset, physical_offset, size, position, shape)
        return (queue_offset, physical_offset, size, position, self._next_id(store_ms))

    def take_id(self, store_ms: int) -> int:
        """Give out an id for a message that is not put yet."""
        if not 0 <= store_ms <= STORE_MS_MAX:
            raise ProtocolError(f"store time {store_ms}")
        return self._next_id(store_ms)

    def _next_id(self, store_ms: int) -> int:
        last = self.last_metaq_id
        elapsed_ms = store_ms - METAQ_EPOCH_MS
        if elapsed_ms > last >> 22:
            new = elapsed_ms << 22 | self._broker_bits
        elif last & 0x3FF000 == self._broker_bits and last & 0xFFF != 0xFFF:
            new = last + 1
        else:  # the millisecond is used up, or its ids are those of another broker id
            new = (last >> 22) + 1 << 22 | self._broker_bits
        self.last_metaq_id = new
        return new

    def _record(self, entry: Entry, properties: bytes, place: Placed, store_ms: int) -> bytes:
        tail, body, _, flag, sys_flag, born_ms, born_host, reconsume, prepared, _, _, crc = entry
        topic = tail.topic
        if len(topic) > TOPIC_BYTES_V1_MAX:
            magic, topic_size = MAGIC_V2, len(topic).to_bytes(2, "big")
        else:
            magic, topic_size = MAGIC_V1, bytes((len(topic),))
        sys_flag = sys_flag & ~(SYS_BORN_V6 | SYS_STORE_V6) | self._sys_flag_host
        if len(born_host) == HOST_V6_SIZE:
            sys_flag |= SYS_BORN_V6
        reserved = _reserved(entry, place)
        properties_size = len(properties) + len(reserved) + CRC32_SIZE
        record = b"".join(
            (
                HEAD.pack(
                    place[2], magic, crc31(body) if crc < 0 else crc, tail.queue_id, flag,
                    place[0], place[1], sys_flag, born_ms,
                ),
                born_host,
                store_ms.to_bytes(8, "big", signed=True),
                self._store_host,
                AFTER_STORE_HOST.pack(reconsume, prepared, len(body)),
                body,
                topic_size,
                topic,
                properties_size.to_bytes(2, "big"),
                properties,
                reserved,
            )
        )  # fmt: skip
        return b"%b%b%b\x02" % (record, CRC32_PREFIX, crc_digits(crc31(record)))


_METAQ_SIZE_WITH_SHAPE: Final = METAQ_PLACE_SIZE + METAQ_SHAPE_SIZE


def _client_properties(properties: bytes) -> tuple[bytes, bytes | None]:
    """Return what of a client's properties is stored, ending in 0x02, and the value of TAGS."""
    if not properties:
        return properties, None
    properties = strip_reserved(properties)
    if properties and not properties.endswith(VALUE_END):
        properties += VALUE_END
    return properties, find(properties, b"TAGS")


def _reserved(entry: Entry, place: Placed) -> bytes:
    """Return the reserved properties before the record's checksum."""
    parts = b""
    unit_tag, shape = entry[ENTRY_UNIT_TAG], entry[ENTRY_SHAPE]
    if unit_tag is not None and _has_unit(entry[ENTRY_SYS_FLAG]):
        parts = b"%b%016x\x02" % (UNIT_TAG_PREFIX, unit_tag & I64_MASK)
    if place[3] < 0:
        return parts
    if isinstance(shape, tuple):
        parts += b"%b%08x\x02%b%08x\x02" % (METAQ_LEN_PREFIX, shape[0], METAQ_CRC_PREFIX, shape[1])
    return parts + b"%b%016x\x02%b%016x\x02" % (
        METAQ_POS_PREFIX, place[3] & I64_MASK, METAQ_ID_PREFIX, place[4] & I64_MASK,
    )  # fmt: skip
