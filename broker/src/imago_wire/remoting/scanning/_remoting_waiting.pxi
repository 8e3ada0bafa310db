"""Sends that do not simply go to their queue, into entries; part of `_remoting_c`.

As `_waiting_py.take_waiting`, which says what everything means.
"""

DEF PARTS_MAX = 64
DEF MADE_MAX = 6144  # properties, suffix, and what is added: topic, words, numbers
DEF DROPPED = 1
DEF NUMBER = 2
DEF ID_SIZE = 16


cdef struct Wanted:
    # The parts of a property string, and those that say what is wanted.
    int count
    bint timed
    bint numbered
    Span unique
    Span delay
    Span times[3]
    Span half
    Span group
    Span numbers[3]
    # As many of these as are counted: the others are left as they are.
    Span parts[PARTS_MAX]
    int kinds[PARTS_MAX]


cdef inline bint _keep(Span* span, Bytes at, Bytes end) noexcept nogil:
    """Note a value; False: it is there already."""
    if span.at != NULL:
        return False
    span.at, span.size = at, end - at
    return True


cdef inline bint _begins(Bytes name, Py_ssize_t size, const char* known) noexcept nogil:
    cdef Py_ssize_t known_size = strlen(known)
    return size >= known_size and memcmp(name, known, known_size) == 0


cdef inline bint _is_odd(Bytes name, Py_ssize_t size) noexcept nogil:
    return (
        _is_not_senders(name, size)
        or _is(name, size, b"CLUSTER")
        or _is(name, size, b"CHECK_IMMUNITY_TIME_IN_SECONDS")
        or _is(name, size, b"__transactionId__")
        or _begins(name, size, b"__IMAGO_")
        or _begins(name, size, b"__METAQ_")
        or _begins(name, size, b"__UNIT_TAG")
        or _begins(name, size, b"__CRC32#")
    )


cdef bint _read_part(Wanted* w, Bytes at, Bytes value, Bytes end) noexcept nogil:
    """Take one property in; False: it needs a closer look."""
    cdef Py_ssize_t size = value - 1 - at
    cdef int kind = 0
    cdef bint fine = True
    if size == 0:
        return False
    if _is(at, size, b"UNIQ_KEY"):
        fine = _keep(&w.unique, value, end)
    elif _is(at, size, b"DELAY"):
        kind, fine = DROPPED, _keep(&w.delay, value, end)
    elif _is(at, size, b"TIMER_DELAY_SEC"):
        kind, fine = DROPPED, _keep(&w.times[0], value, end)
        w.timed = True
    elif _is(at, size, b"TIMER_DELAY_MS"):
        kind, fine = DROPPED, _keep(&w.times[1], value, end)
        w.timed = True
    elif _is(at, size, b"TIMER_DELIVER_MS"):
        kind, fine = DROPPED, _keep(&w.times[2], value, end)
        w.timed = True
    elif _is(at, size, b"TRAN_MSG"):
        fine = _keep(&w.half, value, end)
    elif _is(at, size, b"PGROUP"):
        fine = _keep(&w.group, value, end)
    elif _is(at, size, b"__IMAGO_PID"):
        kind, fine = NUMBER, _keep(&w.numbers[0], value, end)
        w.numbered = True
    elif _is(at, size, b"__IMAGO_EPOCH"):
        kind, fine = NUMBER, _keep(&w.numbers[1], value, end)
        w.numbered = True
    elif _is(at, size, b"__IMAGO_SEQ"):
        kind, fine = NUMBER, _keep(&w.numbers[2], value, end)
        w.numbered = True
    elif _is_odd(at, size):
        return False
    if not fine or w.count == PARTS_MAX:
        return False
    w.parts[w.count].at, w.parts[w.count].size = at, end - at
    w.kinds[w.count] = kind
    w.count += 1
    return True


cdef int _read_wanted(Wanted* w, Span* properties) noexcept nogil:
    """Read what a send wants (1); 0: it needs a closer look; -1: by the plain twin, too many."""
    cdef Bytes at = properties.at
    cdef Bytes end = at + properties.size
    cdef Bytes part_end
    cdef Bytes name_end
    if properties.size > _waiting_properties_max:
        return 0
    memset(w, 0, <char*>w.parts - <char*>w)
    while at < end:
        if w.count == PARTS_MAX:
            return -1
        part_end = <Bytes>memchr(at, 2, end - at)
        if part_end == NULL:
            part_end = end
        name_end = <Bytes>memchr(at, 1, part_end - at)
        if name_end == NULL or not _read_part(w, at, name_end + 1, part_end):
            return 0
        at = part_end + 1
    return 1


cdef inline bint _is_word(Span* span) noexcept nogil:
    cdef Py_ssize_t i
    if span.at == NULL or not 1 <= span.size <= _word_max:
        return False
    for i in range(span.size):
        if not 33 <= span.at[i] <= 126:
            return False
    return True


cdef inline bint _property_number(Span* span, long long* number) noexcept nogil:
    return (
        1 <= span.size <= _digits_max
        and span.at[0] != 45
        and _number(span.at, span.size, number)
    )


cdef inline bint _is_true(Span* span) noexcept nogil:
    cdef const char* word = b"true"
    cdef Py_ssize_t i
    if span.size != 4:
        return False
    for i in range(4):
        if span.at[i] | 32 != <unsigned char>word[i] or span.at[i] < 65:
            return False
    return True


cdef inline char* _put_span(char* out, Span* span) noexcept nogil:
    return _put(out, <const char*>span.at, span.size)


cdef char* _put_kept(char* out, Wanted* w, int dropped) noexcept nogil:
    """Put the properties less those of one kind."""
    cdef int i
    for i in range(w.count):
        if dropped == 0 or w.kinds[i] != dropped:
            out = _put_span(out, &w.parts[i])
            out[0] = 2
            out += 1
    return out


cdef char* _put_belonging(char* out, bytes topic, long long queue_id):
    out = _put_text(out, b"REAL_TOPIC\x01")
    out = _put(out, PyBytes_AS_STRING(topic), PyBytes_GET_SIZE(topic))
    out = _put_number(_put_text(out, b"\x02REAL_QID\x01"), queue_id)
    out[0] = 2
    return out + 1


cdef char _letters[4096][2]  # of Base64 with the letters that an address may have: of 12 bits each


cdef void _spell() noexcept:
    cdef const char* each = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    cdef int bits
    for bits in range(4096):
        _letters[bits][0], _letters[bits][1] = each[bits >> 6], each[bits & 63]


_spell()


cdef bytes _recall_handle(bytes topic, bytes broker_name, long long due_ms, Span* unique):
    """As `RecallHandle`, in Base64."""
    cdef char text[1024]
    cdef char coded[1400]
    cdef char* end = _put_text(text, b"v1 ")
    cdef char* out = coded
    cdef Bytes at = <Bytes>text
    cdef unsigned int group
    cdef Py_ssize_t size
    end = _put(end, PyBytes_AS_STRING(topic), PyBytes_GET_SIZE(topic))
    end[0] = 32
    end = _put(end + 1, PyBytes_AS_STRING(broker_name), PyBytes_GET_SIZE(broker_name))
    end[0] = 32
    end = _put_number(end + 1, due_ms)
    end[0] = 32
    end = _put_span(end + 1, unique)
    size = end - text
    end[0] = end[1] = 0
    while at < <Bytes>end:
        group = (<unsigned int>at[0] << 16) | (<unsigned int>at[1] << 8) | at[2]
        memcpy(out, _letters[group >> 12], 2)
        memcpy(out + 2, _letters[group & 4095], 2)
        at += 3
        out += 4
    if size % 3:
        (out - 1)[0] = 61
    if size % 3 == 1:
        (out - 2)[0] = 61
    return PyBytes_FromStringAndSize(coded, out - coded)


cdef int _take_waiting(
    Bytes frame, Py_ssize_t size, Header* h, Send* send, Span* properties, object tail,
    bytes born_host, bytes suffix, object parking, object grants, list entries, list asked
) except -2:
    """Take one such send (1) or not (0); -1: the plain twin has to read it.

    `properties` have their escapes resolved.
    """
    cdef Wanted w
    cdef char made[MADE_MAX]
    cdef char* end
    cdef bytes topic, recall = b""
    cdef object space, target, unit_tag = None
    cdef long long due_ms = 0, level = 0
    cdef Py_ssize_t header_size = _u32(frame + 4) & 0xFFFFFF
    cdef int found = _read_wanted(&w, properties)
    if found <= 0:
        return found
    if not _is_word(&w.unique):
        return 0
    if PyBytes_GET_SIZE(suffix) > 512:
        return -1
    space = parking.space
    if space is None:
        space = parking.look()
    if w.numbered and not send.sys_flag and w.half.at == NULL:
        if w.delay.at != NULL or w.timed or h.flag & 2:
            return 0
        return _take_numbered(
            frame, size, h, send, &w, tail, born_host, suffix, parking, grants, space, entries,
            asked,
        )
    topic = tail.topic
    if PyBytes_GET_SIZE(topic) > 255:
        return -1
    if send.sys_flag or w.half.at != NULL:
        if w.delay.at != NULL or w.timed or w.numbered:
            return 0
        target = _half_place(h, send, &w, space, parking.owner, len(entries))
        if target is None:
            return 0
        end = _put_kept(made, &w, 0)
        end = _put(end, PyBytes_AS_STRING(suffix), PyBytes_GET_SIZE(suffix))
        if w.group.at == NULL:
            end = _put_span(_put_text(end, b"PGROUP\x01"), send.group)
            end[0] = 2
            end += 1
        end = _put_belonging(end, topic, send.queue_id)
        end = _put_span(_put_text(end, b"__transactionId__\x01"), &w.unique)
        end[0] = 2
        end += 1
    elif w.delay.at != NULL:
        end = _put_kept(made, &w, DROPPED)
        end = _put(end, PyBytes_AS_STRING(suffix), PyBytes_GET_SIZE(suffix))
        target = _level_place(&w, space, parking, &level, &due_ms)
        if target is None:
            return 0
        unit_tag = due_ms
        end = _put_number(_put_text(end, b"DELAY\x01"), level)
        end[0] = 2
        end = _put_belonging(end + 1, topic, send.queue_id)
    elif w.timed:
        target = _bucket_place(&w, space, parking, &due_ms)
        if target is None:
            return 0
        unit_tag = due_ms
        end = _put_kept(made, &w, 0)
        end = _put(end, PyBytes_AS_STRING(suffix), PyBytes_GET_SIZE(suffix))
        end = _put_number(_put_text(end, b"TIMER_OUT_MS\x01"), due_ms)
        end[0] = 2
        end = _put_belonging(end + 1, topic, send.queue_id)
        if PyBytes_GET_SIZE(_known.broker_name) > 255:
            return -1
        recall = _recall_handle(topic, _known.broker_name, due_ms, &w.unique)
    else:
        return 0
    entries.append((
        target,
        PyBytes_FromStringAndSize(<const char*>frame + 8 + header_size, size - 8 - header_size),
        PyBytes_FromStringAndSize(made, end - made),
        send.flag, 0, send.born_ms, born_host, 0, 0, unit_tag, None, -1,
    ))
    _ask(h, frame, send, &w, recall, asked)
    return 1


cdef _ask(Header* h, Bytes frame, Send* send, Wanted* w, bytes recall, list asked):
    unique = PyBytes_FromStringAndSize(<const char*>w.unique.at, w.unique.size)
    asked.append((h.opaque, <int>frame[4], send.queue_id, unique, (h.flag & 2) != 0, recall))


cdef object _half_place(
    Header* h, Send* send, Wanted* w, object space, str owner, Py_ssize_t index
):
    """Return the queue of half messages, and note whose it is; None: a closer look."""
    cdef Span* group = send.group if w.group.at == NULL else &w.group
    cdef list halves = space.halves
    if send.sys_flag != 0 and send.sys_flag != 4:
        return None
    if w.half.at != NULL and not _is_true(&w.half):
        return None
    if not owner or space.half_tail is None or PyList_GET_SIZE(halves) >= space.half_room:
        return None
    if group.escaped or not _is_word(group):
        return None
    halves.append((index, _known_text(group), owner))
    return space.half_tail


cdef int _take_numbered(
    Bytes frame, Py_ssize_t size, Header* h, Send* send, Wanted* w, object tail, bytes born_host,
    bytes suffix, object parking, object grants, object space, list entries, list asked
) except -2:
    """Take a send of an idempotent producer, where it has the number that comes next."""
    cdef char made[MADE_MAX]
    cdef char name[2 * ID_SIZE]
    cdef Span owned
    cdef char* end
    cdef long long epoch = 0, number = 0
    cdef Py_ssize_t header_size = _u32(frame + 4) & 0xFFFFFF
    cdef Span* producer = &w.numbers[0]
    cdef Py_ssize_t i
    cdef dict known
    cdef list expected
    cdef PyObject* found
    if w.count < 3 or w.numbers[0].at == NULL or w.numbers[1].at == NULL or w.numbers[2].at == NULL:
        return 0
    for i in range(3):  # they are the last three, in this order
        if w.parts[w.count - 3 + i].at + w.parts[w.count - 3 + i].size != (
            w.numbers[i].at + w.numbers[i].size
        ):
            return 0
    if producer.size != ID_SIZE:
        return 0
    for i in range(ID_SIZE):
        if not 48 <= producer.at[i] <= 57 and not 97 <= producer.at[i] <= 102:
            return 0
    if not _property_number(&w.numbers[1], &epoch) or not _property_number(&w.numbers[2], &number):
        return 0
    if grants is not None:
        tag = _granted(_user_of(h, grants), 4)
        if tag:
            if PyUnicode_GET_LENGTH(tag) != ID_SIZE or not PyUnicode_IS_COMPACT_ASCII(tag):
                return -1
            memcpy(name, producer.at, ID_SIZE)
            memcpy(name + ID_SIZE, PyUnicode_DATA(tag), ID_SIZE)
            owned.at, owned.size, owned.escaped = <Bytes>name, 2 * ID_SIZE, False
            producer = &owned
    key = (_known_text(producer), tail)
    known = parking.expected
    found = PyDict_GetItem(known, key)
    expected = parking.expect(key[0], tail) if found == NULL else <list?>found
    if <long long>expected[1] != number or <long long>expected[0] != epoch:
        return 0
    space.numbered.append((len(entries), key[0], expected[0], expected[1]))
    expected[1] = number + 1
    end = _put_kept(made, w, NUMBER)
    end = _put_span(_put_text(end, b"__IMAGO_SENT\x01"), producer)
    end[0] = 46
    end = _put_number(end + 1, epoch)
    end[0] = 46
    end = _put_number(end + 1, number)
    end[0] = 2
    end = _put(end + 1, PyBytes_AS_STRING(suffix), PyBytes_GET_SIZE(suffix))
    entries.append((
        tail,
        PyBytes_FromStringAndSize(<const char*>frame + 8 + header_size, size - 8 - header_size),
        PyBytes_FromStringAndSize(made, end - made),
        send.flag, 0, send.born_ms, born_host, 0, 0, None, None, -1,
    ))
    _ask(h, frame, send, w, b"", asked)
    return 1
