# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: binding=False, cdivision=True
"""Read records back: the compiled twin of ``_scan_py``, which says what everything means.

Whatever this twin does not take for a whole record goes to the reference, which says what is wrong
with it; so do compressed bodies on their way to MetaQ.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy, memset

from imago_wire import _scan_py as _reference
from imago_wire import layout as _layout
from imago_wire.errors import RecordError as _RecordError
from imago_wire.tags import cached_tag_code as _cached_tag_code

cdef extern from "_hot.h" nogil:
    void imago_crc_init()
    uint32_t imago_crc32(uint32_t crc, const uint8_t *data, size_t size)
    void imago_put32(uint8_t *to, uint32_t value)
    void imago_put64(uint8_t *to, uint64_t value)
    uint32_t imago_get16(const uint8_t *data)
    uint32_t imago_get32(const uint8_t *data)
    uint64_t imago_get64(const uint8_t *data)
    const uint8_t *imago_find_property(
        const uint8_t *data, size_t size, const char *name, size_t name_size, size_t *value_size
    )

imago_crc_init()

RecordView = _reference.RecordView
Indexed = _reference.Indexed
Scan = _reference.Scan
ScanStop = _reference.ScanStop
cdef object _new_tuple = tuple.__new__
cdef object _END = ScanStop.END
cdef object _DAMAGED = ScanStop.DAMAGED

cdef uint32_t CRC31_MASK = 0x7FFFFFFF
cdef Py_ssize_t TOPIC_BYTES_MAX = _layout.TOPIC_BYTES_MAX
cdef Py_ssize_t TOPIC_BYTES_V1_MAX = _layout.TOPIC_BYTES_V1_MAX
cdef Py_ssize_t FIXED_SIZE_V4 = _layout.FIXED_SIZE_V4
cdef Py_ssize_t HOST_V4_SIZE = _layout.HOST_V4_SIZE
cdef Py_ssize_t HOST_V6_SIZE = _layout.HOST_V6_SIZE
cdef Py_ssize_t CRC32_SIZE = _layout.CRC32_SIZE
cdef Py_ssize_t UNIT_TAG_SIZE = _layout.UNIT_TAG_SIZE
cdef Py_ssize_t METAQ_PLACE_SIZE = _layout.METAQ_PLACE_SIZE
cdef Py_ssize_t METAQ_SHAPE_SIZE = _layout.METAQ_SHAPE_SIZE
cdef Py_ssize_t METAQ_HEADER_SIZE = _layout.METAQ_HEADER_SIZE
cdef Py_ssize_t ID_SIZE = len(_layout.METAQ_ID_PREFIX) + 17
cdef Py_ssize_t SHAPE_CRC_SIZE = len(_layout.METAQ_CRC_PREFIX) + 9
cdef Py_ssize_t UNIT_SIZE = _layout.UNIT.size
cdef uint32_t MAGIC_V1 = _layout.MAGIC_V1
cdef uint32_t MAGIC_V2 = _layout.MAGIC_V2
cdef int32_t SYS_BORN_V6 = _layout.SYS_BORN_V6
cdef int32_t SYS_STORE_V6 = _layout.SYS_STORE_V6
cdef int32_t SYS_PREPARED = _layout.SYS_PREPARED
cdef int32_t SYS_ROLLBACK = _layout.SYS_ROLLBACK
cdef int32_t SYS_TRANSACTION_MASK = _layout.SYS_TRANSACTION_MASK
cdef bytes CRC32_PREFIX = _layout.CRC32_PREFIX
cdef bytes UNIT_TAG_PREFIX = _layout.UNIT_TAG_PREFIX
cdef bytes METAQ_LEN_PREFIX = _layout.METAQ_LEN_PREFIX
cdef bytes METAQ_CRC_PREFIX = _layout.METAQ_CRC_PREFIX
cdef bytes METAQ_POS_PREFIX = _layout.METAQ_POS_PREFIX
cdef bytes METAQ_ID_PREFIX = _layout.METAQ_ID_PREFIX


cdef struct Record:
    # Where the parts of one record are, counted from its first byte.
    Py_ssize_t size
    uint32_t body_crc
    int32_t queue_id
    int32_t flag
    int64_t queue_offset
    int64_t physical_offset
    int32_t sys_flag
    int64_t store_ms
    Py_ssize_t body_at
    Py_ssize_t body_size
    Py_ssize_t topic_at
    Py_ssize_t topic_size
    Py_ssize_t properties_at
    Py_ssize_t properties_size
    # And, where read_reserved() was called, of the reserved properties.
    Py_ssize_t client_size
    bint has_unit_tag
    int64_t unit_tag
    int64_t metaq_position
    int64_t metaq_id
    int64_t metaq_length
    int64_t metaq_crc


cdef bint read_layout(const uint8_t *data, Py_ssize_t left, Record *record) noexcept nogil:
    """Read the fixed fields; False: this is no whole record."""
    cdef uint32_t magic
    cdef Py_ssize_t at, end, size_size = 1, topic_size_max = TOPIC_BYTES_V1_MAX
    if left < FIXED_SIZE_V4:
        return False
    end = <int32_t> imago_get32(data)
    magic = imago_get32(data + 4)
    if magic == MAGIC_V2:
        size_size, topic_size_max = 2, TOPIC_BYTES_MAX
    elif magic != MAGIC_V1:
        return False
    if end < FIXED_SIZE_V4 or end > left:
        return False
    record.size = end
    record.body_crc = imago_get32(data + 8)
    record.queue_id = <int32_t> imago_get32(data + 12)
    record.flag = <int32_t> imago_get32(data + 16)
    record.queue_offset = <int64_t> imago_get64(data + 20)
    record.physical_offset = <int64_t> imago_get64(data + 28)
    record.sys_flag = <int32_t> imago_get32(data + 36)
    at = 48 + (HOST_V6_SIZE if record.sys_flag & SYS_BORN_V6 else HOST_V4_SIZE)
    record.store_ms = <int64_t> imago_get64(data + at)
    at += 8 + (HOST_V6_SIZE if record.sys_flag & SYS_STORE_V6 else HOST_V4_SIZE) + 16
    if at > end:
        return False
    record.body_at = at
    record.body_size = <int32_t> imago_get32(data + at - 4)
    if record.body_size < 0 or record.body_size + size_size > end - at:
        return False
    at += record.body_size
    record.topic_size = data[at] if size_size == 1 else imago_get16(data + at)
    record.topic_at = at + size_size
    at = record.topic_at + record.topic_size + 2
    if record.topic_size == 0 or record.topic_size > topic_size_max or at > end:
        return False
    record.properties_at = at
    record.properties_size = <int16_t> imago_get16(data + at - 2)
    return at + record.properties_size == end


cdef bint is_property(
    const uint8_t *data, Py_ssize_t first, Py_ssize_t at, Py_ssize_t end, bytes prefix
) noexcept:
    """Whether the property with this prefix, name and 0x01, fills data[at:end]."""
    if at < first or data[end - 1] != 2 or (at > first and data[at - 1] != 2):
        return False
    return not memcmp(data + at, PyBytes_AS_STRING(prefix), PyBytes_GET_SIZE(prefix))


cdef bint read_hexadecimal(
    const uint8_t *data, Py_ssize_t digits, int64_t *into
) noexcept nogil:
    """Read the digits before data, which points behind the 0x02 after them."""
    cdef uint64_t value = 0
    cdef uint8_t digit
    cdef Py_ssize_t at
    for at in range(-digits - 1, -1):
        digit = data[at]
        if 48 <= digit <= 57:
            digit -= 48
        elif 97 <= digit <= 102:
            digit -= 87
        elif 65 <= digit <= 70:
            digit -= 55
        else:
            return False
        value = value << 4 | digit
    into[0] = <int64_t> value if digits == 16 else <int32_t> value
    return True


cdef bint read_reserved(const uint8_t *data, Record *record) noexcept:
    """Read the reserved properties backwards from the record's end; False: they are damaged."""
    cdef Py_ssize_t first = record.properties_at, end = record.size, at = end - CRC32_SIZE
    cdef Py_ssize_t id_at, place, shape
    record.metaq_position = record.metaq_id = record.metaq_length = record.metaq_crc = -1
    record.has_unit_tag = False
    if not is_property(data, first, at, end, CRC32_PREFIX):
        return False
    id_at = at - ID_SIZE
    place = at - METAQ_PLACE_SIZE
    if is_property(data, first, id_at, at, METAQ_ID_PREFIX) and is_property(
        data, first, place, id_at, METAQ_POS_PREFIX
    ):
        if not read_hexadecimal(data + at, 16, &record.metaq_id) or not read_hexadecimal(
            data + id_at, 16, &record.metaq_position
        ):
            return False
        at = place
        shape = at - METAQ_SHAPE_SIZE
        id_at = at - SHAPE_CRC_SIZE
        if is_property(data, first, id_at, at, METAQ_CRC_PREFIX) and is_property(
            data, first, shape, id_at, METAQ_LEN_PREFIX
        ):
            if not read_hexadecimal(data + at, 8, &record.metaq_crc) or not read_hexadecimal(
                data + id_at, 8, &record.metaq_length
            ):
                return False
            at = shape
    if is_property(data, first, at - UNIT_TAG_SIZE, at, UNIT_TAG_PREFIX):
        if not read_hexadecimal(data + at, 16, &record.unit_tag):
            return False
        record.has_unit_tag = True
        at -= UNIT_TAG_SIZE
    record.client_size = at - first
    return True


cdef bint checksum_matches(const uint8_t *data, Record *record) noexcept nogil:
    cdef Py_ssize_t covered = record.size - CRC32_SIZE, digit
    cdef uint32_t checksum = imago_crc32(0, data, covered) & CRC31_MASK
    for digit in range(record.size - 11, record.size - 1):
        if data[digit] != 48 + checksum % 10:
            return False
        checksum = checksum // 10
    return True


cdef bint has_checksum(const uint8_t *data, Record *record) noexcept:
    cdef Py_ssize_t at = record.size - CRC32_SIZE
    return is_property(
        data, record.properties_at, at, record.size, CRC32_PREFIX
    ) and checksum_matches(data, record)


cdef bint read_record(
    const uint8_t *data, Py_ssize_t left, Record *record, bint verify
) noexcept:
    if not read_layout(data, left, record) or not read_reserved(data, record):
        return False
    return not verify or checksum_matches(data, record)


cdef inline int64_t tag_code(const uint8_t *tags, size_t size) except? -1:
    cdef uint32_t code = 0
    cdef size_t at
    for at in range(size):
        if tags[at] >= 128:
            return _cached_tag_code(PyBytes_FromStringAndSize(<const char *> tags, size))
        code = 31 * code + tags[at]
    return <int32_t> code


cdef int place_of(const uint8_t *data, Record *record, int64_t *code, int64_t *metaq_size) except -1:
    """Compute what the units of a record hold beside its place: tag code and MetaQ size."""
    cdef size_t tags_size = 0
    cdef const uint8_t *tags = imago_find_property(
        data + record.properties_at, record.client_size, b"TAGS\x01", 5, &tags_size
    )
    code[0] = metaq_size[0] = 0
    if record.has_unit_tag:
        code[0] = record.unit_tag
    elif tags != NULL:
        code[0] = tag_code(tags, tags_size)
    if record.metaq_id >= 0:
        metaq_size[0] = METAQ_HEADER_SIZE + record.body_size
        if tags != NULL:
            metaq_size[0] += 4 + tags_size
        if record.metaq_length >= 0:
            metaq_size[0] = METAQ_HEADER_SIZE + record.metaq_length
    return 0


cdef object view_of(const uint8_t *data, Py_ssize_t at, Record *record):
    """Make the RecordView of a record that was read."""
    cdef int64_t metaq_size = 0, code = 0
    place_of(data, record, &code, &metaq_size)
    fields = (
        at,
        record.size,
        PyBytes_FromStringAndSize(<const char *> data + record.topic_at, record.topic_size),
        record.queue_id,
        record.queue_offset,
        record.physical_offset,
        record.sys_flag,
        record.flag,
        record.store_ms,
        at + record.body_at,
        record.body_size,
        at + record.properties_at,
        record.client_size,
        code,
        record.metaq_position,
        record.metaq_id,
        metaq_size,
    )
    return _new_tuple(RecordView, fields)


def scan_records(data, physical_offset, *, bint verify=True):
    """Return the records at the start of data, whose first byte is at ``physical_offset``."""
    cdef Py_buffer view
    cdef Record record
    cdef Py_ssize_t at = 0
    cdef int64_t offset
    cdef const uint8_t *start
    cdef list views = []
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        offset = physical_offset
        start = <const uint8_t *> view.buf
        while (
            read_record(start + at, view.len - at, &record, verify)
            and record.physical_offset == offset + at
        ):
            views.append(view_of(start + at, at, &record))
            at += record.size
        if at == view.len:
            return Scan(views, at, _END, "")
        # The reference says why no further record is one.
        rest = _reference.scan_records(memoryview(data)[at:], offset + at, verify=verify)
    finally:
        PyBuffer_Release(&view)
    return Scan(views, at, rest.stop, rest.reason)


def whole_records(data, physical_offset, *, bint verify=True):
    """Return how far the records reach that scan_records() would return, why, and the reason."""
    cdef Py_buffer view
    cdef Record record
    cdef Py_ssize_t at = 0
    cdef int64_t offset
    cdef const uint8_t *start
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        offset = physical_offset
        start = <const uint8_t *> view.buf
        while (
            read_record(start + at, view.len - at, &record, verify)
            and record.physical_offset == offset + at
        ):
            at += record.size
        if at == view.len:
            return at, _END, ""
        _, stop, reason = _reference.whole_records(
            memoryview(data)[at:], offset + at, verify=verify
        )
    finally:
        PyBuffer_Release(&view)
    return at, stop, reason


def queue_records(
    data, physical_offset, bytes topic not None, queue_id, queue_offset, *, bint verify=True
):
    """Return how many bytes are the records of one queue from a queue offset on."""
    cdef Py_buffer view
    cdef Record record
    cdef Py_ssize_t at = 0
    cdef int64_t place = physical_offset, number = queue_id, offset = queue_offset
    cdef const uint8_t *start
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        start = <const uint8_t *> view.buf
        while read_layout(start + at, view.len - at, &record) and is_of_queue(
            start + at, &record, place + at, topic, number, offset, verify
        ):
            at += record.size
            offset += 1
    finally:
        PyBuffer_Release(&view)
    return at


cdef inline bint is_of_queue(
    const uint8_t *data, Record *record, int64_t place, bytes topic, int64_t queue_id,
    int64_t offset, bint verify
) noexcept:
    """Whether a record that was read stands at this place of the log and of this queue."""
    # The reserved properties need no look of their own: the checksum covers them.
    return (
        record.physical_offset == place
        and record.queue_offset == offset
        and record.queue_id == queue_id
        and record.topic_size == PyBytes_GET_SIZE(topic)
        and not memcmp(data + record.topic_at, PyBytes_AS_STRING(topic), record.topic_size)
        and (not verify or has_checksum(data, record))
    )


def fitting_units(bytes units not None, int64_t bytes_max):
    """Return how many of a queue's units one read may take, and their records' size."""
    cdef const uint8_t *unit = <const uint8_t *> PyBytes_AS_STRING(units)
    cdef Py_ssize_t count, left = PyBytes_GET_SIZE(units) // UNIT_SIZE
    cdef int64_t size, total = 0
    for count in range(left):
        size = <int32_t> imago_get32(unit + count * UNIT_SIZE + 8)
        if size <= 0 or (count and total + size > bytes_max):
            return count, total
        total += size
    return left, total


def gather_records(
    window, int64_t window_at, bytes units not None, Py_ssize_t first, bytes topic not None,
    int64_t queue_id, int64_t offset, *, bint verify=True
):
    """Return the records of a queue's units that lie in a part of the log, and where that ends."""
    cdef Py_buffer view
    cdef Record record
    cdef const uint8_t *unit = <const uint8_t *> PyBytes_AS_STRING(units)
    cdef const uint8_t *start
    cdef Py_ssize_t count = PyBytes_GET_SIZE(units) // UNIT_SIZE, at, end = first, total = 0, size
    cdef int64_t place
    cdef bytes joined
    cdef char *to
    PyObject_GetBuffer(window, &view, PyBUF_SIMPLE)
    try:
        start = <const uint8_t *> view.buf
        while end < count:
            place = <int64_t> imago_get64(unit + end * UNIT_SIZE)
            size = <int32_t> imago_get32(unit + end * UNIT_SIZE + 8)
            if place < window_at or size <= 0 or size > view.len:
                break
            if place - window_at > view.len - size:
                break
            if not read_layout(start + (place - window_at), size, &record) or record.size != size:
                break
            if not is_of_queue(
                start + (place - window_at), &record, place, topic, queue_id, offset + end, verify
            ):
                break
            total += size
            end += 1
        joined = PyBytes_FromStringAndSize(NULL, total)
        to = PyBytes_AS_STRING(joined)
        for at in range(first, end):
            place = <int64_t> imago_get64(unit + at * UNIT_SIZE)
            size = <int32_t> imago_get32(unit + at * UNIT_SIZE + 8)
            memcpy(to, start + (place - window_at), size)
            to += size
    finally:
        PyBuffer_Release(&view)
    return joined, end


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


cdef inline uint8_t *grown(bytearray view, Py_ssize_t size) except NULL:
    """Make a view longer by ``size`` bytes and return where they are."""
    cdef Py_ssize_t end = PyByteArray_GET_SIZE(view)
    PyByteArray_Resize(view, end + size)
    return <uint8_t *> PyByteArray_AS_STRING(view) + end


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
        _reference.view_record(data, at)
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
                    if slot.dual and record.metaq_id < 0:
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


def view_record(data, Py_ssize_t at=0, *, bint verify=False):
    """Return where the parts of the record at ``at`` are."""
    cdef Py_buffer view
    cdef Record record
    cdef const uint8_t *start
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        start = <const uint8_t *> view.buf + at
        if 0 <= at <= view.len and read_record(start, view.len - at, &record, verify):
            return view_of(start, at, &record)
    finally:
        PyBuffer_Release(&view)
    return _reference.view_record(data, at, verify=verify)


cdef struct Form:
    # One record on its way to MetaQ's stored form.
    const uint8_t *body
    Py_ssize_t body_size
    const uint8_t *tags
    size_t tags_size
    Py_ssize_t length
    uint32_t checksum
    int32_t flag
    int64_t metaq_id


cdef bint read_form(const uint8_t *data, Py_ssize_t left, Form *form) noexcept:
    """Read what MetaQ's form needs; False: that is the reference's work."""
    cdef Record record
    cdef uint8_t size[4]
    if not read_record(data, left, &record, False):
        return False
    if record.metaq_id < 0 or record.metaq_length >= 0:
        return False
    form.body = data + record.body_at
    form.body_size = form.length = record.body_size
    form.metaq_id = record.metaq_id
    form.checksum = record.body_crc
    form.flag = record.flag & ~1
    form.tags = imago_find_property(
        data + record.properties_at, record.client_size, b"TAGS\x01", 5, &form.tags_size
    )
    if form.tags != NULL:
        form.length += 4 + form.tags_size
        form.flag |= 1
        imago_put32(size, form.tags_size)
        form.checksum = imago_crc32(0, size, 4)
        form.checksum = imago_crc32(form.checksum, form.tags, form.tags_size)
        form.checksum = imago_crc32(form.checksum, form.body, form.body_size)
        # See the reference: damage of the body must show.
        form.checksum ^= imago_crc32(0, form.body, form.body_size) ^ record.body_crc
        form.checksum &= CRC31_MASK
    return True


cdef uint8_t *put_head(uint8_t *to, Form *form) noexcept nogil:
    imago_put32(to, form.length)
    imago_put32(to + 4, form.checksum)
    imago_put64(to + 8, form.metaq_id)
    imago_put32(to + 16, form.flag)
    to += 20
    if form.tags != NULL:
        imago_put32(to, form.tags_size)
        memcpy(to + 4, form.tags, form.tags_size)
        to += 4 + form.tags_size
    return to


def metaq_form(record, Py_ssize_t at=0):
    """Return one record in MetaQ's stored form: header with attribute prefix, and payload."""
    cdef Py_buffer view
    cdef Form form
    cdef bytes head
    cdef Py_ssize_t body_at
    PyObject_GetBuffer(record, &view, PyBUF_SIMPLE)
    try:
        if not 0 <= at <= view.len or not read_form(
            <const uint8_t *> view.buf + at, view.len - at, &form
        ):
            return _reference.metaq_form(record, at)
        head = PyBytes_FromStringAndSize(NULL, METAQ_HEADER_SIZE + form.length - form.body_size)
        put_head(<uint8_t *> PyBytes_AS_STRING(head), &form)
        body_at = form.body - <const uint8_t *> view.buf
    finally:
        PyBuffer_Release(&view)
    return head, memoryview(record)[body_at:body_at + form.body_size]


def metaq_block(records):
    """Return whole records, one in each element, in MetaQ's stored form, one after the other."""
    cdef list sources = list(records)
    cdef Py_ssize_t count = len(sources), n, opened = 0, size = 0
    cdef Py_buffer *views
    cdef Form *forms
    cdef bytes block
    cdef uint8_t *to
    cdef bint plain = True
    views = <Py_buffer *> PyMem_Malloc((count or 1) * (sizeof(Py_buffer) + sizeof(Form)))
    if views == NULL:
        raise MemoryError
    forms = <Form *> (views + count)
    try:
        while plain and opened < count:
            PyObject_GetBuffer(sources[opened], &views[opened], PyBUF_SIMPLE)
            opened += 1
            n = opened - 1
            plain = read_form(<const uint8_t *> views[n].buf, views[n].len, &forms[n])
            size += METAQ_HEADER_SIZE + forms[n].length
        if plain:
            block = PyBytes_FromStringAndSize(NULL, size)
            to = <uint8_t *> PyBytes_AS_STRING(block)
            for n in range(count):
                to = put_head(to, &forms[n])
                memcpy(to, forms[n].body, forms[n].body_size)
                to += forms[n].body_size
            return block
    finally:
        for n in range(opened):
            PyBuffer_Release(&views[n])
        PyMem_Free(views)
    return b"".join([part for record in sources for part in metaq_form(record)])


def metaq_whole(data):
    """Return the size of the whole messages in MetaQ's form at the start of data."""
    cdef Py_buffer view
    cdef const uint8_t *start
    cdef Py_ssize_t at = 0, length
    cdef uint32_t checksum
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        start = <const uint8_t *> view.buf
        while view.len - at >= METAQ_HEADER_SIZE:
            length = <int32_t> imago_get32(start + at)
            if length < 0 or length > view.len - at - METAQ_HEADER_SIZE:
                break
            checksum = imago_get32(start + at + 4)
            if not imago_get64(start + at + 8):
                break
            if imago_crc32(0, start + at + METAQ_HEADER_SIZE, length) & CRC31_MASK != checksum:
                break
            at += METAQ_HEADER_SIZE + length
    finally:
        PyBuffer_Release(&view)
    return at


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
    cdef const uint8_t *keys
    cdef const uint8_t *stop
    cdef size_t left = 0, size
    cdef uint32_t topic_crc = imago_crc32(0, data + record.topic_at, record.topic_size)
    topic_crc = imago_crc32(topic_crc, <const uint8_t *> <const char *> b"#", 1)
    keys = imago_find_property(
        properties, record.properties_size, b"UNIQ_KEY\x01", 9, &left
    )
    if keys != NULL and left:
        add_key(entries, imago_crc32(topic_crc, keys, left), physical_offset)
    keys = imago_find_property(properties, record.properties_size, b"KEYS\x01", 5, &left)
    while keys != NULL and left:
        stop = <const uint8_t *> memchr(keys, 32, left)
        size = left if stop == NULL else stop - keys
        if size:
            add_key(entries, imago_crc32(topic_crc, keys, size), physical_offset)
        if stop == NULL:
            break
        keys += size + 1
        left -= size + 1
    return 0


cdef int add_key(bytearray entries, uint32_t key_hash, int64_t physical_offset) except -1:
    cdef uint8_t entry[12]
    imago_put32(entry, key_hash)
    imago_put64(entry + 4, physical_offset)
    entries.extend((<char *> entry)[:12])
    return 0
