"""Where sends are parked that wait for a level or a time; part of `_remoting_c`."""


cdef class _KnownSpace:
    # What is the same for all of a turn: looked up once.
    cdef object space
    cdef long long now_ms
    cdef tuple delays_ms
    cdef object level_tails
    cdef Py_ssize_t levels
    cdef long long timer_delay_ms_max
    cdef long long bucket_ms
    cdef long long bucket_count
    cdef object bucket_tails
    cdef Py_ssize_t buckets
    cdef bytes broker_name


cdef _KnownSpace _known = _KnownSpace()


cdef int _know(object space) except -1:
    if _known.space is space:
        return 0
    _known.space = None
    _known.now_ms = space.now_ms
    _known.delays_ms = tuple(space.delays_ms)
    _known.level_tails = space.level_tails
    _known.levels = len(_known.level_tails)
    _known.timer_delay_ms_max = space.timer_delay_ms_max
    _known.bucket_ms = space.bucket_ms
    _known.bucket_count = space.bucket_count
    _known.bucket_tails = space.bucket_tails
    _known.buckets = len(_known.bucket_tails)
    _known.broker_name = space.broker_name.encode()
    _known.space = space
    return 0


cdef object _level_place(
    Wanted* w, object space, object parking, long long* level, long long* due_ms
):
    """Return the queue of a delay level; None: a closer look."""
    cdef Py_ssize_t levels
    _know(space)
    levels = len(_known.delays_ms)
    if _property_number(&w.delay, level):
        level[0] = min(level[0], <long long>levels)
    if not 0 < level[0] <= _known.levels:
        return None  # also where the topic has fewer queues than there are levels
    due_ms[0] = _known.now_ms + <long long>_known.delays_ms[level[0] - 1]
    tail = _known.level_tails[level[0] - 1]
    return parking.level_tail(level[0]) if tail is None else tail


cdef object _bucket_place(Wanted* w, object space, object parking, long long* due_ms):
    """Return the queue of a timer; None: a closer look."""
    cdef long long now_ms, bucket
    cdef int which = 0
    _know(space)
    now_ms = _known.now_ms
    while w.times[which].at == NULL:
        which += 1
    if not _property_number(&w.times[which], due_ms):
        return None
    if which == 0:
        due_ms[0] = now_ms + due_ms[0] * 1000
    elif which == 1:
        due_ms[0] += now_ms
    if not 0 < due_ms[0] - now_ms <= _known.timer_delay_ms_max:
        return None
    bucket = due_ms[0] // _known.bucket_ms % _known.bucket_count
    if bucket >= _known.buckets:
        return None
    tail = _known.bucket_tails[bucket]
    return parking.bucket_tail(bucket) if tail is None else tail
