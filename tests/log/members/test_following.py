"""What a follower takes and refuses, what it cuts, and what its readers see."""

from __future__ import annotations

import pytest

from imago_log import (
    CorruptRecordError,
    DiskFullError,
    MessageStore,
    NotLeadingError,
    ReplicaGapError,
    StaleEpochError,
)
from imago_testing.stores.in_memory import HOST, START_MS, FakeClock, Model
from imago_testing.stores.members import Member, log_bytes, open_member
from imago_testing.stores.vfs import MemoryVfs
from imago_wire.records.record import make_entry


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def leader(clock: FakeClock) -> MessageStore:
    store = open_member(MemoryVfs(), clock)
    store.lead(1)
    store.create_topic("T", {"name": "T"})
    return store


@pytest.fixture
def member(clock: FakeClock, leader: MessageStore) -> Member:
    made = Member.start(MemoryVfs(), clock)
    made.join(leader)
    return made


def send(store: MessageStore, count: int = 1, size: int = 50) -> None:
    Model().send(store, [("T", 0, size)] * count)


def test_a_member_appends_only_after_it_was_told_to_lead(clock: FakeClock) -> None:
    store = open_member(MemoryVfs(), clock)
    assert not store.leading
    with pytest.raises(NotLeadingError):
        store.create_topic("T", {"name": "T"})
    assert (store.log_end, store.epochs, store.epoch_seen) == (0, (), 0)
    store.lead(3)
    store.create_topic("T", {"name": "T"})
    assert (store.epochs, store.epoch_seen) == (((3, 0),), 3)
    tail = store.tail("T", 0)
    store.follow(4)
    with pytest.raises(NotLeadingError):
        store.append([make_entry(tail, b"", born_ms=1, born_host=HOST)])


def test_loss_of_power_is_noted_before_anything_else_can_end_the_process(
    clock: FakeClock,
) -> None:
    vfs = MemoryVfs()
    open_member(vfs, clock).follow(7)
    assert not open_member(vfs.crashed(power_loss=False), clock).unclean
    found = vfs.crashed(power_loss=True)
    killed: list[MemoryVfs] = []
    found.before_call = lambda *_: killed.append(found.crashed(power_loss=False))
    assert open_member(found, clock).unclean
    assert len(killed) > 5
    for again in (*killed, found.crashed(power_loss=False), found.crashed(power_loss=True)):
        assert open_member(again, clock).unclean
    store = open_member(found.crashed(power_loss=False), clock)
    store.mark_unclean(False)
    assert not store.unclean


def test_promises_outlive_a_power_loss(clock: FakeClock) -> None:
    vfs = MemoryVfs()
    open_member(vfs, clock).follow(7)
    store = open_member(vfs.crashed(power_loss=True), clock)
    assert (store.epoch_seen, store.epochs) == (7, ())
    with pytest.raises(StaleEpochError):
        store.follow(6)
    with pytest.raises(StaleEpochError):
        store.lead(7)
    store.follow(7)
    store.lead(8)


def test_nothing_is_taken_that_does_not_continue_the_log(
    leader: MessageStore, member: Member
) -> None:
    send(leader, 3)
    data = bytes(leader.read_log(0, 1 << 20))
    store = member.store
    with pytest.raises(ReplicaGapError):
        store.append_replica(8, data, epoch=1, epoch_start=0)
    with pytest.raises(StaleEpochError):
        store.append_replica(0, data, epoch=2, epoch_start=0)  # never promised
    assert store.log_end == 0
    assert store.append_replica(0, data, epoch=1, epoch_start=0) == leader.log_end
    with pytest.raises(ReplicaGapError):
        store.append_replica(store.log_end, data, epoch=1, epoch_start=8)
    store.follow(3)
    with pytest.raises(ReplicaGapError):
        store.append_replica(store.log_end, data, epoch=3, epoch_start=8)


@pytest.mark.parametrize("at", [4, 30, 60, 100, 180, -1])
def test_damaged_bytes_are_not_taken(leader: MessageStore, member: Member, at: int) -> None:
    send(leader, 3)
    data = bytearray(leader.read_log(0, 1 << 20))
    data[at] ^= 1
    with pytest.raises(CorruptRecordError):
        member.store.append_replica(0, bytes(data), epoch=1, epoch_start=0)
    assert (member.store.log_end, member.store.epochs) == (0, ())


def test_zeros_are_not_taken(leader: MessageStore, member: Member) -> None:
    data = bytes(leader.read_log(0, 1 << 20)) + bytes(64)
    with pytest.raises(CorruptRecordError):
        member.store.append_replica(0, data, epoch=1, epoch_start=0)


def test_a_cut_record_waits_for_its_rest(leader: MessageStore, member: Member) -> None:
    send(leader, 2)
    data = bytes(leader.read_log(0, 1 << 20))
    ends = {member.store.append_replica(0, data[:1], epoch=1, epoch_start=0)}
    for size in range(1, len(data)):
        end = member.store.log_end
        ends.add(member.store.append_replica(end, data[end:size], epoch=1, epoch_start=0))
    assert all(leader.record_border(end) for end in ends)
    assert len(ends) == 3  # 0, behind the change of metadata, behind the first message


def test_files_end_where_the_leaders_do(leader: MessageStore, member: Member) -> None:
    send(leader, 60, 300)
    member.catch_up(leader, 777)
    store = member.store
    assert leader.log_end > 3 * 4096
    assert log_bytes(store, 0, store.log_end) == log_bytes(leader, 0, leader.log_end)


def test_a_full_disk_takes_nothing(leader: MessageStore, member: Member) -> None:
    send(leader, 60, 300)
    data = log_bytes(leader, 0, leader.log_end)
    member.vfs.free_bytes = 0
    with pytest.raises(DiskFullError):
        member.store.append_replica(0, data, epoch=1, epoch_start=0)
    assert member.store.log_end == 0
    member.vfs.free_bytes = None
    assert member.store.append_replica(0, data, epoch=1, epoch_start=0) == leader.log_end


def test_readers_stop_at_the_high_watermark(leader: MessageStore, member: Member) -> None:
    leader.set_materialised("T")
    send(leader, 4)
    middle = leader.log_end
    send(leader, 3)
    member.catch_up(leader)
    size = 0
    for store in (leader, member.store):
        store.set_high_watermark(leader.log_start)
        assert store.queue_range("T", 0) == (0, 0)
        store.set_high_watermark(middle)
        store.set_high_watermark(0)  # never back
        assert store.high_watermark == middle
        assert store.queue_range("T", 0) == (0, 4)
        assert store.read("T", 0, 3, messages_max=9, bytes_max=1 << 20).next_offset == 4
        assert store.offset_by_time("T", 0, 1 << 60) == 4
        assert store.position_range("T", 0)[1] == store.position_of("T", 0, 4)
        assert len(store.find_key("T", "k1", 0, 1 << 60, 99)) == 1
        assert store.record_at(middle) is None
        store.tick()  # MetaQ's files are made, up to there
        size = store.position_range("T", 0)[1]
        store.set_high_watermark(1 << 60)
        assert store.high_watermark == store.log_end
        assert store.queue_range("T", 0) == (0, 7)
        assert store.position_range("T", 0)[1] > size
    files = [path for path in member.vfs.files() if path.suffix == ".meta"]
    assert sum(len(member.vfs.content(path)) for path in files) == size


def test_the_high_watermark_is_remembered(
    leader: MessageStore, member: Member, clock: FakeClock
) -> None:
    send(leader, 4)
    member.catch_up(leader)
    middle = member.store.log_end
    member.store.set_high_watermark(middle)
    send(leader, 4)
    member.catch_up(leader)
    clock.now_ms += 2000
    member.store.tick()
    store = open_member(member.vfs.crashed(power_loss=False), clock)
    assert (store.high_watermark, store.log_end) == (middle, leader.log_end)
    assert store.queue_range("T", 0) == (0, 4)


def test_a_leader_is_not_cut_and_no_record_in_two(leader: MessageStore, member: Member) -> None:
    send(leader, 3)
    member.catch_up(leader)
    with pytest.raises(ValueError, match="never cut"):
        leader.truncate(0)
    with pytest.raises(ValueError, match="never cut"):
        leader.reset(0)
    for end in (1, member.store.log_end - 1, member.store.log_end + 1):
        with pytest.raises(ValueError, match="no record border"):
            member.store.truncate(end)
    assert member.store.log_end == leader.log_end


def test_tails_stay_valid_over_a_cut(leader: MessageStore, member: Member) -> None:
    send(leader, 2)
    member.catch_up(leader)
    store, end = member.store, member.store.log_end
    tail = store.tail("T", 0)
    send(leader, 5)
    member.catch_up(leader)
    assert tail.next_offset == 7
    store.truncate(end)
    assert tail.next_offset == 2
    assert store.tail("T", 0) is tail
    store.lead(2)
    placed = store.append([make_entry(tail, b"x", born_ms=START_MS, born_host=HOST)])
    assert placed[0][0] == 2
    assert store.epochs == ((1, 0), (2, end))


def test_a_cut_takes_back_metadata(leader: MessageStore, member: Member) -> None:
    leader.put_meta([("offset", "g", 1)])
    member.catch_up(leader)
    end = member.store.log_end
    leader.put_meta([("offset", "g", 2), ("offset", "h", 3)])
    leader.create_topic("new", {"name": "new"})
    leader.delete_topic("T")
    member.catch_up(leader)
    store, known = member.store, member.store.meta("offset")
    assert set(store.topics()) == {"new"}
    member.metadata.clear()
    store.truncate(end)
    assert (set(store.topics()), dict(known)) == ({"T"}, {"g": 1})
    assert member.metadata == {("offset", "g"), ("offset", "h"), ("topic", "new"), ("topic", "T")}


def test_ids_and_times_go_on_above_the_leaders(
    leader: MessageStore, member: Member, clock: FakeClock
) -> None:
    clock.now_ms += 10_000
    send(leader, 2)
    member.catch_up(leader)
    leader.set_high_watermark(leader.log_end)
    last = leader.append([make_entry(leader.tail("T", 0), b"", born_ms=START_MS, born_host=HOST)])[
        0
    ][4]
    member.catch_up(leader)
    clock.now_ms -= 60_000  # this member's clock is behind
    store = member.store
    store.lead(2)
    store.set_high_watermark(store.log_end)
    before = store.store_time("T", 0, 2)
    placed = store.append([make_entry(store.tail("T", 0), b"", born_ms=START_MS, born_host=HOST)])[
        0
    ]
    store.set_high_watermark(store.log_end)
    assert placed[4] > last
    assert before is not None
    assert store.store_time("T", 0, placed[0]) == before


def test_an_emptied_log_waits_for_the_leaders_metadata(
    leader: MessageStore, member: Member
) -> None:
    send(leader, 3)
    member.catch_up(leader)
    store, tail = member.store, member.store.tail("T", 0)
    store.reset(8192)
    assert (store.log_start, store.log_end, store.epochs) == (8192, 8192, ())
    assert (dict(store.topics()), store.needs_metadata) == ({}, True)
    with pytest.raises(ReplicaGapError):
        store.append_replica(8192, b"", epoch=1, epoch_start=0)
    for damaged in (b"", b"x", leader.metadata_snapshot()[:-9]):
        with pytest.raises(ValueError, match=r"checksum|no metadata"):
            store.install_metadata(damaged)
    with pytest.raises(ValueError, match="a snapshot of"):
        store.install_metadata(leader.metadata_snapshot())  # of a log that ends below ours
    send(leader, 30, 300)
    store.install_metadata(leader.metadata_snapshot())
    assert list(store.topics()) == ["T"]
    waiting = store.needs_metadata  # of another leader: this log has not reached it yet
    member.catch_up(leader)
    assert (waiting, store.needs_metadata) == (True, False)
    store.set_high_watermark(store.log_end)
    leader.set_high_watermark(leader.log_end)
    assert store.queue_range("T", 0)[1] == leader.queue_range("T", 0)[1] == 33
    assert store.tail("T", 0) is tail


def test_log_bytes_come_from_memory_and_from_files(leader: MessageStore) -> None:
    send(leader, 40, 300)
    end = leader.log_end
    whole = log_bytes(leader, 0, end)
    from_files = b""
    while len(from_files) < end:
        part = leader.log_slice(len(from_files), 1000)
        assert part.size
        from_files += part.read()
    assert from_files == whole
    for offset in (0, 1, 4095, 4096, 5000, end - 1):
        data = leader.read_log(offset, 700)
        assert 0 < len(data) <= 700
        assert whole[offset : offset + len(data)] == data
    assert leader.read_log(end, 10) == b""
    with pytest.raises(ReplicaGapError):
        leader.read_log(end + 1, 10)
    leader.follow(1)
    leader.lead(2)
    send(leader)
    assert len(leader.read_log(end - 5, 1 << 20)) == 5  # of one epoch


def test_files_that_a_follower_reads_are_kept(clock: FakeClock) -> None:
    store = open_member(MemoryVfs(), clock, retention_bytes=3 * 4096)
    store.lead(1)
    store.create_topic("T", {"name": "T"})
    store.keep_from(4096)
    for _ in range(6):
        send(store, 20, 300)
        store.set_high_watermark(store.log_end)
        clock.now_ms += 4000
        store.tick()
    assert store.log_start == 4096
    store.keep_from(None)
    for _ in range(3):
        store.set_high_watermark(store.log_end)
        clock.now_ms += 4000
        store.tick()
    assert store.log_start > 4 * 4096


def test_old_files_wait_until_all_members_know(clock: FakeClock) -> None:
    limits = {"retention_bytes": 3 * 4096}
    leader = open_member(MemoryVfs(), clock, **limits)
    leader.lead(1)
    leader.create_topic("T", {"name": "T"})
    member = Member.start(MemoryVfs(), clock, **limits)
    member.join(leader)
    leader.set_high_watermark(0)
    for _ in range(4):
        send(leader, 20, 300)
        clock.now_ms += 4000
        leader.tick()
        member.catch_up(leader)
        member.store.tick()
    assert (leader.log_start, member.store.log_start) == (0, 0)
    for _ in range(3):
        for store in (leader, member.store):
            store.set_high_watermark(leader.log_end)
            clock.now_ms += 4000
            store.tick()
        member.catch_up(leader)
    assert leader.log_start == member.store.log_start > 0


def test_a_log_cut_to_its_start_waits_for_the_leaders_metadata(
    clock: FakeClock, leader: MessageStore, member: Member
) -> None:
    send(leader, 40, 300)
    store = member.store
    store.reset(4096)
    store.install_metadata(leader.metadata_snapshot())
    member.catch_up(leader)
    store.set_high_watermark(store.log_end)
    store.truncate(4096)
    assert (store.log_start, store.log_end, store.needs_metadata) == (4096, 4096, True)
    with pytest.raises(ReplicaGapError):
        member.pull(leader, 1000)
    again = open_member(member.vfs.crashed(power_loss=True), clock)
    assert (again.log_end, again.needs_metadata) == (4096, True)
    store.install_metadata(leader.metadata_snapshot())
    member.catch_up(leader)
    for each in (store, leader):
        each.set_high_watermark(leader.log_end)
    assert store.queue_range("T", 0)[1] == leader.queue_range("T", 0)[1] == 40
