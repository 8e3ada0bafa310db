# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Compiled twin of `_blocks_py`: the same fields and errors, on C pointers.

What refers to the table costs a look-up: entries hold the text that is handed out. Of a field that
nobody wants only its size is kept.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem, PyDict_SetItem
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdlib cimport free, malloc

from hpack.huffman_table import HUFFMAN_COMPLETE, HUFFMAN_EMIT_SYMBOL, HUFFMAN_FAIL, HUFFMAN_TABLE
from hpack.table import HeaderTable

from imago_wire.errors import ProtocolError
from imago_wire.grpc.frames import TABLE_BYTES

ctypedef const unsigned char* Bytes

DEF HEAD = 9
DEF DATA = 0
DEF HEADERS = 1
DEF END_STREAM = 0x1
DEF END_HEADERS = 0x4
DEF NUMBER_MASK = 0x7FFFFFFF
DEF ENTRY_BYTES = 32
DEF STATIC = 61
DEF NUMBER_BYTES_MAX = 5  # so that a number stays below 2^35
DEF ROOM = 128  # entries of a table of 4096 bytes, each at least 32

cdef long long _table_bytes = TABLE_BYTES
assert len(HeaderTable.STATIC_TABLE) == STATIC and TABLE_BYTES == ROOM * ENTRY_BYTES

cdef struct Step:
    unsigned char state
    unsigned char flags
    unsigned char symbol

cdef struct Entry:
    PyObject* name  # the wanted name's text; NULL: nobody wants it
    PyObject* value  # NULL where the name is
    Py_ssize_t name_size
    Py_ssize_t size  # as the table counts it

# A step is half a byte of a shortened text.
cdef Step _steps[256 * 16]
cdef int _complete = HUFFMAN_COMPLETE, _emits = HUFFMAN_EMIT_SYMBOL, _fails = HUFFMAN_FAIL


cdef void _fill_steps():
    for index, (state, flags, symbol) in enumerate(HUFFMAN_TABLE):
        _steps[index].state, _steps[index].flags, _steps[index].symbol = state, flags, symbol


_fill_steps()


cdef class HeaderDecoder:
    """As `_blocks_py.HeaderDecoder`."""

    cdef dict _wanted
    cdef list _kept  # owns the texts of the fixed table
    cdef Entry _static[STATIC]
    cdef Entry _ring[ROOM]  # the newest at `_newest`, older ones behind it
    cdef int _newest, _count
    cdef long long _used, _room, _list_max
    cdef unsigned char* _scratch
    cdef Py_ssize_t _scratch_size

    def __cinit__(self, header_bytes_max, wanted):
        self._wanted = {name.encode(): name for name in wanted}
        self._kept = []
        self._newest = self._count = 0
        self._used, self._room, self._list_max = 0, _table_bytes, header_bytes_max
        self._scratch, self._scratch_size = NULL, 0
        for index, (name, value) in enumerate(HeaderTable.STATIC_TABLE):
            self._static[index] = self._fixed(name, value)

    def __dealloc__(self):
        self._forget(0)
        free(self._scratch)

    cdef Entry _fixed(self, bytes name, bytes value):
        cdef Entry made
        text = self._wanted.get(name)
        made.name_size, made.size = len(name), ENTRY_BYTES + len(name) + len(value)
        made.name = made.value = NULL
        if text is not None:
            told = value.decode()
            self._kept += (text, told)
            made.name, made.value = <PyObject*>text, <PyObject*>told
        return made

    cdef void _forget(self, long long room):
        """Let the oldest entries go until no more than `room` is used."""
        cdef Entry* oldest
        while self._used > room:
            self._count -= 1
            oldest = &self._ring[(self._newest + self._count) % ROOM]
            self._used -= oldest.size
            Py_XDECREF(oldest.name)
            Py_XDECREF(oldest.value)

    cdef Entry* _at(self, long long index) noexcept:
        """Return an entry by its number; NULL: there is none."""
        if index <= 0:
            return NULL
        if index <= STATIC:
            return &self._static[index - 1]
        index -= STATIC + 1
        return &self._ring[(self._newest + index) % ROOM] if index < self._count else NULL

    def decode(self, bytes block not None):
        """As `_blocks_py.HeaderDecoder.decode`."""
        cdef Bytes at = <Bytes>PyBytes_AS_STRING(block)
        cdef Bytes end = at + PyBytes_GET_SIZE(block)
        cdef dict found = {}
        if not self._read(at, end, found):
            raise ProtocolError("headers cannot be read")
        return found

    def whole_call(self, data not None, Py_ssize_t at, long long last, long long data_bytes_max):
        """As `_blocks_py.HeaderDecoder.whole_call`."""
        cdef Py_buffer buffer
        PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
        try:
            return self._whole_call(<Bytes>buffer.buf, buffer.len, at, last, data_bytes_max)
        finally:
            PyBuffer_Release(&buffer)

    cdef object _whole_call(
        self, Bytes data, Py_ssize_t size, Py_ssize_t at, long long last, long long data_bytes_max
    ):
        cdef Bytes head = data + at
        cdef Bytes second
        cdef Py_ssize_t block, taken, left = size - at
        cdef long long number
        cdef dict found
        if at < 0 or left < 2 * HEAD + 5:
            return None
        block = _u32(head) >> 8
        number = _u32(head + 5) & NUMBER_MASK
        if head[3] != HEADERS or head[4] != END_HEADERS or block > self._list_max:
            return None
        if left - block < 2 * HEAD + 5 or number % 2 == 0 or number <= last:
            return None
        second = head + HEAD + block
        taken = _u32(second) >> 8
        if second[3] != DATA or second[4] != END_STREAM or taken > left - block - 2 * HEAD:
            return None
        if (_u32(second + 5) & NUMBER_MASK) != number or not 5 <= taken <= data_bytes_max:
            return None
        if second[HEAD] or _u32(second + HEAD + 1) != taken - 5:
            return None
        found = {}
        if not self._read(head + HEAD, second, found):
            raise ProtocolError("headers cannot be read")
        message = PyBytes_FromStringAndSize(<const char*>second + HEAD + 5, taken - 5)
        return number, found, message, at + block + taken + 2 * HEAD

    cdef bint _read(self, Bytes at, Bytes end, dict found) except -1:
        cdef long long number, listed = 0
        cdef Entry* entry
        cdef bint begun = False
        while at < end:
            if at[0] & 0x80:
                at = _number(at, end, 0x7F, &number)
                entry = self._at(number) if at != NULL else NULL
                if entry == NULL:
                    return False
                if entry.name != NULL:
                    PyDict_SetItem(found, <object>entry.name, <object>entry.value)
                listed += entry.size
            elif at[0] & 0x40:
                at = self._literal(at, end, 0x3F, True, found, &listed)
            elif at[0] & 0x20:
                at = _number(at, end, 0x1F, &number)
                if begun or at == NULL or number > _table_bytes:
                    return False
                self._room = number
                self._forget(number)
                continue
            else:
                at = self._literal(at, end, 0x0F, False, found, &listed)
            begun = True
            if at == NULL or listed > self._list_max:
                return False
        return True

    cdef Bytes _literal(
        self, Bytes at, Bytes end, int mask, bint taught, dict found, long long* listed
    ) except? NULL:
        """Read a field that is written out; return where it ends, NULL: it is none."""
        cdef long long number
        cdef Bytes text
        cdef Py_ssize_t size, name_size
        cdef Entry* entry
        cdef PyObject* name = NULL
        at = _number(at, end, mask, &number)
        if at == NULL:
            return NULL
        if number:
            entry = self._at(number)
            if entry == NULL:
                return NULL
            name, name_size = entry.name, entry.name_size
        else:
            at = self._text(at, end, &text, &name_size)
            if at == NULL:
                return NULL
            key = PyBytes_FromStringAndSize(<const char*>text, name_size)
            name = PyDict_GetItem(self._wanted, key)  # which has it for as long as this lives
        at = self._text(at, end, &text, &size)
        if at == NULL:
            return NULL
        value = None
        if name != NULL:
            value = PyUnicode_DecodeUTF8(<const char*>text, size, "replace")
            PyDict_SetItem(found, <object>name, value)
        size += ENTRY_BYTES + name_size
        listed[0] += size
        if taught:
            self._teach(name, value, name_size, size)
        return at

    cdef void _teach(self, PyObject* name, object value, Py_ssize_t name_size, Py_ssize_t size):
        cdef Entry* made
        if size > self._room:
            self._forget(0)
            return
        if name != NULL:
            Py_INCREF(<object>name)  # before the entry goes that may have held it
            Py_INCREF(value)
        self._forget(self._room - size)
        self._newest = (self._newest + ROOM - 1) % ROOM
        made = &self._ring[self._newest]
        made.name, made.value = name, <PyObject*>value if name != NULL else NULL
        made.name_size, made.size = name_size, size
        self._count += 1
        self._used += size

    cdef Bytes _text(self, Bytes at, Bytes end, Bytes* text, Py_ssize_t* size) except? NULL:
        """Read a text with its length; return where it ends, NULL: it is none."""
        cdef long long length
        cdef bint shortened
        if at >= end:
            return NULL
        shortened = at[0] & 0x80
        at = _number(at, end, 0x7F, &length)
        if at == NULL or length > end - at:
            return NULL
        if not shortened:
            text[0], size[0] = at, length
        else:
            # A symbol has five bits at least.
            self._make_room(length * 8 // 5 + 1)
            size[0] = _widened(at, length, self._scratch)
            text[0] = self._scratch
            if size[0] < 0:
                return NULL
        return at + length

    cdef int _make_room(self, Py_ssize_t size) except -1:
        cdef unsigned char* made
        if size > self._scratch_size:
            made = <unsigned char*>malloc(size)
            if made == NULL:
                raise MemoryError
            free(self._scratch)
            self._scratch, self._scratch_size = made, size
        return 0


cdef inline long long _u32(Bytes at) noexcept nogil:
    return (<long long>at[0] << 24) | (at[1] << 16) | (at[2] << 8) | at[3]


cdef Bytes _number(Bytes at, Bytes end, int mask, long long* number) noexcept nogil:
    """Read a number; return where it ends, NULL: it is none, or has too many bytes."""
    cdef int taken = 1, shift = 0
    cdef long long byte
    if at >= end:
        return NULL
    number[0] = at[0] & mask
    if number[0] < mask:
        return at + 1
    while True:
        if at + taken >= end:
            return NULL
        byte = at[taken]
        taken += 1
        number[0] += (byte & 0x7F) << shift
        if byte < 0x80:
            return at + taken
        shift += 7
        if taken > NUMBER_BYTES_MAX:
            return NULL


cdef Py_ssize_t _widened(Bytes at, Py_ssize_t size, unsigned char* to) noexcept nogil:
    """Write out a shortened text; return its size, -1: it is none."""
    cdef Py_ssize_t index, made = 0
    cdef Step step
    step.state, step.flags = 0, _complete
    for index in range(size):
        step = _steps[step.state * 16 + (at[index] >> 4)]
        if step.flags & _fails:
            return -1
        to[made] = step.symbol
        made += (step.flags & _emits) != 0
        step = _steps[step.state * 16 + (at[index] & 0x0F)]
        if step.flags & _fails:
            return -1
        to[made] = step.symbol
        made += (step.flags & _emits) != 0
    return made if step.flags & _complete else -1
