"""What consumers get of a pull's answer: of both twins the same, and what the record says."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from imago_testing.searching import examples
from imago_wire.crc import crc31
from imago_wire.errors import ProtocolError
from imago_wire.records import _received_py
from imago_wire.records.record import StoredMessage, decode_record
from imago_wire.remoting.messages import encode_message

if TYPE_CHECKING:
    from collections.abc import Callable

COMPILED = importlib.import_module("imago_wire.records._received_c")
PARTS = ("queue", "topic", "error", "head", "held", "tail", "properties_at", "offset", "sys_flag")
numbers = st.integers(0, (1 << 31) - 1)
hosts = st.sampled_from([bytes(8), bytes(range(20))])


class Cut(NamedTuple):
    """What came of a call: each record's parts, or the error."""

    parts: list[tuple[Any, ...]]
    error: str = ""


@st.composite
def records(draw: st.DrawFn) -> bytes:
    """One record, as a broker gives it to a client."""
    born, store = draw(hosts), draw(hosts)
    body = draw(st.binary(max_size=40))
    stored = StoredMessage(
        size=0, topic=draw(st.sampled_from(["orders", "主题", "t" * 130])),
        queue_id=draw(numbers), queue_offset=draw(numbers), physical_offset=draw(numbers),
        flag=draw(numbers), sys_flag=draw(st.sampled_from([0, 1])), born_ms=draw(numbers),
        born_host=born, store_ms=draw(numbers), store_host=store, reconsume_times=draw(numbers),
        prepared_offset=draw(numbers), body=body, body_crc=crc31(body),
        properties=draw(st.dictionaries(st.sampled_from(["TAGS", "KEYS", "ключ"]), st.just("v"))),
    )  # fmt: skip
    return encode_message(stored)


@st.composite
def answers(draw: st.DrawFn) -> bytes:
    """Answers to a pull, most of them whole."""
    data = b"".join(draw(st.lists(records(), max_size=4)))
    damage = draw(st.sampled_from(["none", "none", "cut", "flip", "garbage"]))
    if damage == "cut":
        return data[: draw(st.integers(0, len(data)))]
    if damage == "flip" and data:
        at = draw(st.integers(0, len(data) - 1))
        return data[:at] + bytes([data[at] ^ draw(st.integers(1, 255))]) + data[at + 1 :]
    return data + draw(st.binary(max_size=120)) if damage == "garbage" else data


def cut(twin: Any, data: bytes) -> Cut:
    class Kind(twin.CutRecord):  # type: ignore[misc]  # either twin's
        __slots__ = ()

    call: Callable[..., list[Any]] = twin.cut_records
    try:
        found = call(Kind, data, "queue", "orders")
    except ProtocolError as error:
        return Cut([], f"{type(error).__name__}: {error}")
    assert all(type(one) is Kind and one.decoded is None for one in found)
    return Cut([tuple(getattr(one, name) for name in PARTS) for one in found])


@settings(max_examples=examples(300))
@given(answers())
def test_both_twins_cut_alike(data: bytes) -> None:
    assert cut(COMPILED, data) == cut(_received_py, data)


@settings(max_examples=examples(50))
@given(st.lists(records(), max_size=4))
def test_parts_are_the_record(sent: list[bytes]) -> None:
    data = b"".join(sent)
    for (_, topic, _, head, held, tail, at, offset, sys_flag), record in zip(
        cut(COMPILED, data).parts, sent, strict=True
    ):
        whole = decode_record(record)
        assert head + held + tail == record
        assert (topic, held, offset, sys_flag) == (
            whole.topic, whole.body, whole.queue_offset, whole.sys_flag,
        )  # fmt: skip
        assert tail[at:].count(b"\x01") == len(whole.properties)


def test_neither_twin_can_be_changed() -> None:
    stored = decode_record(
        encode_message(
            StoredMessage(
                size=0,
                topic="t",
                queue_id=0,
                queue_offset=7,
                physical_offset=0,
                flag=0,
                sys_flag=0,
                born_ms=0,
                born_host=bytes(8),
                store_ms=0,
                store_host=bytes(8),
                reconsume_times=0,
                prepared_offset=0,
                body=b"x",
                body_crc=0,
                properties={},
            )
        )
    )
    for twin in (COMPILED, _received_py):
        made = twin.CutRecord("queue", "t", stored)
        assert (made.decoded, made.held, made.offset) == (stored, b"x", 7)
        for name in ("held", "topic", "decoded"):
            try:
                setattr(made, name, None)
            except AttributeError:
                continue
            raise AssertionError(f"{twin.__name__}: {name} was set")
