"""Ends of transactions at the start of a read; part of `_remoting_c`."""


def take_ends(
    data not None, Py_ssize_t at, tuple limits not None, dict opened not None,
    tuple outcomes not None, object asker, list taken not None, grants=None
):
    """As `_ending_py.take_ends`."""
    cdef Py_buffer buffer
    cdef Bytes start
    cdef Py_ssize_t size
    cdef long long frame_bytes_max, count_max
    cdef int took
    frame_bytes_max, count_max = limits
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    try:
        start = <Bytes>buffer.buf
        while count_max > 0 and 0 <= at < buffer.len:
            size = _whole_frame(start + at, buffer.len - at, frame_bytes_max)
            if size == 0:
                break
            took = _take_end(start + at, size, opened, outcomes, asker, taken, grants)
            if took < 0:
                frame = PyBytes_FromStringAndSize(<const char*>start + at, size)
                alone = (frame_bytes_max, 1)
                took = _plain_take_ends(
                    frame, 0, alone, opened, outcomes, asker, taken, grants
                ) > 0
            if not took:
                break
            at += size
            count_max -= 1
    finally:
        PyBuffer_Release(&buffer)
    return at


def answer_done(int opaque, int serialize):
    """As `_ending_py.answer_done`."""
    return _done(opaque, serialize)


cdef bytes _done(int opaque, int serialize):
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


cdef int _take_end(
    Bytes frame, Py_ssize_t size, dict opened, tuple outcomes, object asker, list taken,
    object grants
) except -2:
    """Take one (1) or not (0); -1: its header is to be read by the plain twin."""
    cdef Header h
    cdef Py_ssize_t header_size = _u32(frame + 4) & 0xFFFFFF
    cdef Span* offset_text
    cdef Span* place_text
    cdef Span* outcome_text
    cdef Span* checked
    cdef long long offset = 0, place = 0
    cdef int granted
    cdef PyObject* found
    cdef Half half
    if _is_no_end(frame + 4, header_size):
        return 0
    if not _read_header(&h, frame + 4, header_size):
        return -1
    if h.flag & 1 or h.code != 37:
        return 0
    offset_text = _field(&h, b"tranStateTableOffset", 20)
    place_text = _field(&h, b"commitLogOffset", 15)
    outcome_text = _field(&h, b"commitOrRollback", 16)
    checked = _field(&h, b"fromTransactionCheck", 20)
    if offset_text == NULL or place_text == NULL or outcome_text == NULL:
        return 0
    if offset_text.escaped or place_text.escaped or outcome_text.escaped or (
        checked != NULL and checked.escaped
    ):
        return -1
    if checked != NULL and not (checked.size == 5 and memcmp(checked.at, b"false", 5) == 0):
        return 0
    if not _plain_offset(offset_text, &offset) or not _plain_offset(place_text, &place):
        return 0
    found = PyDict_GetItem(opened, offset)
    if found == NULL:
        return 0
    half = <Half?><object>found
    if half.physical_offset != place or half.limited or half.ending is not None:
        return 0
    granted = _names_half(&h, half)
    if granted <= 0:
        return granted
    if grants is not None:
        granted = _may_end(&h, frame + 8 + header_size, size - 8 - header_size, half, grants)
        if granted <= 0:
            return granted
    if outcome_text.size == 1 and outcome_text.at[0] == 56:
        half.ending = outcomes[0]
    elif outcome_text.size == 2 and memcmp(outcome_text.at, b"12", 2) == 0:
        half.ending = outcomes[1]
    else:
        return 0
    half.asker, half.opaque, half.form = asker, h.opaque, frame[4]
    half.oneway = (h.flag & 2) != 0
    taken.append(half)
    return 1


cdef int _names_half(Header* h, Half half) except -2:
    """Whether a request says group and id of a half message (1) or not (0); -1: see there."""
    cdef Span* group = _field(h, b"producerGroup", 13)
    cdef Span* unique = _field(h, b"msgId", 5)
    if group == NULL or unique == NULL:
        return 0
    if unique.escaped or (h.binary and not _is_utf8(unique.at, unique.size)):
        return -1
    return (
        unique.size == PyBytes_GET_SIZE(half.unique)
        and memcmp(unique.at, PyBytes_AS_STRING(half.unique), unique.size) == 0
        and _known_text(group) == half.group
    )


cdef int _may_end(
    Header* h, Bytes body, Py_ssize_t body_size, Half half, object grants
) except -2:
    """As `_ending_py._may_end`; -1: that has to say it."""
    cdef Span* topic = _field(h, b"topic", 5)
    cdef str named = "" if topic == NULL else _known_text(topic)
    cdef bytes own = None if half.entry is None else _find(half.entry[2], b"REAL_TOPIC")
    cdef str text
    if not own:
        return 0
    text = own.decode("utf-8", "replace")
    if named and named != text:
        user = _user_of(h, grants)
        if user is None or not _granted(user, 1)[named]:
            return 0
    return _may_send(h, body, body_size, text, grants)


cdef inline bint _plain_offset(Span* span, long long* number) noexcept nogil:
    return span.size > 0 and span.at[0] != 45 and _number(span.at, span.size, number)
