# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: binding=False, cdivision=True
"""Write records: the compiled twin of ``_record_py``, which says what everything means.

What is rare (reserved names echoed by a client, tags that are not ASCII, values out of range) goes
to the reference, so that there is one place for its rules and errors.
"""

from cpython.mem cimport PyMem_Free, PyMem_Malloc

from imago_wire.records import _record_py as _reference
from imago_wire.errors import LimitExceededError, ProtocolError
from imago_wire.record_format.properties import strip_reserved as _strip_reserved

from libc.string cimport memchr

include "_common.pxi"
include "_reading.pxi"
include "_belonging.pxi"

cdef extern from "_hot.h" nogil:
    int64_t imago_crc32_by(int way, uint32_t crc, const uint8_t *data, size_t size)
    bint imago_has_two_underscores(const uint8_t *data, size_t size)
    void imago_put_hexadecimal(uint8_t *to, uint64_t value, int digits)

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object value, int *overflow) except? -1

cdef int64_t I32_MAX = 0x7FFFFFFF
cdef int64_t I32_MIN = -I32_MAX - 1
cdef int64_t I64_MAX = 0x7FFFFFFFFFFFFFFF
cdef int64_t I64_MIN = -I64_MAX - 1
cdef Py_ssize_t BODY_BYTES_MAX = _layout.BODY_BYTES_MAX
cdef Py_ssize_t CLIENT_PROPERTIES_BYTES_MAX = _layout.CLIENT_PROPERTIES_BYTES_MAX
cdef Py_ssize_t BLANK_SIZE = _layout.BLANK_SIZE
cdef int64_t METAQ_EPOCH_MS = _layout.METAQ_EPOCH_MS
cdef int64_t PARTS_SIZE_MAX = _reference.PARTS_SIZE_MAX
cdef int64_t STORE_MS_MAX = _reference.STORE_MS_MAX
cdef int32_t SYS_COMPRESSED = _layout.SYS_COMPRESSED


cdef class QueueTail:
    """The mutable end of one queue. The log owns it; the builder advances it."""

    cdef public bytes topic
    cdef public int64_t queue_id
    cdef public bint dual
    cdef public int64_t next_offset
    cdef public int64_t next_position
    cdef public bytearray units
    cdef public bytearray positions

    def __init__(
        self, bytes topic not None, queue_id, *, bint dual, next_offset=0, next_position=0
    ):
        if not 0 < PyBytes_GET_SIZE(topic) <= TOPIC_BYTES_MAX:
            raise LimitExceededError("topic", size=len(topic), size_max=TOPIC_BYTES_MAX)
        if not 0 <= queue_id <= I32_MAX:
            raise ProtocolError(f"queue id {queue_id}")
        self.topic = topic
        self.queue_id = queue_id
        self.dual = dual
        self.next_offset = next_offset
        self.next_position = next_position
        self.units = bytearray()
        self.positions = bytearray()


def make_entry(
    QueueTail tail not None,
    bytes body not None,
    bytes properties not None=b"",
    *,
    flag=0,
    sys_flag=0,
    born_ms,
    bytes born_host not None,
    reconsume_times=0,
    prepared_offset=0,
    unit_tag=None,
    metaq_shape=None,
):
    """Return what build() takes, checked once, so that build() cannot fail half-way."""
    cdef int64_t sys_bits = 0
    if not (
        sizes_fit(body, properties, born_host)
        and fits_32(flag)
        and fits_32(sys_flag)
        and fits_32(reconsume_times)
        and fits_64(born_ms)
        and fits_64(prepared_offset)
        and (unit_tag is None or fits_64(unit_tag))
    ):
        # The reference says what is wrong, and in which order.
        return _reference.make_entry(
            tail, body, properties, flag=flag, sys_flag=sys_flag, born_ms=born_ms,
            born_host=born_host, reconsume_times=reconsume_times,
            prepared_offset=prepared_offset, unit_tag=unit_tag, metaq_shape=metaq_shape,
        )
    sys_bits = sys_flag
    if not sys_bits & SYS_COMPRESSED or not tail.dual:
        metaq_shape = None
    else:
        metaq_shape = _reference._checked_shape(tail, sys_flag, metaq_shape)
    return (
        tail, body, properties, flag, sys_flag, born_ms, born_host, reconsume_times,
        prepared_offset, unit_tag, metaq_shape, -1,
    )


def make_entries(QueueTail tail not None, messages, born_ms, bytes born_host not None):
    """Return the entries of several messages to one queue: body, properties and flag of each."""
    cdef list entries = []
    cdef bytes body, properties
    cdef object flag
    for message in messages:
        body, properties, flag = message
        if not (sizes_fit(body, properties, born_host) and fits_32(flag) and fits_64(born_ms)):
            return _reference.make_entries(tail, messages, born_ms, born_host)
        entries.append(
            (tail, body, properties, flag, 0, born_ms, born_host, 0, 0, None, None, -1)
        )
    return entries


def metaq_entry(
    QueueTail tail not None,
    bytes body not None,
    flag,
    checksum,
    born_ms,
    bytes born_host not None,
    metaq_id=None,
):
    """Return the entry of a MetaQ put. The attribute becomes TAGS, the payload the body."""
    cdef const uint8_t *data = <const uint8_t *> PyBytes_AS_STRING(body)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(body), attribute_size
    cdef int64_t wanted, body_crc = -1
    cdef int overflow = 0
    cdef bytes properties = b""
    cdef uint8_t *to
    if metaq_id is not None:
        return _reference.metaq_entry(tail, body, flag, checksum, born_ms, born_host, metaq_id)
    wanted = PyLong_AsLongLongAndOverflow(checksum, &overflow)
    if not fits_32(flag) or not fits_64(born_ms) or overflow:
        return _reference.metaq_entry(tail, body, flag, checksum, born_ms, born_host)
    if wanted != -1:
        body_crc = imago_crc32(0, data, size) & CRC31_MASK
        if body_crc != wanted:
            return _reference.metaq_entry(tail, body, flag, checksum, born_ms, born_host)
    if flag & 1 and size >= 4:
        attribute_size = imago_get32(data)
        if attribute_size <= size - 4:
            if attribute_size > CLIENT_PROPERTIES_BYTES_MAX - 6 or not is_plain(
                data + 4, attribute_size
            ):
                return _reference.metaq_entry(tail, body, flag, checksum, born_ms, born_host)
            properties = PyBytes_FromStringAndSize(NULL, attribute_size + 6)
            to = <uint8_t *> PyBytes_AS_STRING(properties)
            memcpy(to, <const char *> b"TAGS\x01", 5)
            memcpy(to + 5, data + 4, attribute_size)
            to[5 + attribute_size] = 2
            data += 4 + attribute_size
            body = PyBytes_FromStringAndSize(<const char *> data, size - 4 - attribute_size)
            body_crc = -1
    if not sizes_fit(body, properties, born_host):
        return _reference.metaq_entry(tail, body, flag, -1, born_ms, born_host)
    return (tail, body, properties, flag, 0, born_ms, born_host, 0, 0, None, None, body_crc)


cdef inline bint sizes_fit(bytes body, bytes properties, bytes born_host):
    cdef Py_ssize_t host_size = PyBytes_GET_SIZE(born_host)
    return (
        PyBytes_GET_SIZE(body) <= BODY_BYTES_MAX
        and PyBytes_GET_SIZE(properties) <= CLIENT_PROPERTIES_BYTES_MAX
        and (host_size == HOST_V4_SIZE or host_size == HOST_V6_SIZE)
    )


cdef inline bint fits_32(object value) except -1:
    cdef int overflow = 0
    cdef int64_t number = PyLong_AsLongLongAndOverflow(value, &overflow)
    return not overflow and I32_MIN <= number <= I32_MAX


cdef inline bint fits_64(object value) except -1:
    cdef int overflow = 0
    PyLong_AsLongLongAndOverflow(value, &overflow)
    return not overflow


cdef inline bint is_plain(const uint8_t *data, Py_ssize_t size) noexcept nogil:
    """Whether these are ASCII characters that a property value may hold."""
    cdef Py_ssize_t at
    for at in range(size):
        if data[at] >= 128 or data[at] == 1 or data[at] == 2:
            return False
    return True


cdef struct Item:
    # One record to be built. The objects are held by the entries, or by the list `held`; those of a
    # run by the run, and then nothing else is said here but the size of all its records.
    PyObject *run
    PyObject *tail
    const uint8_t *body
    Py_ssize_t body_size
    const uint8_t *properties
    Py_ssize_t properties_size
    bint separator  # a missing last 0x02 is to be added
    const uint8_t *more  # properties behind those
    Py_ssize_t more_size
    const uint8_t *tags
    size_t tags_size
    const uint8_t *born_host
    Py_ssize_t born_host_size
    Py_ssize_t size
    int64_t flag
    int64_t sys_flag
    int64_t born_ms
    int64_t reconsume_times
    int64_t prepared_offset
    int64_t body_crc
    int64_t unit_tag
    int64_t shape_length
    int64_t shape_crc
    int64_t given_id
    bint has_unit_tag
    bint has_unit
    bint has_place
    bint has_shape


cdef class RecordBuilder:
    """Turns entries into the bytes of the log, and gives out offsets, positions and ids."""

    cdef bytes _store_host
    cdef int64_t _sys_flag_host
    cdef int64_t _broker_bits
    cdef public int64_t last_metaq_id
    cdef public bint with_properties

    def __init__(self, bytes store_host not None, metaq_broker_id, last_metaq_id):
        _reference.RecordBuilder(store_host, metaq_broker_id, last_metaq_id)  # checks
        self._store_host = store_host
        self._sys_flag_host = SYS_STORE_V6 if len(store_host) == HOST_V6_SIZE else 0
        self._broker_bits = <int64_t> metaq_broker_id << 12
        self.last_metaq_id = last_metaq_id
        self.with_properties = False

    def build(self, entries, start, physical_offset, store_ms, room):
        """Return the records of entries[start:] that fit, and where each one is."""
        cdef Py_ssize_t count = len(entries), first, n = 0, size = 0
        cdef int64_t at = number(physical_offset), now = number(store_ms), left = number(room)
        cdef int64_t skipped = number(start)
        cdef Item one
        cdef Item *items = &one
        cdef list held = None, placed
        cdef bytes data
        cdef uint8_t *to
        # number() gives I64_MIN for what does not fit; a room that does not is no limit, or none.
        if now < 0 or now > STORE_MS_MAX or at < 0 or skipped < 0 and not start > I64_MAX:
            raise ProtocolError(f"store time {store_ms}, log offset {physical_offset}, {start}")
        self.with_properties = False
        if skipped < 0 or skipped >= count:
            return b"", []
        if left < 0 and room > 0 or left > I32_MAX:
            left = I32_MAX
        left = left - BLANK_SIZE if left > 0 else -1
        first = skipped
        count -= first
        if count > 1:
            items = <Item *> PyMem_Malloc(count * sizeof(Item))
            if items == NULL:
                raise MemoryError
        try:
            while n < count:
                entry = entries[first + n]
                if type(entry) is EntryRun:
                    items[n].run = <PyObject *> entry
                    items[n].size = size_run(self, <EntryRun> entry)
                else:
                    properties = read_entry(self, entry, &items[n])
                    if properties is not None:
                        held = held or []
                        held.append(properties)
                if items[n].size > left:
                    break
                if items[n].run != NULL or items[n].properties_size:
                    self.with_properties = True
                left -= items[n].size
                size += items[n].size
                n += 1
            data = PyBytes_FromStringAndSize(NULL, size)
            to = <uint8_t *> PyBytes_AS_STRING(data)
            placed = []
            for count in range(n):
                if items[count].run != NULL:
                    placed.append(write_run(self, <EntryRun> items[count].run, to, at, now))
                else:
                    placed.append(write_record(self, &items[count], to, at, now))
                to += items[count].size
                at += items[count].size
        finally:
            if items != &one:
                PyMem_Free(items)
        return data, placed

    def take_id(self, store_ms):
        """Give out an id for a message that is not put yet."""
        cdef int64_t now = number(store_ms)
        if now < 0 or now > STORE_MS_MAX:
            raise ProtocolError(f"store time {store_ms}")
        return next_id(self, now)


def entries_size_max(entries not None):
    """Return an upper bound in bytes of the records of all entries together."""
    cdef int64_t size = 0, part
    cdef tuple entry
    cdef QueueTail tail
    for each in entries:
        if type(each) is EntryRun:
            part = run_size_max(<EntryRun> each)
            if part < 0:
                return -1
            size += part
            continue
        entry = each
        tail = entry[0]
        if tail.next_offset < 0:
            return -1
        size += PARTS_SIZE_MAX + PyBytes_GET_SIZE(tail.topic)
        size += PyBytes_GET_SIZE(<bytes?> entry[1]) + PyBytes_GET_SIZE(<bytes?> entry[2])
    return size


cdef inline int64_t number(object value) except? -1:
    """Return the number, or the least one where it does not fit."""
    cdef int overflow = 0
    cdef int64_t result = PyLong_AsLongLongAndOverflow(value, &overflow)
    return I64_MIN if overflow else result


cdef bytes read_entry(RecordBuilder builder, tuple entry, Item *item):
    """Take an entry apart, and compute the size of its record.

    The item points into the entry's objects, and into the one that is returned: the properties
    where they are other than the entry's.
    """
    cdef QueueTail tail
    cdef bytes properties, body, born_host
    cdef object unit_tag, shape
    item.run = NULL
    item.more_size = 0
    (
        tail, body, properties, item.flag, item.sys_flag, item.born_ms, born_host,
        item.reconsume_times, item.prepared_offset, unit_tag, shape, item.body_crc,
    ) = entry
    item.tail = <PyObject *> tail
    item.body = <const uint8_t *> PyBytes_AS_STRING(body)
    item.body_size = PyBytes_GET_SIZE(body)
    item.born_host = <const uint8_t *> PyBytes_AS_STRING(born_host)
    item.born_host_size = PyBytes_GET_SIZE(born_host)
    item.has_unit = not item.sys_flag & SYS_PREPARED
    item.has_unit_tag = item.has_unit and unit_tag is not None
    properties = read_properties(properties, item, not item.has_unit_tag or tail.dual)
    item.has_shape = item.has_unit and tail.dual and shape is not None
    item.given_id = 0
    if item.has_unit_tag:
        item.unit_tag = unit_tag
    if item.has_shape:
        if isinstance(shape, tuple):
            item.shape_length, item.shape_crc = shape
        else:
            item.given_id = shape
            item.has_shape = False
    size_item(builder, item)
    return properties


cdef inline void size_item(RecordBuilder builder, Item *item) noexcept:
    """Say how large the record is, and whether it gets a place in MetaQ's form."""
    cdef QueueTail tail = <QueueTail> item.tail
    cdef Py_ssize_t size, topic_size = PyBytes_GET_SIZE(tail.topic)
    size = FIXED_SIZE_V4 + item.body_size + item.properties_size + topic_size + CRC32_SIZE
    size += PyBytes_GET_SIZE(builder._store_host) + item.born_host_size - 2 * HOST_V4_SIZE
    size += item.separator + item.more_size
    if topic_size > TOPIC_BYTES_V1_MAX:
        size += 1
    item.has_place = item.has_unit and tail.dual
    if item.has_unit_tag:
        size += UNIT_TAG_SIZE
    if item.has_place:
        size += METAQ_PLACE_SIZE
    if item.has_shape:
        size += METAQ_SHAPE_SIZE
    item.size = size


cdef bytes read_properties(bytes properties, Item *item, bint tagged):
    """Find length, and tags where the views have them; return what is stored, None: those given."""
    cdef bytes changed = None
    cdef Py_ssize_t size = PyBytes_GET_SIZE(properties)
    cdef const uint8_t *data = <const uint8_t *> PyBytes_AS_STRING(properties)
    item.separator = False
    item.tags = NULL
    if size:
        if imago_has_two_underscores(data, size) and has_reserved(data, size):
            changed = _strip_reserved(properties)
            size = PyBytes_GET_SIZE(changed)
            data = <const uint8_t *> PyBytes_AS_STRING(changed)
        item.separator = size > 0 and data[size - 1] != 2
        if tagged:
            item.tags = imago_find_property(data, size, b"TAGS\x01", 5, &item.tags_size)
    item.properties = data
    item.properties_size = size
    return changed


cdef bint has_reserved(const uint8_t *data, Py_ssize_t size) noexcept nogil:
    """Whether some property's name begins as those do that are stripped."""
    cdef const uint8_t *end = data + size
    cdef const uint8_t *stop
    while end - data > 8:
        if data[0] == 95 and data[1] == 95 and (
            memcmp(data, b"__METAQ_", 8) == 0
            or memcmp(data, b"__CRC32#", 8) == 0
            or memcmp(data, b"__UNIT_T", 8) == 0
            or memcmp(data, b"__RMQ.TR", 8) == 0
        ):
            return True
        stop = <const uint8_t *> memchr(data, 2, end - data)
        if stop == NULL:
            return False
        data = stop + 1
    return end - data == 8 and memcmp(data, b"__CRC32#", 8) == 0


cdef inline int64_t next_id(RecordBuilder builder, int64_t store_ms) noexcept:
    cdef int64_t last = builder.last_metaq_id, elapsed_ms = store_ms - METAQ_EPOCH_MS
    if elapsed_ms > last >> 22:
        last = elapsed_ms << 22 | builder._broker_bits
    elif last & 0x3FF000 == builder._broker_bits and last & 0xFFF != 0xFFF:
        last += 1
    else:  # the millisecond is used up, or its ids are those of another broker id
        last = (last >> 22) + 1 << 22 | builder._broker_bits
    builder.last_metaq_id = last
    return last


cdef inline uint8_t *put_text(uint8_t *to, bytes text) noexcept:
    memcpy(to, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
    return to + PyBytes_GET_SIZE(text)


cdef inline uint8_t *put_property(uint8_t *to, bytes prefix, uint64_t value, int digits) noexcept:
    to = put_text(to, prefix)
    imago_put_hexadecimal(to, value, digits)
    to[digits] = 2
    return to + digits + 1


cdef tuple write_record(
    RecordBuilder builder, Item *item, uint8_t *record, int64_t physical_offset, int64_t store_ms
):
    """Write one record and append its units; return its place."""
    cdef int64_t queue_offset, position, metaq_id
    place(builder, item, record, physical_offset, store_ms, &queue_offset, &position, &metaq_id)
    return (queue_offset, physical_offset, item.size, position, metaq_id)


cdef int place(
    RecordBuilder builder,
    Item *item,
    uint8_t *record,
    int64_t physical_offset,
    int64_t store_ms,
    int64_t *queue_offset,
    int64_t *position,
    int64_t *metaq_id,
) except -1:
    """Write one record and append its units."""
    cdef QueueTail tail = <QueueTail> item.tail
    cdef int64_t metaq_size, code
    cdef uint8_t *to
    queue_offset[0], position[0], metaq_id[0] = 0, -1, -1
    if item.has_unit:
        queue_offset[0] = tail.next_offset
        code = item.unit_tag if item.has_unit_tag else tag_code(item.tags, item.tags_size) if (
            item.tags != NULL
        ) else 0
        to = grown(tail.units, 20)
        imago_put64(to, physical_offset)
        imago_put32(to + 8, item.size)
        imago_put64(to + 12, code)
        tail.next_offset = queue_offset[0] + 1
    if item.has_place:
        position[0] = tail.next_position
        metaq_size = METAQ_HEADER_SIZE
        if item.has_shape:
            metaq_size += item.shape_length
        else:
            metaq_size += item.body_size
            if item.tags != NULL:
                metaq_size += 4 + item.tags_size
        to = grown(tail.positions, 12)
        imago_put64(to, position[0])
        imago_put32(to + 8, metaq_size)
        tail.next_position = position[0] + metaq_size
        if item.given_id:
            metaq_id[0] = item.given_id
            builder.last_metaq_id = max(builder.last_metaq_id, metaq_id[0])
        else:
            metaq_id[0] = next_id(builder, store_ms)
    fill(
        builder, tail, item, record, physical_offset, store_ms, queue_offset[0], position[0],
        metaq_id[0],
    )
    return 0


cdef void fill(
    RecordBuilder builder,
    QueueTail tail,
    Item *item,
    uint8_t *record,
    int64_t physical_offset,
    int64_t store_ms,
    int64_t queue_offset,
    int64_t position,
    int64_t metaq_id,
) noexcept:
    cdef Py_ssize_t topic_size = PyBytes_GET_SIZE(tail.topic), digit
    cdef int64_t sys_flag = item.sys_flag & ~<int64_t> (SYS_BORN_V6 | SYS_STORE_V6)
    cdef uint32_t checksum
    cdef uint8_t *to = record
    cdef uint8_t *properties_size_at
    sys_flag |= builder._sys_flag_host
    if item.born_host_size == HOST_V6_SIZE:
        sys_flag |= SYS_BORN_V6
    if item.body_crc < 0:
        item.body_crc = imago_crc32(0, item.body, item.body_size) & CRC31_MASK
    imago_put32(to, item.size)
    imago_put32(to + 4, MAGIC_V2 if topic_size > TOPIC_BYTES_V1_MAX else MAGIC_V1)
    imago_put32(to + 8, item.body_crc)
    imago_put32(to + 12, tail.queue_id)
    imago_put32(to + 16, item.flag)
    imago_put64(to + 20, queue_offset)
    imago_put64(to + 28, physical_offset)
    imago_put32(to + 36, sys_flag)
    imago_put64(to + 40, item.born_ms)
    to += 48
    memcpy(to, item.born_host, item.born_host_size)
    to += item.born_host_size
    imago_put64(to, store_ms)
    to = put_text(to + 8, builder._store_host)
    imago_put32(to, item.reconsume_times)
    imago_put64(to + 4, item.prepared_offset)
    imago_put32(to + 12, item.body_size)
    to += 16
    memcpy(to, item.body, item.body_size)
    to += item.body_size
    if topic_size > TOPIC_BYTES_V1_MAX:
        imago_put16(to, topic_size)
        to += 2
    else:
        to[0] = topic_size
        to += 1
    to = put_text(to, tail.topic)
    properties_size_at = to
    to += 2
    memcpy(to, item.properties, item.properties_size)
    to += item.properties_size
    if item.separator:
        to[0] = 2
        to += 1
    if item.more_size:
        memcpy(to, item.more, item.more_size)
        to += item.more_size
    if item.has_unit_tag:
        to = put_property(to, UNIT_TAG_PREFIX, item.unit_tag, 16)
    if item.has_shape:
        to = put_property(to, METAQ_LEN_PREFIX, item.shape_length, 8)
        to = put_property(to, METAQ_CRC_PREFIX, item.shape_crc, 8)
    if item.has_place:
        to = put_property(to, METAQ_POS_PREFIX, position, 16)
        to = put_property(to, METAQ_ID_PREFIX, metaq_id, 16)
    imago_put16(properties_size_at, to + CRC32_SIZE - properties_size_at - 2)
    checksum = imago_crc32(0, record, to - record) & CRC31_MASK
    to = put_text(to, CRC32_PREFIX)
    for digit in range(10):
        to[digit] = 48 + checksum % 10
        checksum //= 10
    to[10] = 2


include "_runs.pxi"


def crc32_by(int way, const uint8_t[::1] data, uint32_t value):
    """Return the CRC-32 by one of the ways, for tests; -1 where this machine does not have it."""
    return imago_crc32_by(way, value, &data[0], data.shape[0])
