# Read one record in place: where its parts are, and whether it is whole.
# Included behind `_common.pxi`.

cdef Py_ssize_t ID_SIZE = len(_layout.METAQ_ID_PREFIX) + 17
cdef Py_ssize_t SHAPE_CRC_SIZE = len(_layout.METAQ_CRC_PREFIX) + 9


cdef struct Record:
    # Where the parts of one record are, counted from its first byte.
    Py_ssize_t size
    uint32_t body_crc
    int32_t queue_id
    int32_t flag
    int64_t queue_offset
    int64_t physical_offset
    int32_t sys_flag
    int64_t store_ms
    Py_ssize_t body_at
    Py_ssize_t body_size
    Py_ssize_t topic_at
    Py_ssize_t topic_size
    Py_ssize_t properties_at
    Py_ssize_t properties_size
    # And, where read_reserved() was called, of the reserved properties.
    Py_ssize_t client_size
    bint has_unit_tag
    int64_t unit_tag
    int64_t metaq_position
    int64_t metaq_id
    int64_t metaq_length
    int64_t metaq_crc


cdef bint read_layout(const uint8_t *data, Py_ssize_t left, Record *record) noexcept nogil:
    """Read the fixed fields; False: this is no whole record."""
    cdef uint32_t magic
    cdef Py_ssize_t at, end, size_size = 1, topic_size_max = TOPIC_BYTES_V1_MAX
    if left < FIXED_SIZE_V4:
        return False
    end = <int32_t> imago_get32(data)
    magic = imago_get32(data + 4)
    if magic == MAGIC_V2:
        size_size, topic_size_max = 2, TOPIC_BYTES_MAX
    elif magic != MAGIC_V1:
        return False
    if end < FIXED_SIZE_V4 or end > left:
        return False
    record.size = end
    record.body_crc = imago_get32(data + 8)
    record.queue_id = <int32_t> imago_get32(data + 12)
    record.flag = <int32_t> imago_get32(data + 16)
    record.queue_offset = <int64_t> imago_get64(data + 20)
    record.physical_offset = <int64_t> imago_get64(data + 28)
    record.sys_flag = <int32_t> imago_get32(data + 36)
    at = 48 + (HOST_V6_SIZE if record.sys_flag & SYS_BORN_V6 else HOST_V4_SIZE)
    record.store_ms = <int64_t> imago_get64(data + at)
    at += 8 + (HOST_V6_SIZE if record.sys_flag & SYS_STORE_V6 else HOST_V4_SIZE) + 16
    if at > end:
        return False
    record.body_at = at
    record.body_size = <int32_t> imago_get32(data + at - 4)
    if record.body_size < 0 or record.body_size + size_size > end - at:
        return False
    at += record.body_size
    record.topic_size = data[at] if size_size == 1 else imago_get16(data + at)
    record.topic_at = at + size_size
    at = record.topic_at + record.topic_size + 2
    if record.topic_size == 0 or record.topic_size > topic_size_max or at > end:
        return False
    record.properties_at = at
    record.properties_size = <int16_t> imago_get16(data + at - 2)
    return at + record.properties_size == end


cdef bint is_property(
    const uint8_t *data, Py_ssize_t first, Py_ssize_t at, Py_ssize_t end, bytes prefix
) noexcept:
    """Whether the property with this prefix, name and 0x01, fills data[at:end]."""
    if at < first or data[end - 1] != 2 or (at > first and data[at - 1] != 2):
        return False
    return not memcmp(data + at, PyBytes_AS_STRING(prefix), PyBytes_GET_SIZE(prefix))


cdef bint read_hexadecimal(
    const uint8_t *data, Py_ssize_t digits, int64_t *into
) noexcept nogil:
    """Read the digits before data, which points behind the 0x02 after them."""
    cdef uint64_t value = 0
    cdef uint8_t digit
    cdef Py_ssize_t at
    for at in range(-digits - 1, -1):
        digit = data[at]
        if 48 <= digit <= 57:
            digit -= 48
        elif 97 <= digit <= 102:
            digit -= 87
        elif 65 <= digit <= 70:
            digit -= 55
        else:
            return False
        value = value << 4 | digit
    into[0] = <int64_t> value if digits == 16 else <int32_t> value
    return True


cdef bint read_reserved(const uint8_t *data, Record *record) noexcept:
    """Read the reserved properties backwards from the record's end; False: they are damaged."""
    cdef Py_ssize_t first = record.properties_at, end = record.size, at = end - CRC32_SIZE
    cdef Py_ssize_t id_at, place, shape
    record.metaq_position = record.metaq_id = record.metaq_length = record.metaq_crc = -1
    record.has_unit_tag = False
    if not is_property(data, first, at, end, CRC32_PREFIX):
        return False
    id_at = at - ID_SIZE
    place = at - METAQ_PLACE_SIZE
    if is_property(data, first, id_at, at, METAQ_ID_PREFIX) and is_property(
        data, first, place, id_at, METAQ_POS_PREFIX
    ):
        if not read_hexadecimal(data + at, 16, &record.metaq_id) or not read_hexadecimal(
            data + id_at, 16, &record.metaq_position
        ):
            return False
        at = place
        shape = at - METAQ_SHAPE_SIZE
        id_at = at - SHAPE_CRC_SIZE
        if is_property(data, first, id_at, at, METAQ_CRC_PREFIX) and is_property(
            data, first, shape, id_at, METAQ_LEN_PREFIX
        ):
            if not read_hexadecimal(data + at, 8, &record.metaq_crc) or not read_hexadecimal(
                data + id_at, 8, &record.metaq_length
            ):
                return False
            at = shape
    if is_property(data, first, at - UNIT_TAG_SIZE, at, UNIT_TAG_PREFIX):
        if not read_hexadecimal(data + at, 16, &record.unit_tag):
            return False
        record.has_unit_tag = True
        at -= UNIT_TAG_SIZE
    record.client_size = at - first
    return True


cdef bint checksum_matches(const uint8_t *data, Record *record) noexcept nogil:
    cdef Py_ssize_t covered = record.size - CRC32_SIZE, digit
    cdef uint32_t checksum = imago_crc32(0, data, covered) & CRC31_MASK
    for digit in range(record.size - 11, record.size - 1):
        if data[digit] != 48 + checksum % 10:
            return False
        checksum = checksum // 10
    return True


cdef bint has_checksum(const uint8_t *data, Record *record) noexcept:
    cdef Py_ssize_t at = record.size - CRC32_SIZE
    return is_property(
        data, record.properties_at, at, record.size, CRC32_PREFIX
    ) and checksum_matches(data, record)


cdef bint read_record(
    const uint8_t *data, Py_ssize_t left, Record *record, bint verify
) noexcept:
    if not read_layout(data, left, record) or not read_reserved(data, record):
        return False
    return not verify or checksum_matches(data, record)


cdef inline bint is_of_queue(
    const uint8_t *data, Record *record, int64_t place, bytes topic, int64_t queue_id,
    int64_t offset, bint verify
) noexcept:
    """Whether a record that was read stands at this place of the log and of this queue."""
    # The reserved properties need no look of their own: the checksum covers them.
    return (
        record.physical_offset == place
        and record.queue_offset == offset
        and record.queue_id == queue_id
        and record.topic_size == PyBytes_GET_SIZE(topic)
        and not memcmp(data + record.topic_at, PyBytes_AS_STRING(topic), record.topic_size)
        and (not verify or has_checksum(data, record))
    )


cdef int place_of(const uint8_t *data, Record *record, int64_t *code, int64_t *metaq_size) except -1:
    """Compute what the units of a record hold beside its place: tag code and MetaQ size."""
    cdef size_t tags_size = 0
    cdef const uint8_t *tags = imago_find_property(
        data + record.properties_at, record.client_size, b"TAGS\x01", 5, &tags_size
    )
    code[0] = metaq_size[0] = 0
    if record.has_unit_tag:
        code[0] = record.unit_tag
    elif tags != NULL:
        code[0] = tag_code(tags, tags_size)
    if record.metaq_position >= 0:
        metaq_size[0] = METAQ_HEADER_SIZE + record.body_size
        if tags != NULL:
            metaq_size[0] += 4 + tags_size
        if record.metaq_length >= 0:
            metaq_size[0] = METAQ_HEADER_SIZE + record.metaq_length
    return 0
