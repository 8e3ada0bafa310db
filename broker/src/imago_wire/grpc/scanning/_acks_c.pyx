# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Compiled twin of `_acks_py`: the same results, in one pass over all handles.

Requests as the SDKs write them are read in place; whatever else comes, the plain twin looks at, so
that the two cannot differ there.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.string cimport memcmp, memcpy

from imago_wire.grpc.scanning import _acks_py as plain

include "_protobuf.pxi"

cdef int DIGITS = plain.DIGITS
cdef object _plain_acks = plain.plain_acks
cdef bytes _ok = plain.encoded(plain.make("Status", code=20000, message="OK"))

cdef struct Ack:
    Span message_id, handle
    long long stamp, due_ms, queue_id, offset


def plain_acks(bytes data not None, bytes broker_name not None, long long now_ms, tuple limits):
    """As `_acks_py.plain_acks`."""
    cdef Bytes begin = <Bytes>PyBytes_AS_STRING(data)
    cdef Bytes at = begin
    cdef Bytes end = at + PyBytes_GET_SIZE(data)
    cdef Span found, group, topic
    cdef Ack ack
    cdef int number, kind, count = 0
    cdef Py_ssize_t size = 0, ok = PyBytes_GET_SIZE(_ok)
    cdef long long queue_id = -1, stamp = -1
    cdef dict offsets = {}
    cdef list of_stamp = None
    cdef unsigned char* to
    cdef long long entries_max, size_max
    entries_max, size_max = limits
    group.at = topic.at = NULL
    while at < end:
        if not _field(&at, end, &number, &kind, &found) or kind != SPAN:
            return _plain_acks(data, broker_name, now_ms, limits)
        if number == 3:
            count += 1
            if (
                count > entries_max
                or not _read_ack(&found, broker_name, &ack)
                or ack.handle.size > size_max
                or ack.due_ms < now_ms
            ):
                return _plain_acks(data, broker_name, now_ms, limits)
            if ack.queue_id != queue_id or ack.stamp != stamp:
                queue_id, stamp = ack.queue_id, ack.stamp
                of_stamp = offsets.setdefault((queue_id, stamp), [])
            of_stamp.append(ack.offset)
            size += 1 + _span_size(_entry_size(&ack, ok))
        elif number == 1 and group.at == NULL and _read_resource(&found, &group):
            pass
        elif number == 2 and topic.at == NULL and _read_resource(&found, &topic):
            pass
        else:
            return _plain_acks(data, broker_name, now_ms, limits)
    if not count:
        return None
    size += 1 + _span_size(ok)
    answer = PyBytes_FromStringAndSize(NULL, 5 + size)
    to = <unsigned char*>PyBytes_AS_STRING(answer)
    to[0] = 0
    _put_u32(to + 1, size)
    to = _spanned(to + 5, 0x0A, <Bytes>PyBytes_AS_STRING(_ok), ok)
    at = begin
    while at < end:
        _field(&at, end, &number, &kind, &found)
        if number == 3:
            _read_ack(&found, broker_name, &ack)
            to[0] = 0x12
            to = _put_varint(to + 1, _entry_size(&ack, ok))
            if ack.message_id.size:
                to = _spanned(to, 0x0A, ack.message_id.at, ack.message_id.size)
            to = _spanned(to, 0x12, ack.handle.at, ack.handle.size)
            to = _spanned(to, 0x1A, <Bytes>PyBytes_AS_STRING(_ok), ok)
    return _text(&group), _text(&topic), offsets, answer


cdef inline Py_ssize_t _entry_size(Ack* ack, Py_ssize_t ok) noexcept nogil:
    cdef Py_ssize_t size = 1 + _span_size(ack.handle.size) + 1 + _span_size(ok)
    if ack.message_id.size:
        size += 1 + _span_size(ack.message_id.size)
    return size


cdef bint _read_ack(Span* entry, bytes broker_name, Ack* ack):
    """Read an entry; False: it needs a closer look."""
    cdef Bytes at = entry.at
    cdef Bytes end = at + entry.size
    cdef Span found
    cdef int number, kind
    ack.message_id.at = ack.handle.at = at
    ack.message_id.size = ack.handle.size = 0
    while at < end:
        if not _field(&at, end, &number, &kind, &found) or kind != SPAN:
            return False
        if number == 1:
            ack.message_id = found
            if not _is_utf8(&found):
                return False
        elif number == 2:
            ack.handle = found
            if not _is_utf8(&found):
                return False
        else:
            return False
    return _read_handle(ack, broker_name)


cdef bint _read_handle(Ack* ack, bytes broker_name) noexcept:
    cdef Bytes at = ack.handle.at
    cdef Bytes end = at + ack.handle.size
    cdef Py_ssize_t name = PyBytes_GET_SIZE(broker_name)
    cdef long long start, invisible, revive, place
    if not (
        _number(&at, end, &start, True)
        and _number(&at, end, &ack.stamp, True)
        and _number(&at, end, &invisible, True)
        and _number(&at, end, &revive, True)
    ):
        return False
    if end - at < 2 + name + 1 or at[0] != c"0" or at[1] != c" ":
        return False
    at += 2
    if memcmp(at, PyBytes_AS_STRING(broker_name), name) != 0 or at[name] != c" ":
        return False
    at += name + 1
    ack.due_ms = ack.stamp + invisible
    return (
        _number(&at, end, &ack.queue_id, True)
        and _number(&at, end, &ack.offset, True)
        and _number(&at, end, &place, False)
    )


cdef bint _number(Bytes* at, Bytes end, long long* value, bint more) noexcept nogil:
    """Read digits, and the blank behind them; the last ones end the handle."""
    cdef int digits = 0
    value[0] = 0
    while at[0] < end and c"0" <= at[0][0] <= c"9":
        value[0] = 10 * value[0] + (at[0][0] - c"0")
        digits += 1
        if digits > DIGITS:
            return False
        at[0] += 1
    if not digits:
        return False
    if not more:
        return at[0] == end
    if at[0] == end or at[0][0] != c" ":
        return False
    at[0] += 1
    return True
