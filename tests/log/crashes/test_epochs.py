"""A log whose epoch file is damaged or gone goes on, and counts less than any other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_log.commitlog.epochs import decode_epochs
from imago_testing.stores.in_memory import DATA, FakeClock, Model, open_store
from imago_testing.stores.members import Member, log_bytes, open_member
from imago_testing.stores.vfs import MemoryVfs

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_log import MessageStore

EPOCHS = DATA / "epochFileCheckpoint"
ASIDE = DATA / "epochFileCheckpoint.damaged"

HARM: dict[str, Callable[[MemoryVfs], object]] = {
    "flipped": lambda vfs: vfs.flip_bit(EPOCHS, 14),
    "garbled": lambda vfs: vfs.put(EPOCHS, b"\xff\0 no such thing"),
    "empty": lambda vfs: vfs.put(EPOCHS, b""),
    "gone": lambda vfs: (vfs.unlink(EPOCHS), vfs.sync_folder(DATA)),  # type: ignore[func-returns-value]
}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=sorted(HARM))
def harm(request: pytest.FixtureRequest) -> Callable[[MemoryVfs], object]:
    return HARM[request.param]


def leader_of(clock: FakeClock) -> tuple[MessageStore, Model]:
    """A leader in its third epoch, with records of all of them."""
    store, model = open_member(MemoryVfs(), clock), Model()
    for epoch in (1, 4, 6):
        store.lead(epoch)
        if epoch == 1:
            store.create_topic("T", {})
        model.send(store, [("T", 0, 300)] * 10)
        store.set_high_watermark(store.log_end)
    return store, model


def follower_of(leader: MessageStore, clock: FakeClock) -> MemoryVfs:
    member = Member.start(MemoryVfs(), clock)
    member.join(leader)
    member.catch_up(leader)
    member.store.set_high_watermark(leader.log_end)
    member.store.tick()
    member.store.close()
    return member.vfs


@pytest.mark.parametrize("clean", [True, False])
def test_alone_the_log_goes_on_in_a_new_epoch(
    harm: Callable[[MemoryVfs], object], clock: FakeClock, clean: bool
) -> None:
    vfs, model = MemoryVfs(), Model()
    for _ in range(3):
        store = open_store(vfs, clock)
        if "T" not in store.topics():
            store.create_topic("T", {})
        model.send(store, [("T", 0, 300)] * 10)
        store.tick()
        left = vfs if clean else vfs.crashed(power_loss=False)
        store.close(clean=clean)
        vfs = left
    harm(vfs)
    store = open_store(vfs, clock)
    assert store.epochs == ((4, 0),)
    assert vfs.exists(ASIDE) == (harm is not HARM["gone"])
    model.check(store)
    model.send(store, [("T", 0, 300)])
    store.close()
    assert decode_epochs(vfs.content(EPOCHS)) == (((4, 0),), 4)
    store = open_store(vfs, clock)
    assert not store.unclean
    model.check(store)


def test_a_follower_copies_the_log_of_its_leader_anew(
    harm: Callable[[MemoryVfs], object], clock: FakeClock
) -> None:
    leader, model = leader_of(clock)
    vfs = follower_of(leader, clock)
    harm(vfs)
    member = Member.start(vfs, clock)
    assert member.store.epochs == ()
    assert member.store.epoch_seen == 6, "the checkpoint knows what was promised"
    assert member.store.unclean, "it leads only where nobody else can"
    again = open_member(vfs.crashed(power_loss=False), clock)
    assert again.unclean
    assert again.epochs == ()
    leader.lead(7)
    model.send(leader, [("T", 0, 300)])
    member.join(leader)
    assert member.store.log_end == 0, "no epoch in common: nothing of it is taken for the leader's"
    member.catch_up(leader)
    assert log_bytes(member.store, 0, leader.log_end) == log_bytes(leader, 0, leader.log_end)
    assert member.store.epochs == leader.epochs
    member.store.set_high_watermark(leader.log_end)
    model.check(member.store)


def test_whoever_leads_with_it_takes_all_of_it_into_its_epoch(
    harm: Callable[[MemoryVfs], object], clock: FakeClock
) -> None:
    leader, model = leader_of(clock)
    vfs, other = follower_of(leader, clock), follower_of(leader, clock)
    harm(vfs)
    store = open_member(vfs, clock)
    store.lead(9)
    assert store.epochs == ((9, 0),)
    model.send(store, [("T", 0, 300)])
    follower = Member.start(other, clock)
    follower.join(store)
    follower.catch_up(store)
    assert follower.store.epochs == ((9, 0),)
    follower.store.set_high_watermark(store.log_end)
    store.set_high_watermark(store.log_end)
    model.check(follower.store)
    model.check(store)


def test_a_crash_while_it_starts_leaves_no_other_log(
    harm: Callable[[MemoryVfs], object], clock: FakeClock
) -> None:
    leader, _ = leader_of(clock)
    vfs = follower_of(leader, clock)
    harm(vfs)
    left: list[MemoryVfs] = []
    vfs.before_call = lambda *_: left.extend(vfs.crashed(power_loss=lost) for lost in (True, False))
    open_member(vfs, clock)
    assert len(left) > 8
    for image in left:
        store = open_member(image, clock)
        assert (store.epochs, store.epoch_seen, store.unclean) == ((), 6, True)
        assert store.log_end == leader.log_end
