"""Retention and what still has to come of old records: timers, delayed messages, transactions."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from imago_broker.model import names
from imago_broker.service.known_readers import TOLD
from imago_broker.service.readers import RETURN_MS
from imago_testing.stores.retention_world import (
    BY_AGE,
    BY_SIZE,
    DAY,
    FILE,
    HOUR,
    MINUTE,
    OLDEST,
    TICK_MS,
    WAITING,
    RetainingLeader,
    RetentionWorld,
    commit,
    lost,
    open_half,
    park_delayed,
)
from imago_wire.records.record import make_entry


@pytest.mark.parametrize("what", WAITING)
def test_retention_by_size_keeps_what_waits(what: str) -> None:
    world = RetentionWorld(BY_SIZE)
    world.fill(4)
    WAITING[what](world)
    at = world.leader.store.log_end
    world.fill()
    world.leader.tick(6)
    assert 0 < world.leader.store.log_start < at, "what is before goes, what waits stays"
    for _ in range(6 * 24):
        world.clock.advance(HOUR)
        world.leader.loop.run()
    commit(world)
    world.leader.loop.run()
    assert world.delivered() == [b"it"]
    for _ in range(6):
        world.leader.tick()
        world.clock.advance(10 * MINUTE)
    world.leader.tick(6)
    assert world.leader.store.log_start > at, "and goes when it has ended"
    assert lost(world) == (0, 0, 0, 0)


@pytest.mark.parametrize("what", WAITING)
def test_retention_by_age_keeps_what_waited_while_nobody_led(what: str) -> None:
    world = RetentionWorld(BY_AGE)
    WAITING[what](world)
    at = world.leader.store.log_end
    world.fill(3)
    world.leader.tick(2)
    world.leader.close()
    world.clock.advance(6 * DAY)
    world.leader = RetainingLeader(world.vfs, world.clock, world.limits)
    for _ in range(4):  # a step of the clock is believed once it has lasted six hours
        world.clock.advance(3 * HOUR)
        world.leader.tick()
    assert world.leader.store.log_start == 0, "nobody knows yet what waits"
    world.leader.start()
    world.leader.tick(1)
    commit(world)
    world.leader.loop.run()
    assert world.delivered() == [b"it"]
    for _ in range(8):
        world.clock.advance(6 * MINUTE)
        world.leader.tick()
    assert world.leader.store.log_start >= at - at % FILE


@pytest.mark.parametrize("level", range(1, 19))
def test_each_delay_level_keeps_its_first_message(level: int) -> None:
    world = RetentionWorld(BY_SIZE)
    park_delayed(level)(world)
    world.fill()
    world.leader.tick(3, idle=True)
    assert world.leader.store.log_start == 0
    world.clock.advance(5 * DAY)
    world.leader.loop.run()
    assert world.delivered() == [b"it"]


@pytest.mark.parametrize("ratio", [0.86, 0.95])
@pytest.mark.parametrize("what", WAITING)
def test_what_waits_outlives_a_full_disk(what: str, ratio: float) -> None:
    world = RetentionWorld({})
    world.fill(4)
    WAITING[what](world)
    at = world.leader.store.log_end
    world.fill()
    world.read_fill()
    world.fill_disk(ratio)
    world.leader.tick(40, idle=True)
    assert 0 < world.leader.store.log_start < at, "what is before goes, what waits stays"
    world.fill_disk(0.5)
    world.leader.tick()
    for _ in range(6 * 24):
        world.clock.advance(HOUR)
        world.leader.loop.run()
    commit(world)
    world.leader.loop.run()
    assert world.delivered() == [b"it"]
    assert lost(world) == (0, 0, 0, 0)


def test_unread_messages_outlive_a_full_disk() -> None:
    """Also of a group that has told its progress in another queue of the topic alone."""
    world = RetentionWorld({})
    tail = world.leader.store.tail("T", 0)
    world.leader.put(make_entry(tail, b"it", born_ms=1, born_host=bytes(8)))
    at = world.leader.store.log_end
    world.fill()
    world.read_fill()
    world.fill_disk(0.95)
    for unread in ({}, {"G": {1: 5}}, {"G": {0: 1}, "H": {1: 7}}):
        for group, queues in unread.items():
            for queue, offset in queues.items():
                world.leader.offsets.commit(group, "T", queue, offset)
        world.leader.loop.run()
        world.leader.tick(20, idle=True)
        assert world.leader.store.log_start < at, unread
    world.leader.offsets.commit("H", "T", 0, 1)
    world.leader.loop.run()
    world.leader.tick(20, idle=True)
    assert world.leader.store.log_start > at


def test_groups_that_only_other_shards_know_keep_messages_on_a_full_disk() -> None:
    """Who reads a topic on one shard reads it on all; a shard that does not say may know one."""
    world = RetentionWorld({})
    tail = world.leader.store.tail("T", 0)
    world.leader.put(make_entry(tail, b"it", born_ms=1, born_host=bytes(8)))
    at = world.leader.store.log_end
    world.fill()
    world.read_fill()
    world.leader.offsets.commit("G", "T", 0, 1)
    world.leader.loop.run()
    world.fill_disk(0.95)
    for elsewhere in (None, {"T": {"G", "far"}}):
        world.leader.elsewhere = elsewhere
        world.leader.tick(20, idle=True)
        assert world.leader.store.log_start < at, elsewhere
    world.leader.elsewhere = {"T": {"G"}, "U": {"far"}}
    world.leader.tick(20, idle=True)
    assert world.leader.store.log_start > at


def test_groups_that_are_kept_in_mind_keep_messages_on_a_full_disk() -> None:
    """Of shards that were removed, or that were connected while this one was drained."""
    world = RetentionWorld({})
    tail = world.leader.store.tail("T", 0)
    world.leader.put(make_entry(tail, b"it", born_ms=1, born_host=bytes(8)))
    at = world.leader.store.log_end
    world.fill()
    world.read_fill()
    world.leader.offsets.commit("G", "T", 0, 1)
    world.leader.offsets.readers.add(TOLD, {"T": {"gone"}, "unknown": {"gone"}})
    assert world.leader.offsets.readers.by_topic() == {"T": {"gone"}}
    world.leader.loop.run()
    world.fill_disk(0.95)
    world.leader.tick(40, idle=True)
    assert world.leader.store.log_start < at
    world.leader.offsets.forget_group("gone")
    world.leader.tick(20, idle=True)
    assert world.leader.store.log_start > at


@pytest.mark.parametrize("leads_again", [False, True])
def test_a_full_disk_waits_for_clients_to_come_back(leads_again: bool) -> None:
    """A group that is connected and has committed nothing is known by its heartbeats alone."""
    world = RetentionWorld({})
    tail = world.leader.store.tail("T", 0)
    world.leader.put(make_entry(tail, b"it", born_ms=1, born_host=bytes(8)))
    at = world.leader.store.log_end
    world.fill()
    world.read_fill()
    world.leader.offsets.commit("G", "T", 0, 1)
    world.leader.loop.run()
    if leads_again:
        world.leader.tick(20)
        world.restart()
        world.leader.start()
    world.fill_disk(0.95)
    world.leader.tick(RETURN_MS // TICK_MS, idle=True)
    assert world.leader.store.log_start < at
    world.leader.tick(20, idle=True)
    assert world.leader.store.log_start > at


@pytest.mark.parametrize("what", WAITING)
def test_full_disk_takes_what_waits_and_says_so(what: str, caplog: Any) -> None:
    world = RetentionWorld(BY_SIZE | OLDEST)
    WAITING[what](world)
    at = world.leader.store.log_end
    world.fill()
    world.leader.tick(2)
    assert world.leader.store.log_start < at
    world.fill_disk(0.86)
    with caplog.at_level(logging.ERROR):
        world.leader.tick(3)
        world.clock.advance(2 * MINUTE)
        world.leader.tick()
    assert world.leader.store.log_start >= at
    assert lost(world) == tuple(int(each == what) for each in WAITING)
    assert "lost" in " ".join(record.getMessage() for record in caplog.records)
    world.fill_disk(0.5)
    world.restart()
    world.leader.start()
    assert not any(lost(world))
    assert world.leader.timers.pending == 0


@pytest.mark.parametrize("what", WAITING)
def test_next_leader_says_what_went_before_it(what: str) -> None:
    world = RetentionWorld(BY_SIZE | OLDEST)
    WAITING[what](world)
    at = world.leader.store.log_end
    world.leader.metaq_transactions.notes.note()
    world.fill()
    world.fill_disk(0.86)
    world.leader.ticker.needed.look = lambda: None  # type: ignore[method-assign]
    world.leader.tick(4, idle=True)
    assert world.leader.store.log_start >= at
    world.leader.store.close()
    world.fill_disk(0.5)
    world.leader = leader = RetainingLeader(world.vfs, world.clock, world.limits)
    leader.start()
    assert lost(world) == tuple(int(each == what) for each in WAITING)


def test_transaction_whose_immunity_outlasts_retention_is_given_up() -> None:
    world = RetentionWorld(BY_AGE)
    open_half(world)
    world.fill(2)
    world.clock.advance(3 * DAY)
    for _ in range(4):
        world.leader.tick(8)
    counts = world.leader.transactions.counts
    assert (counts.given_up, counts.lost, len(world.leader.transactions.halves)) == (1, 0, 0)
    assert world.leader.store.queue_range(names.GIVEN_UP_TOPIC, 0) == (0, 1)


def pop_all(world: RetentionWorld, group: str) -> None:
    """Hand all messages of the topic out; nobody acknowledges them."""
    pops, now_ms = world.leader.pops, world.clock.epoch_ms()
    popped = pops.of((group, "T", 0), lambda: 0)
    end = world.leader.store.queue_range("T", 0)[1]
    popped.state.hand_out(
        dict.fromkeys(range(end), 0), stamp=now_ms, due_ms=now_ms + DAY, next_offset=end
    )
    pops.changed(popped)
    world.leader.loop.run()


@pytest.mark.parametrize("restarted", [False, True])
def test_what_is_out_by_pop_takes_no_place_once_the_log_has_lost_it(restarted: bool) -> None:
    world = RetentionWorld(BY_SIZE)
    for _ in range(3):
        tail = world.leader.store.tail("T", 0)
        world.leader.put(make_entry(tail, b"it", born_ms=1, born_host=bytes(8)))
    for group in ("g", "h"):
        pop_all(world, group)
    assert world.leader.pops.out == 6
    if restarted:
        world.leader.pops.stop()  # the log is shortened while nobody knows what is out
    world.fill()
    world.leader.tick(6)
    assert world.leader.store.queue_range("T", 0) == (3, 3)
    if restarted:
        world.restart()
        world.leader.start()
    world.leader.tick()
    assert (world.leader.pops.out, world.leader.pops.counts.lost) == (0, 6)
    world.leader.loop.run()
    assert not [key for key in world.leader.store.meta("pop") if not key.endswith("@")]
