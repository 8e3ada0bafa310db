# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: binding=False, cdivision=True
"""Fill the buffers of Arrow columns with records: the compiled twin of ``_rows_py``.

One pass over an answer, and only over what is asked for. What is not as it should be goes to the
reference, so that there is one place for its rules and errors.
"""

from cpython.bytearray cimport (
    PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_Resize,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy, memset

from imago_wire.record_format import layout as _layout

cdef extern from "_hot.h" nogil:
    uint32_t imago_get16(const uint8_t *data)
    uint32_t imago_get32(const uint8_t *data)
    uint64_t imago_get64(const uint8_t *data)
    void imago_crc_init()
    uint32_t imago_crc32(uint32_t crc, const uint8_t *data, size_t size)

imago_crc_init()

cdef uint32_t CRC31_MASK = 0x7FFFFFFF
cdef uint32_t MAGIC_V1 = _layout.MAGIC_V1
cdef uint32_t MAGIC_V2 = _layout.MAGIC_V2
cdef int32_t SYS_BORN_V6 = _layout.SYS_BORN_V6
cdef int32_t SYS_STORE_V6 = _layout.SYS_STORE_V6
cdef int32_t SYS_COMPRESSED = _layout.SYS_COMPRESSED
cdef Py_ssize_t FIXED_SIZE = _layout.FIXED_SIZE_V4
cdef Py_ssize_t V4_SIZE = _layout.HOST_V4_SIZE
cdef Py_ssize_t V6_SIZE = _layout.HOST_V6_SIZE
cdef int64_t YEAR_1_MS = -62135596800000
cdef int64_t YEAR_9999_MS = 253402300799999
cdef enum:
    KEYS, TAGS, UNIQUE_KEY, POSITION, NAMES
cdef const char *HEXADECIMAL = b"0123456789ABCDEF"


cdef struct Properties:
    # Where the value of each wanted property is, NULL for none, and how long.
    const uint8_t *at[4]
    Py_ssize_t size[4]


cdef class Numbers:
    """A column of 32 or 64 bits a row."""

    cdef bytearray data
    cdef bytearray present
    cdef Py_ssize_t nulls

    def __cinit__(self, Py_ssize_t count, Py_ssize_t width):
        self.data = PyByteArray_FromStringAndSize(NULL, count * width)

    cdef inline void put32(self, Py_ssize_t row, uint32_t value) noexcept:
        (<uint32_t *> PyByteArray_AS_STRING(self.data))[row] = value

    cdef inline void put64(self, Py_ssize_t row, int64_t value) noexcept:
        (<int64_t *> PyByteArray_AS_STRING(self.data))[row] = value

    cdef int put_time(self, Py_ssize_t row, int64_t milliseconds, Py_ssize_t count) except -1:
        if YEAR_1_MS <= milliseconds <= YEAR_9999_MS:
            self.put64(row, milliseconds * 1000)
            return 0
        return self.put_null(row, count)

    cdef int put_null(self, Py_ssize_t row, Py_ssize_t count) except -1:
        self.put64(row, 0)
        self.present = marked_null(self.present, row, count)
        self.nulls += 1
        return 0

    cdef tuple buffers(self):
        return self.present, None, self.data, self.nulls, True


cdef class Texts:
    """A column of texts or bytes; `data` grows."""

    cdef bytearray data
    cdef bytearray borders
    cdef bytearray present
    cdef Py_ssize_t used
    cdef Py_ssize_t room
    cdef Py_ssize_t nulls
    cdef bint texts

    def __cinit__(self, Py_ssize_t count, Py_ssize_t room, bint texts=True):
        self.texts = texts
        self.data = PyByteArray_FromStringAndSize(NULL, room)
        self.borders = PyByteArray_FromStringAndSize(NULL, 4 * count + 4)
        self.room = room
        self.end_row(-1)

    cdef inline void end_row(self, Py_ssize_t row) noexcept:
        (<int32_t *> PyByteArray_AS_STRING(self.borders))[row + 1] = <int32_t> self.used

    cdef inline uint8_t *more(self, Py_ssize_t size) except NULL:
        """Return where so many bytes more can be written."""
        if self.used + size > self.room:
            self.room = 2 * self.room + size
            PyByteArray_Resize(self.data, self.room)
        return <uint8_t *> PyByteArray_AS_STRING(self.data) + self.used

    cdef inline int put(self, Py_ssize_t row, const uint8_t *text, Py_ssize_t size) except -1:
        memcpy(self.more(size), text, size)
        self.used += size
        self.end_row(row)
        return 0

    cdef int put_or_null(
        self, Py_ssize_t row, const uint8_t *text, Py_ssize_t size, Py_ssize_t count
    ) except -1:
        if text != NULL:
            return self.put(row, text, size)
        self.present = marked_null(self.present, row, count)
        self.nulls += 1
        self.end_row(row)
        return 0

    cdef tuple buffers(self):
        PyByteArray_Resize(self.data, self.used)
        return self.present, self.borders, self.data, self.nulls, self.texts and self.data.isascii()


cdef class Hosts:
    """Addresses: each different one once, and which of them every row has."""

    cdef dict numbers
    cdef Numbers rows
    cdef const uint8_t *last
    cdef Py_ssize_t last_size
    cdef uint32_t last_number

    def __cinit__(self, Py_ssize_t count):
        self.numbers = {}
        self.rows = Numbers(count, 4)

    cdef int put(self, Py_ssize_t row, const uint8_t *host, Py_ssize_t size) except -1:
        if self.last == NULL or self.last_size != size or memcmp(self.last, host, size):
            text = PyBytes_FromStringAndSize(<const char *> host, size)
            self.last_number = self.numbers.setdefault(text, len(self.numbers))
            self.last, self.last_size = host, size
        self.rows.put32(row, self.last_number)
        return 0


cdef bytearray all_set(Py_ssize_t count):
    """Return a bit a row, each of them 1."""
    cdef bytearray bits = PyByteArray_FromStringAndSize(NULL, (count + 7) // 8)
    memset(PyByteArray_AS_STRING(bits), 0xFF, len(bits))
    return bits


cdef bytearray marked_null(bytearray present, Py_ssize_t row, Py_ssize_t count):
    """Return the bits that say which rows have a value, less this row's."""
    if present is None:
        present = all_set(count)
    (<uint8_t *> PyByteArray_AS_STRING(present))[row >> 3] &= <uint8_t> ~(1 << (row & 7))
    return present


cdef void find(const uint8_t *at, const uint8_t *end, Properties *found) noexcept nogil:
    """Find the last property of each wanted name."""
    cdef const uint8_t *stop
    cdef Py_ssize_t size, name = 0
    memset(found, 0, sizeof(Properties))
    while at < end:
        stop = <const uint8_t *> memchr(at, 2, end - at)
        if stop == NULL:
            stop = end
        size = stop - at
        name = NAMES
        if size > 4 and at[4] == 1:
            if not memcmp(at, b"KEYS", 4):
                name = KEYS
            elif not memcmp(at, b"TAGS", 4):
                name = TAGS
        elif size > 8 and at[8] == 1 and not memcmp(at, b"UNIQ_KEY", 8):
            name = UNIQUE_KEY
        elif size > 11 and at[11] == 1 and not memcmp(at, b"__METAQ_POS", 11):
            name = POSITION
        if name != NAMES:
            found.at[name] = at + (5 if name < UNIQUE_KEY else 9 if name == UNIQUE_KEY else 12)
            found.size[name] = stop - found.at[name]
        at = stop + 1


cdef int64_t position(const uint8_t *digits, Py_ssize_t size) noexcept nogil:
    """Return 16 hexadecimal digits as a number; below 0: they are no such number."""
    cdef uint64_t value = 0
    cdef uint8_t digit
    cdef Py_ssize_t at
    if digits == NULL or size != 16:
        return -1
    for at in range(16):
        digit = digits[at]
        if 48 <= digit <= 57:
            digit -= 48
        elif 97 <= digit <= 102:
            digit -= 87
        elif 65 <= digit <= 70:
            digit -= 55
        else:
            return -1
        value = value << 4 | digit
    return <int64_t> value


cdef int put_stored_id(
    Texts ids, Py_ssize_t row, const uint8_t *host, Py_ssize_t size, const uint8_t *physical
) except -1:
    """Put the broker's id: store host and log offset in hexadecimal."""
    cdef uint8_t *to = ids.more(2 * size + 16)
    cdef uint8_t byte
    cdef Py_ssize_t n
    for n in range(size + 8):
        byte = host[n] if n < size else physical[n - size]
        to[2 * n] = HEXADECIMAL[byte >> 4]
        to[2 * n + 1] = HEXADECIMAL[byte & 15]
    ids.used += 2 * size + 16
    ids.end_row(row)
    return 0


cdef Py_ssize_t walk(
    const uint8_t *data, Py_ssize_t at, Py_ssize_t size, int64_t end_offset,
    Py_ssize_t rows_max, Py_ssize_t bytes_max, Py_ssize_t *next_at,
) noexcept nogil:
    """Count the next batch's records; below 0: not all of these bytes are records.

    Where the end offset is met, the rest is only looked at, and `next_at` is the end.
    """
    cdef Py_ssize_t count = 0, begin = at, record
    cdef bint is_beyond = False
    cdef uint32_t magic
    while at < size:
        if not is_beyond and count and (count >= rows_max or at - begin >= bytes_max):
            break
        if size - at < FIXED_SIZE:
            return -1
        record = <int32_t> imago_get32(data + at)
        magic = imago_get32(data + at + 4)
        if record < FIXED_SIZE or record > size - at or (magic != MAGIC_V1 and magic != MAGIC_V2):
            return -1
        is_beyond = is_beyond or <int64_t> imago_get64(data + at + 20) >= end_offset
        count += not is_beyond
        at += record
    next_at[0] = at
    return count


def read_rows(
    bytes answer not None, Py_ssize_t at, int64_t end_offset, Py_ssize_t rows_max,
    Py_ssize_t bytes_max, columns
):
    """Return where the next batch begins, the number of rows, the buffers of each wanted column,
    and which rows have a compressed body. None: the reference has to serve.

    Of a column: the bits of those that are not null, borders, data, the number of nulls, and whether
    the data is ASCII; of the hosts: each different one, and the number of that of each row.
    """
    cdef const uint8_t *data = <const uint8_t *> PyBytes_AS_STRING(answer)
    cdef const uint8_t *record
    cdef const uint8_t *end
    cdef const uint8_t *strings
    cdef Py_ssize_t next_at = 0, row, body_at, body_size, host_size, store_host_at
    cdef int32_t flags
    cdef int64_t number
    cdef Properties found
    cdef Py_ssize_t count = walk(
        data, at, len(answer), end_offset, rows_max, bytes_max, &next_at
    )
    if count < 0:
        return None
    cdef Numbers offset = Numbers(count, 8) if "offset" in columns else None
    cdef Numbers metaq_offset = Numbers(count, 8) if "metaq_offset" in columns else None
    cdef Numbers flag = Numbers(count, 4) if "flag" in columns else None
    cdef Numbers sys_flag = Numbers(count, 4) if "sys_flag" in columns else None
    cdef Numbers born = Numbers(count, 8) if "born_time" in columns else None
    cdef Numbers stored = Numbers(count, 8) if "store_time" in columns else None
    cdef Numbers reconsumed = Numbers(count, 4) if "reconsume_times" in columns else None
    cdef Numbers crc = Numbers(count, 4) if "body_crc" in columns else None
    cdef Texts key = Texts(count, 16 * count) if "key" in columns else None
    cdef Texts tags = Texts(count, 16 * count) if "tags" in columns else None
    cdef Texts message_id = Texts(count, 34 * count) if "msg_id" in columns else None
    cdef Texts value = Texts(count, next_at - at, False) if "value" in columns else None
    cdef Texts properties = Texts(count, 128 * count, False) if "properties" in columns else None
    cdef Hosts hosts = Hosts(count) if "born_host" in columns else None
    cdef bytearray matching = all_set(count) if "crc_ok" in columns else None
    cdef list compressed = []
    cdef bint finds = not columns.isdisjoint(("key", "tags", "msg_id", "metaq_offset"))
    for row in range(count):
        record = data + at
        at += <int32_t> imago_get32(record)
        end = data + at
        flags = <int32_t> imago_get32(record + 36)
        host_size = V6_SIZE if flags & SYS_BORN_V6 else V4_SIZE
        store_host_at = 48 + host_size + 8
        host_size = V6_SIZE if flags & SYS_STORE_V6 else V4_SIZE
        body_at = store_host_at + host_size + 16
        if body_at > end - record:
            return None
        body_size = <int32_t> imago_get32(record + body_at - 4)
        if body_size < 0 or body_size > end - record - body_at - 3:
            return None
        strings = record + body_at + body_size
        if imago_get32(record + 4) == MAGIC_V2:
            strings += 2 + imago_get16(strings) + 2
        else:
            strings += 1 + strings[0] + 2
        if strings > end:
            return None
        if offset is not None:
            offset.put64(row, <int64_t> imago_get64(record + 20))
        if flag is not None:
            flag.put32(row, imago_get32(record + 16))
        if sys_flag is not None:
            sys_flag.put32(row, flags)
        if born is not None:
            born.put_time(row, <int64_t> imago_get64(record + 40), count)
        if stored is not None:
            stored.put_time(row, <int64_t> imago_get64(record + store_host_at - 8), count)
        if reconsumed is not None:
            reconsumed.put32(row, imago_get32(record + body_at - 16))
        if crc is not None:
            crc.put32(row, imago_get32(record + 8))
        if hosts is not None:
            hosts.put(row, record + 48, store_host_at - 56)
        if matching is not None and not flags & SYS_COMPRESSED:
            if imago_crc32(0, record + body_at, body_size) & CRC31_MASK != imago_get32(record + 8):
                marked_null(matching, row, count)
        if value is not None:
            value.put(row, record + body_at, body_size)
            if flags & SYS_COMPRESSED:
                compressed.append(row)
        if properties is not None:
            properties.put(row, strings, end - strings)
        if not finds:
            continue
        find(strings, end, &found)
        if key is not None:
            key.put_or_null(row, found.at[KEYS], found.size[KEYS], count)
        if tags is not None:
            tags.put_or_null(row, found.at[TAGS], found.size[TAGS], count)
        if metaq_offset is not None:
            number = position(found.at[POSITION], found.size[POSITION])
            if number < 0:
                metaq_offset.put_null(row, count)
            else:
                metaq_offset.put64(row, number)
        if message_id is None:
            continue
        if found.size[UNIQUE_KEY]:
            message_id.put(row, found.at[UNIQUE_KEY], found.size[UNIQUE_KEY])
        elif <int64_t> imago_get64(record + 28) < 0:
            return None
        else:
            put_stored_id(message_id, row, record + store_host_at, host_size, record + 28)
    cdef dict buffers = {
        name: (<Numbers> column).buffers()
        for name, column in (
            ("offset", offset), ("metaq_offset", metaq_offset), ("flag", flag),
            ("sys_flag", sys_flag), ("born_time", born), ("store_time", stored),
            ("reconsume_times", reconsumed), ("body_crc", crc),
        )
        if column is not None
    }
    for name, column in (
        ("key", key), ("tags", tags), ("msg_id", message_id), ("value", value),
        ("properties", properties),
    ):
        if column is not None:
            buffers[name] = (<Texts> column).buffers()
    if matching is not None:
        buffers["crc_ok"] = None, None, matching, 0, True
    if hosts is not None:
        buffers["born_host"] = list(hosts.numbers), hosts.rows.data
    return next_at, count, buffers, compressed
