# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: binding=False, cdivision=True
"""Timers that are near, taken in and given out many at once: the compiled twin of ``_timing_py``."""

from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject

from heapq import heappush as _heappush

from imago_wire.record_format import timing as _timing

include "_common.pxi"

cdef int64_t SECOND_MS = _timing.SECOND_MS
cdef int OFFSET_BITS = _timing.OFFSET_BITS
cdef int QUEUE_BITS = _timing.QUEUE_BITS
cdef uint64_t OFFSET_MASK = (<uint64_t> 1 << OFFSET_BITS) - 1
cdef uint64_t QUEUE_MASK = (<uint64_t> 1 << QUEUE_BITS) - 1
cdef Py_ssize_t UNIT_SIZE = _layout.UNIT.size


cdef int push(bytearray heap, uint64_t timer) except -1:
    cdef Py_ssize_t at = PyByteArray_GET_SIZE(heap) // 8, above
    cdef uint64_t *timers
    grown(heap, 8)
    timers = <uint64_t *> PyByteArray_AS_STRING(heap)
    while at and timers[(at - 1) // 2] > timer:
        above = (at - 1) // 2
        timers[at] = timers[above]
        at = above
    timers[at] = timer
    return 0


def push_timer(bytearray heap not None, uint64_t timer):
    """As `_timing_py.push_timer`."""
    push(heap, timer)


cdef inline void drop_first(uint64_t *timers, Py_ssize_t count) noexcept nogil:
    """Take the first off a heap; `count` are left."""
    cdef uint64_t moved = timers[count]
    cdef Py_ssize_t at = 0, below = 1
    while below < count:
        if below + 1 < count and timers[below + 1] < timers[below]:
            below += 1
        if timers[below] >= moved:
            break
        timers[at] = timers[below]
        at = below
        below = 2 * at + 1
    timers[at] = moved


def pop_timers(bytearray heap not None, uint64_t last, Py_ssize_t count_max):
    """As `_timing_py.pop_timers`."""
    cdef Py_ssize_t count = PyByteArray_GET_SIZE(heap) // 8, n = 0
    cdef uint64_t *timers = <uint64_t *> PyByteArray_AS_STRING(heap)
    cdef bytes taken
    cdef uint64_t *to
    count_max = max(0, min(count, count_max))
    taken = PyBytes_FromStringAndSize(NULL, count_max * 8)
    to = <uint64_t *> PyBytes_AS_STRING(taken)
    while n < count_max and timers[0] <= last:
        to[n] = timers[0]
        n += 1
        count -= 1
        drop_first(timers, count)
    PyByteArray_Resize(heap, count * 8)
    return taken if n == count_max else taken[: n * 8]


def spread_timers(
    bytes units not None, Py_ssize_t at, uint64_t queue_id, uint64_t offset, dict slots not None,
    list seconds not None, int64_t front_second, bytearray front not None
):
    """As `_timing_py.spread_timers`."""
    cdef const uint8_t *unit = <const uint8_t *> PyBytes_AS_STRING(units) + at * UNIT_SIZE
    cdef Py_ssize_t count = 0, left = PyBytes_GET_SIZE(units) // UNIT_SIZE - at
    cdef int64_t due_ms, second, slot_second = -1
    cdef uint64_t timer
    cdef bytearray slot = None
    while count < left:
        due_ms = <int64_t> imago_get64(unit + 12)
        if due_ms < 0 or <int32_t> imago_get32(unit + 8) <= 0:
            break
        second = due_ms // SECOND_MS
        timer = (<uint64_t> (due_ms % SECOND_MS) << QUEUE_BITS | queue_id) << OFFSET_BITS
        timer |= offset + count
        if second == front_second:
            push(front, timer)
        else:
            if second != slot_second:
                slot, slot_second = slot_of(slots, seconds, second), second
            (<uint64_t *> grown(slot, 8))[0] = timer
        unit += UNIT_SIZE
        count += 1
    return count


cdef bytearray slot_of(dict slots, list seconds, int64_t second):
    cdef object key = second
    cdef PyObject *found = PyDict_GetItem(slots, key)
    if found != NULL:
        return <bytearray?> found
    slot = slots[key] = bytearray()
    _heappush(seconds, key)
    return slot


def timer_runs(bytes timers not None):
    """As `_timing_py.timer_runs`."""
    cdef const uint64_t *timer = <const uint64_t *> PyBytes_AS_STRING(timers)
    cdef Py_ssize_t at = 0, first, size = PyBytes_GET_SIZE(timers) // 8
    cdef int64_t rests
    cdef list runs = []
    while at < size:
        first = at
        rests = 0
        while True:
            rests += timer[at] >> OFFSET_BITS + QUEUE_BITS
            at += 1
            if at == size or not side_by_side(timer[at - 1], timer[at]):
                break
        runs.append((
            timer[first] >> OFFSET_BITS & QUEUE_MASK, timer[first] & OFFSET_MASK, at - first, rests
        ))
    return runs


cdef inline bint side_by_side(uint64_t one, uint64_t other) noexcept nogil:
    """Whether a timer's message stands just behind another's."""
    return (
        (one >> OFFSET_BITS & QUEUE_MASK) == (other >> OFFSET_BITS & QUEUE_MASK)
        and (one & OFFSET_MASK) + 1 == (other & OFFSET_MASK)
    )
