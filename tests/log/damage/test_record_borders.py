"""Where records begin, as a follower asks before it cuts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_testing.stores.in_memory import HOST, FakeClock, Model
from imago_testing.stores.members import Member, log_bytes, open_member
from imago_testing.stores.vfs import MemoryVfs
from imago_wire.record_format.layout import MAGIC_BLANK
from imago_wire.records.record import make_entry

if TYPE_CHECKING:
    from imago_log import MessageStore


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def leader(clock: FakeClock) -> MessageStore:
    store = open_member(MemoryVfs(), clock)
    store.lead(1)
    store.create_topic("T", {"name": "T"})
    return store


def send(store: MessageStore, count: int = 1, size: int = 50) -> None:
    Model().send(store, [("T", 0, size)] * count)


def test_borders_are_not_what_a_body_says(leader: MessageStore) -> None:
    send(leader, 1)
    start = leader.log_end
    inside = start + 88 + 20
    head = (100).to_bytes(4, "big") + bytes.fromhex("daa320a7") + bytes(20)
    body = b"." * 20 + head + inside.to_bytes(8, "big") + bytes(200)
    leader.append([make_entry(leader.tail("T", 0), body, born_ms=1, born_host=HOST)])
    record = log_bytes(leader, start, leader.log_end)
    inside = start + record.index(head)
    assert leader.record_border(start)
    assert not any(leader.record_border(at) for at in range(start + 1, leader.log_end))
    assert leader.record_border(leader.log_end)


def places_of_records(store: MessageStore) -> set[int]:
    """Return where something begins, told by the sizes of the records and the ends of files."""
    places, at = {0}, 0
    data = log_bytes(store, 0, store.log_end)
    while at < len(data):
        blank = data[at + 4 : at + 8] == MAGIC_BLANK.to_bytes(4, "big")
        size = 4096 - at % 4096 if blank else int.from_bytes(data[at : at + 4], "big")
        at += size
        places.add(at)
    return places


@pytest.mark.parametrize("chunk_bytes", [1, 64, 300, 1024, 4000])
def test_borders_are_found_however_long_the_walk_to_them_is(
    leader: MessageStore, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, chunk_bytes: int
) -> None:
    monkeypatch.setattr("imago_log.replica.log_bytes.CHUNK_BYTES", chunk_bytes)
    for size in (0, 1, 700, 50, 300, 3, 990) * 3:
        send(leader, 3, size)
    assert leader.log_end > 5 * 4096
    member = Member.start(MemoryVfs(), clock)
    member.join(leader)
    member.catch_up(leader)
    store = open_member(member.vfs.crashed(power_loss=False), clock)  # with nothing in memory
    expected = places_of_records(leader)
    assert len(expected) > 60
    near = {place + step for place in expected for step in (-1, 0, 1, 88)}
    assert {at for at in near if store.record_border(at)} == expected
    for end in sorted(expected, reverse=True):
        store.truncate(end)
        assert store.log_end == end


def test_a_walk_to_a_border_ends_where_a_file_does(leader: MessageStore, clock: FakeClock) -> None:
    member = Member.start(MemoryVfs(), clock)
    member.join(leader)
    send(leader, 40, 300)
    member.catch_up(leader)
    store = open_member(member.vfs.crashed(power_loss=False), clock)
    base = store.log_end - store.log_end % 4096 - 4096
    log = store._log
    log._vfs.truncate(log.file_of(base).fd, 1000)
    assert not store.record_border(base + 3000)
