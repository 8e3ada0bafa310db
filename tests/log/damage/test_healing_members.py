"""A follower whose newest log file is gone: it copies on, and what is lost comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_log.replica.reindexing import TailFinder
from imago_testing.stores.damaging import log_files
from imago_testing.stores.in_memory import FakeClock, Model
from imago_testing.stores.members import Member, differences, log_bytes, views
from imago_testing.stores.vfs import MemoryVfs

if TYPE_CHECKING:
    from imago_log.metadata.changes import Topic
    from imago_log.views.units.consume_queue import ConsumeQueue

KEYS = ["k0", "k3"]
FILE = 4096


class Two:
    """A leader, and a follower that was killed and has lost the newest file of its log."""

    def __init__(self, topics: list[str], *, size: int | None = None) -> None:
        """`topics` are created in the file that is lost, and so are all messages of T.

        `size`: so much of the file is left.
        """
        self.clock, self.model = FakeClock(), Model()
        self.leader = Member.start(MemoryVfs(), self.clock)
        self.leader.store.lead(1)
        follower = Member.start(MemoryVfs(), self.clock)
        for topic in {"T", "U"} - set(topics):
            self.leader.store.create_topic(topic, {})
        while "U" not in topics and not 0 < self.leader.store.log_end % FILE < 700:
            self.model.send(self.leader.store, [("U", 0, 300)])
        for topic in topics:
            self.leader.store.create_topic(topic, {})
        self.model.send(self.leader.store, [("T", at % 2, 20) for at in range(12)])
        follower.join(self.leader.store)
        follower.catch_up(self.leader.store)
        self.commit(follower)
        follower.store.request_sync()
        follower.store.tick()
        left = follower.vfs.crashed(power_loss=False)
        follower.store.close(clean=False)
        newest = [path for path in log_files(left) if any(left.content(path))][-1]
        if size is None:
            left.unlink(newest)
        else:
            left.put(newest, left.content(newest)[:size])
        self.model.send(self.leader.store, [("T", at % 2, 60) for at in range(8)])
        self.follower = Member.start(left, self.clock)
        assert self.follower.store.damaged

    def commit(self, follower: Member) -> None:
        for member in (self.leader, follower):
            member.store.set_high_watermark(self.leader.store.log_end)

    def go_on(self) -> None:
        """Copy what the leader has behind the damage: that waits for nothing."""
        self.follower.join(self.leader.store)
        self.follower.catch_up(self.leader.store, 500)
        self.commit(self.follower)
        assert self.follower.store.log_end == self.leader.store.log_end

    def again(self) -> None:
        left = self.follower.vfs.crashed(power_loss=False)
        self.follower.store.close(clean=False)
        self.follower = Member.start(left, self.clock)

    def heal(self, piece: int = 400) -> None:
        store = self.follower.store
        for found in store.damaged_ranges():
            at, size = found.start, piece
            while at < found.end:
                data = log_bytes(self.leader.store, at, min(at + size, found.end))
                healed = store.heal(at, data)
                assert healed or at + size < found.end, "what is whole elsewhere fits"
                at, size = at + healed, piece if healed else size * 2
        assert not store.damaged

    def is_whole(self) -> None:
        for store in (self.follower.store, self.leader.store):
            self.commit(self.follower)
            assert differences(views(store, KEYS), views(self.leader.store, KEYS)) == {}
            self.model.check(store)


@pytest.mark.parametrize("topics", [[], ["T"], ["T", "U"]], ids=["known", "one", "all"])
@pytest.mark.parametrize("size", [None, 0, 700])
def test_queue_that_begins_in_lost_records_is_whole_again(
    topics: list[str], size: int | None
) -> None:
    two = Two(topics, size=size)
    two.go_on()
    two.heal()
    two.is_whole()
    two.again()
    two.go_on()
    two.is_whole()
    two.leader.store.follow(1)
    two.follower.store.lead(2)
    two.model.send(two.follower.store, [("T", 0, 30), ("T", 1, 30)])
    two.leader.join(two.follower.store)
    two.leader.catch_up(two.follower.store)
    two.commit(two.follower)
    two.is_whole()


def begin_behind(_: TailFinder, queue: ConsumeQueue, __: Topic, at: tuple[int, int, int]) -> None:
    """Take what was lost for expired, as folders have it whose queue is older than its topic."""
    queue.begin_at(at[0], at[2])


@pytest.mark.parametrize("again", [False, True], ids=["at once", "after a start"])
def test_queue_that_was_begun_behind_lost_records_is_whole_again(
    monkeypatch: pytest.MonkeyPatch, *, again: bool
) -> None:
    two = Two([])
    with monkeypatch.context() as patch:
        patch.setattr(TailFinder, "_reach", begin_behind)
        two.go_on()
    assert two.follower.store.queue_range("T", 0)[0] > 0, "its beginning is taken for gone"
    if again:
        two.again()
        two.go_on()
    two.heal()
    two.is_whole()


@pytest.mark.parametrize("how", ["clean", "killed", "power lost"])
def test_member_that_lost_all_its_log_begins_anew(how: str) -> None:
    two = Two([])
    two.go_on()
    two.heal()
    two.follower.store.request_sync()
    two.follower.store.tick()
    left = two.follower.vfs
    if how != "clean":
        left = left.crashed(power_loss=how == "power lost")
    two.follower.store.close(clean=how == "clean")
    for path in log_files(left):
        left.unlink(path)
    for _ in range(2):
        two.follower = Member.start(left, two.clock)
        store = two.follower.store
        assert (store.log_start, store.log_end, store.epoch_seen) == (0, 0, 1)
        assert store.unclean
        assert not store.damaged
        assert not store.topics()
        left = left.crashed(power_loss=False)
        store.close(clean=False)
    two.follower = Member.start(left, two.clock)
    two.go_on()
    two.is_whole()
    two.again()
    two.is_whole()


def test_cut_within_damage() -> None:
    two = Two([])
    (found,) = two.follower.store.damaged_ranges()
    other = Member.start(MemoryVfs(), two.clock)
    other.join(two.leader.store)
    sent = [each for each in two.model.sent if found.start < each.place < found.end]
    while other.store.log_end < sent[3].place:
        other.pull(two.leader.store, sent[3].place - other.store.log_end)
    two.leader.store.follow(1)
    two.leader.store.truncate(found.start)
    two.leader = other
    two.leader.store.lead(2)
    two.model.cut(other.store.log_end)
    two.model.send(other.store, [("T", 1, 40), ("T", 0, 40)] * 20)
    two.go_on()
    two.heal()
    two.is_whole()
