"""Ends of transactions at the start of a read; part of `_remoting_c`."""


def take_ends(
    data not None, Py_ssize_t at, long long frame_bytes_max, long long count_max,
    list ends not None
):
    """As `_ending_py.take_ends`."""
    cdef Py_buffer buffer
    cdef Bytes start
    cdef Py_ssize_t size
    cdef int taken
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    try:
        start = <Bytes>buffer.buf
        while count_max > 0 and 0 <= at < buffer.len:
            size = _whole_frame(start + at, buffer.len - at, frame_bytes_max)
            if size == 0:
                break
            taken = _take_end(start + at, at + size, ends)
            if taken < 0:
                count = len(ends)
                _plain_take_ends(data, at, frame_bytes_max, 1, ends)
                taken = len(ends) > count
            if not taken:
                break
            at += size
            count_max -= 1
    finally:
        PyBuffer_Release(&buffer)


def answer_done(int opaque, int serialize):
    """As `_ending_py.answer_done`."""
    cdef char frame[ANSWER_MAX]
    cdef char* out = frame + 8
    cdef Py_ssize_t header_size
    if serialize:
        memset(out, 0, 3)
        out = _put_u32(_put_u16(out + 3, _own_version), <unsigned int>opaque)
        out = _put_u32(out, 1)
        memset(out, 0, 8)
        out += 8
    else:
        out = _put_text(out, b'{"code":0,"flag":1,"language":"JAVA","opaque":')
        out = _put_number(out, opaque)
        out = _put_text(out, b',"serializeTypeCurrentRPC":"JSON","version":')
        out = _put_text(_put_number(out, _own_version), b"}")
    header_size = out - frame - 8
    _put_u32(frame, <unsigned int>(4 + header_size))
    _put_u32(frame + 4, (1 << 24 if serialize else 0) | <unsigned int>header_size)
    return PyBytes_FromStringAndSize(frame, out - frame)


def may_be_end(data not None, Py_ssize_t at):
    """As `_ending_py.may_be_end`."""
    cdef Py_buffer buffer
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    try:
        return 0 <= at <= buffer.len - 19 and not _is_no_end(<Bytes>buffer.buf + at + 4, 15)
    finally:
        PyBuffer_Release(&buffer)


cdef inline bint _is_no_end(Bytes raw, Py_ssize_t header_size) noexcept nogil:
    """Whether one look tells that a header, at its word, ends no transaction."""
    cdef Bytes p = raw + 4
    if raw[0] == 1:
        return header_size > 1 and _u16(p) != 37
    return header_size >= 12 and memcmp(p, b'{"code":', 8) == 0 and memcmp(p + 8, b"37,", 3) != 0


cdef int _take_end(Bytes frame, Py_ssize_t end, list ends) except -2:
    """Take one (1) or not (0); -1: its header is to be read by the plain twin."""
    cdef Header h
    cdef Py_ssize_t header_size = _u32(frame + 4) & 0xFFFFFF
    cdef Span* group
    cdef Span* offset_text
    cdef Span* place_text
    cdef Span* outcome_text
    cdef Span* unique
    cdef Span* checked
    cdef Span* topic
    cdef long long offset = 0, place = 0
    cdef int outcome
    if _is_no_end(frame + 4, header_size):
        return 0
    if not _read_header(&h, frame + 4, header_size):
        return -1
    if h.flag & 1 or h.code != 37:
        return 0
    group = _field(&h, b"producerGroup", 13)
    offset_text = _field(&h, b"tranStateTableOffset", 20)
    place_text = _field(&h, b"commitLogOffset", 15)
    outcome_text = _field(&h, b"commitOrRollback", 16)
    unique = _field(&h, b"msgId", 5)
    topic = _field(&h, b"topic", 5)
    checked = _field(&h, b"fromTransactionCheck", 20)
    if (
        group == NULL or offset_text == NULL or place_text == NULL or outcome_text == NULL
        or unique == NULL
    ):
        return 0
    if offset_text.escaped or place_text.escaped or outcome_text.escaped or (
        checked != NULL and checked.escaped
    ):
        return -1
    if checked != NULL and not (checked.size == 5 and memcmp(checked.at, b"false", 5) == 0):
        return 0
    if outcome_text.size == 1 and outcome_text.at[0] == 56:
        outcome = 8
    elif outcome_text.size == 2 and memcmp(outcome_text.at, b"12", 2) == 0:
        outcome = 12
    else:
        return 0
    if not _plain_offset(offset_text, &offset) or not _plain_offset(place_text, &place):
        return 0
    ends.append((
        h.opaque, <int>frame[4], (h.flag & 2) != 0, _known_text(group), offset, place, outcome,
        _span_text(unique), "" if topic == NULL else _known_text(topic), end,
    ))
    return 1


cdef inline bint _plain_offset(Span* span, long long* number) noexcept nogil:
    return span.size > 0 and span.at[0] != 45 and _number(span.at, span.size, number)
