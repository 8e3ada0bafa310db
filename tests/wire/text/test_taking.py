"""Puts straight from a read: the compiled twin takes what the reference takes, and no more."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from imago_testing.frames.records import HOST
from imago_testing.frames.records import NOW_MS as NOW
from imago_testing.frames.text import bodies, commands
from imago_testing.frames.twins import Twin
from imago_wire.crc import crc31
from imago_wire.text.encoder import encode


def taken(twin: Twin, data: bytes, line_max: int, body_max: int) -> Any:
    """Return what take_puts() makes of a read, its tails by their number."""
    tails = [twin.QueueTail(b"topic", n, dual=True) for n in range(3)]
    entries: list[Any] = []
    asked: list[Any] = []
    names = dict.fromkeys(["topic", "a", "b", "test"], tails)
    used = twin.take_puts(data, (line_max, body_max), names, (NOW, HOST), entries, asked)
    return used, [(entry[0].queue_id, *entry[1:]) for entry in entries], asked


plain_puts = st.builds(
    lambda topic, partition, flag, body, checksum, opaque: (
        b"put %b %b %d %b %b %b\r\n%b"
        % (topic, partition, len(body), flag, checksum(body), opaque, body)
    ),
    st.sampled_from([b"topic", b"a", b"b", b"test", b"other", b"x" * 300, b"t\xc3\xa9"]),
    st.sampled_from([b"0", b"1", b"2", b"3", b"-0", b"-1", b"00000000000001", b"9999999999"]),
    st.sampled_from([b"0", b"1", b"-1", b"3", b"2147483648", b"0x"]),
    bodies | st.sampled_from([b"\0\0\0\x01Ax", b"\0\0\0\x01\x01x", b"\0\0\0\x09Ax"]),
    st.sampled_from(
        [lambda body: b"%d" % crc31(body), lambda _: b"-1", lambda _: b"7", lambda _: b"+7"]
    ),
    st.sampled_from([b"0", b"7", b"-2147483648", b"2147483647", b"1234567890123456789", b""]),
)


@given(
    sent=st.lists(plain_puts | commands.map(encode), max_size=5),
    changes=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=2),
    cut=st.none() | st.integers(0, 200),
    line_max=st.sampled_from([4096, 30, 20]),
    body_max=st.sampled_from([1 << 20, 50, 0]),
)
def test_puts_are_taken_alike(
    sent: list[bytes],
    changes: list[tuple[int, int]],
    cut: int | None,
    line_max: int,
    body_max: int,
) -> None:
    reference, compiled = Twin("python"), Twin("compiled")
    data = bytearray(b"".join(sent))
    for at, value in changes:
        if at < len(data):
            data[at] = value
    read = bytes(data[:cut])
    expected = taken(reference, read, line_max, body_max)
    assert taken(compiled, read, line_max, body_max) == expected
    items, scanned = reference.scan_text(read, line_max, body_max)
    assert expected[0] <= scanned
    assert len(expected[1]) <= len(items)
