# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Compiled twin of `_sends_py`: the same results, on C pointers.

Requests as the SDKs write them are read in place; whatever else comes, the plain twin looks at, so
that the two cannot differ there.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.string cimport memchr, memcmp, memcpy

from imago_wire.grpc.messages import Encoding, MessageType
from imago_wire.grpc.scanning import _sends_py as plain
from imago_wire.record_format import properties as _props
from imago_wire.record_format.layout import CLIENT_PROPERTIES_BYTES_MAX

include "_protobuf.pxi"

DEF USERS_MAX = 128
DEF KEYS_MAX = 16

cdef int _transaction = MessageType.TRANSACTION, _identity = Encoding.IDENTITY
cdef long long _born_ms_max = plain.BORN_MS_BOUND
cdef Py_ssize_t _properties_max = CLIENT_PROPERTIES_BYTES_MAX
cdef object _is_reserved = _props.is_reserved
cdef object _plain_send = plain.plain_send
cdef bytes _multi = _props.INNER_MULTI_DISPATCH.encode()

cdef struct Sent:
    Span topic, body, tag, message_id, born_host, group, trace
    Span keys[KEYS_MAX]
    Span names[USERS_MAX]
    Span values[USERS_MAX]
    int keys_count, users
    bint grouped
    long long born_ms


def plain_send(bytes data not None, bytes peer not None, bytes suffix not None, tuple limits):
    """As `_sends_py.plain_send`."""
    cdef Bytes at = <Bytes>PyBytes_AS_STRING(data)
    cdef Span message
    cdef Sent sent
    cdef int number, kind
    cdef Bytes end = at + PyBytes_GET_SIZE(data)
    cdef long long body_max, users_max, bytes_max, group_max
    body_max, users_max, bytes_max, group_max = limits
    sent.keys_count = sent.users = 0
    sent.grouped, sent.born_ms = False, 0
    sent.topic.at = sent.tag.at = sent.message_id.at = sent.born_host.at = NULL
    sent.body.at = sent.group.at = sent.trace.at = NULL
    if not (
        _field(&at, end, &number, &kind, &message)
        and number == 1
        and kind == SPAN
        and at == end
        and _read_message(&message, &sent)
        and sent.body.at != NULL
        and 0 < sent.body.size <= body_max
        and sent.users <= users_max
        and _is_plain(&sent, bytes_max, group_max)
    ):
        return _plain_send(data, peer, suffix, limits)
    for index in range(sent.users):
        if not _may_be_named(&sent.names[index]):
            return None
    properties = _properties(&sent, peer, suffix)
    if PyBytes_GET_SIZE(properties) > _properties_max:
        return None
    return (
        _text(&sent.topic),
        _text(&sent.group),
        PyBytes_FromStringAndSize(<const char*>sent.message_id.at, sent.message_id.size),
        properties,
        PyBytes_FromStringAndSize(<const char*>sent.body.at, sent.body.size),
        sent.born_ms,
    )


cdef bint _read_message(Span* message, Sent* sent):
    cdef Bytes at = message.at
    cdef Bytes end = at + message.size
    cdef Span found, told
    cdef int number, kind
    told.at = NULL
    while at < end:
        if not _field(&at, end, &number, &kind, &found) or kind != SPAN:
            return False
        if number == 1:
            if sent.topic.at != NULL or not _read_resource(&found, &sent.topic):
                return False
        elif number == 2:
            if sent.users == USERS_MAX:
                return False
            if not _read_pair(&found, &sent.names[sent.users], &sent.values[sent.users]):
                return False
            sent.users += 1
        elif number == 3:
            if told.at != NULL:
                return False
            told = found
        elif number == 4:
            sent.body = found
        else:
            return False
    return sent.topic.at != NULL and told.at != NULL and _read_told(&told, sent)


cdef bint _read_pair(Span* pair, Span* name, Span* value):
    cdef Bytes at = pair.at
    cdef Bytes end = at + pair.size
    cdef Span found
    cdef int number, kind
    name.at = value.at = at
    name.size = value.size = 0
    while at < end:
        if not _field(&at, end, &number, &kind, &found) or kind != SPAN:
            return False
        if number == 1:
            name[0] = found
        elif number == 2:
            value[0] = found
        else:
            return False
    return name.size != 0 and _is_clean(name) and _is_clean(value)


cdef bint _read_told(Span* told, Sent* sent):
    """Read the system properties."""
    cdef Bytes at = told.at
    cdef Bytes end = at + told.size
    cdef Span found
    cdef int number, kind
    cdef bint born = False
    while at < end:
        if not _field(&at, end, &number, &kind, &found):
            return False
        if number == 5 and kind == NUMBER:
            if found.value != 0 and found.value != _identity:
                return False
        elif number == 6 and kind == NUMBER:
            if found.value == _transaction or not 0 <= found.value < 256:
                return False
        elif (number == 13 or number == 14) and kind == NUMBER:
            pass  # the broker chooses the queue
        elif kind != SPAN:
            return False
        elif number == 1:
            sent.tag = found
        elif number == 2:
            if sent.keys_count == KEYS_MAX:
                return False
            sent.keys[sent.keys_count] = found
            sent.keys_count += 1
        elif number == 3:
            sent.message_id = found
        elif number == 7:
            if born or not _read_time(&found, &sent.born_ms):
                return False
            born = True
        elif number == 8:
            sent.born_host = found
        elif number == 17:
            sent.group, sent.grouped = found, True
        elif number == 18:
            sent.trace = found
        else:
            return False
    return True


cdef bint _read_time(Span* time, long long* ms) noexcept:
    cdef Bytes at = time.at
    cdef Bytes end = at + time.size
    cdef Span found
    cdef int number, kind
    cdef long long seconds = 0, nanos = 0
    while at < end:
        if not _field(&at, end, &number, &kind, &found) or kind != NUMBER:
            return False
        if number == 1:
            seconds = found.value
        elif number == 2:
            nanos = found.value
        else:
            return False
    if not 0 <= seconds < _born_ms_max // 1000 or not 0 <= nanos < 1000000000:
        return False
    ms[0] = seconds * 1000 + nanos // 1000000
    return True


cdef bint _is_plain(Sent* sent, long long bytes_max, long long group_max):
    """Whether all texts are as they have to be, at one look."""
    cdef long long size = 0
    cdef int index
    for index in range(sent.users):
        size += sent.names[index].size + sent.values[index].size
    for index in range(sent.keys_count):
        size += sent.keys[index].size
        if not _shows(&sent.keys[index]) or not _is_clean(&sent.keys[index]):
            return False
    if sent.tag.at != NULL and sent.tag.size:
        size += sent.tag.size
        if (
            not _shows(&sent.tag)
            or not _is_clean(&sent.tag)
            or memchr(sent.tag.at, c"|", sent.tag.size) != NULL
        ):
            return False
    if sent.message_id.at == NULL or not _shows(&sent.message_id):
        return False
    if not _is_clean(&sent.message_id):
        return False
    if sent.grouped:
        if sent.group.size > group_max or not _shows(&sent.group) or not _is_clean(&sent.group):
            return False
    if sent.trace.at != NULL and not _is_clean(&sent.trace):
        return False
    if sent.born_host.at != NULL and not _is_clean(&sent.born_host):
        return False
    return size <= bytes_max


cdef bint _may_be_named(Span* name) except -1:
    """Whether a user's property may have a name."""
    if name.size > 1 and name.at[0] == c"_" and name.at[1] == c"_":
        return False
    if name.size == PyBytes_GET_SIZE(_multi) and memcmp(
        name.at, PyBytes_AS_STRING(_multi), name.size
    ) == 0:
        return False
    return not _is_reserved(_text(name))


cdef bytes _properties(Sent* sent, bytes peer, bytes suffix):
    cdef Py_ssize_t size = 160 + PyBytes_GET_SIZE(peer) + PyBytes_GET_SIZE(suffix)
    cdef unsigned char* to
    cdef unsigned char* begin
    cdef int index
    cdef char digits[24]
    size += sent.message_id.size + sent.topic.size + sent.group.size * sent.grouped
    size += sent.tag.size if sent.tag.at != NULL else 0
    size += sent.trace.size if sent.trace.at != NULL else 0
    size += sent.born_host.size if sent.born_host.at != NULL else 0
    for index in range(sent.users):
        size += sent.names[index].size + sent.values[index].size + 2
    for index in range(sent.keys_count):
        size += sent.keys[index].size + 1
    made = PyBytes_FromStringAndSize(NULL, size)
    to = begin = <unsigned char*>PyBytes_AS_STRING(made)
    for index in range(sent.users):
        to = _copy(to, sent.names[index].at, sent.names[index].size)
        to[0] = 1
        to = _copy(to + 1, sent.values[index].at, sent.values[index].size)
        to[0] = 2
        to += 1
    if sent.tag.at != NULL and sent.tag.size:
        to = _pair(to, b"TAGS", &sent.tag)
    if sent.keys_count:
        to = _copy(to, <Bytes>b"KEYS\x01", 5)
        for index in range(sent.keys_count):
            to = _copy(to, sent.keys[index].at, sent.keys[index].size)
            to[0] = c" "
            to += 1
        (to - 1)[0] = 2
    to = _pair(to, b"UNIQ_KEY", &sent.message_id)
    to = _copy(to, <Bytes>b"RECONSUME_TIME\x010\x02", 17)
    to = _pair(to, b"PGROUP", &sent.topic)
    if sent.grouped:
        to = _pair(to, b"__SHARDINGKEY", &sent.group)
    if sent.trace.at != NULL and sent.trace.size:
        to = _pair(to, b"TRACE_CONTEXT", &sent.trace)
    if sent.born_host.at == NULL or not sent.born_host.size:
        sent.born_host.at = <Bytes>PyBytes_AS_STRING(peer)
        sent.born_host.size = PyBytes_GET_SIZE(peer)
    to = _pair(to, b"__BORNHOST", &sent.born_host)
    to = _copy(to, <Bytes>b"BORN_TIMESTAMP\x01", 15)
    index = imago_put_decimal(<unsigned char*>digits, sent.born_ms)
    to = _copy(to, <Bytes>digits, index)
    to = _copy(to, <Bytes>b"\x02WAIT\x01false\x02", 12)
    to = _copy(to, <Bytes>PyBytes_AS_STRING(suffix), PyBytes_GET_SIZE(suffix))
    return made[: to - begin]


cdef inline unsigned char* _pair(unsigned char* to, bytes name, Span* value):
    to = _copy(to, <Bytes>PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name))
    to[0] = 1
    to = _copy(to + 1, value.at, value.size)
    to[0] = 2
    return to + 1


DEF HEAD = 9
cdef bytes _begin = plain.answers.response_headers(0)
cdef bytes _finish = plain.answers.trailers(0)
cdef bytes _ok = plain.encoded(plain.make("Status", code=20000, message="OK"))


def stored_answer(long long number, bytes message_id not None, long long offset):
    """As `_sends_py.stored_answer`."""
    cdef Py_ssize_t ok = PyBytes_GET_SIZE(_ok), text = PyBytes_GET_SIZE(message_id)
    cdef Py_ssize_t entry = 2 + ok + 2 * (1 + _varint_size(text) + text)
    cdef Py_ssize_t whole
    cdef unsigned char* to
    if offset:
        entry += 1 + _varint_size(offset)
    whole = 2 + ok + 1 + _varint_size(entry) + entry
    made = PyBytes_FromStringAndSize(
        NULL, PyBytes_GET_SIZE(_begin) + HEAD + 5 + whole + PyBytes_GET_SIZE(_finish)
    )
    to = <unsigned char*>PyBytes_AS_STRING(made)
    to = _numbered(to, _begin, number)
    to = _data_head(to, 5 + whole, number)
    to = _message_head(to, whole)
    to = _spanned(to, 0x0A, <Bytes>PyBytes_AS_STRING(_ok), ok)
    to[0] = 0x12
    to = _put_varint(to + 1, entry)
    to = _spanned(to, 0x0A, <Bytes>PyBytes_AS_STRING(_ok), ok)
    to = _spanned(to, 0x12, <Bytes>PyBytes_AS_STRING(message_id), text)
    to = _spanned(to, 0x1A, <Bytes>PyBytes_AS_STRING(message_id), text)
    if offset:
        to[0] = 0x20
        to = _put_varint(to + 1, offset)
    _numbered(to, _finish, number)
    return made


def whole_answer(long long number, list messages not None):
    """As `_sends_py.whole_answer`."""
    cdef Py_ssize_t size = 0
    cdef unsigned char* to
    for each in messages:
        size += 5 + PyBytes_GET_SIZE(<bytes?>each)
    made = PyBytes_FromStringAndSize(
        NULL, PyBytes_GET_SIZE(_begin) + HEAD + size + PyBytes_GET_SIZE(_finish)
    )
    to = <unsigned char*>PyBytes_AS_STRING(made)
    to = _numbered(to, _begin, number)
    to = _data_head(to, size, number)
    for each in messages:
        size = PyBytes_GET_SIZE(<bytes>each)
        to = _message_head(to, size)
        to = _copy(to, <Bytes>PyBytes_AS_STRING(<bytes>each), size)
    _numbered(to, _finish, number)
    return made


cdef inline unsigned char* _numbered(unsigned char* to, bytes frame, long long number):
    """Copy a frame, with the number of its stream."""
    cdef unsigned char* after = _copy(to, <Bytes>PyBytes_AS_STRING(frame), PyBytes_GET_SIZE(frame))
    _put_u32(to + 5, number)
    return after


cdef inline unsigned char* _data_head(unsigned char* to, Py_ssize_t size, long long number):
    _put_u32(to, size << 8)
    to[3] = to[4] = 0
    _put_u32(to + 5, number)
    return to + HEAD


cdef inline unsigned char* _message_head(unsigned char* to, Py_ssize_t size):
    to[0] = 0
    _put_u32(to + 1, size)
    return to + 5
