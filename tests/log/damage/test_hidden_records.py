"""What looks like a record inside a body is never taken for one, however the body is torn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imago_log.metadata.changes import META_TOPIC, encode_changes
from imago_testing.stores.in_memory import DATA, HOST, START_MS, FakeClock, Model, open_store
from imago_testing.stores.vfs import MemoryVfs
from imago_wire.hot import QueueTail, RecordBuilder
from imago_wire.record_format.layout import blank_record
from imago_wire.records.record import make_entry

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from imago_log import MessageStore

FILE = 4096
EVIL = [("topic", "T", None), ("offset", "g@T@0", {"0": 999_999})]
BODY_AT = 88
"""Of a record, with addresses of four bytes."""


def path_of(place: int) -> Path:
    return DATA / "commitlog" / f"{place - place % FILE:020d}"


def hidden(place: int, offset: int, *, meta: bool = True) -> bytes:
    """A whole record of a place, as only the store makes them, of metadata or of the topic."""
    tail = QueueTail(META_TOPIC.encode() if meta else b"T", 0, dual=not meta, next_offset=offset)
    body = encode_changes(EVIL)[0] if meta else b"never sent"
    entry = make_entry(tail, body, b"", born_ms=START_MS, born_host=HOST)
    data, _ = RecordBuilder(HOST, 5, 0).build([entry], 0, place, START_MS, 1 << 20)
    return bytes(data)


def send(store: MessageStore, *bodies: bytes) -> None:
    tail = store.tail("T", 0)
    store.append([make_entry(tail, body, b"", born_ms=START_MS, born_host=HOST) for body in bodies])


def filled(
    stop: str, body_of: Callable[[int], bytes], follow: int = 0, *, filed: bool = True
) -> tuple[MemoryVfs, Model, int]:
    """A log with a message whose body is made for its place, as a stop in that write leaves it."""
    vfs, model = MemoryVfs(), Model()
    store = open_store(vfs)
    store.create_topic("T", {})
    store.put_meta([("offset", "g@T@0", {"0": 5})])
    model.send(store, [("T", 0, 40)] * 3)
    store.request_sync()
    store.tick()
    if not filed:
        model.send(store, [("T", 0, 40)])  # the next message's unit stays in memory
    place = store.log_end
    send(store, body_of(place + BODY_AT), *[b"behind"] * follow)
    found = vfs.crashed(power_loss=False)
    if stop == "power lost":
        found.boot += 1
    store.close(clean=False)
    return found, model, place


def tear(vfs: MemoryVfs, at: int) -> None:
    """What was to be written from there on was not."""
    content = bytearray(vfs.content(path_of(at)))
    content[at % FILE :] = bytes(FILE - at % FILE)
    vfs.put(path_of(at), bytes(content))


def holds_what_was_sent(store: MessageStore, model: Model) -> None:
    model.check(store)
    assert store.queue_range("T", 0)[1] == len(model.sent)
    assert store.meta("offset") == {"g@T@0": {"0": 5}}


bodies = st.lists(
    st.one_of(
        st.binary(max_size=60),
        st.integers(0, 9).map(lambda n: ("meta", n)),
        st.integers(0, 9).map(lambda n: ("message", n)),
        st.just(("blank", 0)),
    ),
    max_size=5,
)


def made(parts: list[bytes | tuple[str, int]], place: int) -> bytes:
    """The body of a producer who knows where it will stand."""
    body = b""
    for part in parts:
        if isinstance(part, bytes):
            body += part
        elif part[0] == "blank":
            body += blank_record(FILE - (place + len(body)) % FILE)
        else:
            body += hidden(place + len(body), part[1], meta=part[0] == "meta")
    return body


@given(parts=bodies, torn=st.integers(0, 1 << 16), stop=st.sampled_from(["killed", "power lost"]))
def test_no_tear_lets_a_body_speak(
    parts: list[bytes | tuple[str, int]], torn: int, stop: str
) -> None:
    vfs, model, place = filled(stop, lambda at: made(parts, at), filed=False)
    size = int.from_bytes(vfs.content(path_of(place))[place % FILE :][:4], "big")
    if not size:
        return  # it went into the next file
    tear(vfs, place + torn % size)
    store = open_store(vfs)
    assert (store.log_end, store.damaged_ranges()) == (place, ())
    holds_what_was_sent(store, model)
    store.close()


@given(parts=bodies, first=st.integers(BODY_AT, 1 << 16), stop=st.sampled_from(["killed", "clean"]))
def test_damage_behind_a_head_ends_with_its_record(
    parts: list[bytes | tuple[str, int]], first: int, stop: str
) -> None:
    """All of a record from somewhere in its body on is lost; what follows is whole."""
    vfs, model, place = filled("killed", lambda at: made(parts, at), follow=3)
    content = bytearray(vfs.content(path_of(place)))
    at = place % FILE
    size = int.from_bytes(content[at : at + 4], "big")
    if not size or at + size + 400 > FILE:
        return
    if stop == "clean":
        store = open_store(vfs)
        store.close()
    start = at + BODY_AT + first % (size - BODY_AT)
    content[start : at + size] = b"\xff" * (at + size - start)
    vfs.put(path_of(place), bytes(content))
    if stop == "clean":
        vfs.unlink(DATA / "config" / "views")
    store = open_store(vfs)
    assert [(lost.start, lost.end) for lost in store.damaged_ranges()] == [(place, place + size)]
    assert store.meta("offset") == {"g@T@0": {"0": 5}}
    assert store.queue_range("T", 0)[1] == len(model.sent) + 4
    store.close()


@pytest.mark.parametrize("rebuild", [False, True], ids=["killed", "views built again"])
@pytest.mark.parametrize("number", [0, 2, 3, 9], ids="number {}".format)
def test_no_hidden_change_is_carried_out_behind_a_head_that_is_lost(
    rebuild: bool, number: int
) -> None:
    """Where nothing is left that says where the record ends, its body is looked through."""
    vfs, model, place = filled("killed", lambda at: b"." * 40 + hidden(at + 40, number), follow=3)
    content = bytearray(vfs.content(path_of(place)))
    content[place % FILE : place % FILE + 60] = bytes(60)
    vfs.put(path_of(place), bytes(content))
    if rebuild:
        vfs.unlink(DATA / "config" / "views")
        vfs.unlink(DATA / "config" / "metadata.json")
    store = open_store(vfs)
    assert store.damaged_ranges()[0].start == place
    assert store.meta("offset") == {"g@T@0": {"0": 5}}
    assert list(store.topics()) == ["T"]
    assert store.queue_range("T", 0)[1] == len(model.sent) + 4
    send(store, b"later")
    store.put_meta([("offset", "g@T@0", {"0": 6})])
    store.close(clean=False)
    again = open_store(vfs.crashed(power_loss=False))
    assert again.meta("offset") == {"g@T@0": {"0": 6}}


@pytest.mark.parametrize("rebuild", [False, True], ids=["killed", "views built again"])
@pytest.mark.parametrize("offset", [40, 2000, 1 << 40], ids="offset {}".format)
def test_a_hidden_message_moves_no_queue_further_than_what_is_lost(
    rebuild: bool, offset: int
) -> None:
    """Behind a lost head a body is looked through: what it holds may claim any queue offset."""
    vfs, model, place = filled(
        "killed", lambda at: b"." * 40 + hidden(at + 40, offset, meta=False), follow=3
    )
    content = bytearray(vfs.content(path_of(place)))
    content[place % FILE : place % FILE + 60] = bytes(60)
    vfs.put(path_of(place), bytes(content))
    if rebuild:
        vfs.unlink(DATA / "config" / "views")
    for more in range(2):
        store = open_store(vfs)
        assert store.queue_range("T", 0) == (0, len(model.sent) + 4 + more)
        send(store, b"later")
        store.close()


@pytest.mark.parametrize("rebuild", [False, True], ids=["killed", "views built again"])
def test_changes_that_were_made_are_carried_out_behind_damage(rebuild: bool) -> None:
    vfs, clock = MemoryVfs(), FakeClock()
    store = open_store(vfs, clock)
    store.create_topic("T", {})
    place = store.log_end
    send(store, b"lost")
    store.create_topic("U", {})
    store.put_meta([("offset", "g@T@0", {"0": 5})])
    send(store, b"kept")
    clock.now_ms += 1000
    store.tick()
    found = vfs.crashed(power_loss=False)
    store.close(clean=False)
    content = bytearray(found.content(path_of(place)))
    content[place % FILE : place % FILE + 60] = bytes(60)
    found.put(path_of(place), bytes(content))
    if rebuild:
        found.unlink(DATA / "config" / "views")
        found.unlink(DATA / "config" / "metadata.json")
    store = open_store(found)
    assert [lost.start for lost in store.damaged_ranges()] == [place]
    assert sorted(store.topics()) == ["T", "U"]
    assert store.meta("offset") == {"g@T@0": {"0": 5}}
