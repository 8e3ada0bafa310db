# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Compiled twin of `_told_py`: the same messages, in one pass over all records.

Ordinary records become messages here. Whatever else a record says, the slow path tells, so that
the two cannot differ there.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.ref cimport Py_XDECREF, PyObject
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memchr, memcmp, memcpy

from imago_wire.grpc.messages import Encoding, MessageType
from imago_wire.grpc.scanning import _told_py as plain
from imago_wire.record_format import layout as _layout
from imago_wire.record_format import properties as _props

include "_protobuf.pxi"

cdef extern from "Python.h":
    PyObject* PyBytes_FromStringAndSize(const char*, Py_ssize_t) except NULL
    int _PyBytes_Resize(PyObject**, Py_ssize_t) except -1

cdef extern from "_hot.h" nogil:
    int imago_get16(const uint8_t *data)
    uint32_t imago_get32(const uint8_t *data)
    unsigned long long imago_get64(const uint8_t *data)

cdef extern from "_md5.h" nogil:
    void imago_md5_digits(int count, const uint8_t **data, const size_t *sizes, uint8_t **to)

DEF USERS_MAX = 128
DEF KEYS_MAX = 64
DEF DIGEST = 36  # type and checksum
DEF HANDLE_ROOM = 96  # five numbers and the blanks between them
DEF FIXED = 91
DEF SIDE_BY_SIDE = 8
DEF SILENT = 14

cdef uint32_t _magic_1 = _layout.MAGIC_V1, _magic_2 = _layout.MAGIC_V2
cdef int _identity = Encoding.IDENTITY, _normal = MessageType.NORMAL, _fifo = MessageType.FIFO
cdef object _is_reserved = _props.is_reserved

cdef list _silent = [
    name.encode()
    for name in (
        _props.WAIT, _props.PRODUCER_GROUP, _props.CLUSTER, _props.TRACE_ON, _props.MSG_REGION,
        _props.RECONSUME_TIME, _props.BORN_TIMESTAMP, _props.CRC32, _props.METAQ_POS,
        _props.METAQ_ID, _props.METAQ_LEN, _props.METAQ_CRC, _props.UNIT_TAG, _props.INSTANCE_ID,
    )
]
"""Properties of which clients are told nothing, and which change nothing else."""
assert all(_is_reserved(name.decode()) for name in _silent)
assert len(_silent) == SILENT and all(len(name) < 64 for name in _silent)
assert not any(_is_reserved(chr(letter)) for letter in range(ord("a"), ord("z") + 1))

cdef Span _silent_names[SILENT]
cdef uint64_t _silent_sizes = 0
"""A bit for each size that one of them has."""
for _index in range(SILENT):
    _silent_names[_index].at = <Bytes>PyBytes_AS_STRING(<bytes>_silent[_index])
    _silent_names[_index].size = PyBytes_GET_SIZE(<bytes>_silent[_index])
    _silent_sizes |= <uint64_t>1 << len(_silent[_index])

cdef struct Told:
    int32_t queue_id
    int64_t offset, place, born_ms, store_ms
    Bytes born_ip, store_ip
    long long attempt
    Span body, tag, message_id, born_host, group, trace
    Span keys[KEYS_MAX]
    Span names[USERS_MAX]
    Span values[USERS_MAX]
    int keys_count, users
    bint grouped

cdef struct Buffer:
    # An answer while it grows: bytes of Python's, larger than what they hold.
    PyObject* whole
    unsigned char* data
    Py_ssize_t size, room

cdef struct Hole:
    # Where a body is, and where its digest goes.
    const uint8_t* body
    size_t size
    Py_ssize_t at


def told_records(bytes body not None, delivery, careful):
    """As `_told_py.told_records`."""
    cdef Bytes data = <Bytes>PyBytes_AS_STRING(body)
    cdef Py_ssize_t left = PyBytes_GET_SIZE(body), at = 0, count = left // FIXED + 1
    cdef int32_t size
    cdef Told told
    cdef Buffer to
    cdef int holes = 0
    cdef Hole* hole
    cdef list handles = []
    cdef dict starts = delivery.starts
    cdef bytes words = delivery.words.encode(), resource = delivery.resource
    cdef bytes invisible = delivery.invisible
    cdef long long attempts_max = delivery.attempts_max
    cdef long long queue_id = <long long>1 << 32  # that of the record before
    cdef unsigned char* handle
    cdef Py_ssize_t handle_size
    cdef long long place, offset
    to.whole, to.size, to.room = NULL, 0, 0
    hole = <Hole*>malloc(count * sizeof(Hole))
    handle = <unsigned char*>malloc(HANDLE_ROOM + 32 + PyBytes_GET_SIZE(words))
    try:
        if hole == NULL or handle == NULL:
            raise MemoryError
        _make_room(&to, left + left // 2 + 4096)
        _put(&to, delivery.begin)
        while left - at >= 36:
            size = <int32_t>imago_get32(data + at)
            if size <= 0:
                break
            if size > left - at:
                size = <int32_t>(left - at)
            told.queue_id = <int32_t>imago_get32(data + at + 12)
            offset, place = imago_get64(data + at + 20), imago_get64(data + at + 28)
            if told.queue_id != queue_id:
                queue_id, start = told.queue_id, starts.get(told.queue_id)
            handle_size = _put_handle(
                handle, offset if start is None else <long long>start, words, &told, offset, place
            )
            text = PyUnicode_DecodeUTF8(<const char*>handle, handle_size, NULL)
            if _read_record(data + at, size, &told) and told.attempt <= attempts_max:
                _put_message(&to, &told, resource, invisible, handle, handle_size, &hole[holes])
                holes += 1
                handles.append(text)
            else:
                message = careful(body[at : at + size], text)
                if message is not None:
                    _make_room(&to, 5)
                    to.data[to.size] = 0
                    _put_u32(to.data + to.size + 1, PyBytes_GET_SIZE(<bytes>message))
                    to.size += 5
                    _put(&to, message)
                    handles.append(text)
            at += size
        _put_digests(&to, hole, holes)
        _put(&to, delivery.end)
        _PyBytes_Resize(&to.whole, to.size)
        return <object>to.whole, handles
    finally:
        Py_XDECREF(to.whole)
        free(hole)
        free(handle)


cdef Py_ssize_t _put_handle(
    unsigned char* begin, long long start, bytes words, Told* told, long long offset, long long place
):
    cdef unsigned char* to = begin
    to += imago_put_decimal(to, start)
    to[0] = c" "
    to = _copy(to + 1, <Bytes>PyBytes_AS_STRING(words), PyBytes_GET_SIZE(words))
    to[0] = c" "
    to += 1
    to += imago_put_decimal(to, told.queue_id)
    to[0] = c" "
    to += 1
    to += imago_put_decimal(to, offset)
    to[0] = c" "
    to += 1
    to += imago_put_decimal(to, place)
    return to - begin


cdef bint _read_record(Bytes data, Py_ssize_t left, Told* told) except -1:
    """Read a record; False: it is not ordinary."""
    cdef uint32_t magic
    cdef Py_ssize_t at, size_size
    cdef int32_t body_size
    cdef Span all
    if left < FIXED or <int32_t>imago_get32(data) != left:
        return False
    magic = imago_get32(data + 4)
    if (magic != _magic_1 and magic != _magic_2) or imago_get32(data + 36) != 0:
        return False  # a bit of the flags says that hosts, body or state are special
    told.offset, told.place = imago_get64(data + 20), imago_get64(data + 28)
    told.born_ms, told.born_ip = imago_get64(data + 40), data + 48
    told.store_ms, told.store_ip = imago_get64(data + 56), data + 64
    told.attempt = <long long><int32_t>imago_get32(data + 72) + 1
    body_size = <int32_t>imago_get32(data + 84)
    size_size = 1 if magic == _magic_1 else 2
    if (
        told.queue_id < 0
        or told.offset < 0
        or told.born_ms < 0
        or told.store_ms < 0
        or told.attempt <= 0
        or body_size < 0
        or body_size > left - FIXED
    ):
        return False
    told.body.at, told.body.size = data + 88, body_size
    at = 88 + body_size
    all.size = data[at] if size_size == 1 else imago_get16(data + at)
    at += size_size + all.size + 2
    if all.size == 0 or all.size > (127 if size_size == 1 else 255) or at > left:
        return False
    if at + <int16_t>imago_get16(data + at - 2) != left:
        return False
    all.at, all.size = data + at, left - at
    return _is_utf8(&all) and _read_properties(&all, told)


cdef bint _read_properties(Span* all, Told* told) except -1:
    cdef Bytes at = all.at
    cdef Bytes end = at + all.size
    cdef Bytes middle
    cdef Bytes after
    cdef Span name, value
    told.keys_count = told.users = 0
    told.grouped = False
    told.tag.at = told.message_id.at = told.born_host.at = told.group.at = told.trace.at = at
    told.tag.size = told.message_id.size = told.born_host.size = 0
    told.group.size = told.trace.size = 0
    while at < end:
        after = <Bytes>memchr(at, 2, end - at)
        if after == NULL:
            after = end
        middle = <Bytes>memchr(at, 1, after - at)
        if middle != NULL and middle > at:
            name.at, name.size = at, middle - at
            value.at, value.size = middle + 1, after - middle - 1
            if not _read_property(&name, &value, told):
                return False
        at = after + 1
    return told.message_id.size != 0


cdef inline bint _is(Span* name, const char* what, Py_ssize_t size) noexcept nogil:
    return name.size == size and memcmp(name.at, what, size) == 0


cdef bint _is_silent(Span* name) noexcept nogil:
    cdef int index
    if name.size > 63 or not _silent_sizes >> name.size & 1:
        return False
    for index in range(SILENT):
        if _silent_names[index].size == name.size:
            if memcmp(_silent_names[index].at, name.at, name.size) == 0:
                return True
    return False


cdef bint _read_property(Span* name, Span* value, Told* told) except -1:
    """Take one; False: the message is not ordinary."""
    if not c"a" <= name.at[0] <= c"z":
        if _is(name, b"TAGS", 4):
            told.tag = value[0]
            return True
        if _is(name, b"KEYS", 4):
            return _read_keys(value, told)
        if _is(name, b"UNIQ_KEY", 8):
            told.message_id = value[0]
            return True
        if _is(name, b"__BORNHOST", 10):
            told.born_host = value[0]
            return True
        if _is(name, b"__SHARDINGKEY", 13):
            told.group, told.grouped = value[0], True
            return True
        if _is(name, b"TRACE_CONTEXT", 13):
            told.trace = value[0]
            return True
        if _is_silent(name):
            return True
        if name.size > 1 and name.at[0] == c"_" and name.at[1] == c"_":
            return False
        if _is_reserved(_text(name)):
            return False
    if told.users == USERS_MAX:
        return False
    told.names[told.users], told.values[told.users] = name[0], value[0]
    told.users += 1
    return True


cdef bint _read_keys(Span* value, Told* told) noexcept:
    """Read words between blanks; False: there are too many, or some of letters beyond ASCII."""
    cdef Py_ssize_t at, begin = -1
    cdef unsigned char byte = 0
    told.keys_count = 0
    for at in range(value.size + 1):
        byte = value.at[at] if at < value.size else c" "
        if byte & 0x80:
            return False
        if 9 <= byte <= 13 or 28 <= byte <= 32:
            if begin >= 0:
                if told.keys_count == KEYS_MAX:
                    return False
                told.keys[told.keys_count].at = value.at + begin
                told.keys[told.keys_count].size = at - begin
                told.keys_count += 1
                begin = -1
        elif begin < 0:
            begin = at
    return True


cdef inline Py_ssize_t _time_size(long long ms) noexcept nogil:
    cdef Py_ssize_t size = 0
    if ms // 1000:
        size += 1 + _varint_size(ms // 1000)
    if ms % 1000:
        size += 1 + _varint_size(ms % 1000 * 1000000)
    return size


cdef unsigned char* _put_time(unsigned char* to, int tag, long long ms) noexcept nogil:
    to[0], to[1] = tag, <unsigned char>_time_size(ms)
    to += 2
    if ms // 1000:
        to[0] = 0x08
        to = _put_varint(to + 1, ms // 1000)
    if ms % 1000:
        to[0] = 0x10
        to = _put_varint(to + 1, ms % 1000 * 1000000)
    return to


cdef int _put_host(unsigned char* to, Bytes host) noexcept nogil:
    """Write four bytes of address, and a port, as text; return its size."""
    cdef int index, size = 0
    for index in range(4):
        size += imago_put_decimal(to + size, host[index])
        to[size] = c"." if index < 3 else c":"
        size += 1
    return size + imago_put_decimal(to + size, imago_get32(host + 4))


cdef int _make_room(Buffer* to, Py_ssize_t more) except -1:
    if to.room - to.size < more:
        to.room = 2 * to.room + more
        if to.whole == NULL:
            to.whole = PyBytes_FromStringAndSize(NULL, to.room)
        else:
            _PyBytes_Resize(&to.whole, to.room)
        to.data = <unsigned char*>PyBytes_AS_STRING(<object>to.whole)
    return 0


cdef int _put(Buffer* to, bytes what) except -1:
    cdef Py_ssize_t size = PyBytes_GET_SIZE(what)
    _make_room(to, size)
    _copy(to.data + to.size, <Bytes>PyBytes_AS_STRING(what), size)
    to.size += size
    return 0


cdef int _put_message(
    Buffer* buffer, Told* told, bytes resource, bytes invisible, unsigned char* handle,
    Py_ssize_t handle_size, Hole* hole,
) except -1:
    """Add a message with its heads; leave a hole for its digest."""
    cdef unsigned char born[32]
    cdef unsigned char store[32]
    cdef unsigned char* to
    cdef Py_ssize_t system, message, whole, topic = PyBytes_GET_SIZE(resource)
    cdef Py_ssize_t hidden = PyBytes_GET_SIZE(invisible)
    cdef Py_ssize_t users = 0, pair
    cdef int index, store_size = _put_host(store, told.store_ip)
    if not told.born_host.size:
        told.born_host.at, told.born_host.size = born, _put_host(born, told.born_ip)
    system = 2 + DIGEST + 2 + 2  # digest, encoding, type
    if told.tag.size:
        system += 1 + _span_size(told.tag.size)
    for index in range(told.keys_count):
        system += 1 + _span_size(told.keys[index].size)
    system += 1 + _span_size(told.message_id.size)
    system += 2 + _time_size(told.born_ms) + 2 + _time_size(told.store_ms)
    system += 1 + _span_size(told.born_host.size) + 1 + _span_size(store_size)
    system += 1 + _span_size(handle_size)
    if told.queue_id:
        system += 1 + _varint_size(told.queue_id)
    system += 1 + _varint_size(told.offset) + 1 + _span_size(hidden)
    system += 2 + _varint_size(told.attempt)
    if told.group.size:
        system += 2 + _span_size(told.group.size)
    if told.trace.size:
        system += 2 + _span_size(told.trace.size)
    for index in range(told.users):
        pair = 2 + _span_size(told.names[index].size) + _span_size(told.values[index].size)
        users += 1 + _span_size(pair)
    message = 1 + _span_size(topic) + users + 1 + _span_size(system)
    if told.body.size:
        message += 1 + _span_size(told.body.size)
    whole = 1 + _span_size(message)
    _make_room(buffer, 5 + whole)
    to = buffer.data + buffer.size
    to[0] = 0
    _put_u32(to + 1, whole)
    to[5] = 0x12
    to = _put_varint(to + 6, message)
    to = _spanned(to, 0x0A, <Bytes>PyBytes_AS_STRING(resource), topic)
    for index in range(told.users):
        to[0] = 0x12
        to = _put_varint(
            to + 1, 2 + _span_size(told.names[index].size) + _span_size(told.values[index].size)
        )
        to = _spanned(to, 0x0A, told.names[index].at, told.names[index].size)
        to = _spanned(to, 0x12, told.values[index].at, told.values[index].size)
    to[0] = 0x1A
    to = _put_varint(to + 1, system)
    if told.tag.size:
        to = _spanned(to, 0x0A, told.tag.at, told.tag.size)
    for index in range(told.keys_count):
        to = _spanned(to, 0x12, told.keys[index].at, told.keys[index].size)
    to = _spanned(to, 0x1A, told.message_id.at, told.message_id.size)
    to = _copy(to, <Bytes>b"\x22\x24\x08\x02\x12\x20", 6)
    hole.body, hole.size, hole.at = told.body.at, told.body.size, to - buffer.data
    to += 32
    to[0], to[1], to[2] = 0x28, _identity, 0x30
    to[3] = _fifo if told.grouped else _normal
    to = _put_time(to + 4, 0x3A, told.born_ms)
    to = _spanned(to, 0x42, told.born_host.at, told.born_host.size)
    to = _put_time(to, 0x4A, told.store_ms)
    to = _spanned(to, 0x52, store, store_size)
    to = _spanned(to, 0x62, handle, handle_size)
    if told.queue_id:
        to[0] = 0x68
        to = _put_varint(to + 1, told.queue_id)
    to[0] = 0x70
    to = _put_varint(to + 1, told.offset)
    to = _spanned(to, 0x7A, <Bytes>PyBytes_AS_STRING(invisible), hidden)
    to[0], to[1] = 0x80, 1
    to = _put_varint(to + 2, told.attempt)
    if told.group.size:
        to[0] = 0x8A
        to = _spanned(to + 1, 1, told.group.at, told.group.size)
    if told.trace.size:
        to[0] = 0x92
        to = _spanned(to + 1, 1, told.trace.at, told.trace.size)
    if told.body.size:
        to = _spanned(to, 0x22, told.body.at, told.body.size)
    buffer.size = to - buffer.data
    return 0


cdef void _put_digests(Buffer* buffer, Hole* hole, int holes) noexcept nogil:
    cdef const uint8_t* data[SIDE_BY_SIDE]
    cdef size_t sizes[SIDE_BY_SIDE]
    cdef uint8_t* to[SIDE_BY_SIDE]
    cdef int begin, index, count
    for begin in range(0, holes, SIDE_BY_SIDE):
        count = holes - begin if holes - begin < SIDE_BY_SIDE else SIDE_BY_SIDE
        for index in range(count):
            data[index], sizes[index] = hole[begin + index].body, hole[begin + index].size
            to[index] = buffer.data + hole[begin + index].at
        imago_md5_digits(count, data, sizes, to)
