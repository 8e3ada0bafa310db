# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: binding=False, cdivision=True
"""Units and keys of records: the compiled twin of ``_index_py``, which says what everything means.

What is wrong with a record that is no whole one, the reference says.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.object cimport PyObject
from libc.string cimport memchr, memset

from imago_wire.records import _index_py as _reference
from imago_wire.records._scan_py import view_record as _view_record
from imago_wire.errors import RecordError as _RecordError

include "_common.pxi"
include "_reading.pxi"

Indexed = _reference.Indexed
cdef int32_t SYS_ROLLBACK = _layout.SYS_ROLLBACK
cdef int32_t SYS_TRANSACTION_MASK = _layout.SYS_TRANSACTION_MASK

cdef enum:
    SLOTS = 256


cdef struct Slot:
    # One queue of an indexing. The objects are held by the list `held`.
    bint used
    PyObject *topic
    PyObject *tail  # None: units of this queue go nowhere
    PyObject *units
    PyObject *positions
    int64_t queue_id
    int64_t next_offset
    int64_t next_position
    bint dual


cdef inline Py_ssize_t slot_of(const uint8_t *topic, Py_ssize_t size, int32_t queue_id) noexcept:
    cdef uint32_t value = 2166136261u ^ <uint32_t> queue_id
    cdef Py_ssize_t at
    for at in range(size):
        value = (value ^ topic[at]) * 16777619u
    return (value ^ value >> 16) % SLOTS


cdef inline bint is_slot_of(Slot *slot, const uint8_t *topic, Py_ssize_t size, int32_t queue_id):
    return (
        slot.used
        and slot.queue_id == queue_id
        and PyBytes_GET_SIZE(<object> slot.topic) == size
        and not memcmp(PyBytes_AS_STRING(<object> slot.topic), topic, size)
    )


cdef int take_slot(
    Slot *slot, const uint8_t *data, Record *record, object find_tail, list held
) except -1:
    """Let the slot be that of a record's queue."""
    cdef bytes topic
    cdef bytearray units, positions
    give_back(slot)
    slot.used = False
    topic = PyBytes_FromStringAndSize(<const char *> data + record.topic_at, record.topic_size)
    tail = find_tail(
        topic, record.queue_id, record.queue_offset, record.physical_offset, record.metaq_position
    )
    held.append(topic)
    slot.topic = <PyObject *> topic
    slot.tail = <PyObject *> tail
    slot.queue_id = record.queue_id
    if tail is not None:
        units, positions = tail.units, tail.positions
        held.append((tail, units, positions))
        slot.units = <PyObject *> units
        slot.positions = <PyObject *> positions
        slot.next_offset = tail.next_offset
        slot.next_position = tail.next_position
        slot.dual = tail.dual
    slot.used = True
    return 0


cdef int give_back(Slot *slot) except -1:
    """Write the ends that were counted here into the tail."""
    if slot.used and <object> slot.tail is not None:
        tail = <object> slot.tail
        tail.next_offset = slot.next_offset
        tail.next_position = slot.next_position
    return 0


cdef int add_unit(Slot *slot, const uint8_t *data, Record *record) except -1:
    cdef int64_t code = 0, metaq_size = 0
    cdef uint8_t *to
    place_of(data, record, &code, &metaq_size)
    if slot.dual:
        to = grown(<bytearray> slot.positions, 12)
        imago_put64(to, record.metaq_position)
        imago_put32(to + 8, metaq_size)
        slot.next_position = record.metaq_position + metaq_size
    to = grown(<bytearray> slot.units, 20)
    imago_put64(to, record.physical_offset)
    imago_put32(to + 8, record.size)
    imago_put64(to + 12, code)
    slot.next_offset += 1
    return 0


cdef str why_not(data, Py_ssize_t at):
    """Return what the reference says is wrong with a record."""
    try:
        _view_record(data, at)
    except _RecordError as error:
        return str(error)
    raise AssertionError(f"the twins differ on the record at {at}")


def index_records(data, find_tail, bytes stop_topic not None):
    """Append the units of whole records to their queues' tails, as build() did on the leader."""
    cdef Py_buffer view
    cdef Record record
    cdef Slot slots[SLOTS]
    cdef Slot *slot = &slots[0]
    cdef Py_ssize_t at = 0, stopped_at = -1, n
    cdef int64_t store_ms = 0, metaq_id = -1
    cdef const uint8_t *start
    cdef const uint8_t *topic
    cdef list held = []
    cdef object reason = ""
    memset(slots, 0, sizeof(slots))
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        start = <const uint8_t *> view.buf
        while at < view.len and stopped_at < 0:
            if not read_record(start + at, view.len - at, &record, False):
                reason = why_not(data, at)
                break
            topic = start + at + record.topic_at
            if not record.sys_flag & SYS_PREPARED:
                if not is_slot_of(slot, topic, record.topic_size, record.queue_id):
                    slot = &slots[slot_of(topic, record.topic_size, record.queue_id)]
                    if not is_slot_of(slot, topic, record.topic_size, record.queue_id):
                        take_slot(slot, start + at, &record, find_tail, held)
                if <object> slot.tail is not None:
                    if record.queue_offset != slot.next_offset:
                        reason = (
                            f"queue offset {record.queue_offset} where {slot.next_offset} follows"
                        )
                        break
                    if slot.dual and record.metaq_position < 0:
                        reason = "no MetaQ position"
                        break
                    add_unit(slot, start + at, &record)
            store_ms = max(store_ms, record.store_ms)
            metaq_id = max(metaq_id, record.metaq_id)
            if record.topic_size == PyBytes_GET_SIZE(stop_topic) and not memcmp(
                topic, PyBytes_AS_STRING(stop_topic), record.topic_size
            ):
                stopped_at = at
            at += record.size
    finally:
        PyBuffer_Release(&view)
        for n in range(SLOTS):
            give_back(&slots[n])
    return Indexed(at, stopped_at, store_ms, metaq_id, reason)


def key_entries(records, physical_offset):
    """Return 12-byte entries (u32 key hash, i64 physical offset) of each UNIQ_KEY and KEYS token."""
    cdef Py_buffer view
    cdef Record record
    cdef Py_ssize_t at = 0
    cdef int64_t offset = physical_offset
    cdef const uint8_t *start
    cdef bytearray entries = bytearray()
    PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
    try:
        start = <const uint8_t *> view.buf
        while read_layout(start + at, view.len - at, &record):
            if record.sys_flag & SYS_TRANSACTION_MASK != SYS_ROLLBACK:
                add_keys(entries, start + at, &record, offset + at)
            at += record.size
    finally:
        PyBuffer_Release(&view)
    return bytes(entries)


cdef int add_keys(
    bytearray entries, const uint8_t *data, Record *record, int64_t physical_offset
) except -1:
    cdef const uint8_t *properties = data + record.properties_at
    cdef const uint8_t *end = properties + record.properties_size
    cdef const uint8_t *unique = NULL
    cdef const uint8_t *keys = NULL
    cdef const uint8_t *stop
    cdef size_t unique_size = 0, left = 0, size
    cdef uint32_t topic_crc
    while properties < end:
        stop = <const uint8_t *> memchr(properties, 2, end - properties)
        if stop == NULL:
            stop = end
        if properties[0] == 85 and is_named(properties, stop, b"UNIQ_KEY\x01", 9):
            unique, unique_size = properties + 9, stop - properties - 9
        elif properties[0] == 75 and is_named(properties, stop, b"KEYS\x01", 5):
            keys, left = properties + 5, stop - properties - 5
        properties = stop + 1
    if not unique_size and not left:
        return 0
    topic_crc = imago_crc32(0, data + record.topic_at, record.topic_size)
    topic_crc = imago_crc32(topic_crc, <const uint8_t *> <const char *> b"#", 1)
    if unique_size:
        add_key(entries, imago_crc32(topic_crc, unique, unique_size), physical_offset)
    while left:
        stop = <const uint8_t *> memchr(keys, 32, left)
        size = left if stop == NULL else stop - keys
        if size:
            add_key(entries, imago_crc32(topic_crc, keys, size), physical_offset)
        if stop == NULL:
            break
        keys += size + 1
        left -= size + 1
    return 0


cdef inline bint is_named(
    const uint8_t *at, const uint8_t *end, const char *name, Py_ssize_t size
) noexcept nogil:
    """Whether a property has this name, given with its 0x01."""
    return end - at >= size and not memcmp(at, name, size)


cdef int add_key(bytearray entries, uint32_t key_hash, int64_t physical_offset) except -1:
    cdef uint8_t *entry = grown(entries, 12)
    imago_put32(entry, key_hash)
    imago_put64(entry + 4, physical_offset)
    return 0
