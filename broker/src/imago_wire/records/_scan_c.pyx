# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: binding=False, cdivision=True
"""Read records back: the compiled twin of ``_scan_py``, which says what everything means.

Whatever this twin does not take for a whole record goes to the reference, which says what is wrong
with it.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.unicode cimport PyUnicode_DecodeLatin1, PyUnicode_DecodeUTF8

from bisect import bisect_right

from imago_wire.records import _scan_py as _reference
from imago_wire.record_format import sequences as _sequences

cdef extern from "Python.h":
    void* PyUnicode_DATA(object text)
    Py_ssize_t PyUnicode_GET_LENGTH(object text)

include "_common.pxi"
include "_reading.pxi"
include "../_named.pxi"

RecordView = _reference.RecordView
Scan = _reference.Scan
ScanStop = _reference.ScanStop
cdef object _END = ScanStop.END
cdef Py_ssize_t UNIT_SIZE = _layout.UNIT.size
cdef object _read_stored = _sequences.read_stored
cdef bytes MARK = _sequences.MARK

DEF NAMES = 1024
# Ids of producers, which come again and again: one object each, with its hash computed once.
cdef list _names = [None] * NAMES


cdef object view_of(const uint8_t *data, Py_ssize_t at, Record *record):
    """Make the RecordView of a record that was read."""
    cdef int64_t metaq_size = 0, code = 0
    place_of(data, record, &code, &metaq_size)
    fields = (
        at,
        record.size,
        PyBytes_FromStringAndSize(<const char *> data + record.topic_at, record.topic_size),
        record.queue_id,
        record.queue_offset,
        record.physical_offset,
        record.sys_flag,
        record.flag,
        record.store_ms,
        at + record.body_at,
        record.body_size,
        at + record.properties_at,
        record.client_size,
        code,
        record.metaq_position,
        record.metaq_id,
        metaq_size,
    )
    return imago_named(RecordView, fields)


def scan_records(data, physical_offset, *, bint verify=True):
    """Return the records at the start of data, whose first byte is at ``physical_offset``."""
    cdef Py_buffer view
    cdef Record record
    cdef Py_ssize_t at = 0
    cdef int64_t offset
    cdef const uint8_t *start
    cdef list views = []
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        offset = physical_offset
        start = <const uint8_t *> view.buf
        while (
            read_record(start + at, view.len - at, &record, verify)
            and record.physical_offset == offset + at
        ):
            views.append(view_of(start + at, at, &record))
            at += record.size
        if at == view.len:
            return Scan(views, at, _END, "")
        # The reference says why no further record is one.
        rest = _reference.scan_records(memoryview(data)[at:], offset + at, verify=verify)
    finally:
        PyBuffer_Release(&view)
    return Scan(views, at, rest.stop, rest.reason)


def numbered_records(data, physical_offset):
    """Return what idempotent producers say in the records that scan_records() would return."""
    cdef Py_buffer view
    cdef Record record
    cdef Py_ssize_t at = 0
    cdef int64_t offset
    cdef const uint8_t *start
    cdef list found = []
    cdef object sent
    cdef str topic = None
    cdef const uint8_t *named = NULL
    cdef Py_ssize_t named_size = 0
    cdef object store_ms = None
    cdef int64_t made_ms = 0
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        offset = physical_offset
        start = <const uint8_t *> view.buf
        while (
            read_record(start + at, view.len - at, &record, False)
            and record.physical_offset == offset + at
        ):
            if not record.sys_flag & SYS_PREPARED:
                sent = sent_of(start + at + record.properties_at, record.client_size)
                if sent is not None:
                    if topic is None or record.topic_size != named_size or memcmp(
                        start + at + record.topic_at, named, named_size
                    ):
                        named, named_size = start + at + record.topic_at, record.topic_size
                        topic = PyUnicode_DecodeUTF8(<const char *> named, named_size, "replace")
                    if store_ms is None or record.store_ms != made_ms:
                        made_ms = record.store_ms
                        store_ms = made_ms
                    found.append((
                        sent[0],
                        sent[1],
                        sent[2],
                        topic,
                        record.queue_id,
                        record.queue_offset,
                        record.physical_offset,
                        store_ms,
                    ))
            at += record.size
        if at < view.len:
            found += _reference.numbered_records(memoryview(data)[at:], offset + at)
    finally:
        PyBuffer_Release(&view)
    return found


cdef object sent_of(const uint8_t *properties, Py_ssize_t size):
    """Return the producer, epoch and number among properties; None: there is none."""
    cdef size_t value_size = 0
    cdef const uint8_t *value = imago_find_property(
        properties, size, PyBytes_AS_STRING(MARK), PyBytes_GET_SIZE(MARK), &value_size
    )
    cdef const uint8_t *at
    cdef const uint8_t *end
    cdef int64_t numbers[2]
    cdef int which, digits, i, name_size = 16
    if value == NULL or value_size < 20:
        return None
    if value[16] != 46 and value_size >= 36:
        name_size = 32  # with the tag of a user
    for i in range(name_size):
        if not 48 <= value[i] <= 57 and not 97 <= value[i] <= 102:
            return None
    at, end = value + name_size, value + value_size
    for which in range(2):
        if at == end or at[0] != 46:
            return None
        at += 1
        digits = 0
        numbers[which] = 0
        while at < end and 48 <= at[0] <= 57:
            if digits == 18:  # the reference reads larger ones
                return _read_stored(
                    PyBytes_FromStringAndSize(<const char *> properties, size)
                )
            numbers[which] = numbers[which] * 10 + (at[0] - 48)
            digits += 1
            at += 1
        if not digits:
            return None
    if at != end:
        return None
    return name_of(value, name_size), numbers[0], numbers[1]


cdef object name_of(const uint8_t *text, Py_ssize_t size):
    """Return the id of a producer, 16 or 32 digits, as the same object as far as possible."""
    cdef uint64_t digits
    cdef object known
    cdef Py_ssize_t place
    memcpy(&digits, text, 8)
    place = digits * <uint64_t> 0x9E3779B97F4A7C15 >> 32
    memcpy(&digits, text + size - 8, 8)
    place = (<uint64_t> place ^ digits) * <uint64_t> 0x9E3779B97F4A7C15 >> 54
    known = _names[place]
    if (
        known is not None
        and PyUnicode_GET_LENGTH(known) == size
        and not memcmp(PyUnicode_DATA(known), text, size)
    ):
        return known
    known = PyUnicode_DecodeLatin1(<const char *> text, size, NULL)
    _names[place] = known
    return known


def whole_records(data, physical_offset, *, bint verify=True):
    """Return how far the records reach that scan_records() would return, why, and the reason."""
    cdef Py_buffer view
    cdef Record record
    cdef Py_ssize_t at = 0
    cdef int64_t offset
    cdef const uint8_t *start
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        offset = physical_offset
        start = <const uint8_t *> view.buf
        while (
            read_record(start + at, view.len - at, &record, verify)
            and record.physical_offset == offset + at
        ):
            at += record.size
        if at == view.len:
            return at, _END, ""
        _, stop, reason = _reference.whole_records(
            memoryview(data)[at:], offset + at, verify=verify
        )
    finally:
        PyBuffer_Release(&view)
    return at, stop, reason


def queue_records(
    data, physical_offset, bytes topic not None, queue_id, queue_offset, *, bint verify=True
):
    """Return how many bytes are the records of one queue from a queue offset on."""
    cdef Py_buffer view
    cdef Record record
    cdef Py_ssize_t at = 0
    cdef int64_t place = physical_offset, number = queue_id, offset = queue_offset
    cdef const uint8_t *start
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        start = <const uint8_t *> view.buf
        while read_layout(start + at, view.len - at, &record) and is_of_queue(
            start + at, &record, place + at, topic, number, offset, verify
        ):
            at += record.size
            offset += 1
    finally:
        PyBuffer_Release(&view)
    return at


def fitting_units(bytes units not None, int64_t bytes_max):
    """Return how many of a queue's units one read may take, and their records' size."""
    cdef const uint8_t *unit = <const uint8_t *> PyBytes_AS_STRING(units)
    cdef Py_ssize_t count, left = PyBytes_GET_SIZE(units) // UNIT_SIZE
    cdef int64_t size, total = 0
    for count in range(left):
        size = <int32_t> imago_get32(unit + count * UNIT_SIZE + 8)
        if size <= 0 or (count and total + size > bytes_max):
            return count, total
        total += size
    return left, total


def near_units(bytes units not None, Py_ssize_t first, int64_t limit, int64_t gap_max):
    """Return how far a queue's units lie in a part of the log, and where the last one ends."""
    cdef const uint8_t *unit = <const uint8_t *> PyBytes_AS_STRING(units)
    cdef Py_ssize_t at = first, count = PyBytes_GET_SIZE(units) // UNIT_SIZE
    cdef int64_t place, size, end = -1
    while at < count:
        place = <int64_t> imago_get64(unit + at * UNIT_SIZE)
        size = <int32_t> imago_get32(unit + at * UNIT_SIZE + 8)
        if size <= 0 or place < 0 or place > limit - size:
            break
        if end >= 0 and (place < end or place - end > gap_max):
            break
        end = place + size
        at += 1
    return at, end


def gather_records(
    window, int64_t window_at, bytes units not None, Py_ssize_t first, bytes topic not None,
    int64_t queue_id, int64_t offset, *, bint verify=True
):
    """Return the records of a queue's units that lie in a part of the log, and where that ends."""
    cdef Py_buffer view
    cdef Record record
    cdef const uint8_t *unit = <const uint8_t *> PyBytes_AS_STRING(units)
    cdef const uint8_t *start
    cdef Py_ssize_t count = PyBytes_GET_SIZE(units) // UNIT_SIZE, at, end = first, total = 0, size
    cdef int64_t place
    cdef bytes joined
    cdef char *to
    PyObject_GetBuffer(window, &view, PyBUF_SIMPLE)
    try:
        start = <const uint8_t *> view.buf
        while end < count:
            place = <int64_t> imago_get64(unit + end * UNIT_SIZE)
            size = <int32_t> imago_get32(unit + end * UNIT_SIZE + 8)
            if place < window_at or size <= 0 or size > view.len:
                break
            if place - window_at > view.len - size:
                break
            if not read_layout(start + (place - window_at), size, &record) or record.size != size:
                break
            if not is_of_queue(
                start + (place - window_at), &record, place, topic, queue_id, offset + end, verify
            ):
                break
            total += size
            end += 1
        joined = PyBytes_FromStringAndSize(NULL, total)
        to = PyBytes_AS_STRING(joined)
        for at in range(first, end):
            place = <int64_t> imago_get64(unit + at * UNIT_SIZE)
            size = <int32_t> imago_get32(unit + at * UNIT_SIZE + 8)
            memcpy(to, start + (place - window_at), size)
            to += size
    finally:
        PyBuffer_Release(&view)
    return joined, end


def gather_blocks(
    list blocks not None, list starts not None, bytes units not None, Py_ssize_t first,
    bytes topic not None, int64_t queue_id, int64_t offset
):
    """As ``_scan_py.gather_blocks``."""
    cdef Record record
    cdef const uint8_t *unit = <const uint8_t *> PyBytes_AS_STRING(units)
    cdef const uint8_t *block = NULL
    cdef Py_ssize_t count = PyBytes_GET_SIZE(units) // UNIT_SIZE, end = first, total = 0, size
    cdef Py_ssize_t block_size = 0, at
    cdef int64_t place, start = 0
    cdef bytes joined
    cdef char *to
    # Where each record is: the blocks stay, as long as nobody runs in between.
    cdef const uint8_t **found = <const uint8_t **> PyMem_Malloc(max(1, count) * sizeof(void*))
    if found == NULL:
        raise MemoryError
    try:
        while end < count:
            place = <int64_t> imago_get64(unit + end * UNIT_SIZE)
            size = <int32_t> imago_get32(unit + end * UNIT_SIZE + 8)
            if block == NULL or not start <= place < start + block_size:
                at = bisect_right(starts, place) - 1
                if at < 0 or type(blocks[at]) is not bytes:
                    break
                block = <const uint8_t *> PyBytes_AS_STRING(<bytes> blocks[at])
                block_size, start = PyBytes_GET_SIZE(<bytes> blocks[at]), starts[at]
            if size <= 0 or place - start > block_size - size:
                break
            found[end] = block + (place - start)
            if not read_layout(found[end], size, &record) or record.size != size:
                break
            if not is_of_queue(found[end], &record, place, topic, queue_id, offset + end, False):
                break
            total += size
            end += 1
        joined = PyBytes_FromStringAndSize(NULL, total)
        to = PyBytes_AS_STRING(joined)
        for at in range(first, end):
            size = <int32_t> imago_get32(unit + at * UNIT_SIZE + 8)
            memcpy(to, found[at], size)
            to += size
    finally:
        PyMem_Free(found)
    return joined, end


def view_record(data, Py_ssize_t at=0, *, bint verify=False):
    """Return where the parts of the record at ``at`` are."""
    cdef Py_buffer view
    cdef Record record
    cdef const uint8_t *start
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        start = <const uint8_t *> view.buf + at
        if 0 <= at <= view.len and read_record(start, view.len - at, &record, verify):
            return view_of(start, at, &record)
    finally:
        PyBuffer_Release(&view)
    return _reference.view_record(data, at, verify=verify)
