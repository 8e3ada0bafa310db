"""What idempotent producers say in records: both twins find the same as a scan of all records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from imago_testing.frames.records import HOST
from imago_testing.frames.records import NOW_MS as NOW
from imago_testing.searching import examples
from imago_wire.hot import QueueTail, RecordBuilder, make_entry
from imago_wire.record_format.layout import SYS_PREPARED
from imago_wire.record_format.sequences import Sequence, stored_property
from imago_wire.records import _scan_c as compiled  # type: ignore[attr-defined]  # built, not typed
from imago_wire.records import _scan_py as plain

if TYPE_CHECKING:
    from imago_testing.frames.twins import Twin

BASE = 1 << 40
P = "00000000000000aa"


def build(properties: list[bytes], *, sys_flag: int = 0) -> bytes:
    tail = QueueTail("Aufträge".encode(), 3, dual=True)
    entries = [
        make_entry(tail, b"x", each, born_ms=1, born_host=HOST, sys_flag=sys_flag)
        for each in properties
    ]
    data, _ = RecordBuilder(HOST, 1, 0).build(entries, 0, BASE, NOW, 1 << 30)
    return bytes(data)


def test_an_id_may_have_the_tag_of_a_user(twin: Twin) -> None:
    ids = [P, P + "0123456789abcdef", P + "fedcba9876543210", "ff" * 16]
    data = build([stored_property(Sequence(each, 3, 7)) for each in ids])
    assert [found[:3] for found in twin.numbered_records(data, BASE)] == [(i, 3, 7) for i in ids]


def test_numbers_and_their_places(twin: Twin) -> None:
    sent = [stored_property(Sequence(P, 3, number)) for number in (7, 8)]
    data = build([b"TAGS\x01a\x02" + sent[0], b"TAGS\x01b\x02", sent[1]])
    found = twin.numbered_records(data, BASE)
    assert [each[:6] for each in found] == [
        (P, 3, 7, "Aufträge", 3, 0),
        (P, 3, 8, "Aufträge", 3, 2),
    ]
    assert [place for *_, place, _ in found] == [BASE, found[1][6]]
    assert {ms for *_, ms in found} == {NOW}
    assert not twin.numbered_records(build(sent, sys_flag=SYS_PREPARED), BASE)
    assert not twin.numbered_records(data, BASE + 1)


values = st.sampled_from(
    [
        f"{P}.0.7", f"{P}.{10**18}.{2**63 - 1}", f"{P}.1", f"{P}.1.", f"{P}..1", f"{P}.1.2.3",
        f"{P}.1.+2", "00000000000000AA.1.2", "aa.1.2", "", f"{P}.1.2 ", f"{P}.1." + "9" * 20,
        f"{P}.007.0", "\u0661" * 20, f"{P}{P}.1.2", f"{P}{P}.{10**18}.3", f"{P}{P[1:]}.1.2",
        f"{P}{P}0.1.2", f"{P}{P[1:]}x.1.2", f"{P}{P}", f"{P}{P}.1",
    ]
)  # fmt: skip
names = st.sampled_from(["__IMAGO_SENT", "__IMAGO_SENT", "__IMAGO_SEN", "x__IMAGO_SENT", "TAGS"])
parts = st.tuples(names, values).map("\x01".join) | st.just("__IMAGO_SENT")


@settings(max_examples=examples(300))
@given(
    properties=st.lists(st.lists(parts, max_size=3).map("\x02".join), min_size=1, max_size=3),
    change=st.none() | st.tuples(st.integers(0, 400), st.integers(0, 255)),
    cut=st.none() | st.integers(0, 400),
)
def test_twins_agree(properties: list[str], change: Any, cut: int | None) -> None:
    data = bytearray(build([each.encode() for each in properties]))
    if change is not None and change[0] < len(data):
        data[change[0]] = change[1]
    expected = plain.numbered_records(data[:cut], BASE)
    assert compiled.numbered_records(data[:cut], BASE) == expected
    assert compiled.numbered_records(memoryview(bytes(data[:cut])), BASE) == expected
