# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: binding=False, cdivision=True
"""Scan a read buffer into commands: the compiled twin of ``_text_py``.

Only the usual put and get are read here, and only in the form that clients write them: every line
that departs from it in any way goes to the reference, which has the rules and the errors.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem
from cpython.list cimport PyList_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from cpython.unicode cimport PyUnicode_DecodeASCII
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcmp, memcpy

from imago_wire.records import _record_c as _compiled_record
from imago_wire.text import _text_py as _reference
from imago_wire.text import items as _items
from imago_wire.record_format import layout as _layout
from imago_wire.errors import ChecksumError, ProtocolError

cdef extern from "_hot.h" nogil:
    void imago_crc_init()
    uint32_t imago_crc32(uint32_t crc, const uint8_t *data, size_t size)
    int imago_put_decimal(uint8_t *to, int64_t value)

cdef extern from "Python.h":
    void *PyUnicode_DATA(object text)
    Py_ssize_t PyUnicode_GET_LENGTH(object text)

include "../_named.pxi"

imago_crc_init()

cdef uint32_t CRC31_MASK = 0x7FFFFFFF
cdef Py_ssize_t BODY_BYTES_MAX = _layout.BODY_BYTES_MAX
cdef Py_ssize_t HOST_V4_SIZE = _layout.HOST_V4_SIZE
cdef Py_ssize_t HOST_V6_SIZE = _layout.HOST_V6_SIZE

cdef object _put_item = _items.PutItem
cdef object _get_item = _items.GetItem
cdef object _bad_item = _items.BadLineItem
cdef object PUT = _items.PUT
cdef object GET = _items.GET
cdef object BAD = _items.BAD

cdef object _any = _reference._any
cdef object _metaq_entry = _compiled_record.metaq_entry
cdef int64_t I32_MAX = 0x7FFFFFFF
cdef int64_t I32_MIN = -I32_MAX - 1

# Names come again and again: a string that is found here has its hash already.
cdef enum:
    NAMES = 128
    NAME_SIZE_MAX = 255
    ANSWER_SIZE_MAX = 112
    ANSWERS_ON_STACK = 64

cdef PyObject *_names[NAMES]


cdef struct Cursor:
    const uint8_t *at
    const uint8_t *end


cdef inline bint take_number(Cursor *cursor, int64_t *into, uint8_t stop) noexcept nogil:
    """Read digits, at most 18 with an optional minus, up to the byte ``stop``."""
    cdef const uint8_t *at = cursor.at
    cdef const uint8_t *end = cursor.end
    cdef const uint8_t *first
    cdef bint negative = False
    cdef int64_t value = 0
    if at < end and at[0] == 45:
        negative = True
        at += 1
    first = at
    while at < end and 48 <= at[0] <= 57:
        value = value * 10 + (at[0] - 48)
        at += 1
        if at - first > 18:
            return False
    if at == first or at >= end or at[0] != stop:
        return False
    into[0] = -value if negative else value
    cursor.at = at + 1
    return True


cdef inline bint take_number_32(Cursor *cursor, int64_t *into, uint8_t stop) noexcept nogil:
    return take_number(cursor, into, stop) and I32_MIN <= into[0] <= I32_MAX


cdef inline object take_name(Cursor *cursor):
    """Read a word of printable ASCII up to a space; None: it is something else."""
    cdef const uint8_t *first = cursor.at
    cdef const uint8_t *at = first
    cdef const uint8_t *end = cursor.end
    cdef uint32_t slot = 0
    cdef Py_ssize_t size
    cdef PyObject *known
    cdef object name
    while at < end and 33 <= at[0] <= 126:
        slot = slot * 31 + at[0]
        at += 1
    size = at - first
    if size == 0 or at >= end or at[0] != 32:
        return None
    cursor.at = at + 1
    if size > NAME_SIZE_MAX:
        return PyUnicode_DecodeASCII(<const char *> first, size, NULL)
    slot = (slot ^ slot >> 15) % NAMES
    known = _names[slot]
    if known != NULL and PyUnicode_GET_LENGTH(<object> known) == size and not memcmp(
        PyUnicode_DATA(<object> known), first, size
    ):
        return <object> known
    name = PyUnicode_DecodeASCII(<const char *> first, size, NULL)
    Py_INCREF(name)
    _names[slot] = <PyObject *> name
    Py_XDECREF(known)
    return name


cdef struct Put:
    # The numbers of one put, and where its body is.
    int64_t partition
    int64_t size
    int64_t flag
    int64_t checksum
    int64_t opaque
    const uint8_t *body
    bint waits  # the line is right, but the body has not wholly arrived


cdef object read_put(Cursor *cursor, Put *put, int64_t line_bytes_max, int64_t body_bytes_max):
    """Read ``put topic partition size flag checksum opaque`` and the body; return the topic.

    None: it is written otherwise, or has not wholly arrived. The cursor is behind the first word.
    It is moved only with success.
    """
    cdef Cursor ahead = cursor[0]
    cdef object topic = take_name(&ahead)
    put.waits = False
    if topic is None:
        return None
    if not (
        take_number_32(&ahead, &put.partition, 32)
        and take_number_32(&ahead, &put.size, 32)
        and take_number_32(&ahead, &put.flag, 32)
        and take_number_32(&ahead, &put.checksum, 32)
        and take_number_32(&ahead, &put.opaque, 13)
        and ahead.at < ahead.end
        and ahead.at[0] == 10
    ):
        return None
    if ahead.at - 1 - (cursor.at - 4) > line_bytes_max:
        return None
    put.body = ahead.at + 1
    if put.size < 0 or put.size > body_bytes_max:
        return None
    if put.size > ahead.end - put.body:
        put.waits = True
        return None
    cursor.at = put.body + put.size
    return topic


cdef object scan_get(Cursor *cursor, int64_t line_bytes_max):
    """Read ``get topic group partition offset size opaque``; None: the reference's work."""
    cdef Cursor ahead = cursor[0]
    cdef int64_t partition, offset, max_size, opaque
    cdef object group, topic = take_name(&ahead)
    if topic is None:
        return None
    group = take_name(&ahead)
    if group is None:
        return None
    if not (
        take_number_32(&ahead, &partition, 32)
        and take_number(&ahead, &offset, 32)
        and take_number_32(&ahead, &max_size, 32)
        and take_number_32(&ahead, &opaque, 13)
        and ahead.at < ahead.end
        and ahead.at[0] == 10
    ):
        return None
    if ahead.at - 1 - (cursor.at - 4) > line_bytes_max:
        return None
    cursor.at = ahead.at + 1
    return imago_named(
        _get_item, (GET, topic, group, partition, offset, max_size, opaque)
    )


def scan_text(data, int64_t line_bytes_max, int64_t body_bytes_max):
    """Return the whole commands at the start of data, and how many bytes they fill."""
    cdef Py_buffer view
    cdef Cursor cursor
    cdef const uint8_t *start
    cdef const uint8_t *at
    cdef list items = []
    cdef object item, topic
    cdef Put put
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        start = <const uint8_t *> view.buf
        cursor.at = start
        cursor.end = start + view.len
        while cursor.at < cursor.end:
            at = cursor.at
            item = None
            if cursor.end - at >= 4:
                cursor.at = at + 4
                if not memcmp(at, b"put ", 4):
                    topic = read_put(&cursor, &put, line_bytes_max, body_bytes_max)
                    if topic is not None:
                        item = imago_named(_put_item, (
                            PUT, topic, put.partition, put.flag, put.checksum, None, put.opaque,
                            PyBytes_FromStringAndSize(<const char *> put.body, put.size),
                        ))
                    elif put.waits:
                        cursor.at = at
                        break
                elif not memcmp(at, b"get ", 4):
                    item = scan_get(&cursor, line_bytes_max)
            if item is None:
                cursor.at = at
                try:
                    scanned = _any(data, at - start, line_bytes_max, body_bytes_max)
                except ProtocolError as error:
                    items.append(imago_named(_bad_item, (BAD, str(error))))
                    break
                if scanned is None:
                    break
                item = scanned[0]
                cursor.at = start + <Py_ssize_t> scanned[1]
            items.append(item)
        return items, cursor.at - start
    finally:
        PyBuffer_Release(&view)


def take_puts(
    data, tuple limits, dict tails_of not None, tuple born, list entries not None,
    list asked not None, grants=None
):
    """Make entries of the puts at the start of data; return how many bytes they fill."""
    cdef Py_buffer view
    cdef Cursor cursor
    cdef const uint8_t *start
    cdef const uint8_t *at
    cdef int64_t line_bytes_max, body_bytes_max
    cdef Put put
    cdef object born_ms, topic, entry
    cdef bytes born_host
    cdef PyObject *tails
    line_bytes_max, body_bytes_max = limits
    born_ms, born_host = born
    body_bytes_max = min(body_bytes_max, BODY_BYTES_MAX)
    if PyBytes_GET_SIZE(born_host) != HOST_V4_SIZE and PyBytes_GET_SIZE(born_host) != HOST_V6_SIZE:
        return 0
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        start = <const uint8_t *> view.buf
        cursor.at = start
        cursor.end = start + view.len
        while True:
            at = cursor.at
            if cursor.end - at < 4 or memcmp(at, b"put ", 4):
                break
            cursor.at = at + 4
            topic = read_put(&cursor, &put, line_bytes_max, body_bytes_max)
            if topic is None:
                break
            tails = PyDict_GetItem(tails_of, topic)
            if tails == NULL or (grants is not None and not grants[topic]):
                break
            entry = put_entry(&put, <list?> tails, born_ms, born_host)
            if entry is None:
                break
            entries.append(entry)
            asked.append((put.opaque, put.partition, topic))
            at = cursor.at
        return at - start
    finally:
        PyBuffer_Release(&view)


cdef object put_entry(Put *put, list tails, object born_ms, bytes born_host):
    """Return the entry of a put; None: it needs a closer look."""
    cdef object tail, body
    cdef int64_t body_crc = -1
    if put.partition < 0 or put.partition >= PyList_GET_SIZE(tails):
        return None
    tail = tails[put.partition]
    if tail is None:
        return None
    if put.flag & 1:
        body = PyBytes_FromStringAndSize(<const char *> put.body, put.size)
        try:
            return _metaq_entry(tail, body, put.flag, put.checksum, born_ms, born_host)
        except (ChecksumError, ProtocolError):
            return None
    if put.checksum != -1:
        body_crc = imago_crc32(0, put.body, put.size) & CRC31_MASK
        if body_crc != put.checksum:
            return None
    body = PyBytes_FromStringAndSize(<const char *> put.body, put.size)
    return (tail, body, b"", put.flag, 0, born_ms, born_host, 0, 0, None, None, body_crc)


def encode_put_results(asked, placed, Py_ssize_t first, Py_ssize_t end):
    """Return the answers to the puts `first` … `end`: who asked, and where each one lies."""
    cdef uint8_t few[ANSWER_SIZE_MAX * ANSWERS_ON_STACK]
    cdef uint8_t *buffer = few
    cdef uint8_t *to
    cdef Py_ssize_t at
    if end - first > ANSWERS_ON_STACK:
        buffer = <uint8_t *> PyMem_Malloc((end - first) * ANSWER_SIZE_MAX)
        if buffer == NULL:
            raise MemoryError
    try:
        to = buffer
        for at in range(first, end):
            to = put_answer(to, asked[at], placed[at])
        return PyBytes_FromStringAndSize(<const char *> buffer, to - buffer)
    finally:
        if buffer != few:
            PyMem_Free(buffer)


cdef uint8_t *put_answer(uint8_t *to, tuple asked, tuple placed) except NULL:
    cdef int64_t opaque = asked[0], message_id = placed[4]
    cdef int64_t partition = asked[1], position = placed[3]
    cdef uint8_t text[64]
    cdef int size
    size = imago_put_decimal(text, message_id)
    text[size] = 32
    size += 1 + imago_put_decimal(text + size + 1, partition)
    text[size] = 32
    size += 1 + imago_put_decimal(text + size + 1, position)
    memcpy(to, b"result 200 ", 11)
    to += 11
    to += imago_put_decimal(to, size)
    to[0] = 32
    to += 1
    to += imago_put_decimal(to, opaque)
    to[0] = 13
    to[1] = 10
    memcpy(to + 2, text, size)
    return to + 2 + size
