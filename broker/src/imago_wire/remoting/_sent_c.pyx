# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: binding=False, cdivision=True
"""What is done for each message that is sent: the compiled twin of ``_sent_py``."""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject_GenericSetAttr
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from imago_wire.remoting import _sent_py as _reference
from imago_wire.errors import LimitExceededError as _LimitExceededError
from imago_wire.record_format import properties as _names

cdef extern from "Python.h":
    int PyUnicode_IS_COMPACT_ASCII(object text)
    Py_ssize_t PyUnicode_GET_LENGTH(object text)
    void *PyUnicode_DATA(object text)
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL
    object PyUnicode_New(Py_ssize_t size, Py_UCS4 maxchar)

cdef extern from "_hot.h" nogil:
    uint32_t imago_get16(const uint8_t *data)
    uint32_t imago_get32(const uint8_t *data)
    void imago_put16(uint8_t *to, uint32_t value)
    void imago_put32(uint8_t *to, uint32_t value)

cdef const char *DIGITS = b"0123456789ABCDEF"
cdef tuple MESSAGE_FIELDS = _reference.MESSAGE_FIELDS
cdef tuple RESULT_FIELDS = _reference.RESULT_FIELDS
cdef Py_ssize_t TOPIC_SIZE_MAX = 127  # what the slow path allows; the differential test crosses it
cdef Py_ssize_t BODY_SIZE_MAX = 4 << 20
cdef Py_ssize_t TEXT_SIZE_MAX = 1024  # of tags, keys and ordering key; longer ones need care
cdef Py_ssize_t ENTRY_HEAD = 20
cdef Py_ssize_t PROPERTIES_SIZE_MAX = _names.PROPERTIES_BYTES_MAX
cdef Py_ssize_t OWN_MAX = 16
cdef Py_ssize_t BATCH_MAX = 1 << 16
cdef str LIGHT = _names.INNER_MULTI_DISPATCH
cdef object is_reserved = _names.is_reserved
cdef str UNIQ_KEY = _names.UNIQ_KEY + "\x01"
cdef str TAGS = _names.TAGS + "\x01"
cdef str KEYS = _names.KEYS + "\x01"
cdef str SHARDING_KEY = _names.SHARDING_KEY + "\x01"

cdef uint8_t OF_NAMES[256]
cdef int _at
for _at in range(256):
    OF_NAMES[_at] = _at < 128 and (chr(_at).isalnum() or chr(_at) in "_-")


cdef inline bint is_name(object text):
    """Whether it is a short text of letters, digits, _ and -."""
    if type(text) is not str or not PyUnicode_IS_COMPACT_ASCII(text):
        return False
    cdef const uint8_t *data = <const uint8_t *> PyUnicode_DATA(text)
    cdef Py_ssize_t at, size = PyUnicode_GET_LENGTH(text)
    if size == 0 or size > TOPIC_SIZE_MAX:
        return False
    for at in range(size):
        if not OF_NAMES[data[at]]:
            return False
    return True


cdef inline bint is_sound_text(object text):
    """Whether it is short ASCII text without what ends names and values."""
    if type(text) is not str or not PyUnicode_IS_COMPACT_ASCII(text):
        return False
    cdef const uint8_t *data = <const uint8_t *> PyUnicode_DATA(text)
    cdef Py_ssize_t at, size = PyUnicode_GET_LENGTH(text)
    if size > TEXT_SIZE_MAX:
        return False
    for at in range(size):
        if data[at] == 1 or data[at] == 2:
            return False
    return True


cdef inline bint is_short_text(object text):
    """Whether it is short ASCII text without blanks, and not empty."""
    return bool(is_sound_text(text) and text and " " not in <str> text)


def fill_message(object message not None, tuple values not None):
    """As `_sent_py.fill_message`."""
    cdef Py_ssize_t at
    if len(values) != len(MESSAGE_FIELDS):
        raise TypeError("the fields of a message")
    for at in range(len(MESSAGE_FIELDS)):
        PyObject_GenericSetAttr(message, MESSAGE_FIELDS[at], values[at])
    (topic, body, tags, keys, ordering_key, delay_level, deliver_at_ms, delay_ms, _, flag,
     properties) = values
    if not is_name(topic) or not PyBytes_CheckExact(body) or len(<bytes> body) > BODY_SIZE_MAX:
        return False
    if tags is not None and not is_name(tags):
        return False
    if type(keys) is not tuple or deliver_at_ms is not None or type(properties) is not dict:
        return False
    for key in <tuple> keys:
        if not is_short_text(key):
            return False
    if ordering_key is not None and type(ordering_key) is not str:
        return False
    if type(delay_level) is not int or type(delay_ms) is not int or type(flag) is not int:
        return False
    return delay_level == 0 and delay_ms == 0 and flag == 0 and not <dict> properties


def prepare_plain(
    object kind not None, tuple usual not None, object message not None, str key not None,
    object born_ms, Py_ssize_t body_bytes_max, Py_ssize_t properties_bytes_max
):
    """As `_sent_py.prepare_plain`."""
    cdef object topic = message.topic, body = message.body, flag = message.flag
    cdef object tags = message.tags, keys = message.keys, ordering_key = message.ordering_key
    cdef str properties
    if not is_name(topic) or not PyBytes_CheckExact(body) or len(<bytes> body) > body_bytes_max:
        return None
    if not message.wait_stored or message.deliver_at_ms is not None:
        return None
    if message.delay_level or message.delay_ms:
        return None
    cdef object own = message.properties
    if not own and tags is None and not keys and ordering_key is None:
        properties = f"{UNIQ_KEY}{key}\x02"
    else:
        properties = more_properties(own, key, tags, keys, ordering_key)
        if properties is None:
            return None
    if PyUnicode_GET_LENGTH(properties) > properties_bytes_max:  # all of it is ASCII
        return None
    code, sys_flag, entries = usual
    return tuple.__new__(kind, (
        code, topic, key, body, properties, born_ms, flag, sys_flag, ordering_key, entries,
        True, True, 1,
    ))


cdef str more_properties(object own, str key, object tags, object keys, object ordering_key):
    cdef list parts = []
    cdef object name, value
    if type(own) is not dict or len(<dict> own) > OWN_MAX:
        return None
    for name, value in (<dict> own).items():
        if not is_short_text(name) or name == LIGHT or not is_sound_text(value):
            return None
        if is_reserved(name):  # it came after the message was made
            return None
        parts += (name, "\x01", value, "\x02")
    parts += (UNIQ_KEY, key, "\x02")
    if tags:
        if not is_name(tags):
            return None
        parts += (TAGS, tags, "\x02")
    if keys:
        if type(keys) is not tuple or len(<tuple> keys) > OWN_MAX:
            return None
        for one in <tuple> keys:
            if not is_short_text(one):
                return None
        parts += (KEYS, " ".join(keys), "\x02")
    if ordering_key is not None:
        if not is_short_text(ordering_key):
            return None
        parts += (SHARDING_KEY, ordering_key, "\x02")
    return "".join(parts)


def encode_joined(list outgoings not None):
    """As `_sent_py.encode_joined`."""
    cdef Py_ssize_t size = 0, text_size
    cdef object one, body, properties
    cdef list bodies = []
    for one in outgoings:
        body, properties = one.body, one.properties
        if not PyBytes_CheckExact(body):
            body = bytes(body)
        bodies.append((body, properties, one.flag))
        PyUnicode_AsUTF8AndSize(properties, &text_size)
        if text_size > PROPERTIES_SIZE_MAX:
            raise _LimitExceededError("properties", size=text_size, size_max=PROPERTIES_SIZE_MAX)
        size += ENTRY_HEAD + PyBytes_GET_SIZE(body) + 2 + text_size
    cdef bytes found = PyBytes_FromStringAndSize(NULL, size)
    cdef uint8_t *to = <uint8_t *> PyBytes_AS_STRING(found)
    cdef const char *text
    cdef Py_ssize_t body_size
    cdef object flag
    for body, properties, flag in bodies:
        text = PyUnicode_AsUTF8AndSize(properties, &text_size)
        body_size = PyBytes_GET_SIZE(body)
        imago_put32(to, <uint32_t> (ENTRY_HEAD + body_size + 2 + text_size))
        imago_put32(to + 4, 0)
        imago_put32(to + 8, 0)
        imago_put32(to + 12, <uint32_t> <int> flag)
        imago_put32(to + 16, <uint32_t> body_size)
        memcpy(to + ENTRY_HEAD, PyBytes_AS_STRING(body), body_size)
        to += ENTRY_HEAD + body_size
        imago_put16(to, <uint32_t> text_size)
        memcpy(to + 2, text, text_size)
        to += 2 + text_size
    return found


def extend_batch(
    bytes entries not None, bytes head not None, object first, bytes end not None,
    bint hexadecimal, Py_ssize_t size_max
):
    """As `_sent_py.extend_batch`; what is not sound it is told by that."""
    cdef Py_ssize_t size = PyBytes_GET_SIZE(entries), at = 0, count = 0, own, width
    cdef Py_ssize_t head_size = PyBytes_GET_SIZE(head), end_size = PyBytes_GET_SIZE(end)
    cdef Py_ssize_t body_size, entry
    cdef const uint8_t *data = <const uint8_t *> PyBytes_AS_STRING(entries)
    cdef uint8_t digits[20]
    if size_max > 32767:
        size_max = 32767
    while at < size:
        if size - at < ENTRY_HEAD + 2 or count == BATCH_MAX:
            return _reference.extend_batch(entries, head, first, end, hexadecimal, size_max)
        entry, body_size = imago_get32(data + at), imago_get32(data + at + 16)
        if entry > size - at or body_size > entry - ENTRY_HEAD - 2:
            return _reference.extend_batch(entries, head, first, end, hexadecimal, size_max)
        own = entry - ENTRY_HEAD - body_size - 2
        if (
            own != <Py_ssize_t> imago_get16(data + at + ENTRY_HEAD + body_size)
            or own + head_size + 20 + end_size > size_max
        ):
            return _reference.extend_batch(entries, head, first, end, hexadecimal, size_max)
        count += 1
        at += entry
    if not 0 <= first <= (0xFFFF if hexadecimal else 1 << 62) - count:
        return _reference.extend_batch(entries, head, first, end, hexadecimal, size_max)
    cdef uint64_t number = first, left
    cdef Py_ssize_t room = size + count * (head_size + 20 + end_size)
    cdef bytearray made = PyByteArray_FromStringAndSize(NULL, room)
    cdef uint8_t *begin = <uint8_t *> PyByteArray_AS_STRING(made)
    cdef uint8_t *to = begin
    at = 0
    while at < size:
        entry = imago_get32(data + at)
        body_size = imago_get32(data + at + 16)
        width, left = 0, number
        while left or (width < 4 if hexadecimal else not width):
            width += 1
            digits[20 - width] = DIGITS[left & 15 if hexadecimal else left % 10]
            left = left >> 4 if hexadecimal else left // 10
        memcpy(to, data + at, entry)
        imago_put32(to, <uint32_t> (entry + head_size + width + end_size))
        own = entry - ENTRY_HEAD - body_size - 2
        imago_put16(to + ENTRY_HEAD + body_size, <uint32_t> (own + head_size + width + end_size))
        to += entry
        memcpy(to, PyBytes_AS_STRING(head), head_size)
        memcpy(to + head_size, &digits[20 - width], width)
        memcpy(to + head_size + width, PyBytes_AS_STRING(end), end_size)
        to += head_size + width + end_size
        number += 1
        at += entry
    return PyBytes_FromStringAndSize(<char *> begin, to - begin)


def share_results(object kind not None, list outgoings not None, list stored_ids not None, object result):
    """As `_sent_py.share_results`."""
    cdef object status = result.status, queue = result.queue, region = result.trace_region
    cdef object offset = result.offset, new = kind.__new__, one, made
    cdef Py_ssize_t at
    cdef list found = []
    for at in range(len(outgoings)):
        one = outgoings[at]
        made = new(kind)
        PyObject_GenericSetAttr(made, RESULT_FIELDS[0], status)
        PyObject_GenericSetAttr(made, RESULT_FIELDS[1], queue)
        PyObject_GenericSetAttr(made, RESULT_FIELDS[2], offset + at)
        PyObject_GenericSetAttr(made, RESULT_FIELDS[3], one.message_id)
        PyObject_GenericSetAttr(made, RESULT_FIELDS[4], stored_ids[at])
        PyObject_GenericSetAttr(made, RESULT_FIELDS[5], None)
        PyObject_GenericSetAttr(made, RESULT_FIELDS[6], region)
        found.append(made)
    return found
