"""Messages in MetaQ's form, verified in one call: what is about to leave from a file."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from imago_testing.frames.records import HOST
from imago_testing.frames.records import NOW_MS as NOW
from imago_testing.frames.twins import Twin


def build(twin: Twin, bodies: list[bytes]) -> bytes:
    tail = twin.QueueTail(b"t", 0, dual=True)
    entries = [
        twin.make_entry(tail, body, b"TAGS\x01t\x02", born_ms=1, born_host=HOST) for body in bodies
    ]
    builder = twin.RecordBuilder(HOST, 1, 0)
    data, placed = builder.build(entries, 0, 0, NOW, 1 << 30)
    records = [bytes(data[place : place + size]) for _, place, size, _, _ in placed]
    return bytes(twin.metaq_block(records))


def test_whole_messages(twin: Twin) -> None:
    first, both = build(twin, [b"one"]), build(twin, [b"one", b"x" * 200])
    assert twin.metaq_whole(both) == twin.metaq_whole(memoryview(both)) == len(both)
    assert twin.metaq_whole(both[:-1]) == twin.metaq_whole(both + b"\0" * 40) - len(both) + len(
        first
    )
    assert twin.metaq_whole(b"") == twin.metaq_whole(bytes(60)) == twin.metaq_whole(first[:19]) == 0


def test_every_flipped_bit_of_a_body_and_its_checksum_is_noticed(twin: Twin) -> None:
    data = bytearray(build(twin, [b"one", b"two" * 9]))
    first = len(build(twin, [b"one"]))
    for at in [*range(8), *range(20, first)]:
        for bit in range(8):
            data[at] ^= 1 << bit
            assert twin.metaq_whole(data) == 0
            data[at] ^= 1 << bit


@given(
    bodies=st.lists(st.binary(max_size=40), max_size=5),
    flips=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 7)), max_size=2),
    cut=st.integers(0, 200),
    tail=st.binary(max_size=30),
)
@settings(deadline=None)
def test_twins_agree(
    bodies: list[bytes], flips: list[tuple[int, int]], cut: int, tail: bytes
) -> None:
    data = bytearray(build(Twin("python"), bodies))
    del data[max(0, len(data) - cut) :]
    data += tail
    for at, bit in flips:
        if at < len(data):
            data[at] ^= 1 << bit
    found = [Twin(kind).metaq_whole(bytes(data)) for kind in ("python", "compiled")]
    assert found[0] == found[1]
