"""The bad line changes a bit and keeps TCP's checksum right; anything else it leaves alone."""

from __future__ import annotations

import random
import struct

import pytest

from imago_testing.chaos.cluster.lossy import tcp_data, with_bit_changed

PORT = 10912


def checksum(data: bytes) -> int:
    padded = data + b"\0" * (len(data) % 2)
    total = sum(int.from_bytes(padded[at : at + 2], "big") for at in range(0, len(padded), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def segment(data: bytes, *, source: int = PORT, options: int = 12) -> bytes:
    """Return an Ethernet frame with one TCP segment, padded as short frames are."""
    size = 20 + options + len(data)
    ends = bytes([10, 77, 0, 11, 10, 77, 0, 12])
    head = struct.pack(">HHIIBBHHH", source, 40000, 1, 2, (20 + options) // 4 << 4, 24, 99, 0, 0)
    pseudo = ends + struct.pack(">BBH", 0, 6, size)
    total = checksum(pseudo + head + b"\1" * options + data)
    tcp = head[:16] + struct.pack(">HH", total, 0) + b"\1" * options + data
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + size, 0, 0, 64, 6, 0) + ends
    return (b"\2" * 12 + b"\x08\x00" + ip + tcp).ljust(60, b"\0")


def is_right(frame: bytes) -> bool:
    size = int.from_bytes(frame[16:18], "big") - 20
    return not checksum(frame[26:34] + struct.pack(">BBH", 0, 6, size) + frame[34 : 34 + size])


@pytest.mark.parametrize("size", [1, 2, 3, 40, 1001])
@pytest.mark.parametrize("options", [0, 12])
def test_every_changed_bit_leaves_the_checksum_right(size: int, options: int) -> None:
    rng = random.Random(size)
    frame = segment(rng.randbytes(size), options=options)
    assert is_right(frame)
    found = tcp_data(frame, PORT)
    assert found == (54 + options, 54 + options + size)
    for bit in range(8 * found[0], 8 * min(found[1], found[0] + 50)):
        changed = with_bit_changed(frame, bit)
        assert is_right(changed)
        differing = [at for at in range(len(frame)) if changed[at] != frame[at]]
        assert bit // 8 in differing
        assert all(at == bit // 8 or at in (50, 51) for at in differing)


def test_only_data_of_the_port_is_changed() -> None:
    assert tcp_data(segment(b"data", source=8123), PORT) is None
    assert tcp_data(segment(b""), PORT) is None
    assert tcp_data(b"\2" * 12 + b"\x08\x06" + bytes(46), PORT) is None
    udp = bytearray(segment(b"data"))
    udp[23] = 17
    assert tcp_data(bytes(udp), PORT) is None
