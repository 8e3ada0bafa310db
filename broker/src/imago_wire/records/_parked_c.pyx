# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: binding=False, cdivision=True
"""Half messages into entries, and what is due: a part of the compiled twin of ``_parked_py``.

Runs of parked records are made in `_runs.pxi`, beside the builder that takes them.
"""

from libc.string cimport memchr

include "_common.pxi"
include "_belonging.pxi"

cdef int32_t SYS_COMMIT = _layout.SYS_COMMIT
cdef Py_ssize_t UNIT_SIZE = _layout.UNIT.size


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
    cdef Belonging there
    if half[4] or data == end or (end - 1)[0] != 2:
        return None
    if not read_belonging(data, PyBytes_GET_SIZE(properties), &there):
        return None
    tail = tail_of(&there, queues_of(&there, tails_of))
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
