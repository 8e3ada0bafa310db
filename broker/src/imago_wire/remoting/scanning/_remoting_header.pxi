"""Reads a header in place, into pointers; part of `_remoting_c`."""

cdef struct Span:
    Bytes at
    Py_ssize_t size
    bint escaped


cdef struct Header:
    # Reading stops at the first thing that is not as the known clients write it.
    Bytes at
    Bytes end
    bint binary
    bint high           # some text holds bytes above 0x7f
    long long code
    long long flag
    long long opaque
    long long version
    int language_code   # binary form only
    Span language
    Span remark
    bint has_remark
    int count
    bint short_names    # some field is called a or b: the names of SEND_MESSAGE_V2
    Span keys[FIELDS_MAX]
    Span values[FIELDS_MAX]
    signed char letters[26]   # place of the field with that name, or -1


# JSON

cdef inline bint _is_hex(unsigned char c) noexcept nogil:
    return 48 <= c <= 57 or 97 <= c <= 102 or 65 <= c <= 70


cdef inline int _hex(unsigned char c) noexcept nogil:
    if c <= 57:
        return c - 48
    if c <= 70:
        return c - 55
    return c - 87


# What ends a run of plain characters in a string: quote, backslash, bytes above 0x7f.
cdef unsigned char _stops[256]


cdef void _fill_stops() noexcept:
    cdef int i
    for i in range(256):
        _stops[i] = i == 34 or i == 92 or i > 127


_fill_stops()


cdef bint _string(Header* h, Span* span) noexcept nogil:
    """Read a string; its opening quote was seen. Escapes: the short ones, and ASCII by number."""
    cdef Bytes p = h.at
    cdef Bytes end = h.end
    cdef Py_ssize_t size
    span.at = p
    span.escaped = False
    while p < end:
        if not _stops[p[0]]:
            p += 1
        elif p[0] == 34:
            span.size = p - span.at
            h.at = p + 1
            return True
        elif p[0] == 92:
            span.escaped = True
            size = _escape_size(p, end - p)
            if size == 0:
                return False
            p += size
        else:
            h.high = True
            p += 1
    return False


cdef inline Py_ssize_t _escape_size(Bytes p, Py_ssize_t left) noexcept nogil:
    if left > 5 and p[1] == 117:
        # Up to \u007f: one byte of UTF-8.
        return 6 if p[2] == 48 and p[3] == 48 and 48 <= p[4] <= 55 and _is_hex(p[5]) else 0
    return 2 if left > 1 and memchr(b'"\\/bfnrt', p[1], 8) != NULL else 0


cdef bint _token(Header* h, Span* span) noexcept nogil:
    """Read a whole number in its shortest form, true or false; a comma or brace must follow."""
    cdef Bytes p = h.at
    cdef Py_ssize_t left = h.end - p
    cdef Py_ssize_t size
    span.at = p
    span.escaped = False
    if left > 5 and memcmp(p, b"false", 5) == 0:
        size = 5
    elif left > 4 and memcmp(p, b"true", 4) == 0:
        size = 4
    else:
        size = 0
        if left and p[0] == 45:
            size = 1
        while size < left and 48 <= p[size] <= 57:
            size += 1
        if not _shortest(p, size):
            return False
    if size >= left or (p[size] != 44 and p[size] != 125):
        return False
    span.size = size
    h.at = p + size
    return True


cdef inline bint _shortest(Bytes p, Py_ssize_t size) noexcept nogil:
    if size and p[0] == 45:
        p += 1
        size -= 1
        if size and p[0] == 48:
            return False
    return 1 <= size <= 18 and (size == 1 or p[0] != 48)


cdef bint _number(Bytes p, Py_ssize_t size, long long* number) noexcept nogil:
    cdef bint negative = False
    cdef long long value = 0
    if size and p[0] == 45:
        negative = True
        p += 1
        size -= 1
    if not 1 <= size <= 18:
        return False
    while size:
        if not 48 <= p[0] <= 57:
            return False
        value = value * 10 + (p[0] - 48)
        p += 1
        size -= 1
    number[0] = -value if negative else value
    return True


cdef inline bint _int(Span* span, long long* number) noexcept nogil:
    return (
        _number(span.at, span.size, number)
        and -2147483648 <= number[0] <= 2147483647
    )


cdef bint _json_int(Header* h, long long* number) noexcept nogil:
    cdef Span span
    return _token(h, &span) and _int(&span, number)


cdef bint _key(Header* h, Span* span) noexcept nogil:
    """Read a key and its colon."""
    cdef Bytes p = h.at
    if h.end - p < 4 or p[0] != 34:
        return False
    if p[2] == 34 and p[3] == 58 and not _stops[p[1]]:
        span.at = p + 1
        span.size = 1
        h.at = p + 4
        return True
    h.at += 1
    if not _string(h, span) or span.escaped:
        return False
    if h.at >= h.end or h.at[0] != 58:
        return False
    h.at += 1
    return True


cdef bint _value(Header* h, Span* span) noexcept nogil:
    if h.at < h.end and h.at[0] == 34:
        h.at += 1
        return _string(h, span)
    return _token(h, span)


cdef inline int _next(Header* h) noexcept nogil:
    """Step over a comma (1) or a closing brace (0); anything else is -1."""
    cdef unsigned char c
    if h.at >= h.end:
        return -1
    c = h.at[0]
    h.at += 1
    if c == 44:
        return 1
    return 0 if c == 125 else -1


cdef bint _add_field(Header* h, Span* key, Span* value) noexcept nogil:
    cdef unsigned int letter
    if h.count == FIELDS_MAX:
        return False
    h.keys[h.count] = key[0]
    h.values[h.count] = value[0]
    if key.size == 1:
        letter = <unsigned int>key.at[0] - 97
        if letter < 26:
            h.letters[letter] = <signed char>h.count
            if letter <= 1:
                h.short_names = True
    h.count += 1
    return True


cdef bint _json_ext(Header* h) noexcept nogil:
    cdef Span key, value
    cdef int more
    if h.at >= h.end or h.at[0] != 123:
        return False
    h.at += 1
    if h.at < h.end and h.at[0] == 125:
        h.at += 1
        return True
    while True:
        if not _key(h, &key) or not _value(h, &value) or not _add_field(h, &key, &value):
            return False
        more = _next(h)
        if more <= 0:
            return more == 0


cdef bint _json_header(Header* h) noexcept nogil:
    cdef Span key
    cdef int more
    cdef bint seen_ext = False
    if h.at >= h.end or h.at[0] != 123:
        return False
    h.at += 1
    while True:
        if not _key(h, &key):
            return False
        if key.size == 9 and memcmp(key.at, b"extFields", 9) == 0:
            if seen_ext or not _json_ext(h):
                return False
            seen_ext = True
        elif not _json_field(h, &key):
            return False
        more = _next(h)
        if more < 0:
            return False
        if more == 0:
            break
    # The C++ client ends its headers with a line feed.
    while h.at < h.end:
        if h.at[0] != 10 and h.at[0] != 32:
            return False
        h.at += 1
    return True


cdef bint _json_field(Header* h, Span* key) noexcept nogil:
    cdef Span skipped
    if key.size == 4 and memcmp(key.at, b"code", 4) == 0:
        return _json_int(h, &h.code)
    if key.size == 4 and memcmp(key.at, b"flag", 4) == 0:
        return _json_int(h, &h.flag)
    if key.size == 6 and memcmp(key.at, b"opaque", 6) == 0:
        return _json_int(h, &h.opaque)
    if key.size == 7 and memcmp(key.at, b"version", 7) == 0:
        return _json_int(h, &h.version)
    if h.at >= h.end or h.at[0] != 34:
        return False
    h.at += 1
    if key.size == 8 and memcmp(key.at, b"language", 8) == 0:
        return _string(h, &h.language)
    if key.size == 6 and memcmp(key.at, b"remark", 6) == 0:
        h.has_remark = True
        return _string(h, &h.remark)
    return _string(h, &skipped)


# ROCKETMQ

cdef inline unsigned int _u16(Bytes p) noexcept nogil:
    return (<unsigned int>p[0] << 8) | p[1]


cdef inline unsigned int _u32(Bytes p) noexcept nogil:
    return (
        (<unsigned int>p[0] << 24) | (<unsigned int>p[1] << 16) | (<unsigned int>p[2] << 8) | p[3]
    )


cdef bint _binary_header(Header* h) noexcept nogil:
    cdef Bytes p = h.at
    cdef Py_ssize_t left = h.end - p
    cdef unsigned int size
    if left < 21:
        return False
    h.code = <short>_u16(p)
    h.language_code = p[2]
    h.version = <short>_u16(p + 3)
    h.opaque = <int>_u32(p + 5)
    h.flag = <int>_u32(p + 9)
    size = _u32(p + 13)
    p += 17
    left -= 17
    if size > left - 4:
        return False
    h.remark.at = p
    h.remark.size = size
    h.remark.escaped = False
    h.has_remark = size > 0
    p += size
    left -= size
    size = _u32(p)
    p += 4
    left -= 4
    return size <= left and _binary_ext(h, p, size)


cdef bint _binary_ext(Header* h, Bytes p, Py_ssize_t left) noexcept nogil:
    cdef Span key, value
    key.escaped = value.escaped = False
    while left > 0:
        if left < 2:
            return False
        key.size = _u16(p)
        key.at = p + 2
        if key.size > 32767 or key.size + 6 > left:
            return False
        p += 2 + key.size
        left -= 2 + key.size
        value.size = _u32(p)
        value.at = p + 4
        if value.size > left - 4:
            return False
        p += 4 + value.size
        left -= 4 + value.size
        if not _add_field(h, &key, &value):
            return False
    return True
