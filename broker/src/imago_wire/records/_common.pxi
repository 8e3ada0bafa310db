# What the twins of records share: `_hot.h`, numbers copied from the layout, tag codes, growing views.
# Included by the twins that make or read records; `imago_wire.record_format.layout` stays the only place
# where the numbers are written down.

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from imago_wire.record_format import layout as _layout
from imago_wire.record_format.tags import cached_tag_code as _cached_tag_code

cdef extern from "_hot.h" nogil:
    void imago_crc_init()
    uint32_t imago_crc32(uint32_t crc, const uint8_t *data, size_t size)
    void imago_put16(uint8_t *to, uint32_t value)
    void imago_put32(uint8_t *to, uint32_t value)
    void imago_put64(uint8_t *to, uint64_t value)
    uint32_t imago_get16(const uint8_t *data)
    uint32_t imago_get32(const uint8_t *data)
    uint64_t imago_get64(const uint8_t *data)
    const uint8_t *imago_find_property(
        const uint8_t *data, size_t size, const char *name, size_t name_size, size_t *value_size
    )

imago_crc_init()

cdef uint32_t CRC31_MASK = 0x7FFFFFFF
cdef Py_ssize_t TOPIC_BYTES_MAX = _layout.TOPIC_BYTES_MAX
cdef Py_ssize_t TOPIC_BYTES_V1_MAX = _layout.TOPIC_BYTES_V1_MAX
cdef Py_ssize_t FIXED_SIZE_V4 = _layout.FIXED_SIZE_V4
cdef Py_ssize_t HOST_V4_SIZE = _layout.HOST_V4_SIZE
cdef Py_ssize_t HOST_V6_SIZE = _layout.HOST_V6_SIZE
cdef Py_ssize_t CRC32_SIZE = _layout.CRC32_SIZE
cdef Py_ssize_t UNIT_TAG_SIZE = _layout.UNIT_TAG_SIZE
cdef Py_ssize_t METAQ_PLACE_SIZE = _layout.METAQ_PLACE_SIZE
cdef Py_ssize_t METAQ_SHAPE_SIZE = _layout.METAQ_SHAPE_SIZE
cdef Py_ssize_t METAQ_HEADER_SIZE = _layout.METAQ_HEADER_SIZE
cdef uint32_t MAGIC_V1 = _layout.MAGIC_V1
cdef uint32_t MAGIC_V2 = _layout.MAGIC_V2
cdef int32_t SYS_PREPARED = _layout.SYS_PREPARED
cdef int32_t SYS_BORN_V6 = _layout.SYS_BORN_V6
cdef int32_t SYS_STORE_V6 = _layout.SYS_STORE_V6
cdef bytes CRC32_PREFIX = _layout.CRC32_PREFIX
cdef bytes UNIT_TAG_PREFIX = _layout.UNIT_TAG_PREFIX
cdef bytes METAQ_LEN_PREFIX = _layout.METAQ_LEN_PREFIX
cdef bytes METAQ_CRC_PREFIX = _layout.METAQ_CRC_PREFIX
cdef bytes METAQ_POS_PREFIX = _layout.METAQ_POS_PREFIX
cdef bytes METAQ_ID_PREFIX = _layout.METAQ_ID_PREFIX


cdef inline int64_t tag_code(const uint8_t *tags, size_t size) except? -1:
    cdef uint32_t code = 0
    cdef size_t at
    for at in range(size):
        if tags[at] >= 128:
            return _cached_tag_code(PyBytes_FromStringAndSize(<const char *> tags, size))
        code = 31 * code + tags[at]
    return <int32_t> code


cdef inline uint8_t *grown(bytearray view, Py_ssize_t size) except NULL:
    """Make a view longer by ``size`` bytes and return where they are."""
    cdef Py_ssize_t end = PyByteArray_GET_SIZE(view)
    PyByteArray_Resize(view, end + size)
    return <uint8_t *> PyByteArray_AS_STRING(view) + end
