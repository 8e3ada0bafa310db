"""Sends straight from a read to entries of the log, and their answers; part of `_remoting_c`."""


def take_sends(
    data not None, tuple limits, dict tails_of not None, bytes born_host not None,
    bytes suffix not None, list entries not None, list asked not None, parking=None, grants=None
):
    """As `_remoting_py.take_sends`."""
    cdef Py_buffer buffer
    cdef Bytes start
    cdef Py_ssize_t at = 0, size
    cdef long long frame_bytes_max, body_bytes_max, count_max
    cdef int taken
    frame_bytes_max, body_bytes_max, count_max = limits
    if (
        PyBytes_GET_SIZE(born_host) != _host_v4_size
        and PyBytes_GET_SIZE(born_host) != _host_v6_size
    ):
        return 0
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    try:
        start = <Bytes>buffer.buf
        while count_max > 0:
            size = _whole_frame(start + at, buffer.len - at, frame_bytes_max)
            if size == 0:
                break
            taken = _take_send(
                start + at, size, body_bytes_max, tails_of, born_host, suffix, entries, asked,
                parking, grants,
            )
            if taken < 0:
                frame = PyBytes_FromStringAndSize(<const char*>start + at, size)
                alone = (frame_bytes_max, body_bytes_max, 1)
                taken = _plain_take(
                    frame, alone, tails_of, born_host, suffix, entries, asked, parking, grants
                ) > 0
            if not taken:
                break
            at += size
            count_max -= 1
        return at
    finally:
        PyBuffer_Release(&buffer)


cdef inline Py_ssize_t _whole_frame(
    Bytes data, Py_ssize_t left, long long frame_bytes_max
) noexcept nogil:
    """Return the size of a frame that may be and is there; 0 for any other."""
    cdef long long frame_size, header_size
    if left < 8:
        return 0
    frame_size = _u32(data)
    header_size = _u32(data + 4) & 0xFFFFFF
    if (
        frame_size + 4 > frame_bytes_max
        or frame_size + 4 > left
        or header_size > frame_size - 4
        or header_size > _header_bytes_max
        or data[4] > 1
    ):
        return 0
    return frame_size + 4


cdef inline bint _is_other(Bytes raw, Py_ssize_t header_size) noexcept nogil:
    """Whether one look tells that a header, at its word, is no send's that could be taken."""
    cdef Bytes p = raw + 4
    if raw[0] == 1:
        return header_size > 1 and _u16(p) != 310 and _u16(p) != 10
    if header_size < 12 or memcmp(p, b'{"code":', 8) != 0:
        return False
    return memcmp(p + 8, b"310,", 4) != 0 and memcmp(p + 8, b"10,", 3) != 0


cdef int _take_send(
    Bytes frame, Py_ssize_t size, long long body_bytes_max, dict tails_of, bytes born_host,
    bytes suffix, list entries, list asked, object parking, object grants
) except -2:
    """Take one send (1) or not (0); -1: its header is to be read by the plain twin."""
    cdef Header h
    cdef Send send
    cdef Py_ssize_t header_size = _u32(frame + 4) & 0xFFFFFF
    cdef Py_ssize_t body_size = size - 8 - header_size
    cdef char resolved[RESOLVED_MAX]
    cdef Span text
    cdef bytes unique, properties, body, large
    cdef tuple parts
    cdef object tail
    cdef int granted
    if _is_other(frame + 4, header_size):
        return 0
    if not _read_header(&h, frame + 4, header_size):
        return -1
    if h.flag & 1 or (h.code != 310 and h.code != 10):
        return 0
    if not _read_send(&h, &send):
        return -1
    if send.reconsume_times or send.batch or send.properties == NULL:
        return 0
    if body_size > body_bytes_max or body_size > _body_bytes_max:
        return 0
    tail = _tail(tails_of, &send)
    if tail is None:
        return 0
    if grants is not None:
        granted = _may_send(
            &h, frame + 8 + header_size, body_size, _known_text(send.topic), grants
        )
        if granted <= 0:
            return granted
    if h.binary and not _is_utf8(send.properties.at, send.properties.size):
        return -1
    text = send.properties[0]
    if text.escaped and text.size <= RESOLVED_MAX:
        text.at, text.size = <Bytes>resolved, _resolve(send.properties, resolved)
    elif text.escaped:
        large = _span_bytes(send.properties)
        text.at, text.size = <Bytes>PyBytes_AS_STRING(large), PyBytes_GET_SIZE(large)
    parts = None if send.sys_flag else _plain_parts(text.at, text.size, suffix)
    if parts is None:
        if parking is None:
            return 0
        return _take_waiting(
            frame, size, &h, &send, &text, tail, born_host, suffix, parking, grants, entries, asked
        )
    unique, properties = parts
    if PyBytes_GET_SIZE(properties) > _properties_bytes_max:
        return 0
    body = PyBytes_FromStringAndSize(<const char*>frame + 8 + header_size, body_size)
    entries.append(
        (tail, body, properties, send.flag, 0, send.born_ms, born_host, 0, 0, None, None, -1)
    )
    asked.append((h.opaque, <int>frame[4], send.queue_id, unique, (h.flag & 2) != 0, b""))
    return 1


cdef inline object _tail(dict tails_of, Send* send):
    """Return the tail of the queue that a send goes to; None: it has to be looked for."""
    cdef PyObject* found = PyDict_GetItem(tails_of, _known_text(send.topic))
    if found == NULL or not 0 <= send.queue_id < PyList_GET_SIZE(<list?>found):
        return None
    return (<list>found)[send.queue_id]

