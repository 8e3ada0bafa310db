# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: binding=False, cdivision=True
"""Records in MetaQ's stored form: the compiled twin of ``_metaq_py``, which says what all of it means.

Compressed bodies, and whatever is no whole record with a MetaQ position, go to the reference.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.mem cimport PyMem_Free, PyMem_Malloc

from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject

from imago_wire.records import _metaq_py as _reference

include "_common.pxi"
include "_reading.pxi"


cdef extern from "Python.h":
    int _PyBytes_Resize(PyObject **data, Py_ssize_t size) except -1

cdef Py_ssize_t UNIT_SIZE = _layout.UNIT.size


cdef struct Form:
    # One record on its way to MetaQ's stored form.
    const uint8_t *body
    Py_ssize_t body_size
    const uint8_t *tags
    size_t tags_size
    Py_ssize_t length
    uint32_t checksum
    int32_t flag
    int64_t metaq_id


cdef bint read_form(const uint8_t *data, Py_ssize_t left, Form *form) noexcept:
    """Read what MetaQ's form needs; False: that is the reference's work."""
    cdef Record record
    if not read_record(data, left, &record, False):
        return False
    if record.metaq_position < 0 or record.metaq_length >= 0:
        return False
    take_form(data, &record, form)
    return True


cdef void take_form(const uint8_t *data, Record *record, Form *form) noexcept nogil:
    """Read what MetaQ's form needs of a record that is plain in it."""
    cdef uint8_t size[4]
    form.body = data + record.body_at
    form.body_size = form.length = record.body_size
    form.metaq_id = record.metaq_id
    form.checksum = record.body_crc
    form.flag = record.flag & ~1
    form.tags = imago_find_property(
        data + record.properties_at, record.client_size, b"TAGS\x01", 5, &form.tags_size
    )
    if form.tags != NULL:
        form.length += 4 + form.tags_size
        form.flag |= 1
        imago_put32(size, form.tags_size)
        form.checksum = imago_crc32(0, size, 4)
        form.checksum = imago_crc32(form.checksum, form.tags, form.tags_size)
        form.checksum = imago_crc32(form.checksum, form.body, form.body_size)
        # See the reference: damage of the body must show.
        form.checksum ^= imago_crc32(0, form.body, form.body_size) ^ record.body_crc
        form.checksum &= CRC31_MASK


cdef uint8_t *put_head(uint8_t *to, Form *form) noexcept nogil:
    imago_put32(to, form.length)
    imago_put32(to + 4, form.checksum)
    imago_put64(to + 8, form.metaq_id)
    imago_put32(to + 16, form.flag)
    to += 20
    if form.tags != NULL:
        imago_put32(to, form.tags_size)
        memcpy(to + 4, form.tags, form.tags_size)
        to += 4 + form.tags_size
    return to


def metaq_form(record, Py_ssize_t at=0):
    """Return one record in MetaQ's stored form: header with attribute prefix, and payload."""
    cdef Py_buffer view
    cdef Form form
    cdef bytes head
    cdef Py_ssize_t body_at
    PyObject_GetBuffer(record, &view, PyBUF_SIMPLE)
    try:
        if not 0 <= at <= view.len or not read_form(
            <const uint8_t *> view.buf + at, view.len - at, &form
        ):
            return _reference.metaq_form(record, at)
        head = PyBytes_FromStringAndSize(NULL, METAQ_HEADER_SIZE + form.length - form.body_size)
        put_head(<uint8_t *> PyBytes_AS_STRING(head), &form)
        body_at = form.body - <const uint8_t *> view.buf
    finally:
        PyBuffer_Release(&view)
    return head, memoryview(record)[body_at:body_at + form.body_size]


def metaq_block(records):
    """Return whole records, one in each element, in MetaQ's stored form, one after the other."""
    cdef list sources = list(records)
    cdef Py_ssize_t count = len(sources), n, opened = 0, size = 0
    cdef Py_buffer *views
    cdef Form *forms
    cdef bytes block
    cdef uint8_t *to
    cdef bint plain = True
    views = <Py_buffer *> PyMem_Malloc((count or 1) * (sizeof(Py_buffer) + sizeof(Form)))
    if views == NULL:
        raise MemoryError
    forms = <Form *> (views + count)
    try:
        while plain and opened < count:
            PyObject_GetBuffer(sources[opened], &views[opened], PyBUF_SIMPLE)
            opened += 1
            n = opened - 1
            plain = read_form(<const uint8_t *> views[n].buf, views[n].len, &forms[n])
            size += METAQ_HEADER_SIZE + forms[n].length
        if plain:
            block = PyBytes_FromStringAndSize(NULL, size)
            to = <uint8_t *> PyBytes_AS_STRING(block)
            for n in range(count):
                to = put_head(to, &forms[n])
                memcpy(to, forms[n].body, forms[n].body_size)
                to += forms[n].body_size
            return block
    finally:
        for n in range(opened):
            PyBuffer_Release(&views[n])
        PyMem_Free(views)
    return b"".join([part for record in sources for part in metaq_form(record)])


def metaq_records(
    window, int64_t window_at, bytes units not None, Py_ssize_t first, bytes topic not None,
    int64_t queue_id, int64_t offset, int64_t position, Py_ssize_t bytes_max, *, bint verify=True
):
    """Return records of a queue in MetaQ's form, the first one left out, the position behind."""
    cdef Py_buffer view
    cdef Record record
    cdef Form form
    cdef const uint8_t *unit = <const uint8_t *> PyBytes_AS_STRING(units)
    cdef const uint8_t *data
    cdef Py_ssize_t count = PyBytes_GET_SIZE(units) // UNIT_SIZE, at, room = 0, left, size, head
    cdef int64_t place
    cdef bytes found
    cdef PyObject *shrunk
    cdef uint8_t *to
    PyObject_GetBuffer(window, &view, PyBUF_SIMPLE)
    try:
        # A plain record is larger than its message, so this much room is enough.
        at = first
        while at < count and room < bytes_max and lies_in(unit + at * UNIT_SIZE, window_at, &view):
            room += <int32_t> imago_get32(unit + at * UNIT_SIZE + 8)
            at += 1
        left = room = min(room, bytes_max)
        found = PyBytes_FromStringAndSize(NULL, max(room, 0))
        to = <uint8_t *> PyBytes_AS_STRING(found)
        at = first
        while at < count and left > 0 and lies_in(unit + at * UNIT_SIZE, window_at, &view):
            place = <int64_t> imago_get64(unit + at * UNIT_SIZE)
            size = <int32_t> imago_get32(unit + at * UNIT_SIZE + 8)
            data = <const uint8_t *> view.buf + (place - window_at)
            if not read_layout(data, size, &record) or record.size != size:
                break
            if not is_of_queue(data, &record, place, topic, queue_id, offset + at, verify):
                break
            if not read_reserved(data, &record):
                break
            if record.metaq_position < 0 or record.metaq_position != position:
                break
            if record.metaq_length >= 0:
                break
            take_form(data, &record, &form)
            size = METAQ_HEADER_SIZE + form.length
            head = size - form.body_size
            if size <= left:
                to = put_head(to, &form)
                memcpy(to, form.body, form.body_size)
                to += form.body_size
            else:
                to = put_part(to, &form, head, left)
            left -= min(size, left)
            position += size
            at += 1
    finally:
        PyBuffer_Release(&view)
    if at == first:  # damaged, or its body compressed
        return _reference.metaq_records(
            window, window_at, units[:(first + 1) * UNIT_SIZE], first, topic, queue_id, offset,
            position, bytes_max, verify=verify,
        )
    if left:
        shrunk = <PyObject *> found
        Py_INCREF(found)
        found = None
        _PyBytes_Resize(&shrunk, room - left)
        joined = <object> shrunk
        Py_DECREF(joined)
        return joined, at, position
    return found, at, position


cdef inline bint lies_in(const uint8_t *unit, int64_t window_at, Py_buffer *window) noexcept nogil:
    """Whether the record of a unit is within a part of the log."""
    cdef int64_t place = <int64_t> imago_get64(unit), size = <int32_t> imago_get32(unit + 8)
    if place < window_at or size <= 0 or size > window.len:
        return False
    return place - window_at <= window.len - size


cdef uint8_t *put_part(uint8_t *to, Form *form, Py_ssize_t head, Py_ssize_t room) except NULL:
    """Put the first bytes of a message that has no room whole."""
    cdef bytes whole = PyBytes_FromStringAndSize(NULL, head)
    put_head(<uint8_t *> PyBytes_AS_STRING(whole), form)
    if room <= head:
        memcpy(to, PyBytes_AS_STRING(whole), room)
    else:
        memcpy(to, PyBytes_AS_STRING(whole), head)
        memcpy(to + head, form.body, room - head)
    return to + room


def metaq_whole(data):
    """Return the size of the whole messages in MetaQ's form at the start of data."""
    cdef Py_buffer view
    cdef const uint8_t *start
    cdef Py_ssize_t at = 0, length
    cdef uint32_t checksum
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        start = <const uint8_t *> view.buf
        while view.len - at >= METAQ_HEADER_SIZE:
            length = <int32_t> imago_get32(start + at)
            if length < 0 or length > view.len - at - METAQ_HEADER_SIZE:
                break
            checksum = imago_get32(start + at + 4)
            if not imago_get64(start + at + 8):
                break
            if imago_crc32(0, start + at + METAQ_HEADER_SIZE, length) & CRC31_MASK != checksum:
                break
            at += METAQ_HEADER_SIZE + length
    finally:
        PyBuffer_Release(&view)
    return at
