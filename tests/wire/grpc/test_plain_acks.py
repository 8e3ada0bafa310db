"""Acknowledgements are read alike by the compiled twin and the plain one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from imago_testing.searching import examples
from imago_wire.grpc.messages import encoded, make, parse
from imago_wire.grpc.scanning import _acks_c, _acks_py  # type: ignore[attr-defined]  # built, not typed

NOW_MS = 1_795_258_220_883
GOOD = f"0 {NOW_MS} 60000 0 0 shard-0 1 7 4096"


def acks(twin: Any, data: bytes) -> Any:
    return twin.plain_acks(data, b"shard-0", NOW_MS, (4, 70))


def request(*entries: dict[str, str], **fields: Any) -> bytes:
    made = make(
        "AckMessageRequest",
        group=make("Resource", name="group", resource_namespace="n"),
        topic=make("Resource", name="topic"),
        **fields,
    )
    for entry in entries:
        made.entries.add(**entry)
    return encoded(made)


numbers = st.sampled_from(
    [
        "0",
        "1",
        "7",
        "007",
        "-1",
        "",
        "x",
        "1" * 18,
        "1" * 19,
        "٣",
        str(NOW_MS),
        "60000",
        "+1",
        "1_0",
    ]
)
handles = st.one_of(
    st.just(GOOD),
    st.builds(lambda offset: GOOD.replace(" 7 ", f" {offset} "), st.integers(0, 1 << 50)),
    st.builds(
        lambda words, retry, broker: " ".join([*words[:4], retry, broker, *words[4:]]),
        st.lists(numbers, min_size=7, max_size=7),
        st.sampled_from(["0", "1", "00"]),
        st.sampled_from(["shard-0", "shard-00", "shard-"]),
    ),
    st.text(max_size=20),
)
entries = st.fixed_dictionaries(
    {"receipt_handle": handles},
    optional={"message_id": st.text(max_size=40), "lite_topic": st.just("")},
)


@settings(max_examples=examples(600))
@given(
    st.lists(entries, max_size=6),
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 255)), max_size=1),
)
@example([{"receipt_handle": GOOD, "message_id": "01AA"}] * 3, [])
def test_acknowledgements_are_read_alike(
    told: list[dict[str, str]], changes: list[tuple[int, int]]
) -> None:
    data = bytearray(request(*told))
    for at, value in changes:
        if at < len(data):
            data[at] = value
    made = acks(_acks_c, bytes(data))
    assert made == acks(_acks_py, bytes(data))


@given(st.binary(max_size=60))
def test_what_is_no_acknowledgement_is_left_alike(data: bytes) -> None:
    assert acks(_acks_c, data) == acks(_acks_py, data)


@pytest.mark.parametrize("twin", [_acks_py, _acks_c])
def test_ordinary_acknowledgements_are_taken(twin: Any) -> None:
    later = GOOD.replace(" 7 ", " 9 ")
    data = request(
        {"message_id": "a", "receipt_handle": GOOD}, {"message_id": "b", "receipt_handle": later}
    )
    group, topic, offsets, answer = acks(twin, data)
    assert (group, topic, offsets) == ("group", "topic", {(1, NOW_MS): [7, 9]})
    told = parse("AckMessageResponse", answer[5:])
    assert [(each.message_id, each.status.code) for each in told.entries] == [
        ("a", 20000),
        ("b", 20000),
    ]


@pytest.mark.parametrize("twin", [_acks_py, _acks_c])
@pytest.mark.parametrize(
    "entry",
    [
        {"receipt_handle": GOOD.replace("shard-0", "shard-1")},
        {"receipt_handle": GOOD.replace(" 0 shard", " 1 shard")},
        {"receipt_handle": GOOD.replace(str(NOW_MS), str(NOW_MS - 60_001))},
        {"receipt_handle": GOOD, "lite_topic": "lite"},
        {"receipt_handle": GOOD + " 1"},
    ],
)
def test_what_has_to_be_refused_is_left(twin: Any, entry: dict[str, str]) -> None:
    assert acks(twin, request({"receipt_handle": GOOD}, entry)) is None
    assert acks(twin, request(*[{"receipt_handle": GOOD}] * 5)) is None, "more than may be"
    assert acks(twin, request()) is None
    longer = GOOD.replace("0 0 shard", f"{'0' * 17} 0 shard").replace("4096", "0" * 18)
    assert acks(twin, request({"receipt_handle": longer})) is None, "a handle above the limit"
