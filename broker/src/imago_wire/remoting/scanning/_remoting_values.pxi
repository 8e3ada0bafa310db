"""Makes Python values of a header read in place; part of `_remoting_c`."""

cdef bytes _span_bytes(Span* span):
    """Return the text's bytes with escapes resolved."""
    cdef char resolved[RESOLVED_MAX]
    cdef bytes made
    if not span.escaped:
        return PyBytes_FromStringAndSize(<const char*>span.at, span.size)
    if span.size <= RESOLVED_MAX:
        return PyBytes_FromStringAndSize(resolved, _resolve(span, resolved))
    made = PyBytes_FromStringAndSize(NULL, span.size)
    return made[: _resolve(span, PyBytes_AS_STRING(made))]


cdef Py_ssize_t _resolve(Span* span, char* out) noexcept nogil:
    cdef Bytes p = span.at
    cdef Bytes end = span.at + span.size
    cdef Bytes run
    cdef char* start = out
    while p < end:
        run = <Bytes>memchr(p, 92, end - p)
        if run == NULL:
            run = end
        memcpy(out, p, run - p)
        out += run - p
        p = run
        if p == end:
            break
        if p[1] == 117:
            out[0] = <char>(_hex(p[4]) << 4 | _hex(p[5]))
            p += 6
        else:
            out[0] = <char>_short_escape(p[1])
            p += 2
        out += 1
    return out - start


cdef inline unsigned char _short_escape(unsigned char c) noexcept nogil:
    if c == 98:
        return 8
    if c == 102:
        return 12
    if c == 110:
        return 10
    if c == 114:
        return 13
    if c == 116:
        return 9
    return c


cdef inline str _span_text(Span* span):
    cdef bytes resolved
    if span.escaped:
        resolved = _span_bytes(span)
        return PyUnicode_DecodeUTF8(
            PyBytes_AS_STRING(resolved), PyBytes_GET_SIZE(resolved), "replace"
        )
    return PyUnicode_DecodeUTF8(<const char*>span.at, span.size, "replace")


cdef str _known_text(Span* span):
    """The same for texts of which a few come again and again."""
    cdef unsigned int place
    cdef Py_ssize_t size = span.size
    cdef Bytes at = span.at
    cdef object known
    if span.escaped or not 3 < size < 64:
        return _span_text(span)
    # A few characters are enough: two texts in one place only cost time.
    place = (at[0] * 31 + at[size >> 1]) * 31 + at[size - 3]
    place = ((place * 31 + at[size - 2]) * 31 + at[size - 1]) * 31 + <unsigned int>size
    place = (place ^ (place >> 11)) & (TEXTS - 1)
    known = _texts[place]
    if (
        known is not None
        and PyUnicode_GET_LENGTH(known) == span.size
        and memcmp(PyUnicode_DATA(known), span.at, span.size) == 0
    ):
        return <str>known
    known = _span_text(span)
    if PyUnicode_IS_COMPACT_ASCII(known):
        _texts[place] = known
    return <str>known


cdef object _command(Header* h, bytes body):
    cdef dict ext = {}
    cdef int i
    cdef object command = _new_command(_command_type)
    for i in range(h.count):
        ext[_known_text(&h.keys[i])] = _span_text(&h.values[i])
    command.code = h.code
    command.flag = h.flag
    command.opaque = h.opaque
    command.version = h.version
    command.remark = _span_text(&h.remark) if h.has_remark else None
    command.ext = ext
    command.body = body
    if h.binary:
        command.language = _java if h.language_code == 0 else _language_of(h.language_code)
        command.serialize = _binary_form
    else:
        command.language = _json_language(&h.language)
        command.serialize = _json_form
    return command


cdef object _json_language(Span* span):
    if span.at == NULL:
        return _language_of(None)
    if span.size == 4 and memcmp(span.at, b"JAVA", 4) == 0:
        return _java
    return _language_of(_span_text(span))


cdef struct Send:
    Span* group
    Span* topic
    Span* properties
    long long queue_id
    long long sys_flag
    long long born_ms
    long long flag
    long long reconsume_times
    bint batch


cdef Span* _field(Header* h, const char* name, Py_ssize_t size) noexcept nogil:
    cdef int i = h.count - 1
    while i >= 0:
        if h.keys[i].size == size and memcmp(h.keys[i].at, name, size) == 0:
            return &h.values[i]
        i -= 1
    return NULL


cdef inline Span* _letter(Header* h, unsigned char c) noexcept nogil:
    cdef int place = h.letters[c - 97]
    return NULL if place < 0 else &h.values[place]


cdef inline bint _optional_int(Span* span, long long* number) noexcept nogil:
    return span == NULL or _int(span, number)


cdef inline bint _optional_bool(Span* span, bint* value) noexcept nogil:
    if span == NULL:
        return True
    if span.size == 4 and memcmp(span.at, b"true", 4) == 0:
        value[0] = True
        return True
    return span.size == 5 and memcmp(span.at, b"false", 5) == 0


cdef inline bint _read_send(Header* h, Send* send) noexcept nogil:
    """Read the fields of a send; False: one is missing, or not as the known clients write it."""
    send.reconsume_times = 0
    send.batch = False
    return _short_send(h, send) if h.short_names else _long_send(h, send)


cdef bint _short_send(Header* h, Send* send) noexcept nogil:
    cdef long long ignored = 0
    cdef Span* queue_id = _letter(h, c"e")
    cdef Span* sys_flag = _letter(h, c"f")
    cdef Span* born_ms = _letter(h, c"g")
    cdef Span* flag = _letter(h, c"h")
    send.group = _letter(h, c"a")
    send.topic = _letter(h, c"b")
    send.properties = _letter(h, c"i")
    return (
        send.group != NULL
        and send.topic != NULL
        and queue_id != NULL
        and sys_flag != NULL
        and born_ms != NULL
        and flag != NULL
        and _int(queue_id, &send.queue_id)
        and _int(sys_flag, &send.sys_flag)
        and _number(born_ms.at, born_ms.size, &send.born_ms)
        and _int(flag, &send.flag)
        and _optional_int(_letter(h, c"d"), &ignored)
        and _optional_int(_letter(h, c"j"), &send.reconsume_times)
        and _optional_int(_letter(h, c"l"), &ignored)
        and _optional_bool(_letter(h, c"m"), &send.batch)
    )


cdef bint _long_send(Header* h, Send* send) noexcept nogil:
    cdef long long ignored = 0
    cdef Span* queue_id = _field(h, b"queueId", 7)
    cdef Span* sys_flag = _field(h, b"sysFlag", 7)
    cdef Span* born_ms = _field(h, b"bornTimestamp", 13)
    cdef Span* flag = _field(h, b"flag", 4)
    send.group = _field(h, b"producerGroup", 13)
    send.topic = _field(h, b"topic", 5)
    send.properties = _field(h, b"properties", 10)
    return (
        send.group != NULL
        and send.topic != NULL
        and queue_id != NULL
        and sys_flag != NULL
        and born_ms != NULL
        and flag != NULL
        and _int(queue_id, &send.queue_id)
        and _int(sys_flag, &send.sys_flag)
        and _number(born_ms.at, born_ms.size, &send.born_ms)
        and _int(flag, &send.flag)
        and _optional_int(_field(h, b"defaultTopicQueueNums", 21), &ignored)
        and _optional_int(_field(h, b"reconsumeTimes", 14), &send.reconsume_times)
        and _optional_int(_field(h, b"maxReconsumeTimes", 17), &ignored)
        and _optional_bool(_field(h, b"batch", 5), &send.batch)
    )


cdef object _send_item(Header* h, Send* send, bytes raw_header, bytes body):
    cdef bytes properties = b""
    if send.properties != NULL:
        properties = _span_bytes(send.properties)
        if h.binary and not properties.isascii():
            properties = properties.decode("utf-8", "replace").encode()
    return imago_named(_send_type, (
        SEND,
        h.opaque,
        h.code,
        (h.flag & 2) != 0,
        _known_text(send.topic),
        send.queue_id,
        send.sys_flag,
        send.born_ms,
        send.flag,
        properties,
        send.reconsume_times,
        send.batch or h.code == 320,
        body,
        h.version,
        raw_header,
    ))
