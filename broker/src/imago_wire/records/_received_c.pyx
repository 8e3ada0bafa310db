# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: binding=False, cdivision=True
"""The records of a pull's answer as messages of a consumer: the compiled twin of ``_received_py``."""

include "_common.pxi"
include "_reading.pxi"

from imago_wire.records import _received_py as _reference


cdef class CutRecord:
    """As `_received_py.CutRecord`."""

    cdef readonly object queue
    cdef readonly object topic
    cdef readonly object error
    cdef readonly bytes head
    cdef readonly bytes held
    cdef readonly bytes tail
    cdef readonly Py_ssize_t properties_at
    cdef readonly int64_t offset
    cdef readonly int32_t sys_flag
    cdef readonly object decoded

    def __init__(self, object queue, object topic, object stored, object error=None):
        self.queue, self.topic, self.error, self.decoded = queue, topic, error, stored
        self.head, self.held, self.tail = b"", stored.body, b""
        self.properties_at, self.offset = 0, stored.queue_offset
        self.sys_flag = stored.sys_flag

    def keep(self, object stored not None):
        """As `_received_py.CutRecord.keep`."""
        self.decoded = stored

    def __copy__(self):
        return self


def cut_records(object kind not None, bytes data not None, object queue, str topic not None):
    """As `_received_py.cut_records`."""
    cdef const uint8_t *start = <const uint8_t *> PyBytes_AS_STRING(data)
    cdef const uint8_t *record
    cdef Py_ssize_t at = 0, size = PyBytes_GET_SIZE(data), body_end
    cdef Record there
    cdef CutRecord one
    cdef bytes name = topic.encode("utf-8", "surrogatepass")
    cdef object new = kind.__new__
    cdef list found = []
    while at < size:
        record = start + at
        if not read_layout(record, size - at, &there):
            return say_what_is_wrong(data, queue, topic)
        if imago_crc32(0, record + there.body_at, there.body_size) & CRC31_MASK != there.body_crc:
            return say_what_is_wrong(data, queue, topic)
        one = <CutRecord?> new(kind)
        body_end = there.body_at + there.body_size
        one.queue = queue
        if there.topic_size == PyBytes_GET_SIZE(name) and not memcmp(
            record + there.topic_at, PyBytes_AS_STRING(name), there.topic_size
        ):
            one.topic = topic
        else:
            one.topic = record[there.topic_at : there.topic_at + there.topic_size].decode(
                "utf-8", "replace"
            )
        one.head = PyBytes_FromStringAndSize(<const char *> record, there.body_at)
        one.held = PyBytes_FromStringAndSize(
            <const char *> record + there.body_at, there.body_size
        )
        one.tail = PyBytes_FromStringAndSize(
            <const char *> record + body_end, there.size - body_end
        )
        one.properties_at = there.properties_at - body_end
        one.offset = there.queue_offset
        one.sys_flag = there.sys_flag
        found.append(one)
        at += there.size
    return found


cdef list say_what_is_wrong(bytes data, object queue, str topic):
    """Raise the error that the reference finds in the same bytes."""
    _reference.cut_records(_reference.CutRecord, data, queue, topic)
    raise AssertionError("the reference finds nothing wrong")
