"""Answers to sends, and the other strings of bytes of a send; part of `_remoting_c`."""

cdef inline char* _put(char* out, const char* text, Py_ssize_t size) noexcept nogil:
    memcpy(out, text, size)
    return out + size


cdef inline char* _put_text(char* out, const char* text) noexcept nogil:
    # For literals only: their length is known when this is compiled.
    return _put(out, text, strlen(text))


cdef inline char* _put_number(char* out, long long number) noexcept nogil:
    return out + imago_put_decimal(<unsigned char*>out, number)


cdef inline char* _put_u32(char* out, unsigned int number) noexcept nogil:
    out[0] = <char>(number >> 24)
    out[1] = <char>(number >> 16)
    out[2] = <char>(number >> 8)
    out[3] = <char>number
    return out + 4


cdef inline char* _put_u16(char* out, unsigned int number) noexcept nogil:
    out[0] = <char>(number >> 8)
    out[1] = <char>number
    return out + 2


cdef inline char* _put_entry(
    char* out, const char* name, const char* value, Py_ssize_t value_size
) noexcept nogil:
    out = _put_text(_put_u16(out, <unsigned int>strlen(name)), name)
    return _put(_put_u32(out, <unsigned int>value_size), value, value_size)


cdef bint _needs_no_escape(bytes text) noexcept:
    cdef Bytes p = <Bytes>PyBytes_AS_STRING(text)
    cdef Bytes end = p + PyBytes_GET_SIZE(text)
    while p < end:
        if not 32 <= p[0] <= 126 or p[0] == 34 or p[0] == 92:
            return False
        p += 1
    return True


cdef char* _json_answer(
    char* out, int opaque, bytes msg_id, int queue_id, long long queue_offset,
    bytes transaction_id, int code, int version, bytes recall,
):
    out = _put_text(out, b'{"code":')
    out = _put_number(out, code)
    out = _put_text(
        out, b',"extFields":{"MSG_REGION":"DefaultRegion","TRACE_ON":"true","msgId":"'
    )
    out = _put(out, PyBytes_AS_STRING(msg_id), PyBytes_GET_SIZE(msg_id))
    out = _put_text(out, b'","queueId":"')
    out = _put_number(out, queue_id)
    out = _put_text(out, b'","queueOffset":"')
    out = _put_number(out, queue_offset)
    if PyBytes_GET_SIZE(transaction_id):
        out = _put_text(out, b'","transactionId":"')
        out = _put(out, PyBytes_AS_STRING(transaction_id), PyBytes_GET_SIZE(transaction_id))
    if PyBytes_GET_SIZE(recall):
        out = _put_text(out, b'","recallHandle":"')
        out = _put(out, PyBytes_AS_STRING(recall), PyBytes_GET_SIZE(recall))
    out = _put_text(out, b'"},"flag":1,"language":"JAVA","opaque":')
    out = _put_number(out, opaque)
    out = _put_text(out, b',"serializeTypeCurrentRPC":"JSON","version":')
    out = _put_number(out, version)
    return _put_text(out, b"}")


cdef char* _binary_answer(
    char* out, int opaque, bytes msg_id, int queue_id, long long queue_offset,
    bytes transaction_id, int code, int version, bytes recall,
):
    cdef char number[24]
    cdef char* ext
    out = _put_u16(out, code)
    out[0] = 0
    out = _put_u16(out + 1, version)
    out = _put_u32(out, <unsigned int>opaque)
    out = _put_u32(out, 1)
    out = _put_u32(out, 0)
    ext = out
    out = _put_entry(out + 4, b"MSG_REGION", b"DefaultRegion", 13)
    out = _put_entry(out, b"TRACE_ON", b"true", 4)
    out = _put_entry(out, b"msgId", PyBytes_AS_STRING(msg_id), PyBytes_GET_SIZE(msg_id))
    out = _put_entry(out, b"queueId", number, _put_number(number, queue_id) - number)
    out = _put_entry(out, b"queueOffset", number, _put_number(number, queue_offset) - number)
    if PyBytes_GET_SIZE(transaction_id):
        out = _put_entry(
            out, b"transactionId",
            PyBytes_AS_STRING(transaction_id), PyBytes_GET_SIZE(transaction_id),
        )
    if PyBytes_GET_SIZE(recall):
        out = _put_entry(
            out, b"recallHandle", PyBytes_AS_STRING(recall), PyBytes_GET_SIZE(recall)
        )
    _put_u32(ext, <unsigned int>(out - ext - 4))
    return out


def encode_send_response(
    int opaque,
    bytes msg_id not None,
    int queue_id,
    long long queue_offset,
    bytes transaction_id not None = b"",
    int code = 0,
    int serialize = 0,
    int version = OWN_VERSION,
    bytes recall not None = b"",
):
    """As `_remoting_py.encode_send_response`."""
    return _answer(
        opaque, msg_id, queue_id, queue_offset, transaction_id, code, serialize, version, recall
    )


cdef bytes _answer(
    int opaque, bytes msg_id, int queue_id, long long queue_offset, bytes transaction_id,
    int code, int serialize, int version, bytes recall,
):
    cdef char frame[ANSWER_MAX]
    cdef char* end
    cdef Py_ssize_t room = ANSWER_MAX - 512
    if (
        PyBytes_GET_SIZE(msg_id) + PyBytes_GET_SIZE(transaction_id) + PyBytes_GET_SIZE(recall) > room
        or not 0 <= code <= 32767
        or not 0 <= version <= 32767
        or not (serialize or _needs_no_escape(transaction_id))
    ):
        return _plain_answer(
            opaque, msg_id, queue_id, queue_offset, transaction_id, code, serialize, version,
            recall,
        )
    if serialize:
        end = _binary_answer(
            frame + 8, opaque, msg_id, queue_id, queue_offset, transaction_id, code, version,
            recall,
        )
    else:
        end = _json_answer(
            frame + 8, opaque, msg_id, queue_id, queue_offset, transaction_id, code, version,
            recall,
        )
    _put_u32(frame, <unsigned int>(end - frame - 4))
    _put_u32(frame + 4, (1 << 24 if serialize else 0) | <unsigned int>(end - frame - 8))
    return PyBytes_FromStringAndSize(frame, end - frame)


cdef inline void _put_hex(char* out, unsigned char c) noexcept nogil:
    cdef const char* digits = b"0123456789ABCDEF"
    out[0] = digits[c >> 4]
    out[1] = digits[c & 15]


cdef inline char* _put_message_id(char* out, bytes store_host, unsigned long long offset):
    cdef Bytes host = <Bytes>PyBytes_AS_STRING(store_host)
    cdef Py_ssize_t host_size = PyBytes_GET_SIZE(store_host)
    cdef Py_ssize_t k
    for k in range(host_size):
        _put_hex(out + 2 * k, host[k])
    out += 2 * host_size
    for k in range(8):
        _put_hex(out + 2 * k, <unsigned char>(offset >> (56 - 8 * k)))
    return out + 16


def join_message_ids(bytes store_host not None, object physical_offsets not None):
    """As `_remoting_py.join_message_ids`."""
    return _message_ids(store_host, physical_offsets, False)


cdef bytes _message_ids(bytes store_host, object rows, bint placed):
    """Join the ids of offsets, or of rows that have the offset in their second place."""
    cdef Py_ssize_t count = len(rows)
    cdef Py_ssize_t one = 2 * PyBytes_GET_SIZE(store_host) + 16
    cdef Py_ssize_t i
    cdef bytes joined = PyBytes_FromStringAndSize(NULL, count * (one + 1) - 1 if count else 0)
    cdef char* out = PyBytes_AS_STRING(joined)
    for i in range(count):
        if i:
            out[0] = 44
            out += 1
        out = _put_message_id(out, store_host, rows[i][1] if placed else rows[i])
    return joined


def answer_stored(
    int opaque,
    bytes store_host not None,
    object placed not None,
    int queue_id,
    bytes transaction_id not None = b"",
    int code = 0,
    int serialize = 0,
    bytes recall not None = b"",
):
    """As `_remoting_py.answer_stored`."""
    return _answer(
        opaque, _message_ids(store_host, placed, True), queue_id, placed[0][0], transaction_id, code,
        serialize, _own_version, recall,
    )


def answer_sends(
    list asked not None, placed not None, Py_ssize_t first, Py_ssize_t end,
    bytes store_host not None, int code = 0
):
    """As `_remoting_py.answer_sends`."""
    cdef list answers
    cdef Py_ssize_t at
    if end - first == 1:
        return _answer_send(asked[first], placed[first], store_host, code)
    answers = []
    for at in range(first, end):
        answers.append(_answer_send(asked[at], placed[at], store_host, code))
    return b"".join(answers)


cdef bytes _answer_send(tuple asked, tuple place, bytes store_host, int code):
    opaque, serialize, queue_id, unique, oneway, recall = asked
    if oneway:
        return b""
    return _answer(
        opaque, _message_ids(store_host, (place,), True), queue_id, place[0], unique, code,
        serialize, _own_version, recall,
    )


def scan_batch(bytes data not None, Py_ssize_t entries_max):
    """As `_remoting_py.scan_batch`."""
    cdef list entries = _batch(data, entries_max, False)
    return _plain_scan_batch(data, entries_max) if entries is None else entries


def scan_plain_batch(bytes data not None, Py_ssize_t entries_max):
    """As `_remoting_py.scan_plain_batch`."""
    cdef list entries = _batch(data, entries_max, True)
    return _plain_scan_plain_batch(data, entries_max) if entries is None else entries


cdef list _batch(bytes data, Py_ssize_t entries_max, bint plain_only):
    """Return the messages, or None where the plain twin has to say what is the matter."""
    cdef list entries = []
    cdef Bytes at = <Bytes>PyBytes_AS_STRING(data)
    cdef Bytes end = at + PyBytes_GET_SIZE(data)
    cdef Py_ssize_t size, body_size, properties_size
    while at < end:
        if PyList_GET_SIZE(entries) == entries_max or end - at < 22:
            return None
        size = <int>_u32(at)
        body_size = <int>_u32(at + 16)
        if body_size < 0 or size < 22 or size > end - at or body_size > size - 22:
            return None
        properties_size = <short>_u16(at + 20 + body_size)
        if properties_size != size - 22 - body_size:
            return None
        if plain_only and _waits(at + 22 + body_size, at + size):
            return None
        entries.append((
            PyBytes_FromStringAndSize(<const char*>at + 20, body_size),
            PyBytes_FromStringAndSize(<const char*>at + 22 + body_size, properties_size),
            <int>_u32(at + 12),
        ))
        at += size
    return entries


cdef inline bint _is(Bytes name, Py_ssize_t size, const char* known) noexcept nogil:
    # Known names are literals: their length is known when this is compiled.
    return size == <Py_ssize_t>strlen(known) and memcmp(name, known, size) == 0


cdef inline bint _is_not_senders(Bytes name, Py_ssize_t size) noexcept nogil:
    """Whether a name is one of `properties.NOT_SENDERS`; most are told apart by their first byte."""
    cdef unsigned char first = name[0]
    if first == c"T":
        return (
            _is(name, size, b"TIMER_OUT_MS")
            or _is(name, size, b"TIMER_ENQUEUE_MS")
            or _is(name, size, b"TIMER_DEQUEUE_MS")
            or _is(name, size, b"TIMER_ROLL_TIMES")
            or _is(name, size, b"TIMER_DELAY_LEVEL")
            or _is(name, size, b"TRANSACTION_CHECK_TIMES")
            or _is(name, size, b"TRAN_PREPARED_QUEUE_OFFSET")
        )
    elif first == c"R":
        return (
            _is(name, size, b"REAL_TOPIC")
            or _is(name, size, b"REAL_QID")
            or _is(name, size, b"RETRY_TOPIC")
        )
    elif first == c"M":
        return _is(name, size, b"MIN_OFFSET") or _is(name, size, b"MAX_OFFSET")
    elif first == c"I":
        return (
            _is(name, size, b"IMAGO_SHAPE")
            or _is(name, size, b"INNER_NUM")
            or _is(name, size, b"INNER_BASE")
            or _is(name, size, b"INNER_MULTI_QUEUE_OFFSET")
        )
    elif first == c"P":
        return (
            _is(name, size, b"POP_CK")
            or _is(name, size, b"POP_CK_OFFSET")
            or _is(name, size, b"PROPERTY_FORWARD_QUEUE_ID")
        )
    elif first == c"D":
        return (
            _is(name, size, b"DLQ_ORIGIN_TOPIC")
            or _is(name, size, b"DLQ_ORIGIN_MESSAGE_ID")
            or _is(name, size, b"DUP_INFO")
        )
    elif first == c"C":
        return _is(name, size, b"CONSUME_START_TIME")
    elif first == c"O":
        return _is(name, size, b"ORIGIN_MESSAGE_ID")
    elif first == c"1":
        return _is(name, size, b"1ST_POP_TIME")
    return False


cdef inline bint _is_special(Bytes name, Py_ssize_t size) noexcept nogil:
    cdef unsigned char first = name[0]
    if first == c"_":
        return size >= 8 and memcmp(name, b"__IMAGO_", 8) == 0
    if first == c"D" and _is(name, size, b"DELAY"):
        return True
    if first == c"T" and (
        _is(name, size, b"TRAN_MSG")
        or _is(name, size, b"TIMER_DELAY_SEC")
        or _is(name, size, b"TIMER_DELAY_MS")
        or _is(name, size, b"TIMER_DELIVER_MS")
    ):
        return True
    return _is_not_senders(name, size)


cdef bint _waits(Bytes at, Bytes end) noexcept nogil:
    """Whether these properties ask for a closer look at their message."""
    cdef Bytes part_end
    cdef Bytes name_end
    while at < end:
        part_end = <Bytes>memchr(at, 2, end - at)
        if part_end == NULL:
            part_end = end
        name_end = <Bytes>memchr(at, 1, part_end - at)
        if name_end != NULL and _is_special(at, name_end - at):
            return True
        at = part_end + 1
    return False


def plain_send(bytes properties not None, bytes suffix not None):
    """As `_remoting_py.plain_send`."""
    return _plain_parts(
        <Bytes>PyBytes_AS_STRING(properties), PyBytes_GET_SIZE(properties), suffix
    )


cdef tuple _plain_parts(Bytes start, Py_ssize_t size, bytes suffix):
    cdef Span key
    if not _is_plain_send(start, start + size, &key):
        return None
    return (
        PyBytes_FromStringAndSize(<const char*>key.at, key.size),
        _with_suffix(start, size, suffix),
    )


cdef bint _is_plain_send(Bytes at, Bytes end, Span* key) noexcept nogil:
    """Whether these properties have a unique key, which is set, and nothing that is special."""
    cdef Bytes part_end
    cdef Bytes name_end
    cdef Py_ssize_t size
    key.size = 0
    while at < end:
        part_end = <Bytes>memchr(at, 2, end - at)
        if part_end == NULL:
            part_end = end
        name_end = <Bytes>memchr(at, 1, part_end - at)
        if name_end != NULL:
            size = name_end - at
            if _is(at, size, b"UNIQ_KEY"):
                key.at, key.size = name_end + 1, part_end - name_end - 1
            elif _is(at, size, b"CLUSTER") or _is_special(at, size):
                return False
        at = part_end + 1
    return key.size > 0


cdef bytes _with_suffix(Bytes start, Py_ssize_t size, bytes suffix):
    cdef bint separate = start[size - 1] != 2
    cdef bytes made = PyBytes_FromStringAndSize(
        NULL, size + separate + PyBytes_GET_SIZE(suffix)
    )
    cdef char* out = _put(PyBytes_AS_STRING(made), <const char*>start, size)
    if separate:
        out[0] = 2
        out += 1
    _put(out, PyBytes_AS_STRING(suffix), PyBytes_GET_SIZE(suffix))
    return made


def find_each(bytes properties not None, tuple names not None):
    """As `_remoting_py.find_each`."""
    cdef Py_ssize_t count = len(names)
    cdef list values = [None] * count
    cdef Bytes at = <Bytes>PyBytes_AS_STRING(properties)
    cdef Bytes end = at + PyBytes_GET_SIZE(properties)
    cdef Bytes part_end
    cdef Bytes name_end
    cdef Py_ssize_t i, size
    cdef bytes name
    while at < end:
        part_end = <Bytes>memchr(at, 2, end - at)
        if part_end == NULL:
            part_end = end
        name_end = <Bytes>memchr(at, 1, part_end - at)
        if name_end != NULL:
            size = name_end - at
            for i in range(count):
                name = <bytes>names[i]
                if (
                    PyBytes_GET_SIZE(name) == size
                    and memcmp(PyBytes_AS_STRING(name), at, size) == 0
                ):
                    values[i] = PyBytes_FromStringAndSize(
                        <const char*>name_end + 1, part_end - name_end - 1
                    )
        at = part_end + 1
    return values
