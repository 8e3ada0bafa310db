from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imago_testing.frames.twins import load
from imago_wire.crc import crc31

VECTORS = {
    "C1": (b"", 0),
    "C2": (b"hello", 907060870),
    "C3": (b"world", 980881731),
    "C4": (b"test", 1484750348),
    "C5": (b"msg1", 1172167569),
    "C6": (b"hi", 1486039724),
    "C7": ("中文".encode(), 1510599991),
    "C8": (bytes(1024), 1874177838),
    "C9": (bytes.fromhex("00000005636f6c6f7268656c6c6f"), 1434734634),
    "C10": (bytes.fromhex("0000000068656c6c6f"), 372983093),
}


@pytest.mark.parametrize("name", VECTORS)
def test_checksum_is_known(name: str) -> None:
    data, checksum = VECTORS[name]
    assert crc31(data) == checksum


@given(first=st.binary(max_size=300), second=st.binary(max_size=300))
def test_checksum_continues_from_an_unmasked_one(first: bytes, second: bytes) -> None:
    assert crc31(second, zlib.crc32(first)) == crc31(first + second)


@pytest.mark.parametrize("way", [0, 1, 2])
def test_every_way_to_compute_it_agrees_with_zlib(way: int) -> None:
    compiled = load("imago_wire.records._record_c")
    data = bytes(n * 7 + (n >> 8) & 0xFF for n in range(3000))
    done = 0
    for size in [*range(1, 600), 1023, 1024, 1025, 2047, 2900]:
        piece = data[size % 7 : size % 7 + size]
        value = zlib.crc32(data[:size])
        found = compiled.crc32_by(way, piece, value)
        assert found in (-1, zlib.crc32(piece, value))
        done += found >= 0
    # A machine may lack the instructions of the folding ways, but then all of them fall away.
    assert done == 604 if way == 0 else done in (0, 604 - (63 if way == 1 else 255))
