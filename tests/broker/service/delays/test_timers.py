"""Timers by a clock that is turned by hand, over stores that crash: each fires once."""

from __future__ import annotations

from itertools import count
from random import Random
from typing import Any, cast

import pytest

from imago_broker.model.names import TIMER_TOPIC
from imago_broker.model.topics.topics import TopicConfig
from imago_broker.service.delays import firing_log
from imago_broker.service.delays.parking import timed_entry
from imago_broker.service.delays.timers import timer_delivery, timer_queues
from imago_broker.service.delays.timers import timers as timers_module
from imago_broker.service.delays.timers.timer_bucket import (
    BUCKET_MS,
    BUCKETS,
    TimerBucket,
    bucket_of,
    recall_tag,
)
from imago_broker.service.delays.timers.timers import TimerService
from imago_broker.service.puts.copies import read_copy
from imago_broker.service.puts.put_status import PutStatus
from imago_testing.searching import examples
from imago_testing.stores.bare_brokers import BareBroker, crash, damaged
from imago_testing.stores.hiding import hidden_queues
from imago_testing.stores.in_memory import open_store
from imago_testing.stores.vfs import MemoryVfs
from imago_testing.virtual.clocks import ManualClock
from imago_wire.record_format.layout import UNIT
from imago_wire.records.record import make_entry

DAY = 24 * 3_600_000


class TimerBroker(BareBroker):
    """What stands behind a timed send, over one data folder, for one life of its leader."""

    def __init__(self, vfs: MemoryVfs, clock: ManualClock) -> None:
        store = open_store(vfs, cast("Any", clock.epoch_ms), files_open_max=64)
        super().__init__(store, clock, topics={"T": 1})
        self.timers = TimerService(self.messages, self.topics, loop=self.event_loop, clock=clock)
        self.messages.on_arrival(self.timers.arrived)
        self.timers.start()

    def park(self, due_ms: int, name: str, topic: str = "T") -> None:
        entry = timed_entry(
            self.store, due_ms, topic=topic, queue_id=0, body=name.encode(), properties=b"",
            flag=0, sys_flag=0, born_ms=1, born_host=bytes(8), reconsume_times=0,
        )  # fmt: skip
        self.put(entry)

    def recall(self, due_ms: int, offset: int) -> bool:
        queue_id = bucket_of(due_ms)
        if not self.timers.withdraw(queue_id, offset):
            return False
        entry = make_entry(
            self.store.tail(TIMER_TOPIC, queue_id), b"", born_ms=1, born_host=bytes(8),
            unit_tag=recall_tag(offset),
        )  # fmt: skip
        self.put(entry)
        return True

    def waiting(self) -> dict[str, int]:
        """Return what the log has of timers that were not recalled, by name, and when due."""
        found: dict[str, int] = {}
        for queue_id in range(BUCKETS):
            high = self.store.queue_range(TIMER_TOPIC, queue_id)[1]
            units = list(UNIT.iter_unpack(self.store.units(TIMER_TOPIC, queue_id, 0, high)))
            recalled = {-1 - tag for _, _, tag in units if tag < 0}
            for offset, (place, _, tag) in enumerate(units):
                if tag >= 0 and offset not in recalled:
                    record = self.store.record_at(place)
                    assert record is not None
                    found[read_copy(record).body.decode()] = tag
        return found

    def close(self) -> None:
        self.timers.stop()
        super().close()


class TimerWorld:
    """Brokers that follow each other on one machine."""

    def __init__(self) -> None:
        self.vfs, self.clock = MemoryVfs(), ManualClock()
        self.broker = TimerBroker(self.vfs, self.clock)
        self.names = count()
        self.seen: dict[str, int] = {}

    @property
    def now(self) -> int:
        return self.clock.epoch_ms()

    def park(self, *delays: int) -> list[str]:
        names = [f"m{next(self.names)}" for _ in delays]
        for name, delay in zip(names, delays, strict=True):
            self.broker.park(self.now + delay, name)
        self.broker.loop.run()
        return names

    def run(self, ms: int, step: int = 100) -> None:
        for _ in range(0, ms, step):
            self.clock.advance(step)
            self.broker.loop.run()
            self.look()

    def look(self) -> None:
        if self.broker.store.queue_range("T", 0)[1] != len(self.seen):
            told = self.broker.bodies("T")
            assert len(told) == len(set(told)), "each is delivered once"
            for name in told:
                self.seen.setdefault(name, self.now)

    def restart(self) -> None:
        self.broker.close()
        self.broker = TimerBroker(self.vfs, self.clock)
        self.broker.loop.run()
        self.look()


@pytest.fixture
def world() -> TimerWorld:
    return TimerWorld()


def test_each_fires_at_its_time_whatever_the_order_they_came_in(world: TimerWorld) -> None:
    start = world.now
    delays = [5000, 1000, 3000, 1000, 61_000, BUCKET_MS + 5000]
    names = world.park(*delays)
    assert world.broker.timers.pending == 6
    world.run(70_000)
    due = {name: start + delay for name, delay in zip(names, delays, strict=True)}
    assert set(world.seen) == set(names[:5])
    assert all(0 <= at - due[name] <= 100 for name, at in world.seen.items())
    assert world.broker.timers.pending == 1
    world.run(BUCKET_MS, 1000)
    assert 0 <= world.seen[names[5]] - due[names[5]] <= 1000
    figures = world.broker.timers.figures
    assert (figures.fired, world.broker.timers.pending) == (6, 0)


def test_those_of_days_ahead_are_not_in_memory_until_their_time_is_near(world: TimerWorld) -> None:
    (name,) = world.park(3 * DAY)
    assert not world.broker.timers._loaded
    world.run(2 * DAY, BUCKET_MS)
    assert not world.broker.timers._loaded
    world.restart()
    world.run(DAY - BUCKET_MS, BUCKET_MS // 2)
    assert not world.seen
    world.run(2 * BUCKET_MS, 1000)
    assert list(world.seen) == [name]


def test_what_fell_due_while_nobody_led_fires_at_the_start(world: TimerWorld) -> None:
    names = world.park(1000, 30_000, 2 * BUCKET_MS)
    world.broker.close()
    world.clock.advance(3 * DAY)
    world.broker = TimerBroker(world.vfs, world.clock)
    world.broker.loop.run()
    assert world.broker.bodies("T") == names


def test_nothing_fires_before_it_can_be_read_what_has_fired(
    world: TimerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = world.park(1000, 1000, 30_000)
    world.run(1500)
    assert list(world.seen) == names[:2]
    hidden = hidden_queues(monkeypatch)
    hidden.add((TIMER_TOPIC, firing_log.FIRING_QUEUE))
    world.restart()
    late = world.park(1000)
    world.run(40_000)
    assert list(world.seen) == names[:2]
    hidden.clear()
    world.run(1000)
    assert sorted(world.broker.bodies("T")) == sorted(names + late)


def test_buckets_that_are_over_are_noted_and_not_read_again(world: TimerWorld) -> None:
    for _ in range(4):
        world.park(*range(1000, 9000, 1000))
        world.run(BUCKET_MS, 1000)
    world.run(2 * BUCKET_MS, 10_000)
    assert not world.broker.timers._loaded
    noted = world.broker.store.meta("timer")
    assert noted["firings"] == world.broker.store.queue_range(TIMER_TOPIC, BUCKETS)[1]
    world.restart()
    assert not world.broker.timers._loaded
    assert not world.broker.timers._waiting
    assert len(world.seen) == 32


def test_a_queue_that_is_used_again_a_week_later_fires_what_it_gets(world: TimerWorld) -> None:
    (first,) = world.park(1000)
    world.run(2 * BUCKET_MS, 1000)
    world.run(BUCKETS * BUCKET_MS - 2 * BUCKET_MS, BUCKET_MS)
    (second,) = world.park(2000)
    world.run(5000)
    assert list(world.seen) == [first, second]


def test_recalled_timer_never_fires(world: TimerWorld) -> None:
    due = world.now + 5000
    far = world.now + DAY
    world.park(5000, 5000, DAY, DAY)
    assert world.broker.recall(due, 0)
    assert world.broker.recall(far, 1)
    world.broker.loop.run()
    assert world.broker.timers.pending == 1 + 3  # a recall of a bucket to come counts till then
    world.run(6000)
    assert list(world.seen) == ["m1"]
    assert not world.broker.recall(due, 1), "it has fired"
    world.restart()
    world.run(DAY, 60_000)
    assert list(world.seen) == ["m1", "m2"]


@pytest.mark.parametrize("stored", [True, False])
def test_timer_is_recalled_before_it_was_read(*, stored: bool) -> None:
    bucket = TimerBucket(0, 0, since=0, begins_ms=0, closes_ms=0)
    bucket.recall(1)
    assert bucket.is_done(1)
    assert not bucket.has_fired(1)
    if not stored:
        bucket.revive(1)
    assert bucket.read(waits=True)
    assert bucket.read(waits=True) is not stored
    assert bucket.left == 2 - stored
    assert bucket.is_done(1) is stored


def test_recall_that_is_not_stored_lets_the_timer_fire(world: TimerWorld) -> None:
    due = world.now + 5000
    world.park(5000)
    assert world.broker.timers.withdraw(bucket_of(due), 0)
    world.broker.timers.give_back(bucket_of(due), 0, due)
    world.run(6000)
    assert list(world.seen) == ["m0"]


def test_timer_of_a_topic_that_is_gone_is_dropped_and_others_fire(world: TimerWorld) -> None:
    world.broker.topics.create_or_update(TopicConfig(name="U", read_queues=1, write_queues=1))
    world.broker.park(world.now + 2000, "lost", topic="U")
    world.park(2000, 3000)
    world.broker.topics.delete("U")
    world.run(5000)
    counted = world.broker.timers.figures.dropped
    world.restart()
    world.run(5000)
    assert set(world.seen) == {"m0", "m1"}
    assert (world.broker.timers.pending, counted) == (0, 1)


@pytest.mark.parametrize("status", [PutStatus.BUSY, PutStatus.DISK_FULL, PutStatus.NOT_WRITABLE])
def test_refused_firing_is_tried_again(world: TimerWorld, status: PutStatus) -> None:
    world.park(1000, 2000)
    world.broker.messages.refuse(status)
    world.run(5000)
    assert not world.seen
    world.broker.messages.refuse(None)
    world.run(2000)
    assert list(world.seen) == ["m0", "m1"]


def test_a_burst_of_one_moment_fires_in_several_appends_in_order(world: TimerWorld) -> None:
    names = world.park(*[4000] * 700)
    world.run(5000)
    assert list(world.seen) == names


def test_clock_that_is_set_back_fires_nothing_twice_and_loses_nothing(world: TimerWorld) -> None:
    names = world.park(1000, 60_000)
    world.run(2000)
    world.clock.step(-3_600_000)
    names += world.park(1000, 30_000)
    world.run(40_000)
    world.restart()
    world.run(3_700_000, 1000)
    assert set(world.seen) == set(names)


@pytest.mark.parametrize("lost", range(4))
def test_what_has_fired_is_known_without_a_record_that_names_it(
    world: TimerWorld, lost: int
) -> None:
    names: list[str] = []
    for _ in range(4):
        names += world.park(1000, 1000, 1000)
        world.run(1500)
    assert world.broker.store.queue_range(TIMER_TOPIC, BUCKETS) == (0, 4)
    for _ in range(2):
        world.vfs = damaged(world.vfs, world.broker.store, TIMER_TOPIC, BUCKETS, lost)
        world.broker = TimerBroker(world.vfs, world.clock)
        world.run(1000)
        names += world.park(1000)
        world.run(2000)
    assert world.broker.bodies("T") == names


@pytest.mark.parametrize("seed", range(examples(150)))
def test_crashes_and_cuts_leave_each_timer_of_the_log_fired_once(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part of any write, at any call, may be all that a crash leaves of it."""
    rng = Random(seed)
    monkeypatch.setattr(timers_module, "BATCH_MAX", rng.choice([2, 5, 256]))
    monkeypatch.setattr(timer_delivery, "BATCH_BYTES_MAX", rng.choice([1, 700, 4 << 20]))
    monkeypatch.setattr(firing_log, "RECORDS_MAX", rng.choice([1, 3, 1024]))
    monkeypatch.setattr(firing_log, "BYTES_MAX", rng.choice([1, 700, 4 << 20]))
    units_max = rng.choice([1, 3, 4096])
    for module in (timers_module, timer_queues):
        monkeypatch.setattr(module, "UNITS_MAX", units_max)
    world = TimerWorld()
    for _ in range(rng.randint(2, 6)):
        for _ in range(rng.randint(1, 6)):
            act(world, rng)
        crash_and_start(world, rng)
        told = world.broker.bodies("T")
        assert len(told) == len(set(told))
        world.seen = dict.fromkeys(told, world.now)
    expected = world.broker.waiting()
    world.run(3 * BUCKET_MS, 5000)
    assert set(world.broker.bodies("T")) == set(expected)
    assert world.broker.timers.pending == 0


def crash_and_start(world: TimerWorld, rng: Random) -> None:
    """Go on until the machine stops in the middle of a call, and start again on what is left."""
    left = crash(world.vfs, rng, lambda: act(world, rng))
    if left is None:
        world.broker.close()
    world.vfs = left or world.vfs
    world.broker = TimerBroker(world.vfs, world.clock)
    world.broker.loop.run()


def act(world: TimerWorld, rng: Random) -> None:
    """Do one thing that may happen to a broker."""
    what = rng.random()
    if what < 0.4:
        world.park(
            *[rng.choice([300, 900, 1500, 20_000, BUCKET_MS]) for _ in range(rng.randint(1, 8))]
        )
    elif what < 0.5:
        due = world.now + rng.choice([300, 900, 1500])
        world.park(due - world.now)
        high = world.broker.store.queue_range(TIMER_TOPIC, bucket_of(due))[1]
        world.broker.recall(due, high - 1)
        world.broker.loop.run()
    elif what < 0.55:
        world.broker.store.request_sync()
    else:
        world.clock.advance(rng.choice([50, 400, 1200, 5000]))
        world.broker.loop.run()
        world.broker.store.tick()
