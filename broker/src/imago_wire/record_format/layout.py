"""The layout of one commit-log record, which is RocketMQ's, with our reserved properties.

==================  =====  ====================================================================
field               bytes  note
==================  =====  ====================================================================
total size          4      of the whole record, this field included
magic               4      0xDAA320A7; 0xDAA320AB where the topic has more than 127 bytes
body checksum       4      crc31 of the body as stored, 0 for an empty body
queue id            4
flag                4      the application's
queue offset        8      0 for a prepared or rolled-back half message
physical offset     8      of the record's first byte in the log
sys flag            4      the ``SYS_…`` bits below
born timestamp      8      ms since 1970, the client's clock
born host           8|20   IPv4 or IPv6 address, then the port as 4 bytes
store timestamp     8      ms since 1970, the broker's clock
store host          8|20   as born host
reconsume times     4
prepared offset     8      physical offset of the half message of a committed one
body length, body   4+n
topic length, topic 1+t    2+t with the second magic
properties length   2
properties          p      the client's, less reserved names; then the reserved ones; always
                           ending in ``__CRC32#`` 0x01, ten digits, 0x02
==================  =====  ====================================================================

All integers are signed and big endian, but for the magic. The reserved properties stand at fixed
distances from the record's end, so that a reader finds them without parsing: see
:mod:`imago_wire.record_format.properties` for their order and digits. A *blank record* (8 bytes:
remaining size, 0xCBD43194) closes a segment that has no room for the next record.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from imago_wire.record_format.properties import (
    CRC32,
    METAQ_CRC,
    METAQ_ID,
    METAQ_LEN,
    METAQ_POS,
    PROPERTIES_BYTES_MAX,
    UNIT_TAG,
)

MAGIC_V1: Final = 0xDAA320A7
MAGIC_V2: Final = 0xDAA320AB
MAGIC_BLANK: Final = 0xCBD43194

BLANK_SIZE: Final = 8
"""Room that every segment keeps for the record that closes it."""

SYS_COMPRESSED: Final = 0x1
SYS_PREPARED: Final = 0x4
SYS_COMMIT: Final = 0x8
SYS_ROLLBACK: Final = 0xC
SYS_TRANSACTION_MASK: Final = 0xC
SYS_BORN_V6: Final = 0x10
SYS_STORE_V6: Final = 0x20
SYS_UNWRAP: Final = 0x40
SYS_INNER_BATCH: Final = 0x80
SYS_COMPRESSION_MASK: Final = 0x700
SYS_COMPRESSION_LZ4: Final = 0x100
SYS_COMPRESSION_ZSTD: Final = 0x200
SYS_COMPRESSION_ZLIB: Final = 0x300

TOPIC_BYTES_V1_MAX: Final = 127
TOPIC_BYTES_MAX: Final = 255
BODY_BYTES_MAX: Final = 1 << 27
"""What a record can hold at all; the broker's own limit is far below."""

# Up to the born host; the store timestamp stands between the hosts.
HEAD: Final = Struct(">iIiiiqqiq")
AFTER_STORE_HOST: Final = Struct(">iqi")
HOST_V4_SIZE: Final = 8
HOST_V6_SIZE: Final = 20
FIXED_SIZE_V4: Final = 91
"""A record's size beside topic, properties and body, with IPv4 hosts and the first magic."""

DEAD_OFFSET: Final = -1
"""Next offset of a tail whose queue is gone: nothing can be appended to it."""

UNIT: Final = Struct(">qiq")
"""Consume-queue unit: physical offset, record size, tag code."""
POSITION_UNIT: Final = Struct(">qi")
"""Unit of the MetaQ view: position, size in MetaQ's form with its header."""
KEY_ENTRY: Final = Struct(">Iq")
"""Entry for the key index: hash of ``topic#key``, physical offset."""
WAITING_PLACE: Final = Struct(">HQ")
"""Queue and offset of a message that waits, as a firing record names it."""
METAQ_HEADER: Final = Struct(">iiqi")
"""Before each message in MetaQ's stored form: body length, checksum, id, flag."""
METAQ_HEADER_SIZE: Final = METAQ_HEADER.size

UNIT_TAG_PREFIX: Final = UNIT_TAG.encode() + b"\x01"
METAQ_LEN_PREFIX: Final = METAQ_LEN.encode() + b"\x01"
METAQ_CRC_PREFIX: Final = METAQ_CRC.encode() + b"\x01"
METAQ_POS_PREFIX: Final = METAQ_POS.encode() + b"\x01"
METAQ_ID_PREFIX: Final = METAQ_ID.encode() + b"\x01"
CRC32_PREFIX: Final = CRC32.encode() + b"\x01"

UNIT_TAG_SIZE: Final = len(UNIT_TAG_PREFIX) + 17
METAQ_SHAPE_SIZE: Final = len(METAQ_LEN_PREFIX) + 9 + len(METAQ_CRC_PREFIX) + 9
METAQ_PLACE_SIZE: Final = len(METAQ_POS_PREFIX) + 17 + len(METAQ_ID_PREFIX) + 17
CRC32_SIZE: Final = len(CRC32_PREFIX) + 11

RESERVED_SIZE_MAX: Final = 1 + UNIT_TAG_SIZE + METAQ_SHAPE_SIZE + METAQ_PLACE_SIZE + CRC32_SIZE
"""What the builder may add to a client's properties; 1 for a missing last 0x02."""

CLIENT_PROPERTIES_BYTES_MAX: Final = PROPERTIES_BYTES_MAX - RESERVED_SIZE_MAX

METAQ_EPOCH_MS: Final = 1_577_836_800_000
METAQ_ID_TIME_AT: Final = 22
"""Bit of an id from which on it is the time since then."""
METAQ_ID_REST: Final = (1 << METAQ_ID_TIME_AT) - 1
"""2020-01-01T00:00Z: the origin of the time in our MetaQ message ids."""
METAQ_BROKER_ID_MAX: Final = 1023


def record_size(
    topic_size: int,
    properties_size: int,
    body_size: int,
    *,
    born_host_size: int = HOST_V4_SIZE,
    store_host_size: int = HOST_V4_SIZE,
) -> int:
    """Return an upper bound in bytes of a record with these parts, for admission."""
    hosts = born_host_size + store_host_size - 2 * HOST_V4_SIZE
    magic_v2 = 1 if topic_size > TOPIC_BYTES_V1_MAX else 0
    parts = topic_size + properties_size + body_size
    return FIXED_SIZE_V4 + hosts + magic_v2 + parts + RESERVED_SIZE_MAX


def blank_record(size: int) -> bytes:
    """Return the 8 bytes that close a segment in which ``size`` bytes remain."""
    return size.to_bytes(4, "big") + MAGIC_BLANK.to_bytes(4, "big")


def crc_digits(value: int) -> bytes:
    """Return the ten decimal digits of a record's checksum, least significant first."""
    return (b"%010d" % value)[::-1]
