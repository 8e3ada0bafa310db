"""The checksum that MetaQ and RocketMQ share: CRC-32 (IEEE) with its top bit cleared.

The cleared bit makes it a non-negative Java int; it also means that two checksums cannot be
combined into that of the joined bytes.
"""

from __future__ import annotations

from typing import TypeAlias

from isal.isal_zlib import crc32

Buffer: TypeAlias = bytes | bytearray | memoryview
"""What the codecs read from."""

CRC31_MASK = 0x7FFF_FFFF


def crc31(data: Buffer, value: int = 0) -> int:
    """Return the 31-bit checksum of data, continued from the *unmasked* CRC-32 ``value``."""
    return crc32(data, value) & CRC31_MASK
