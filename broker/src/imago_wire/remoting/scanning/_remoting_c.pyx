# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Compiled twin of `_remoting_py` and `_pulling_py`: the same functions and results, on C pointers.

Headers as the known clients write them are read in place; for whatever else comes, and for every
error, the plain twin does the work, so that the two cannot differ there.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem
from cpython.list cimport PyList_GET_SIZE
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_GET_ITEM
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.string cimport memchr, memcmp, memcpy, memset, strlen

from imago_wire.remoting.scanning import _pulling_py as plain_pulling
from imago_wire.remoting.scanning import _remoting_py as plain
from imago_wire.remoting.scanning import _ending_py as _ending
from imago_wire.remoting.scanning import _granting_py as _granting
from imago_wire.remoting.scanning import halves as _halves
from imago_wire.remoting.scanning import items
from imago_wire.remoting.scanning import waiting as _waiting
from imago_wire.record_format import layout as _layout
from imago_wire.errors import ProtocolError
from imago_wire.record_format.properties import find as _find
from imago_wire.records.record_twins import restore_half as _restore_half
from imago_wire.remoting.command import RemotingCommand, SerializeType
from imago_wire.remoting.frame import HEADER_BYTES_MAX
from imago_wire.remoting.peer import OWN_VERSION, Language, language_of

cdef extern from "_hot.h" nogil:
    int imago_put_decimal(unsigned char *to, long long value)

cdef extern from "Python.h":
    bint PyUnicode_IS_COMPACT_ASCII(object text)
    Py_ssize_t PyUnicode_GET_LENGTH(object text)
    void* PyUnicode_DATA(object text)

ctypedef const unsigned char* Bytes

DEF FIELDS_MAX = 48
DEF ANSWER_MAX = 2048
DEF RESOLVED_MAX = 4096
DEF TEXTS = 1024

cdef long long _header_bytes_max = HEADER_BYTES_MAX
cdef int _own_version = OWN_VERSION
cdef Py_ssize_t _body_bytes_max = _layout.BODY_BYTES_MAX
cdef Py_ssize_t _properties_bytes_max = _layout.CLIENT_PROPERTIES_BYTES_MAX
cdef Py_ssize_t _host_v4_size = _layout.HOST_V4_SIZE
cdef Py_ssize_t _host_v6_size = _layout.HOST_V6_SIZE
cdef object _send_type = items.SendItem
cdef object _frame_type = items.FrameItem
cdef object _bad_type = items.BadFrameItem
cdef object _pull_type = items.AskedPull
cdef object _closed_type = _halves.ClosedHalves
cdef object SEND = items.SEND
cdef object FRAME = items.FRAME
cdef object BAD = items.BAD
cdef object _new_command = RemotingCommand.__new__
cdef object _command_type = RemotingCommand
cdef object _json_form = SerializeType.JSON
cdef object _binary_form = SerializeType.ROCKETMQ
cdef object _java = Language.JAVA
cdef object _language_of = language_of
cdef object _plain_scan_frame = plain.scan_frame
cdef object _plain_scan_frames = plain.scan_frames
cdef object _plain_scan_batch = plain.scan_batch
cdef object _plain_scan_plain_batch = plain.scan_plain_batch
cdef object _plain_answer = plain.encode_send_response
cdef object _plain_take = plain.take_sends
cdef object _plain_plain_pull = plain_pulling.plain_pull
cdef object _plain_take_ends = _ending.take_ends
cdef object _plain_signer = _granting.signer
cdef Py_ssize_t _waiting_properties_max = _waiting.PROPERTIES_MAX
cdef Py_ssize_t _word_max = _waiting.WORD_MAX
cdef Py_ssize_t _digits_max = _waiting.DIGITS_MAX

# Texts that come again and again (ext keys, topics): one object each, with its hash computed once.
cdef list _texts = [None] * TEXTS

include "../../_named.pxi"
include "_remoting_header.pxi"
include "_remoting_values.pxi"
include "_remoting_answers.pxi"
include "_remoting_waiting.pxi"
include "_remoting_parking.pxi"
include "_remoting_granting.pxi"
include "_remoting_taking.pxi"
include "_remoting_pulling.pxi"
include "_remoting_halves.pxi"
include "_remoting_ending.pxi"


cdef bint _is_utf8(Bytes at, Py_ssize_t size):
    try:
        PyUnicode_DecodeUTF8(<const char*>at, size, NULL)
    except UnicodeDecodeError:
        return False
    return True


cdef bint _read_header(Header* h, Bytes raw, Py_ssize_t header_size):
    """Read a header at its header word; False: it is not as the known clients write it."""
    h.at = raw + 4
    h.end = h.at + header_size
    h.binary = raw[0] == 1
    h.high = h.has_remark = h.short_names = False
    h.code = h.flag = h.opaque = h.version = 0
    h.count = 0
    h.language.at = NULL
    memset(h.letters, -1, sizeof(h.letters))
    if raw[0] > 1:
        return False
    if h.binary:
        return _binary_header(h)
    return _json_header(h) and (not h.high or _is_utf8(raw + 4, header_size))


cdef object _item(Bytes raw, Py_ssize_t header_size, Bytes body_at, Py_ssize_t body_size):
    """Return one frame as scan_frames() gives it; `raw` is its header word, checked already."""
    cdef Header h
    cdef Send send
    cdef bytes body = PyBytes_FromStringAndSize(<const char*>body_at, body_size)
    if _read_header(&h, raw, header_size):
        if h.flag & 1 or (h.code != 310 and h.code != 320 and h.code != 10):
            return imago_named(_frame_type, (FRAME, _command(&h, body)))
        if _read_send(&h, &send):
            return _send_item(
                &h, &send, PyBytes_FromStringAndSize(<const char*>raw, 4 + header_size), body
            )
    return _plain_scan_frame(PyBytes_FromStringAndSize(<const char*>raw, 4 + header_size), body)


def scan_frames(object data not None, long long frame_bytes_max):
    """As `_remoting_py.scan_frames`."""
    cdef Py_buffer buffer
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    try:
        return _scan(<Bytes>buffer.buf, buffer.len, frame_bytes_max)
    finally:
        PyBuffer_Release(&buffer)


cdef tuple _scan(Bytes data, Py_ssize_t size, long long frame_bytes_max):
    cdef list found = []
    cdef Py_ssize_t at = 0, left
    cdef long long frame_size, header_size
    while True:
        left = size - at
        if left < 4:
            break
        frame_size = _u32(data + at)
        if frame_size + 4 > frame_bytes_max or frame_size < 4:
            return _refused(found, data, at, left, frame_bytes_max)
        if left < 8:
            break
        header_size = _u32(data + at + 4) & 0xFFFFFF
        if header_size > frame_size - 4 or header_size > _header_bytes_max or data[at + 4] > 1:
            return _refused(found, data, at, left, frame_bytes_max)
        if left < frame_size + 4:
            break
        try:
            found.append(_item(
                data + at + 4,
                header_size,
                data + at + 8 + header_size,
                frame_size - 4 - header_size,
            ))
        except ProtocolError as error:
            found.append(imago_named(_bad_type, (BAD, str(error))))
            break
        at += frame_size + 4
    return found, at


cdef tuple _refused(
    list found, Bytes data, Py_ssize_t at, Py_ssize_t left, long long frame_bytes_max
):
    """End the list with the reason for which the plain twin refuses the sizes at `at`."""
    sizes = PyBytes_FromStringAndSize(<const char*>data + at, min(left, 8))
    bad, _ = _plain_scan_frames(sizes, frame_bytes_max)
    found.extend(bad)
    return found, at
