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


cdef struct Belonging:
    # What the properties say, as bytes that stay where they are.
    const uint8_t *topic
    Py_ssize_t topic_size
    Py_ssize_t queue_id
    const uint8_t *tags  # NULL: there are none
    size_t tags_size


cdef bint read_belonging(const uint8_t *data, Py_ssize_t size, Belonging *into) noexcept nogil:
    """Find where a message belongs; False: it needs a closer look."""
    cdef const uint8_t *end = data + size
    cdef const uint8_t *stop
    cdef const uint8_t *queue = NULL
    cdef Py_ssize_t queue_size = 0, digit
    into.topic = into.tags = NULL
    into.topic_size = into.tags_size = into.queue_id = 0
    while data < end:
        stop = <const uint8_t *> memchr(data, 2, end - data)
        if stop == NULL:
            stop = end
        if is_rare(data, stop - data):
            return False
        if begins(data, stop - data, b"REAL_TOPIC\x01", 11):
            into.topic, into.topic_size = data + 11, stop - data - 11
        elif begins(data, stop - data, b"REAL_QID\x01", 9):
            queue, queue_size = data + 9, stop - data - 9
        elif begins(data, stop - data, b"TAGS\x01", 5):
            into.tags, into.tags_size = data + 5, stop - data - 5
        data = stop + 1
    if into.topic == NULL or queue == NULL or not 1 <= queue_size <= 9:
        return False
    for digit in range(queue_size):
        if not 48 <= queue[digit] <= 57:
            return False
        into.queue_id = into.queue_id * 10 + queue[digit] - 48
    return True


cdef list queues_of(Belonging *there, dict tails_of):
    """Return the queues of a message's topic; None: they need a closer look."""
    cdef PyObject *found
    cdef str name = name_of(there.topic, there.topic_size)
    if name is None:
        return None
    found = PyDict_GetItem(tails_of, name)
    return None if found == NULL else <list?> found


cdef inline object tail_of(Belonging *there, list queues):
    """Return the queue that a message is meant for; None: it needs a closer look."""
    if queues is None or there.queue_id >= PyList_GET_SIZE(queues):
        return None
    return queues[there.queue_id]
