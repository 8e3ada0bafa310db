# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Compiled twin of `_remoting_py`: the same functions and results, on C pointers.

Headers as the known clients write them are read in place; for whatever else comes, and for every
error, the plain twin does the work, so that the two cannot differ there.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.string cimport memchr, memcmp, memcpy, memset, strlen

from imago_wire import _remoting_py as plain
from imago_wire.errors import ProtocolError
from imago_wire.remoting.command import RemotingCommand, SerializeType
from imago_wire.remoting.frame import HEADER_BYTES_MAX
from imago_wire.remoting.peer import OWN_VERSION, Language, language_of

cdef extern from "Python.h":
    bint PyUnicode_IS_COMPACT_ASCII(object text)
    Py_ssize_t PyUnicode_GET_LENGTH(object text)
    void* PyUnicode_DATA(object text)

ctypedef const unsigned char* Bytes

SEND = plain.SEND
FRAME = plain.FRAME
BAD = plain.BAD

DEF FIELDS_MAX = 48
DEF ANSWER_MAX = 2048
DEF RESOLVED_MAX = 4096
DEF TEXTS = 1024

cdef long long _header_bytes_max = HEADER_BYTES_MAX
cdef int _own_version = OWN_VERSION
cdef object _new_command = RemotingCommand.__new__
cdef object _command_type = RemotingCommand
cdef object _json_form = SerializeType.JSON
cdef object _binary_form = SerializeType.ROCKETMQ
cdef object _java = Language.JAVA
cdef object _language_of = language_of
cdef object _plain_scan_frame = plain.scan_frame
cdef object _plain_scan_frames = plain.scan_frames
cdef object _plain_scan_batch = plain.scan_batch
cdef object _plain_answer = plain.encode_send_response

# Texts that come again and again (ext keys, topics): one object each, with its hash computed once.
cdef list _texts = [None] * TEXTS


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


# --- reading a JSON header in place ------------------------------------------------------------

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


# --- reading a binary header in place ----------------------------------------------------------

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


# --- from spans to Python values ---------------------------------------------------------------

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


# --- send requests -----------------------------------------------------------------------------

cdef struct Send:
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


cdef bint _short_send(Header* h, Send* send) noexcept nogil:
    cdef long long ignored = 0
    cdef Span* queue_id = _letter(h, c"e")
    cdef Span* sys_flag = _letter(h, c"f")
    cdef Span* born_ms = _letter(h, c"g")
    cdef Span* flag = _letter(h, c"h")
    send.topic = _letter(h, c"b")
    send.properties = _letter(h, c"i")
    return (
        _letter(h, c"a") != NULL
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
    send.topic = _field(h, b"topic", 5)
    send.properties = _field(h, b"properties", 10)
    return (
        _field(h, b"producerGroup", 13) != NULL
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


cdef tuple _send_item(Header* h, Send* send, bytes raw_header, bytes body):
    cdef bytes properties = b""
    if send.properties != NULL:
        properties = _span_bytes(send.properties)
        if h.binary and not properties.isascii():
            properties = properties.decode("utf-8", "replace").encode()
    return (
        1,
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
    )


# --- frames ------------------------------------------------------------------------------------

cdef bint _is_utf8(Bytes at, Py_ssize_t size):
    try:
        PyUnicode_DecodeUTF8(<const char*>at, size, NULL)
    except UnicodeDecodeError:
        return False
    return True


cdef object _item(Bytes raw, Py_ssize_t header_size, Bytes body_at, Py_ssize_t body_size):
    """Return one frame as scan_frames() gives it; `raw` is its header word, checked already."""
    cdef Header h
    cdef Send send
    cdef bint plainly
    cdef bytes body = PyBytes_FromStringAndSize(<const char*>body_at, body_size)
    h.at = raw + 4
    h.end = h.at + header_size
    h.binary = raw[0] == 1
    h.high = h.has_remark = h.short_names = False
    h.code = h.flag = h.opaque = h.version = 0
    h.count = 0
    h.language.at = NULL
    memset(h.letters, -1, sizeof(h.letters))
    if h.binary:
        plainly = _binary_header(&h)
    else:
        plainly = _json_header(&h) and (not h.high or _is_utf8(raw + 4, header_size))
    if plainly:
        if h.flag & 1 or (h.code != 310 and h.code != 320 and h.code != 10):
            return (0, _command(&h, body))
        send.reconsume_times = 0
        send.batch = False
        if _short_send(&h, &send) if h.short_names else _long_send(&h, &send):
            return _send_item(
                &h, &send, PyBytes_FromStringAndSize(<const char*>raw, 4 + header_size), body
            )
    return _plain_scan_frame(PyBytes_FromStringAndSize(<const char*>raw, 4 + header_size), body)


def scan_frames(object data not None, long long frame_bytes_max):
    """As `_remoting_py.scan_frames`."""
    cdef Py_buffer buffer
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    try:
        return _scan(<Bytes>buffer.buf, buffer.len, frame_bytes_max)
    finally:
        PyBuffer_Release(&buffer)


cdef tuple _scan(Bytes data, Py_ssize_t size, long long frame_bytes_max):
    cdef list items = []
    cdef Py_ssize_t at = 0, left
    cdef long long frame_size, header_size
    while True:
        left = size - at
        if left < 4:
            break
        frame_size = _u32(data + at)
        if frame_size + 4 > frame_bytes_max or frame_size < 4:
            return _refused(items, data, at, left, frame_bytes_max)
        if left < 8:
            break
        header_size = _u32(data + at + 4) & 0xFFFFFF
        if header_size > frame_size - 4 or header_size > _header_bytes_max or data[at + 4] > 1:
            return _refused(items, data, at, left, frame_bytes_max)
        if left < frame_size + 4:
            break
        try:
            items.append(_item(
                data + at + 4,
                header_size,
                data + at + 8 + header_size,
                frame_size - 4 - header_size,
            ))
        except ProtocolError as error:
            items.append((-1, str(error)))
            break
        at += frame_size + 4
    return items, at


cdef tuple _refused(
    list items, Bytes data, Py_ssize_t at, Py_ssize_t left, long long frame_bytes_max
):
    """End the list with the reason for which the plain twin refuses the sizes at `at`."""
    sizes = PyBytes_FromStringAndSize(<const char*>data + at, min(left, 8))
    bad, _ = _plain_scan_frames(sizes, frame_bytes_max)
    items.extend(bad)
    return items, at


# --- answers -----------------------------------------------------------------------------------

cdef inline char* _put(char* out, const char* text, Py_ssize_t size) noexcept nogil:
    memcpy(out, text, size)
    return out + size


cdef inline char* _put_text(char* out, const char* text) noexcept nogil:
    # For literals only: their length is known when this is compiled.
    return _put(out, text, strlen(text))


cdef char* _put_number(char* out, long long number) noexcept nogil:
    cdef char digits[20]
    cdef int i = 20
    cdef unsigned long long left
    if number < 0:
        out[0] = 45
        out += 1
        left = <unsigned long long>(-(number + 1)) + 1
    else:
        left = <unsigned long long>number
    while True:
        i -= 1
        digits[i] = <char>(48 + left % 10)
        left //= 10
        if left == 0:
            break
    return _put(out, digits + i, 20 - i)


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
    bytes transaction_id, int code, int version,
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
    out = _put_text(out, b'"},"flag":1,"language":"JAVA","opaque":')
    out = _put_number(out, opaque)
    out = _put_text(out, b',"serializeTypeCurrentRPC":"JSON","version":')
    out = _put_number(out, version)
    return _put_text(out, b"}")


cdef char* _binary_answer(
    char* out, int opaque, bytes msg_id, int queue_id, long long queue_offset,
    bytes transaction_id, int code, int version,
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
):
    """As `_remoting_py.encode_send_response`."""
    return _answer(
        opaque, msg_id, queue_id, queue_offset, transaction_id, code, serialize, version
    )


cdef bytes _answer(
    int opaque, bytes msg_id, int queue_id, long long queue_offset, bytes transaction_id,
    int code, int serialize, int version,
):
    cdef char frame[ANSWER_MAX]
    cdef char* end
    cdef Py_ssize_t room = ANSWER_MAX - 512
    if (
        PyBytes_GET_SIZE(msg_id) + PyBytes_GET_SIZE(transaction_id) > room
        or not 0 <= code <= 32767
        or not 0 <= version <= 32767
        or not (serialize or _needs_no_escape(transaction_id))
    ):
        return _plain_answer(
            opaque, msg_id, queue_id, queue_offset, transaction_id, code, serialize, version
        )
    if serialize:
        end = _binary_answer(
            frame + 8, opaque, msg_id, queue_id, queue_offset, transaction_id, code, version
        )
    else:
        end = _json_answer(
            frame + 8, opaque, msg_id, queue_id, queue_offset, transaction_id, code, version
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
):
    """As `_remoting_py.answer_stored`."""
    return _answer(
        opaque, _message_ids(store_host, placed, True), queue_id, placed[0][0], transaction_id, code,
        serialize, _own_version,
    )


def scan_batch(bytes data not None, Py_ssize_t entries_max):
    """As `_remoting_py.scan_batch`."""
    cdef list entries = []
    cdef Bytes at = <Bytes>PyBytes_AS_STRING(data)
    cdef Bytes end = at + PyBytes_GET_SIZE(data)
    cdef Py_ssize_t size, body_size, properties_size
    while at < end:
        if PyList_GET_SIZE(entries) == entries_max or end - at < 22:
            return _plain_scan_batch(data, entries_max)
        size = <int>_u32(at)
        body_size = <int>_u32(at + 16)
        if body_size < 0 or size < 22 or size > end - at or body_size > size - 22:
            return _plain_scan_batch(data, entries_max)
        properties_size = <short>_u16(at + 20 + body_size)
        if properties_size != size - 22 - body_size:
            return _plain_scan_batch(data, entries_max)
        entries.append((
            PyBytes_FromStringAndSize(<const char*>at + 20, body_size),
            PyBytes_FromStringAndSize(<const char*>at + 22 + body_size, properties_size),
            <int>_u32(at + 12),
        ))
        at += size
    return entries


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
