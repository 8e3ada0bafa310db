"""A disk above its force level takes what everybody has read, says so, and nothing else."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from imago_log import DiskFullError, MessageStore
from imago_log.lifecycle import forced
from imago_testing.stores.claims import SaidClaims
from imago_testing.stores.in_memory import FakeClock, Model, open_store
from imago_testing.stores.members import open_member
from imago_testing.stores.vfs import MemoryVfs

if TYPE_CHECKING:
    from imago_log.lifecycle.claims import Claims

FILE = 4096


class FillingDisk:
    """A store with sixty messages in each of two queues, on a disk that is as full as is said."""

    def __init__(self, *, unread: bool = False, **limits: int) -> None:
        self.vfs, self.clock, self.model = MemoryVfs(), FakeClock(), Model()
        self.limits, self.unread = limits, unread
        self.claims = SaidClaims()
        self.store = self.open()
        self.store.create_topic("T", {})
        for _ in range(60):
            self.model.send(self.store, [("T", 0, 300), ("T", 1, 300)])
        self.tick()

    def open(self) -> MessageStore:
        return open_store(self.vfs, self.clock, disk_force_unread=self.unread, **self.limits)

    def use(self, percent: float) -> None:
        self.vfs.total_bytes, self.vfs.used_bytes = 10_000, int(percent * 100)

    def tick(self, times: int = 1) -> None:
        for _ in range(times):
            self.clock.now_ms += 4000
            self.store.tick(self.claims)


@pytest.mark.parametrize("percent", [88, 95])
def test_what_somebody_has_not_read_outlives_a_full_disk(percent: float) -> None:
    disk = FillingDisk()
    disk.use(percent)
    disk.claims.read = {("T", 0): 20}
    disk.tick(40)
    [first] = [each for each in disk.model.sent if (each.queue_id, each.offset) == (0, 20)]
    assert 0 < disk.store.log_start <= first.place < disk.store.log_start + FILE
    assert disk.store.queue_range("T", 0)[0] <= 20
    disk.model.check(disk.store)
    if percent > 90:
        with pytest.raises(DiskFullError):
            disk.model.send(disk.store, [("T", 0, 300)])
    disk.claims.read = {("T", 0): 60, ("T", 1): 59}
    disk.tick(40)
    last = disk.model.sent[-1].place
    assert last - FILE < disk.store.log_start <= last
    disk.store.close()


def test_without_any_reader_nothing_goes() -> None:
    disk = FillingDisk()
    disk.use(95)
    disk.claims.read = {("T", 0): 0}
    disk.tick(20)
    assert disk.store.log_start == 0
    disk.store.close()


def test_a_queue_without_messages_there_keeps_nothing() -> None:
    """Its messages have expired, or begin later: that nobody has read any holds up no others."""
    disk = FillingDisk()
    disk.store.create_topic("later", {})
    disk.model.send(disk.store, [("later", 0, 300)])
    disk.use(88)
    disk.claims.read = {("later", 0): 0}
    disk.tick(40)
    last = disk.model.sent[-1].place
    assert last - FILE < disk.store.log_start <= last
    disk.store.close()


def test_what_still_has_to_come_outlives_a_full_disk() -> None:
    disk = FillingDisk()
    disk.use(95)
    disk.claims.needed = 3 * FILE + 10
    disk.tick(20)
    assert disk.store.log_start == 3 * FILE
    disk.store.close()


@pytest.mark.shipped_limits
def test_nothing_goes_while_another_member_has_room() -> None:
    disk = FillingDisk()
    disk.use(95)
    disk.claims.alone = False
    disk.tick(20)
    assert disk.store.log_start == 0
    disk.claims.alone = True
    disk.tick()
    assert disk.store.log_start == FILE
    disk.store.close()


def test_who_asks_for_it_loses_the_oldest_whoever_needs_them() -> None:
    disk = FillingDisk(unread=True)
    disk.use(95)
    disk.claims.read = {("T", 0): 0}
    disk.claims.needed = 0
    disk.claims.alone = False
    disk.tick(3)
    assert disk.store.log_start == 0, "another member with room leads first"
    disk.claims.alone = True
    disk.tick(3)
    assert disk.store.log_start == 3 * FILE
    disk.store.close()


def test_the_settings_delete_what_has_expired_read_or_not() -> None:
    disk = FillingDisk(retention_bytes=4 * FILE)
    disk.claims.read = {("T", 0): 0}
    disk.tick(20)
    assert disk.store.log_start > 0
    assert disk.store.forced.counts.bytes == 0
    assert disk.store.forced.last() is None
    disk.store.close()


def test_many_queues_are_asked_about_over_several_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forced, "QUEUES_LOOKED_MAX", 1)
    disk = FillingDisk()
    disk.use(88)
    disk.tick()
    assert disk.store.log_start == 0, "one of three queues was asked about"
    disk.tick(2)
    assert disk.store.log_start == FILE
    disk.store.close()


@pytest.mark.shipped_limits
def test_it_is_told(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(forced, "QUEUES_TOLD_MAX", 1)
    disk = FillingDisk()
    heard: list[tuple[tuple[int, int], int]] = []
    disk.store.on_forced.add(lambda went, messages: heard.append((went[:2], messages)))
    disk.use(88)
    with caplog.at_level(logging.WARNING):
        disk.tick(2)
    before = [each for each in disk.model.sent if each.place < 2 * FILE]
    assert (
        sum(messages for _, messages in heard) == len(before) == disk.store.forced.counts.messages
    )
    assert heard[0][0] == (0, FILE)
    assert disk.store.forced.counts.bytes == 2 * FILE
    [first, _] = [r.getMessage() for r in caplog.records if "deleted_for_room" in r.getMessage()]
    assert f"files=1 log_offsets=0..{FILE} messages={heard[0][1]} queues=T-0:0..4" in first
    assert "and 1 more" in first
    assert disk.store.forced.last() == (0, 2 * FILE, disk.clock.now_ms, len(before))
    disk.store.close()
    disk.store = disk.open()
    assert disk.store.forced.last() == (0, 2 * FILE, disk.clock.now_ms, len(before)), (
        "the log remembers"
    )
    disk.store.close()


@pytest.mark.shipped_limits
def test_a_reader_is_told_only_of_what_it_would_have_read_next() -> None:
    """What has expired since was not taken for want of room."""
    disk = FillingDisk(retention_ms=3600_000)
    disk.use(88)
    disk.tick()
    went = disk.store.forced.last()
    assert went is not None
    disk.use(10)
    disk.clock.now_ms += 2 * 3600_000
    disk.tick(3)
    assert disk.store.log_start > FILE
    assert disk.store.forced.last() is None
    assert disk.store.forced.newest() == went, "people hear of it all the same"
    disk.store.close()


def test_followers_tell_it_when_their_files_go(caplog: pytest.LogCaptureFixture) -> None:
    clock, vfs = FakeClock(), MemoryVfs()
    leader, follower = open_member(vfs, clock), open_member(MemoryVfs(), clock)
    leader.follow(1)
    leader.lead(2)
    follower.follow(2)
    leader.create_topic("T", {})
    model = Model()
    for _ in range(60):
        model.send(leader, [("T", 0, 300)])

    def copied() -> None:
        epoch, start = leader.epochs[-1]
        while follower.log_end < leader.log_end:
            data = leader.read_log(follower.log_end, 1 << 20)
            follower.append_replica(follower.log_end, data, epoch=epoch, epoch_start=start)
        for store in (leader, follower):
            store.set_high_watermark(leader.log_end)

    def tick(claims: Claims) -> None:
        clock.now_ms += 4000
        leader.tick(claims)
        copied()
        follower.tick()

    copied()
    tick(SaidClaims())
    vfs.total_bytes, vfs.used_bytes = 10_000, 8_800
    with caplog.at_level(logging.WARNING):
        for _ in range(6):
            tick(SaidClaims())
    assert follower.forced.counts.bytes == follower.log_start > 0
    went = follower.forced.last()
    assert went == leader.forced.newest()
    assert went == (0, follower.log_start, went and went.at_ms, follower.forced.counts.messages)
    leader.close()
    follower.close()
