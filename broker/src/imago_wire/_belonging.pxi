# Where a message belongs that waited somewhere else, as its properties say.
# Included behind `_common.pxi`.

from cpython.dict cimport PyDict_GetItem
from cpython.list cimport PyList_GET_SIZE
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_DecodeUTF8


cdef inline bint begins(
    const uint8_t *data, Py_ssize_t size, const char *known, Py_ssize_t known_size
) noexcept nogil:
    return size >= known_size and data[0] == <uint8_t> known[0] and not memcmp(
        data, known, known_size
    )


cdef inline bint is_rare(const uint8_t *part, Py_ssize_t size) noexcept nogil:
    if part[0] == 95:
        return (
            begins(part, size, b"__IMAGO_", 8)
            or begins(part, size, b"__METAQ_", 8)
            or begins(part, size, b"__UNIT_TAG", 10)
            or begins(part, size, b"__CRC32#", 8)
            or begins(part, size, b"__RMQ.TR", 8)
        )
    return part[0] == 73 and begins(part, size, b"IMAGO_SHAPE", 11)


# Neighbours are often for the same topic: one object for all.
cdef bytes _topic = b""
cdef str _topic_name = ""


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


cdef struct Tags:
    # The value of TAGS, which stays where the properties are; NULL: there is none.
    const uint8_t *at
    size_t size


cdef object tail_of(const uint8_t *data, Py_ssize_t size, dict tails_of, Tags *tags):
    """Return the queue that a message is meant for, and find its tags; None: a closer look."""
    cdef const uint8_t *end = data + size
    cdef const uint8_t *at = data
    cdef const uint8_t *stop
    cdef const uint8_t *topic = NULL
    cdef const uint8_t *queue = NULL
    cdef Py_ssize_t topic_size = 0, queue_size = 0, digit, queue_id = 0
    cdef str name
    cdef PyObject *found
    tags.at, tags.size = NULL, 0
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
        elif begins(at, stop - at, b"TAGS\x01", 5):
            tags.at, tags.size = at + 5, stop - at - 5
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
