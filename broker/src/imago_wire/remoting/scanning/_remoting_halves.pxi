"""Half messages, and the passes over those that a turn has brought; part of `_remoting_c`.

As `_halves_py`, which says what everything means.
"""

DEF OFFSET_CHARACTERS_MAX = 21  # a number of 64 bits, and a comma


cdef class Half:
    """As `halves.Half`."""

    cdef public long long offset
    cdef public long long physical_offset
    cdef public str group
    cdef public str owner
    cdef public bytes unique
    cdef public long long immune_until_ms
    cdef public bint limited
    cdef public bint oneway
    cdef public int form
    cdef public int opaque
    cdef public long long checks
    cdef public long long tries
    cdef public tuple entry
    cdef public object ending
    cdef public object asker
    cdef public list waiting

    def __init__(
        self, long long offset, long long physical_offset=-1, str group not None="",
        bytes unique not None=b"", long long immune_until_ms=0, bint limited=False,
        long long checks=0,
    ):
        self.offset, self.physical_offset = offset, physical_offset
        self.group, self.unique, self.owner = group, unique, ""
        self.immune_until_ms, self.limited, self.checks = immune_until_ms, limited, checks


cdef inline Py_ssize_t _kept_size(tuple entry):
    return PyBytes_GET_SIZE(<bytes?>entry[1]) + PyBytes_GET_SIZE(<bytes?>entry[2])


def open_halves(
    list noted not None, list entries not None, list placed not None, list asked not None,
    long long until_ms, bint limited, dict opened not None, list kept not None
):
    """As `_halves_py.open_halves`."""
    cdef Half half
    cdef tuple one, place, request
    cdef Py_ssize_t index, size = 0
    for one in noted:
        index = one[0]
        place, request = placed[index], asked[index]
        half = Half.__new__(Half)
        half.offset, half.physical_offset = place[0], place[1]
        half.group, half.owner, half.unique = one[1], one[2], request[3]
        half.immune_until_ms, half.limited = until_ms, limited
        half.entry = entries[index]
        opened[place[0]] = half
        kept.append(half)
        size += _kept_size(half.entry)
    return size


def restore_halves(
    list halves not None, Py_ssize_t at, long long size, long long size_max, object outcome,
    dict tails_of not None, dict levels not None, object level, list entries not None
):
    """As `_halves_py.restore_halves`."""
    cdef Half half
    cdef tuple entry
    cdef PyObject* found
    while at < PyList_GET_SIZE(halves) and size < size_max:
        half = <Half?>halves[at]
        if half.ending is not outcome or half.entry is None:
            break
        entry = _restore_half(half.entry, half.physical_offset, tails_of)
        if entry is None:
            break
        found = PyDict_GetItem(levels, entry[0])
        if found == NULL or <object>found is not level:
            break
        entries.append(entry)
        size += PyBytes_GET_SIZE(<bytes?>entry[1])
        at += 1
    return at, size


def mark_texts(list halves not None):
    """As `_halves_py.mark_texts`."""
    cdef Half half
    cdef Py_ssize_t count = PyList_GET_SIZE(halves), at
    cdef bytes offsets = PyBytes_FromStringAndSize(NULL, OFFSET_CHARACTERS_MAX * count)
    cdef char* start = PyBytes_AS_STRING(offsets)
    cdef char* out = start
    cdef list letters = []
    cdef object last = None
    cdef str letter = ""
    for at in range(count):
        half = <Half?>halves[at]
        out = _put_number(out, half.offset)
        out[0] = 44
        out += 1
        if half.ending is not last:
            last = half.ending
            letter = last.value
        letters.append(letter)
    return offsets[:out - start], "".join(letters).encode()


def close_halves(list halves not None, dict opened not None, dict ended not None):
    """As `_halves_py.close_halves`."""
    cdef Half half
    cdef object key, gone, outcome = None
    cdef str group = "", owner = ""
    cdef list whose = [], outcomes = [], waiting = []
    cdef Py_ssize_t of_group = 0, of_outcome = 0, kept = 0, size = 0
    cdef long long end = 0
    for half in halves:
        key = half.offset
        gone = opened.pop(key, None)
        if gone is not None and (<Half?>gone).group:
            if (<Half>gone).group != group or (<Half>gone).owner != owner:
                if of_group:
                    whose.append((group, owner, of_group))
                group, owner, of_group = (<Half>gone).group, (<Half>gone).owner, 0
            of_group += 1
        if half.ending is not outcome:
            if of_outcome:
                outcomes.append((outcome, of_outcome))
            outcome, of_outcome = half.ending, 0
        of_outcome += 1
        ended[key] = outcome
        if half.waiting:
            waiting.append(half)
        if half.entry is not None:
            kept += 1
            size += _kept_size(half.entry)
            half.entry = None
        end = max(end, half.offset + 1)
    if of_group:
        whose.append((group, owner, of_group))
    if of_outcome:
        outcomes.append((outcome, of_outcome))
    return _closed_type(whose, outcomes, waiting, kept, size, end)


cdef _answer_asker(list answers, object asker, list frames, Py_ssize_t count):
    if count == 0:
        return
    if len(frames) == 1:
        answers.append((asker, frames[0], count))
    else:
        answers.append((asker, b"".join(frames), count))


def answer_ends(list halves not None):
    """As `_halves_py.answer_ends`."""
    cdef Half half
    cdef object asker = None
    cdef list answers = [], frames = []
    cdef Py_ssize_t count = 0
    for half in halves:
        if half.asker is None:
            continue
        if half.asker is not asker:
            _answer_asker(answers, asker, frames, count)
            asker, frames, count = half.asker, [], 0
        half.asker = None
        count += 1
        if not half.oneway:
            frames.append(_done(half.opaque, half.form))
    _answer_asker(answers, asker, frames, count)
    return answers
