# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: binding=False, cdivision=True
"""Messages that waited, into entries: the compiled twin of ``_parked_py``."""

from cpython.dict cimport PyDict_GetItem
from cpython.list cimport PyList_GET_SIZE
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdio cimport snprintf
from libc.string cimport memchr

from imago_wire.sequences import TIMER_MARK as _TIMER_MARK

include "_common.pxi"
include "_reading.pxi"

cdef int32_t _HOSTS = _layout.SYS_BORN_V6 | _layout.SYS_STORE_V6
cdef int32_t SYS_COMMIT = _layout.SYS_COMMIT
cdef Py_ssize_t CLIENT_PROPERTIES_BYTES_MAX = _layout.CLIENT_PROPERTIES_BYTES_MAX
cdef Py_ssize_t BODY_BYTES_MAX = _layout.BODY_BYTES_MAX
cdef bytes _MARK = _TIMER_MARK + b"\x01"


def restore_records(
    bytes data not None, Py_ssize_t at, Py_ssize_t count_max, int64_t due_ms,
    dict tails_of not None, int64_t queue_id, list entries not None, list places not None
):
    """As `_parked_py.restore_records`."""
    cdef const uint8_t *start = <const uint8_t *> PyBytes_AS_STRING(data)
    cdef Py_ssize_t end = PyBytes_GET_SIZE(data)
    cdef Record record
    cdef object entry
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
        places.append((queue_id, record.queue_offset))
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
    cdef char mark[64]
    cdef int mark_size
    cdef bytes kept, host
    cdef char *to
    cdef object tail = tail_of(properties, size, tails_of)
    if tail is None or size == 0 or properties[size - 1] != 2:
        return None
    mark_size = snprintf(
        mark, 64, b"%lld-%lld\x02", <long long> queue_id, <long long> record.queue_offset
    )
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
        PyBytes_FromStringAndSize(<const char *> data + 48, host_size),
        <int32_t> imago_get32(data + 48 + host_size + 8 + store_host_size),
        0,
        None,
        None,
        -1,
    )


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
    return size >= known_size and memcmp(data, known, known_size) == 0


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
    return (
        begins(part, size, b"__IMAGO_", 8)
        or begins(part, size, b"__METAQ_", 8)
        or begins(part, size, b"__UNIT_TAG", 10)
        or begins(part, size, b"__CRC32#", 8)
        or begins(part, size, b"IMAGO_SHAPE", 11)
    )


cdef object tail_of(const uint8_t *data, Py_ssize_t size, dict tails_of):
    """Return the queue that a message is meant for; None: it needs a closer look."""
    cdef const uint8_t *end = data + size
    cdef const uint8_t *at = data
    cdef const uint8_t *stop
    cdef const uint8_t *topic
    cdef const uint8_t *queue
    cdef size_t topic_size = 0, queue_size = 0, digit
    cdef Py_ssize_t queue_id = 0
    cdef PyObject *found
    while at < end:
        stop = <const uint8_t *> memchr(at, 2, end - at)
        if stop == NULL:
            stop = end
        if is_rare(at, stop - at):
            return None
        at = stop + 1
    topic = imago_find_property(data, size, b"REAL_TOPIC\x01", 11, &topic_size)
    queue = imago_find_property(data, size, b"REAL_QID\x01", 9, &queue_size)
    if topic == NULL or queue == NULL or not 1 <= queue_size <= 9:
        return None
    for digit in range(queue_size):
        if not 48 <= queue[digit] <= 57:
            return None
        queue_id = queue_id * 10 + queue[digit] - 48
    try:
        name = PyUnicode_DecodeUTF8(<const char *> topic, topic_size, NULL)
    except UnicodeDecodeError:
        return None
    found = PyDict_GetItem(tails_of, name)
    if found == NULL or queue_id >= PyList_GET_SIZE(<list?> found):
        return None
    return (<list> found)[queue_id]
