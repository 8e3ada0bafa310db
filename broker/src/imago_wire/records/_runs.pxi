# Runs of parked records, which become messages as they stand; part of `_record_c`.

from imago_wire.record_format.sequences import TIMER_MARK as _TIMER_MARK

cdef extern from "_hot.h" nogil:
    int imago_put_decimal(uint8_t *to, int64_t value)

cdef int32_t _HOSTS = SYS_BORN_V6 | SYS_STORE_V6
cdef Py_ssize_t WAITING_PLACE_SIZE = _layout.WAITING_PLACE.size
cdef bytes _MARK = _TIMER_MARK + b"\x01"

DEF MARK_MAX = 64
DEF MARK_DIGITS_MAX = 42  # two numbers, what stands between them and behind


cdef struct Parked:
    # One record of a run, and the property that says where it waited.
    Item item
    uint8_t mark[MARK_MAX]


cdef class EntryRun:
    """As `entries.EntryRun`."""

    cdef bytes _data
    cdef Parked *_parked
    cdef Belonging _there
    cdef list _queues  # of the topic of the message before
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t end
    cdef readonly bytes places
    cdef readonly set tails

    def __dealloc__(self):
        PyMem_Free(self._parked)


def restore_run(
    bytes data not None, Py_ssize_t at, Py_ssize_t count_max, int64_t due_ms,
    dict tails_of not None, int64_t queue_id
):
    """As `_parked_py.restore_run`."""
    cdef const uint8_t *start = <const uint8_t *> PyBytes_AS_STRING(data)
    cdef Py_ssize_t end = PyBytes_GET_SIZE(data)
    cdef EntryRun run
    cdef Record record
    cdef uint8_t *place
    cdef bytes places
    count_max = min(count_max, (end - at) // FIXED_SIZE_V4)
    if count_max <= 0 or not is_due(start + at, end - at, due_ms, &record):
        return None
    run = EntryRun.__new__(EntryRun)
    run.tails = set()
    run._parked = <Parked *> PyMem_Malloc(count_max * sizeof(Parked))
    if run._parked == NULL:
        raise MemoryError
    places = PyBytes_FromStringAndSize(NULL, count_max * WAITING_PLACE_SIZE)
    place = <uint8_t *> PyBytes_AS_STRING(places)
    while run.count < count_max and is_due(start + at, end - at, due_ms, &record):
        if not restore(start + at, &record, tails_of, queue_id, run):
            break
        imago_put16(place, queue_id)
        imago_put64(place + 2, record.queue_offset)
        place += WAITING_PLACE_SIZE
        at += record.size
    if run.count == 0:
        return None
    run._data, run.end = data, at
    run.places = places if run.count == count_max else places[: run.count * WAITING_PLACE_SIZE]
    return run


cdef inline bint is_due(
    const uint8_t *data, Py_ssize_t left, int64_t due_ms, Record *record
) noexcept:
    """Read a record; False: it is not due, or needs a closer look."""
    return (
        read_layout(data, left, record)
        and read_reserved(data, record)
        and not record.sys_flag & ~_HOSTS
        and record.has_unit_tag
        and record.unit_tag <= due_ms
    )


cdef bint restore(
    const uint8_t *data, Record *record, dict tails_of, int64_t queue_id, EntryRun run
) except -1:
    """Add the message that a parked record becomes; False: it needs a closer look."""
    cdef const uint8_t *properties = data + record.properties_at
    cdef Parked *parked = &run._parked[run.count]
    cdef Item *item = &parked.item
    cdef Py_ssize_t size = record.client_size
    cdef Py_ssize_t born_size = HOST_V6_SIZE if record.sys_flag & SYS_BORN_V6 else HOST_V4_SIZE
    cdef Py_ssize_t store_size = HOST_V6_SIZE if record.sys_flag & SYS_STORE_V6 else HOST_V4_SIZE
    cdef Belonging there
    cdef object tail
    if record.body_crc > CRC31_MASK or record.queue_offset < 0:
        return False
    if size == 0 or properties[size - 1] != 2:
        return False
    if not read_belonging(properties, size, &there):
        return False
    if run.count == 0 or there.topic_size != run._there.topic_size or memcmp(
        there.topic, run._there.topic, there.topic_size
    ):
        run._queues = queues_of(&there, tails_of)
    run._there = there
    tail = tail_of(&there, run._queues)
    if tail is None:
        return False
    item.more = parked.mark
    item.more_size = put_mark(parked.mark, queue_id, record.queue_offset)
    if (
        size + item.more_size > CLIENT_PROPERTIES_BYTES_MAX or record.body_size > BODY_BYTES_MAX
    ):
        return False
    if run.count == 0 or <PyObject *> tail != run._parked[run.count - 1].item.tail:
        run.tails.add(<QueueTail?> tail)
    item.run = NULL
    item.tail = <PyObject *> tail
    item.body, item.body_size = data + record.body_at, record.body_size
    item.properties, item.properties_size = properties, size
    item.separator = False
    item.tags, item.tags_size = there.tags, there.tags_size
    item.born_host, item.born_host_size = data + 48, born_size
    item.flag, item.sys_flag = record.flag, 0
    item.born_ms = <int64_t> imago_get64(data + 40)
    item.reconsume_times = <int32_t> imago_get32(data + 48 + born_size + 8 + store_size)
    item.prepared_offset, item.body_crc = 0, record.body_crc
    item.has_unit, item.has_unit_tag, item.has_shape = True, False, False
    item.given_id = 0
    run.count += 1
    return True


cdef inline Py_ssize_t put_mark(uint8_t *mark, int64_t queue_id, int64_t offset) noexcept:
    """Write the property that says where a message waited; return its size."""
    cdef uint8_t *to = put_text(mark, _MARK)
    to += imago_put_decimal(to, queue_id)
    to[0] = 45
    to += 1 + imago_put_decimal(to + 1, offset)
    to[0] = 2
    return to + 1 - mark


assert PyBytes_GET_SIZE(_MARK) + MARK_DIGITS_MAX <= MARK_MAX


cdef int64_t run_size_max(EntryRun run) noexcept:
    """As `entries_size_max`, of one run."""
    cdef int64_t size = 0
    cdef Py_ssize_t n
    cdef Item *item
    cdef QueueTail tail
    for n in range(run.count):
        item = &run._parked[n].item
        tail = <QueueTail> item.tail
        if tail.next_offset < 0:
            return -1
        size += PARTS_SIZE_MAX + PyBytes_GET_SIZE(tail.topic)
        size += item.body_size + item.properties_size + item.more_size
    return size


cdef Py_ssize_t size_run(RecordBuilder builder, EntryRun run) noexcept:
    """Compute the size of all records of a run."""
    cdef Py_ssize_t n, size = 0
    for n in range(run.count):
        size_item(builder, &run._parked[n].item)
        size += run._parked[n].item.size
    return size


cdef tuple write_run(
    RecordBuilder builder, EntryRun run, uint8_t *to, int64_t physical_offset, int64_t store_ms
):
    """Write the records of a run; return the place of all: the first one's, and their size."""
    cdef int64_t at = physical_offset, first = 0, queue_offset, position, metaq_id
    cdef Py_ssize_t n
    cdef Item *item
    for n in range(run.count):
        item = &run._parked[n].item
        place(builder, item, to, at, store_ms, &queue_offset, &position, &metaq_id)
        if n == 0:
            first = queue_offset
        to += item.size
        at += item.size
    return (first, physical_offset, at - physical_offset, -1, -1)
