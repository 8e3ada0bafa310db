"""Protobuf's wire form: fields read and written in place; part of the twins beside it."""

from libc.stdint cimport uint64_t

ctypedef const unsigned char* Bytes

cdef extern from "_hot.h" nogil:
    int imago_put_decimal(unsigned char *to, long long value)

DEF NUMBER = 0
DEF SPAN = 2

cdef struct Span:
    Bytes at
    Py_ssize_t size
    long long value  # of a number


cdef inline bint _varint(Bytes* at, Bytes end, unsigned long long* value) noexcept nogil:
    """Read a number of ten bytes at most."""
    cdef int shift = 0
    cdef unsigned char byte
    value[0] = 0
    while at[0] < end and shift < 70:
        byte = at[0][0]
        at[0] += 1
        value[0] |= (<unsigned long long>(byte & 0x7F)) << shift if shift < 64 else 0
        if byte < 0x80:
            return True
        shift += 7
    return False


cdef inline bint _field(
    Bytes* at, Bytes end, int* number, int* kind, Span* found
) noexcept nogil:
    """Read a field; False: there is none that the messages read here have."""
    cdef unsigned long long told
    if not _varint(at, end, &told) or told >= 1 << 28:
        return False
    number[0], kind[0] = <int>(told >> 3), <int>(told & 7)
    if not number[0] or not _varint(at, end, &told):
        return False
    if kind[0] == NUMBER:
        found.value = <long long>told
        return True
    if kind[0] != SPAN or told > <unsigned long long>(end - at[0]):
        return False
    found.at, found.size = at[0], <Py_ssize_t>told
    at[0] += told
    return True


cdef inline bint _is_ascii(Bytes at, Py_ssize_t size) noexcept nogil:
    cdef uint64_t word, high = 0
    cdef Py_ssize_t index
    if size < 8:
        for index in range(size):
            high |= at[index]
        return not high & 0x80
    for index in range(0, size - 8, 8):
        memcpy(&word, at + index, 8)
        high |= word
    memcpy(&word, at + size - 8, 8)  # again some of those before, rather than fewer than eight
    return not (high | word) & <uint64_t>0x8080808080808080


cdef bint _is_utf8(Span* text):
    if _is_ascii(text.at, text.size):
        return True
    try:
        PyUnicode_DecodeUTF8(<const char*>text.at, text.size, NULL)
    except UnicodeDecodeError:
        return False
    return True


cdef bint _read_resource(Span* resource, Span* name):
    """Read a resource whose name alone matters."""
    cdef Bytes at = resource.at
    cdef Bytes end = at + resource.size
    cdef Span found
    cdef int number, kind
    name.at, name.size = at, 0
    while at < end:
        if not _field(&at, end, &number, &kind, &found) or kind != SPAN:
            return False
        if number == 2:
            name[0] = found
        if number > 2 or not _is_utf8(&found):
            return False
    return True


cdef bint _is_clean(Span* text):
    """Whether a text is UTF-8 without control characters."""
    cdef Py_ssize_t index
    cdef unsigned char byte
    cdef bint wide = False
    for index in range(text.size):
        byte = text.at[index]
        if byte < 0x20 or byte == 0x7F:
            return False
        if byte & 0x80:
            wide = True
            if byte == 0xC2 and index + 1 < text.size and text.at[index + 1] < 0xA0:
                return False
    return not wide or _is_utf8(text)


cdef bint _shows(Span* text) noexcept nogil:
    """Whether a text has something to see, at one look."""
    cdef Py_ssize_t index
    for index in range(text.size):
        if 0x20 < text.at[index] < 0x7F:
            return True
    return False


cdef inline str _text(Span* text):
    if text.at == NULL:
        return ""
    return PyUnicode_DecodeUTF8(<const char*>text.at, text.size, NULL)


cdef inline unsigned char* _copy(unsigned char* to, Bytes what, Py_ssize_t size) noexcept nogil:
    memcpy(to, what, size)
    return to + size


cdef inline void _put_u32(unsigned char* to, long long value) noexcept nogil:
    to[0], to[1] = <unsigned char>(value >> 24), <unsigned char>(value >> 16)
    to[2], to[3] = <unsigned char>(value >> 8), <unsigned char>value


cdef inline int _varint_size(unsigned long long value) noexcept nogil:
    cdef int size = 1
    while value >= 0x80:
        value >>= 7
        size += 1
    return size


cdef inline Py_ssize_t _span_size(Py_ssize_t size) noexcept nogil:
    """What bytes take behind their tag."""
    return _varint_size(size) + size


cdef inline unsigned char* _put_varint(unsigned char* to, unsigned long long value) noexcept nogil:
    while value >= 0x80:
        to[0] = <unsigned char>(value & 0x7F | 0x80)
        value >>= 7
        to += 1
    to[0] = <unsigned char>value
    return to + 1


cdef inline unsigned char* _spanned(
    unsigned char* to, int tag, Bytes what, Py_ssize_t size
) noexcept nogil:
    """Write a field of bytes, a text or a message."""
    to[0] = tag
    return _copy(_put_varint(to + 1, size), what, size)
