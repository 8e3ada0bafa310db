"""Light queues in the store: what references lead to, and what is passed over."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from imago_log import MessageStore, ReadStatus
from imago_log.offline.check import check
from imago_log.reading import by_reference
from imago_testing.stores.in_memory import FakeClock, folder_config, open_store, split_records
from imago_testing.stores.vfs import MemoryVfs
from imago_wire.record_format.references import (
    Reference,
    named_queues,
    offset_in,
    offsets_property,
    read_reference,
    reference_property,
)
from imago_wire.records.record import make_entry

if TYPE_CHECKING:
    from pathlib import Path

    from imago_log.results import ReadResult
    from imago_wire.records.record import Entry

A, HOST = "%LMQ%a", bytes(8)


def made(store: MessageStore) -> MessageStore:
    store.create_topic("T", {})
    store.create_topic(A, {"dual": False})
    return store


def reference(store: MessageStore, hint: int, topic: str = "T") -> Entry:
    properties = reference_property(Reference(topic, 0, hint))
    return make_entry(store.tail(A, 0), b"", properties, born_ms=1, born_host=HOST)


def message(store: MessageStore, body: bytes, offset: int, *, named: str = A) -> Entry:
    dispatch = f"INNER_MULTI_DISPATCH\x01{named}\x02".encode()
    properties = dispatch + offsets_property([offset])
    return make_entry(store.tail("T", 0), body, properties, born_ms=1, born_host=HOST)


def put(store: MessageStore, body: bytes, *, hint: int | None = None) -> None:
    """Put a message as the broker does: its reference in front, in the same append."""
    at, light = store.tail("T", 0).next_offset, store.tail(A, 0).next_offset
    entries = [reference(store, at if hint is None else hint), message(store, body, light)]
    store.append(entries)


def read(store: MessageStore, offset: int = 0, count: int = 32, size: int = 4000) -> ReadResult:
    return store.read(A, 0, offset, messages_max=count, bytes_max=size)


def bodies(found: ReadResult) -> list[bytes]:
    return [record.body for record in split_records(found.body)]


@pytest.fixture
def store() -> MessageStore:
    return made(open_store(MemoryVfs()))


def test_references_lead_to_the_messages(store: MessageStore) -> None:
    plain = make_entry(store.tail("T", 0), b"plain", born_ms=1, born_host=HOST)
    for body in (b"1", b"2", b"3"):
        store.append([plain])
        put(store, body)
    found = read(store)
    assert (bodies(found), found.offsets, found.next_offset) == ([b"1", b"2", b"3"], (0, 1, 2), 3)
    assert found.body == b"".join(
        store.read("T", 0, at, messages_max=1, bytes_max=1).body for at in (1, 3, 5)
    )
    assert (bodies(read(store, 1, 1)), read(store, 1, 1).next_offset) == ([b"2"], 2)
    assert (bodies(read(store, size=1)), read(store, size=1).next_offset) == ([b"1"], 1)
    assert read(store, 3).status is ReadStatus.OFFSET_OVERFLOW_ONE
    assert read(store, 4).status is ReadStatus.OFFSET_OVERFLOW_BADLY


@pytest.mark.parametrize("hint", [0, 1, 3, 77])
def test_wrong_hint_costs_a_search_alone(store: MessageStore, hint: int) -> None:
    for body in (b"0", b"1", b"2"):
        store.append([make_entry(store.tail("T", 0), b"plain", born_ms=1, born_host=HOST)])
        put(store, body, hint=hint)
    assert bodies(read(store)) == [b"0", b"1", b"2"]


def test_reference_whose_message_the_log_lost_is_passed_over() -> None:
    """The log may end between the two: the message is as a whole not there."""
    clock = FakeClock()
    store = made(open_store(MemoryVfs(), clock))
    put(store, b"1")
    store.append([reference(store, 1)])
    alone = read(store, 1)
    assert (alone.status, alone.next_offset) == (ReadStatus.MESSAGE_WAS_REMOVING, 2)
    clock.now_ms += 1
    store.append([message(store, b"of a later append", 1)])
    put(store, b"2")
    assert bodies(read(store)) == [b"1", b"2"]


def test_message_that_does_not_name_the_queue_is_nobodys(store: MessageStore) -> None:
    light = store.tail(A, 0).next_offset
    store.append([reference(store, 0), message(store, b"x", light, named="%LMQ%other")])
    store.append([reference(store, 1), message(store, b"y", light + 7)])
    found = read(store)
    assert (found.status, found.next_offset) == (ReadStatus.MESSAGE_WAS_REMOVING, 2)


def test_messages_of_a_topic_made_anew_are_not_taken_for_those_of_before() -> None:
    clock = FakeClock()
    store = made(open_store(MemoryVfs(), clock))
    put(store, b"old")
    store.delete_topic("T")
    assert read(store).status is ReadStatus.MESSAGE_WAS_REMOVING
    store.create_topic("T", {})
    clock.now_ms += 1
    store.append([message(store, b"another", 0)])
    assert read(store).count == 0


def test_one_read_looks_at_a_bounded_part(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(by_reference, "LOOKED_BYTES_MAX", 400)
    for number in range(5):
        put(store, b"%d" % number * 100)
    found = read(store)
    assert (found.count, found.next_offset) == (2, 2)


def test_views_are_rebuilt_and_the_check_is_content(tmp_path: Path) -> None:
    folder = tmp_path / "shard-0"
    config, clock = folder_config(folder), FakeClock()
    store = made(MessageStore.open(config, clock=clock, threaded=False))
    for number in range(60):
        put(store, b"%d" % number)
    store.close()
    assert list(check(folder)) == []
    shutil.rmtree(folder / "consumequeue")
    again = MessageStore.open(config, clock=clock, threaded=False)
    found: list[bytes] = []
    while len(found) < 40:
        found += bodies(read(again, 20 + len(found), 40, 40000))
    assert found == [b"%d" % number for number in range(20, 60)]
    again.close()


@pytest.mark.parametrize("value", [b"", b"1", b"1,2", b"x,2,T", b"1,-2,T", b"1,2,\xff"])
def test_reference_that_is_none(value: bytes) -> None:
    found = read_reference(b"__IMAGO_REF\x01" + value + b"\x02")
    assert found is None or not found.topic


@pytest.mark.parametrize(
    ("value", "names"),
    [("", []), (" ", []), (",", []), ("a,,b,", ["a", "", "b"]), (",a", ["", "a"])],
)
def test_names_as_java_splits_them(value: str, names: list[str]) -> None:
    properties = f"INNER_MULTI_DISPATCH\x01{value}\x02".encode()
    assert named_queues(properties) == names


@pytest.mark.parametrize("offsets", ["", "x", "1,", "-1,2", "9" * 30 + ",1"])
def test_offsets_that_are_none(offsets: str) -> None:
    text = f"INNER_MULTI_DISPATCH\x01{A},b\x02INNER_MULTI_QUEUE_OFFSET\x01{offsets}\x02"
    assert offset_in(text.encode(), A) == (1 if offsets == "1," else None)
