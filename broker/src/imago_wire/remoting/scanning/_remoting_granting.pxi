"""Whose a request is, and whether that user may; part of `_remoting_c`.

As `_granting_py`, which decides (-1) where a header is not as the known clients sign it.
"""

DEF SIGNED_MAX = 8192   # bytes of a header's values
DEF SIGNATURE_SIZE = 28
DEF KEPT_MAX = 65536   # bytes of a signed text whose space is kept for the next one

# Space for a signed text: who uses it takes it away meanwhile.
cdef bytearray _space = bytearray()


cdef inline object _granted(object user, Py_ssize_t at):
    """An item of `UserGrants`, taken from the tuple that it is: its class costs more than a look."""
    if not isinstance(user, tuple):
        raise TypeError("grants are UserGrants")
    return <object>PyTuple_GET_ITEM(user, at)


cdef inline int _order(Span* left, Span* right) noexcept nogil:
    """Return above 0 where a name comes behind another one in the order of bytes, 0 if equal."""
    cdef int order
    if left.size and right.size and left.at[0] != right.at[0]:
        return <int>left.at[0] - <int>right.at[0]
    order = memcmp(left.at, right.at, min(left.size, right.size))
    return order if order else <int>(left.size - right.size)


cdef bint _is_ascii(Bytes at, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t i
    cdef unsigned char seen = 0
    for i in range(size):
        seen |= at[i]
    return seen < 128


cdef Py_ssize_t _signed_text(Header* h, char* text, Span** signature):
    """Put the values that are signed one behind the other; return their size, -1: look closer."""
    cdef int order[FIELDS_MAX]
    cdef int count = 0, i, at, differs
    cdef Py_ssize_t size = 0
    cdef char* out = text
    cdef Span* key
    cdef bint ascii = not h.binary and not h.high
    signature[0] = NULL
    for i in range(h.count):
        key = &h.keys[i]
        if not ascii and not _is_ascii(key.at, key.size):
            return -1
        if key.size == 9 and memcmp(key.at, b"Signature", 9) == 0:
            if signature[0] != NULL:
                return -1
            signature[0] = &h.values[i]
            continue
        if (
            key.size == 17 and memcmp(key.at, b"_UNIQUE_KEY_QUERY", 17) == 0
            or key.size == 13 and memcmp(key.at, b"SecurityToken", 13) == 0
        ):
            return -1
        if h.binary and not _is_ascii(h.values[i].at, h.values[i].size):
            return -1
        size += h.values[i].size
        at = count
        while at:
            differs = _order(&h.keys[order[at - 1]], key)
            if differs == 0:
                return -1  # the same name twice
            if differs < 0:
                break
            order[at] = order[at - 1]
            at -= 1
        order[at] = i
        count += 1
    if size > SIGNED_MAX:
        return -1
    for i in range(count):
        key = &h.values[order[i]]
        if key.escaped:
            out += _resolve(key, out)
        else:
            memcpy(out, key.at, key.size)
            out += key.size
    return out - text


cdef int _is_right(Span* signature, bytes made) except -2:
    """Whether a digest is what was given, in Base64; takes as long whatever was given."""
    cdef const char* letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    cdef char coded[SIGNATURE_SIZE + 4]
    cdef Bytes p = <Bytes>PyBytes_AS_STRING(made)
    cdef char* out = coded
    cdef unsigned int group
    cdef unsigned char differs = 0
    cdef int i
    if signature.escaped:
        return -1
    if signature.size != SIGNATURE_SIZE or PyBytes_GET_SIZE(made) != 20:
        return 0
    for i in range(7):
        group = <unsigned int>p[0] << 16 | <unsigned int>p[1] << 8 | (p[2] if i < 6 else 0)
        out[0] = letters[group >> 18]
        out[1] = letters[group >> 12 & 63]
        out[2] = letters[group >> 6 & 63]
        out[3] = letters[group & 63] if i < 6 else 61
        out += 4
        p += 3
    for i in range(SIGNATURE_SIZE):
        differs |= <unsigned char>coded[i] ^ signature.at[i]
    return differs == 0


cdef int _is_signed(Header* h, object keyed, Bytes body, Py_ssize_t body_size) except -2:
    """Whether who sent a request has the secret (1) or not (0); -1: the plain twin says it."""
    cdef char text[SIGNED_MAX]
    cdef Span* signature
    cdef bytearray whole
    cdef char* out
    cdef Py_ssize_t size = _signed_text(h, text, &signature)
    global _space
    if size < 0:
        return -1
    if signature == NULL:
        return 0
    whole, _space = _space, None
    if whole is None:
        whole = bytearray()
    PyByteArray_Resize(whole, size + body_size)
    out = PyByteArray_AS_STRING(whole)
    memcpy(out, text, size)
    memcpy(out + size, body, body_size)
    keyed = keyed.copy()
    keyed.update(whole)
    if size + body_size <= KEPT_MAX:
        _space = whole
    return _is_right(signature, keyed.digest())


cdef int _sign(Header* h, Bytes body, Py_ssize_t body_size, object user) except -2:
    """Whether a request is the user's whose key it has; -1: the plain twin says it."""
    if user is None:
        return 0
    if _granted(user, 0) is None:
        return 1
    return _is_signed(h, _granted(user, 3), body, body_size)


cdef object _user_of(Header* h, object grants):
    cdef Span* key = _field(h, b"AccessKey", 9)
    return grants["" if key == NULL else _known_text(key)]


cdef int _may_send(Header* h, Bytes body, Py_ssize_t body_size, str topic, object grants) except -2:
    """Whether a request's user may send to a topic; -1: the plain twin says it."""
    cdef object user = _user_of(h, grants)
    if user is None or not _granted(user, 1)[topic]:
        return 0
    return _sign(h, body, body_size, user)


def signer(bytes raw_header not None, bytes body not None, grants not None):
    """As `_granting_py.signer`."""
    cdef Header h
    cdef Py_ssize_t size = PyBytes_GET_SIZE(raw_header) - 4
    cdef int right = -1
    cdef object user
    if size >= 0 and _read_header(&h, <Bytes>PyBytes_AS_STRING(raw_header), size):
        user = _user_of(&h, grants)
        right = _sign(&h, <Bytes>PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body), user)
    if right < 0:
        return _plain_signer(raw_header, body, grants)
    return user if right else None
