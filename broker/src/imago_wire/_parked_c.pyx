# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: binding=False, cdivision=True
"""Messages that waited, into entries: the compiled twin of ``_parked_py``."""

from cpython.dict cimport PyDict_GetItem
from cpython.list cimport PyList_GET_SIZE
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.string cimport memchr

from imago_wire.sequences import TIMER_MARK as _TIMER_MARK

include "_common.pxi"
include "_reading.pxi"

cdef extern from "_hot.h" nogil:
    int imago_put_decimal(uint8_t *to, int64_t value)

cdef int32_t _HOSTS = _layout.SYS_BORN_V6 | _layout.SYS_STORE_V6
cdef int32_t SYS_COMMIT = _layout.SYS_COMMIT
cdef Py_ssize_t CLIENT_PROPERTIES_BYTES_MAX = _layout.CLIENT_PROPERTIES_BYTES_MAX
cdef Py_ssize_t BODY_BYTES_MAX = _layout.BODY_BYTES_MAX
cdef Py_ssize_t WAITING_PLACE_SIZE = _layout.WAITING_PLACE.size
cdef Py_ssize_t UNIT_SIZE = _layout.UNIT.size
cdef bytes _MARK = _TIMER_MARK + b"\x01"


def restore_records(
    bytes data not None, Py_ssize_t at, Py_ssize_t count_max, int64_t due_ms,
    dict tails_of not None, int64_t queue_id, list entries not None, bytearray places not None
):
    """As `_parked_py.restore_records`."""
    cdef const uint8_t *start = <const uint8_t *> PyBytes_AS_STRING(data)
    cdef Py_ssize_t end = PyBytes_GET_SIZE(data)
    cdef Record record
    cdef object entry
    cdef uint8_t *place
    while count_max > 0 and at < end:
        if not read_layout(start + at, end - at, &record):
            break
        if not read_reserved(start + at, &record):
            break
        if record.sys_flag & ~_HOSTS or not record.has_unit_tag or record.unit_tag > due_ms:
            break
        entry = restored(start + at, &record, tails_of, queue_id)
        if entry is None:
            break
        entries.append(entry)
        place = grown(places, WAITING_PLACE_SIZE)
        imago_put16(place, queue_id)
        imago_put64(place + 2, record.queue_offset)
        at += record.size
        count_max -= 1
    return at


cdef object restored(
    const uint8_t *data, Record *record, dict tails_of, int64_t queue_id
):
    """Return the entry of one record; None: it needs a closer look."""
    cdef const uint8_t *properties = data + record.properties_at
    cdef Py_ssize_t size = record.client_size
    cdef Py_ssize_t host_size = HOST_V6_SIZE if record.sys_flag & SYS_BORN_V6 else HOST_V4_SIZE
    cdef Py_ssize_t store_host_size = HOST_V6_SIZE if record.sys_flag & SYS_STORE_V6 else HOST_V4_SIZE
    cdef uint8_t mark[64]
    cdef int mark_size
    cdef bytes kept
    cdef char *to
    cdef object tail = tail_of(properties, size, tails_of)
    if tail is None or size == 0 or properties[size - 1] != 2:
        return None
    mark_size = imago_put_decimal(mark, queue_id)
    mark[mark_size] = 45
    mark_size += 1 + imago_put_decimal(mark + mark_size + 1, record.queue_offset)
    mark[mark_size] = 2
    mark_size += 1
    if (
        size + PyBytes_GET_SIZE(_MARK) + mark_size > CLIENT_PROPERTIES_BYTES_MAX
        or record.body_size > BODY_BYTES_MAX
    ):
        return None
    kept = PyBytes_FromStringAndSize(NULL, size + PyBytes_GET_SIZE(_MARK) + mark_size)
    to = PyBytes_AS_STRING(kept)
    memcpy(to, properties, size)
    memcpy(to + size, PyBytes_AS_STRING(_MARK), PyBytes_GET_SIZE(_MARK))
    memcpy(to + size + PyBytes_GET_SIZE(_MARK), mark, mark_size)
    return (
        tail,
        PyBytes_FromStringAndSize(<const char *> data + record.body_at, record.body_size),
        kept,
        record.flag,
        0,
        <int64_t> imago_get64(data + 40),
        host_of(data + 48, host_size),
        <int32_t> imago_get32(data + 48 + host_size + 8 + store_host_size),
        0,
        None,
        None,
        -1,
    )


def due_units(bytes units not None, int64_t due_ms):
    """As `_parked_py.due_units`."""
    cdef const uint8_t *unit = <const uint8_t *> PyBytes_AS_STRING(units)
    cdef Py_ssize_t at = 0, count = PyBytes_GET_SIZE(units) // UNIT_SIZE
    while at < count and <int64_t> imago_get64(unit + at * UNIT_SIZE + 12) <= due_ms:
        at += 1
    return at


def restore_half(tuple half not None, int64_t place, dict tails_of not None):
    """As `_parked_py.restore_half`."""
    cdef bytes properties = half[2], kept
    cdef const uint8_t *data = <const uint8_t *> PyBytes_AS_STRING(properties)
    cdef const uint8_t *end = data + PyBytes_GET_SIZE(properties)
    cdef const uint8_t *stop
    cdef const uint8_t *name_end
    cdef Py_ssize_t size = 0, part
    cdef char *to
    cdef object tail
    if half[4] or data == end or (end - 1)[0] != 2:
        return None
    tail = tail_of(data, PyBytes_GET_SIZE(properties), tails_of)
    if tail is None:
        return None
    kept = PyBytes_FromStringAndSize(NULL, PyBytes_GET_SIZE(properties))
    to = PyBytes_AS_STRING(kept)
    while data < end:
        stop = <const uint8_t *> memchr(data, 2, end - data)
        part = stop - data
        if part == 0 or begins(data, part, b"DELAY", 5) or begins(data, part, b"TIMER_", 6):
            return None
        name_end = <const uint8_t *> memchr(data, 1, part)
        if not is_of_the_half(data, part if name_end == NULL else name_end - data):
            memcpy(to + size, data, part + 1)
            size += part + 1
        data = stop + 1
    return (
        tail, half[1], kept[:size], half[3], SYS_COMMIT, half[5], half[6], half[7], place, None,
        None, -1,
    )


cdef inline bint begins(
    const uint8_t *data, Py_ssize_t size, const char *known, Py_ssize_t known_size
) noexcept nogil:
    return size >= known_size and data[0] == <uint8_t> known[0] and not memcmp(
        data, known, known_size
    )


cdef inline bint is_name(
    const uint8_t *data, Py_ssize_t size, const char *known, Py_ssize_t known_size
) noexcept nogil:
    return size == known_size and memcmp(data, known, known_size) == 0


cdef inline bint is_of_the_half(const uint8_t *name, Py_ssize_t size) noexcept nogil:
    return (
        is_name(name, size, b"TRAN_MSG", 8)
        or is_name(name, size, b"REAL_TOPIC", 10)
        or is_name(name, size, b"REAL_QID", 8)
        or is_name(name, size, b"TRANSACTION_CHECK_TIMES", 23)
        or is_name(name, size, b"TRAN_PREPARED_QUEUE_OFFSET", 26)
    )


cdef inline bint is_rare(const uint8_t *part, Py_ssize_t size) noexcept nogil:
    if part[0] == 95:
        return (
            begins(part, size, b"__IMAGO_", 8)
            or begins(part, size, b"__METAQ_", 8)
            or begins(part, size, b"__UNIT_TAG", 10)
            or begins(part, size, b"__CRC32#", 8)
        )
    return part[0] == 73 and begins(part, size, b"IMAGO_SHAPE", 11)


# Neighbours are often from the same host, and for the same topic: one object each.
cdef bytes _host = b""
cdef bytes _topic = b""
cdef str _topic_name = ""


cdef inline bytes host_of(const uint8_t *host, Py_ssize_t size):
    global _host
    if PyBytes_GET_SIZE(_host) != size or memcmp(PyBytes_AS_STRING(_host), host, size):
        _host = PyBytes_FromStringAndSize(<const char *> host, size)
    return _host


cdef inline str name_of(const uint8_t *topic, Py_ssize_t size):
    """Return a topic's name; None: it is none."""
    global _topic, _topic_name
    if PyBytes_GET_SIZE(_topic) != size or memcmp(PyBytes_AS_STRING(_topic), topic, size):
        try:
            name = PyUnicode_DecodeUTF8(<const char *> topic, size, NULL)
        except UnicodeDecodeError:
            return None
        _topic, _topic_name = PyBytes_FromStringAndSize(<const char *> topic, size), name
    return _topic_name


cdef object tail_of(const uint8_t *data, Py_ssize_t size, dict tails_of):
    """Return the queue that a message is meant for; None: it needs a closer look."""
    cdef const uint8_t *end = data + size
    cdef const uint8_t *at = data
    cdef const uint8_t *stop
    cdef const uint8_t *topic = NULL
    cdef const uint8_t *queue = NULL
    cdef Py_ssize_t topic_size = 0, queue_size = 0, digit, queue_id = 0
    cdef str name
    cdef PyObject *found
    while at < end:
        stop = <const uint8_t *> memchr(at, 2, end - at)
        if stop == NULL:
            stop = end
        if is_rare(at, stop - at):
            return None
        if begins(at, stop - at, b"REAL_TOPIC\x01", 11):
            topic, topic_size = at + 11, stop - at - 11
        elif begins(at, stop - at, b"REAL_QID\x01", 9):
            queue, queue_size = at + 9, stop - at - 9
        at = stop + 1
    if topic == NULL or queue == NULL or not 1 <= queue_size <= 9:
        return None
    for digit in range(queue_size):
        if not 48 <= queue[digit] <= 57:
            return None
        queue_id = queue_id * 10 + queue[digit] - 48
    name = name_of(topic, topic_size)
    if name is None:
        return None
    found = PyDict_GetItem(tails_of, name)
    if found == NULL or queue_id >= PyList_GET_SIZE(<list?> found):
        return None
    return (<list> found)[queue_id]
