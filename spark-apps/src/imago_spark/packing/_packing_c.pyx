# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: binding=False, cdivision=True
"""Rows of an Arrow batch to entries of requests: the compiled twin of ``_packing_py``.

A row that is not plain is left to the slow path, so that there is one place for rules and errors.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM
from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uintptr_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

import pyarrow as _pa

from imago_client.checks import BODY_BYTES_MAX as _BODY_BYTES_MAX
from imago_spark.packing import _packing_py as _reference
from imago_spark.packing.rules import COST, ROUND as _ROUND, is_own as _is_own

cdef extern from "_hot.h" nogil:
    void imago_put16(uint8_t *to, uint32_t value)
    void imago_put32(uint8_t *to, uint32_t value)

cdef Py_ssize_t DONE = _reference.DONE
cdef Py_ssize_t CARE = _reference.CARE
cdef Py_ssize_t OTHER_TOPIC = _reference.OTHER_TOPIC
cdef int BY_KEY = _reference.BY_KEY
cdef int BY_COLUMN = _reference.BY_COLUMN
cdef Py_ssize_t BODY_BYTES_MAX = _BODY_BYTES_MAX
cdef Py_ssize_t OVERHEAD = COST
cdef Py_ssize_t ROUND = _ROUND
cdef Py_ssize_t ENTRY_HEAD = 20
cdef Py_ssize_t TEXT_SIZE_MAX = 1024  # of a key, a property's name and its value; else care
cdef Py_ssize_t TAG_SIZE_MAX = 127
cdef Py_ssize_t PROPERTIES_SIZE_MAX = 16000  # far below what a record takes; else care
cdef enum:
    OWN_MAX = 16
cdef dict OWN = {}
cdef Py_ssize_t OWN_KNOWN_MAX = 1000  # names whose verdict is kept

cdef uint8_t OF_TAGS[256]
cdef int _at
for _at in range(256):
    OF_TAGS[_at] = _at < 128 and (chr(_at).isalnum() or chr(_at) in "_-")


cdef struct State:
    # A slot while rows are added to it.
    bint is_loaded
    PyObject *body
    uint8_t *data
    Py_ssize_t room
    Py_ssize_t used
    Py_ssize_t count
    Py_ssize_t cost


cdef struct Text:
    const uint8_t *data
    Py_ssize_t size


cdef class Column:
    """What says which rows are null."""

    cdef list kept
    cdef const uint8_t *present
    cdef Py_ssize_t first

    def __cinit__(self, object array):
        self.kept = array.buffers()
        self.first = array.offset
        self.present = NULL
        if array.null_count:
            self.present = self.bytes_of(0, (self.first + len(array) + 7) // 8)

    cdef const uint8_t *bytes_of(self, Py_ssize_t number, Py_ssize_t size_min) except? NULL:
        cdef object buffer = self.kept[number]
        if buffer is None:
            if size_min:
                raise ValueError("a column without its bytes")
            return NULL
        if <Py_ssize_t> buffer.size < size_min:
            raise ValueError("a column of fewer bytes than its rows need")
        return <const uint8_t *> <uintptr_t> buffer.address

    cdef inline bint is_null(self, Py_ssize_t row) noexcept:
        cdef Py_ssize_t at = self.first + row
        return self.present != NULL and not (self.present[at >> 3] >> (at & 7)) & 1


cdef class Numbers(Column):
    """Numbers of 32 bits."""

    cdef const int32_t *data

    def __cinit__(self, object array):
        self.data = <const int32_t *> self.bytes_of(1, 4 * (self.first + len(array)))

    cdef inline int32_t at(self, Py_ssize_t row) noexcept:
        return self.data[self.first + row]


cdef class Texts(Column):
    """Texts, or bytes."""

    cdef const int32_t *borders
    cdef const uint8_t *data
    cdef Py_ssize_t size

    def __cinit__(self, object array):
        cdef Py_ssize_t count = len(array)
        self.borders = <const int32_t *> self.bytes_of(1, 4 * (self.first + count + 1) if count else 0)
        self.data = self.bytes_of(2, 0)
        self.size = 0 if self.data == NULL else self.kept[2].size

    cdef inline bint take(self, Py_ssize_t row, Text *text) except -1:
        """Set `text` to a row's; false: it is null."""
        if self.is_null(row):
            return False
        cdef Py_ssize_t begin = self.borders[self.first + row]
        cdef Py_ssize_t end = self.borders[self.first + row + 1]
        if not 0 <= begin <= end <= self.size:
            raise ValueError("a column whose texts end beyond its bytes")
        text.data = self.data + begin
        text.size = end - begin
        return True


cdef class Maps(Column):
    """Maps of text to text."""

    cdef const int32_t *borders
    cdef Texts names
    cdef Texts values
    cdef Py_ssize_t count

    def __cinit__(self, object array):
        cdef Py_ssize_t count = len(array)
        self.borders = <const int32_t *> self.bytes_of(1, 4 * (self.first + count + 1) if count else 0)
        self.names, self.values = Texts(array.keys), Texts(array.items)
        self.count = min(len(array.keys), len(array.items))


cdef struct Own:
    Text name
    Text value


cdef inline bint is_plain(const Text *text, uint8_t least) noexcept:
    """Whether it is ASCII from `least` on, and not long."""
    cdef Py_ssize_t at
    if text.size > TEXT_SIZE_MAX:
        return False
    for at in range(text.size):
        if text.data[at] < least or text.data[at] > 126:
            return False
    return True


cdef inline bint is_tag(const Text *text) noexcept:
    cdef Py_ssize_t at
    if text.size > TAG_SIZE_MAX:
        return False
    for at in range(text.size):
        if not OF_TAGS[text.data[at]]:
            return False
    return True


cdef bint is_own(const Text *name) except -1:
    """Whether a property of this name is the sender's own."""
    cdef bytes key = PyBytes_FromStringAndSize(<const char *> name.data, name.size)
    cdef object found = OWN.get(key)
    if found is None:
        if len(OWN) >= OWN_KNOWN_MAX:
            OWN.clear()
        found = OWN[key] = _is_own(key.decode())
    return found


cdef inline uint8_t *put(uint8_t *to, const char *name, Py_ssize_t size, const Text *text) noexcept:
    memcpy(to, name, size)
    memcpy(to + size, text.data, text.size)
    to[size + text.size] = 2
    return to + size + text.size + 1


cdef class RowPacker:
    """As `_packing_py.RowPacker`."""

    cdef Py_ssize_t count
    cdef bint is_known  # Whether all columns are of the types that are known here.
    cdef Texts topic
    cdef Texts value
    cdef Texts key
    cdef Texts tags
    cdef Texts shard
    cdef Numbers flag
    cdef Numbers queue
    cdef Numbers level
    cdef Column due
    cdef Maps properties
    cdef Own own[OWN_MAX]
    cdef Py_ssize_t owned

    def __init__(self, dict columns not None, Py_ssize_t count):
        self.count = count
        self.is_known = False
        cdef object text = _pa.string(), number = _pa.int32(), array
        for array in columns.values():
            if len(array) != count:
                raise ValueError("columns of different sizes")
        array = columns.get("value")
        if array is None or array.type not in (_pa.binary(), text):
            return
        for name in ("topic", "key", "tags", "shard"):
            if name in columns and columns[name].type != text:
                return
        for name in ("flag", "queue", "delayLevel"):
            if name in columns and columns[name].type != number:
                return
        if "properties" in columns and columns["properties"].type != _pa.map_(text, text):
            return
        self.value = Texts(array)
        for name in columns:
            array = columns[name]
            if name == "topic":
                self.topic = Texts(array)
            elif name == "key":
                self.key = Texts(array)
            elif name == "tags":
                self.tags = Texts(array)
            elif name == "shard":
                self.shard = Texts(array)
            elif name == "flag":
                self.flag = Numbers(array)
            elif name == "queue":
                self.queue = Numbers(array)
            elif name == "delayLevel":
                self.level = Numbers(array)
            elif name == "deliverAt":
                self.due = Column(array)
            elif name == "properties":
                self.properties = Maps(array)
        self.is_known = True

    def pack(
        self, Py_ssize_t at, bytes topic, list slots not None, dict places not None, int way,
        Py_ssize_t partition, Py_ssize_t keyless, Py_ssize_t send_bytes, Py_ssize_t rows_max,
    ):
        """As `_packing_py.RowPacker.pack`."""
        cdef Py_ssize_t queues = len(slots), size = 0, why = DONE, place, cost, text_size, number
        cdef Py_ssize_t last_place = -1, last_number = -1, needed
        cdef Text value, key, tags, other, last_shard
        cdef bint has_key
        cdef uint32_t code
        cdef State *states
        cdef State *state
        cdef uint8_t *to
        cdef object found
        key.data = tags.data = last_shard.data = NULL
        key.size = tags.size = last_shard.size = 0
        if at < 0 or not self.is_known or not queues:
            return at, CARE if at < self.count else DONE, keyless, 0
        if topic is not None and self.topic is None or way == BY_COLUMN and (
            self.shard is None or self.queue is None
        ):
            return at, CARE, keyless, 0
        states = <State *> calloc(queues, sizeof(State))
        if states == NULL:
            raise MemoryError
        try:
            while at < self.count:
                if topic is not None:
                    if (
                        not self.topic.take(at, &other)
                        or other.size != PyBytes_GET_SIZE(topic)
                        or memcmp(other.data, PyBytes_AS_STRING(topic), other.size)
                    ):
                        why = OTHER_TOPIC
                        break
                if not self.value.take(at, &value) or value.size > BODY_BYTES_MAX:
                    why = CARE
                    break
                if self.waits(at):
                    why = CARE
                    break
                has_key = self.key is not None and self.key.take(at, &key) and key.size > 0
                if self.tags is None or not self.tags.take(at, &tags):
                    tags.size = 0
                if (has_key and not is_plain(&key, 33)) or not is_tag(&tags):
                    why = CARE
                    break
                cost = OVERHEAD + value.size
                text_size = self.take_own(at, &cost)
                if text_size < 0:
                    why = CARE
                    break
                if has_key:
                    text_size += 6 + key.size
                if tags.size:
                    text_size += 6 + tags.size
                if way == BY_KEY and has_key:
                    code = 0
                    for number in range(key.size):
                        code = 31 * code + key.data[number]
                    place = <Py_ssize_t> (<int32_t> code)
                    place = (-place if place < 0 else place) % queues
                elif way == BY_COLUMN:
                    if not self.shard.take(at, &other) or self.queue.is_null(at):
                        why = CARE
                        break
                    number = self.queue.at(at)
                    if last_place < 0 or number != last_number or other.size != last_shard.size or (
                        memcmp(other.data, last_shard.data, other.size)
                    ):
                        if not is_plain(&other, 33):
                            why = CARE
                            break
                        found = places.get((other.data[:other.size].decode("ascii"), number))
                        if found is None or not 0 <= <Py_ssize_t> found < queues:
                            why = CARE
                            break
                        last_place, last_number, last_shard = found, number, other
                    place = last_place
                else:
                    place = (partition + keyless // ROUND) % queues
                state = &states[place]
                if not state.is_loaded:
                    load(state, <object> PyList_GET_ITEM(slots, place))
                if state.count and (
                    state.cost + cost > send_bytes or state.count >= rows_max
                ):
                    why = place
                    break
                needed = state.used + ENTRY_HEAD + value.size + 2 + text_size
                if needed > state.room:
                    grow(state, needed, send_bytes)
                to = state.data + state.used
                imago_put32(to, <uint32_t> (needed - state.used))
                imago_put32(to + 4, 0)
                imago_put32(to + 8, 0)
                imago_put32(to + 12, 0 if self.flag is None or self.flag.is_null(at)
                            else <uint32_t> self.flag.at(at))
                imago_put32(to + 16, <uint32_t> value.size)
                memcpy(to + ENTRY_HEAD, value.data, value.size)
                to += ENTRY_HEAD + value.size
                imago_put16(to, <uint32_t> text_size)
                to = self.put_own(to + 2)
                if tags.size:
                    to = put(to, b"TAGS\x01", 5, &tags)
                if has_key:
                    to = put(to, b"KEYS\x01", 5, &key)
                state.used = needed
                state.count += 1
                state.cost += cost
                size += value.size
                if way != BY_COLUMN and not (way == BY_KEY and has_key):
                    keyless += 1
                at += 1
        finally:
            for place in range(queues):
                if states[place].is_loaded:
                    store(&states[place], <object> PyList_GET_ITEM(slots, place))
            free(states)
        return at, why, keyless, size

    cdef bint waits(self, Py_ssize_t row) noexcept:
        if self.due is not None and not self.due.is_null(row):
            return True
        return self.level is not None and not self.level.is_null(row) and self.level.at(row) != 0

    cdef Py_ssize_t take_own(self, Py_ssize_t row, Py_ssize_t *cost) except -2:
        """Note a row's own properties; return how many bytes they are, -1: they need care."""
        cdef Py_ssize_t size = 0, begin, end, at, before
        cdef Own *own
        self.owned = 0
        if self.properties is None or self.properties.is_null(row):
            return 0
        begin = self.properties.borders[self.properties.first + row]
        end = self.properties.borders[self.properties.first + row + 1]
        if not 0 <= begin <= end <= self.properties.count:
            raise ValueError("a column whose maps end beyond its entries")
        for at in range(begin, end):
            if self.owned == OWN_MAX:
                return -1
            own = &self.own[self.owned]
            if not self.properties.names.take(at, &own.name) or not own.name.size:
                return -1
            if not is_plain(&own.name, 33):
                return -1
            if not is_own(&own.name):
                continue
            if not self.properties.values.take(at, &own.value):
                own.value.data, own.value.size = own.name.data, 0
            if not is_plain(&own.value, 3):
                return -1
            for before in range(self.owned):
                if self.own[before].name.size == own.name.size and not memcmp(
                    self.own[before].name.data, own.name.data, own.name.size
                ):
                    return -1
            size += own.name.size + own.value.size + 2
            cost[0] += 4 * (own.name.size + own.value.size)
            self.owned += 1
        return size if size <= PROPERTIES_SIZE_MAX else -1

    cdef uint8_t *put_own(self, uint8_t *to) noexcept:
        cdef Py_ssize_t at
        cdef Own *own
        for at in range(self.owned):
            own = &self.own[at]
            memcpy(to, own.name.data, own.name.size)
            to[own.name.size] = 1
            memcpy(to + own.name.size + 1, own.value.data, own.value.size)
            to += own.name.size + own.value.size + 1
            to[0] = 2
            to += 1
        return to


cdef int load(State *state, object slot) except -1:
    cdef object body = slot.body
    if type(body) is not bytearray:
        raise TypeError("the bytes of a slot")
    state.used, state.count, state.cost = slot.used, slot.count, slot.cost
    state.body = <PyObject *> body  # the slot keeps it
    state.room = PyByteArray_GET_SIZE(body)
    state.data = <uint8_t *> PyByteArray_AS_STRING(body)
    if not 0 <= state.used <= state.room:
        raise ValueError("a slot with more than it holds")
    state.is_loaded = True
    return 0


cdef int grow(State *state, Py_ssize_t needed, Py_ssize_t send_bytes) except -1:
    """Have room for what is needed; twice of it, but no more than a request takes."""
    cdef Py_ssize_t room = 2 * needed
    if room > send_bytes:
        room = max(needed, send_bytes)
    PyByteArray_Resize(<object> state.body, room)
    state.room = room
    state.data = <uint8_t *> PyByteArray_AS_STRING(<object> state.body)
    return 0


cdef int store(State *state, object slot) except -1:
    slot.used, slot.count, slot.cost = state.used, state.count, state.cost
    return 0
