"""Pulls straight from a read, and the head of their answers; part of `_remoting_c`."""

cdef struct Pull:
    Span* group
    Span* topic
    Span* subscription
    Span* expression_type
    bint batch
    # In the order of AskedPull.
    long long numbers[8]


cdef enum:
    QUEUE_ID, QUEUE_OFFSET, MESSAGES_MAX, SYS_FLAG, COMMIT_OFFSET, SUSPEND_MS, SUB_VERSION, BYTES_MAX


def plain_pull(data not None, Py_ssize_t at, long long frame_bytes_max):
    """As `_pulling_py.plain_pull`."""
    cdef Py_buffer buffer
    cdef Header h
    cdef Pull pull
    cdef Bytes frame
    cdef Py_ssize_t size, header_size
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    try:
        if not 0 <= at <= buffer.len:
            return None
        frame = <Bytes>buffer.buf + at
        size = _whole_frame(frame, buffer.len - at, frame_bytes_max)
        if size == 0:
            return None
        header_size = size - 8
        if header_size != <Py_ssize_t>(_u32(frame + 4) & 0xFFFFFF) or _is_no_pull(frame + 4):
            return None
        if not _read_header(&h, frame + 4, header_size):
            whole = PyBytes_FromStringAndSize(<const char*>frame, size)
            return _plain_plain_pull(whole, 0, frame_bytes_max)
        if h.code != 11 or h.flag & 3 or not _read_pull(&h, &pull):
            return None
        return imago_named(_pull_type, (
            size,
            h.opaque,
            <int>frame[4],
            _known_text(pull.group),
            _known_text(pull.topic),
            pull.numbers[QUEUE_ID],
            pull.numbers[QUEUE_OFFSET],
            pull.numbers[MESSAGES_MAX],
            pull.numbers[SYS_FLAG],
            pull.numbers[COMMIT_OFFSET],
            pull.numbers[SUSPEND_MS],
            pull.numbers[SUB_VERSION],
            pull.numbers[BYTES_MAX],
            "" if pull.subscription == NULL else _known_text(pull.subscription),
            None if pull.expression_type == NULL else _known_text(pull.expression_type),
            pull.batch,
        ))
    finally:
        PyBuffer_Release(&buffer)


cdef inline bint _is_no_pull(Bytes raw) noexcept nogil:
    """Whether one look tells that a header, at its word, is no pull's. It has 4 bytes at least."""
    if raw[0] == 1:
        return (_u32(raw) & 0xFFFFFF) > 1 and _u16(raw + 4) != 11
    if (_u32(raw) & 0xFFFFFF) < 12 or memcmp(raw + 4, b'{"code":', 8) != 0:
        return False
    return memcmp(raw + 12, b"11,", 3) != 0


cdef bint _digits(Span* span, Py_ssize_t size_max, long long* number) noexcept nogil:
    cdef long long value = 0
    cdef Py_ssize_t i
    if span.escaped or not 1 <= span.size <= size_max:
        return False
    for i in range(span.size):
        if not 48 <= span.at[i] <= 57:
            return False
        value = value * 10 + (span.at[i] - 48)
    number[0] = value
    return True


cdef inline bint _named(Span* key, const char* name) noexcept nogil:
    # For literals of the key's size only.
    return memcmp(key.at, name, key.size) == 0


cdef bint _read_pull(Header* h, Pull* pull) noexcept nogil:
    """Read the fields of a pull; False: one is missing, or not as the known clients write it."""
    cdef Span* found[8]
    cdef Span* batch = NULL
    cdef Span* key
    cdef Span* value
    cdef int i
    pull.group = pull.topic = pull.subscription = pull.expression_type = NULL
    for i in range(8):
        found[i] = NULL
    for i in range(h.count):
        key, value = &h.keys[i], &h.values[i]
        if key.size == 5 and _named(key, b"topic"):
            pull.topic = value
        elif key.size == 7 and _named(key, b"queueId"):
            found[QUEUE_ID] = value
        elif key.size == 7 and _named(key, b"sysFlag"):
            found[SYS_FLAG] = value
        elif key.size == 10 and _named(key, b"maxMsgNums"):
            found[MESSAGES_MAX] = value
        elif key.size == 10 and _named(key, b"subVersion"):
            found[SUB_VERSION] = value
        elif key.size == 10 and _named(key, b"imagoBatch"):
            batch = value
        elif key.size == 11 and _named(key, b"queueOffset"):
            found[QUEUE_OFFSET] = value
        elif key.size == 11 and _named(key, b"maxMsgBytes"):
            found[BYTES_MAX] = value
        elif key.size == 12 and _named(key, b"commitOffset"):
            found[COMMIT_OFFSET] = value
        elif key.size == 12 and _named(key, b"subscription"):
            pull.subscription = value
        elif key.size == 13 and _named(key, b"consumerGroup"):
            pull.group = value
        elif key.size == 14 and _named(key, b"expressionType"):
            pull.expression_type = value
        elif key.size == 20 and _named(key, b"suspendTimeoutMillis"):
            found[SUSPEND_MS] = value
    if pull.group == NULL or pull.topic == NULL:
        return False
    for i in range(8):
        if found[i] == NULL:
            if i != BYTES_MAX:
                return False
            pull.numbers[i] = -1
        elif not _digits(
            found[i],
            9 if i == QUEUE_ID or i == MESSAGES_MAX or i == SYS_FLAG or i == BYTES_MAX else 18,
            &pull.numbers[i],
        ):
            return False
    pull.batch = batch != NULL and batch.size == 4 and memcmp(batch.at, b"true", 4) == 0
    return True


def answer_pull(int opaque, int serialize, tuple offsets not None, long long suggested, Py_ssize_t body_size):
    """As `_pulling_py.answer_pull`."""
    cdef char frame[ANSWER_MAX]
    cdef char number[24]
    cdef char* out = frame + 8
    cdef char* ext
    cdef long long following, low, high
    cdef Py_ssize_t header_size
    following, low, high = offsets
    if serialize:
        memset(out, 0, 3)
        out = _put_u16(out + 3, _own_version)
        out = _put_u32(out, <unsigned int>opaque)
        out = _put_u32(out, 1)
        out = _put_text(_put_u32(out, 5), b"FOUND")
        ext = out
        out = _put_entry(
            out + 4, b"suggestWhichBrokerId", number, _put_number(number, suggested) - number
        )
        out = _put_entry(out, b"nextBeginOffset", number, _put_number(number, following) - number)
        out = _put_entry(out, b"minOffset", number, _put_number(number, low) - number)
        out = _put_entry(out, b"maxOffset", number, _put_number(number, high) - number)
        out = _put_entry(out, b"topicSysFlag", b"0", 1)
        out = _put_entry(out, b"groupSysFlag", b"0", 1)
        _put_u32(ext, <unsigned int>(out - ext - 4))
    else:
        out = _put_text(out, b'{"code":0,"extFields":{"suggestWhichBrokerId":"')
        out = _put_number(out, suggested)
        out = _put_text(out, b'","nextBeginOffset":"')
        out = _put_number(out, following)
        out = _put_text(out, b'","minOffset":"')
        out = _put_number(out, low)
        out = _put_text(out, b'","maxOffset":"')
        out = _put_number(out, high)
        out = _put_text(
            out, b'","topicSysFlag":"0","groupSysFlag":"0"},"flag":1,"language":"JAVA","opaque":'
        )
        out = _put_number(out, opaque)
        out = _put_text(out, b',"remark":"FOUND","serializeTypeCurrentRPC":"JSON","version":')
        out = _put_text(_put_number(out, _own_version), b"}")
    header_size = out - frame - 8
    _put_u32(frame, <unsigned int>(4 + header_size + body_size))
    _put_u32(frame + 4, (1 << 24 if serialize else 0) | <unsigned int>header_size)
    return PyBytes_FromStringAndSize(frame, out - frame)
