"""Delayed messages by a clock that is turned by hand: each once, in order, as long as its level."""

from __future__ import annotations

from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any, cast

import pytest

from imago_broker.model.names import SCHEDULE_TOPIC
from imago_broker.model.topics.topics import TopicConfig
from imago_broker.service.delays.levels import level as level_module
from imago_broker.service.delays.levels import levels as levels_module
from imago_broker.service.delays.levels.level_progress import FIRING_QUEUE
from imago_broker.service.delays.levels.levels import ClockShift, DelayService
from imago_broker.service.delays.parking import delayed_entry
from imago_broker.service.puts.put_status import PutStatus
from imago_testing.searching import examples
from imago_testing.stores.bare_brokers import BareBroker, crash, damaged
from imago_testing.stores.hiding import hidden_queues
from imago_testing.stores.in_memory import open_store
from imago_testing.stores.vfs import MemoryVfs
from imago_testing.virtual.clocks import ManualClock
from imago_wire.records.record import ENTRY_BODY, ENTRY_TAIL, make_entry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_broker.service.puts.put_jobs import PutJob
    from imago_wire.records.record import Placed

HOUR = 3_600_000
LEVELS = "1s 10s 60s 1800s 3600s 7200s"
DELAYS = (1000, 10_000, 60_000, 1_800_000, 3_600_000, 7_200_000)


class DelayBroker(BareBroker):
    """What stands behind a delayed send, over one data folder, for one life of its leader."""

    def __init__(self, vfs: MemoryVfs, clock: ManualClock, levels: str = LEVELS) -> None:
        super().__init__(open_store(vfs, cast("Any", clock.epoch_ms)), clock, topics={"T": 1})
        self.topics.ensure_system_topics()
        self.delay = DelayService(
            self.messages, self.topics, loop=self.event_loop, clock=clock, levels=levels
        )
        self.delay.start()
        self.messages.on_arrival(self.delay.arrived)

    def park(self, level: int, name: str, topic: str = "T") -> None:
        entry = delayed_entry(
            self.store, self.delay, level, topic=topic, queue_id=0, body=name.encode(),
            properties=b"", flag=0, sys_flag=0, born_ms=1, born_host=bytes(8), reconsume_times=0,
        )  # fmt: skip
        self.put(entry)
        self.loop.run()

    def close(self) -> None:
        self.delay.stop()
        super().close()


def wanted(broker: DelayBroker) -> list[str]:
    """What waits or has waited, by the log alone."""
    levels = range(len(DELAYS))
    return [name for level in levels for name in broker.bodies(SCHEDULE_TOPIC, level)]


class DelayWorld:
    """Brokers that follow each other, and when each message was parked and delivered."""

    def __init__(self) -> None:
        self.vfs, self.clock, self.levels = MemoryVfs(), ManualClock(), LEVELS
        self.broker = DelayBroker(self.vfs, self.clock)
        self.parked: dict[str, tuple[int, int]] = {}
        self.seen: dict[str, int] = {}
        self._names = count()

    def park(self, *levels: int) -> None:
        for level in levels:
            name = f"m{next(self._names)}-level{level}"
            self.parked[name] = (self.clock.monotonic_ms(), DELAYS[level - 1])
            self.broker.park(level, name)
        self._look()

    def run(self, ms: int, step: int = 100) -> None:
        """Let time pass."""
        for _ in range(0, ms, step):
            self.clock.advance(step)
            self.broker.loop.run()
            self._look()

    def restart(self, shift_ms: int = 0) -> None:
        """Have another process lead, whose clock differs."""
        self.broker.close()
        self.clock.step(shift_ms)
        self.broker = DelayBroker(self.vfs, self.clock, self.levels)
        self.broker.loop.run()
        self._look()

    def waits(self) -> dict[str, int]:
        """How much longer, or shorter, than its level each message waited."""
        return {
            name: self.seen[name] - at - delay
            for name, (at, delay) in self.parked.items()
            if name in self.seen
        }

    def _look(self) -> None:
        if self.broker.store.queue_range("T", 0)[1] == len(self.seen):
            return
        told = self.broker.bodies("T")
        assert len(told) == len(set(told)), f"each is delivered once: {told}"
        for name in told:
            self.seen.setdefault(name, self.clock.monotonic_ms())


@pytest.fixture
def world() -> DelayWorld:
    return DelayWorld()


@pytest.mark.parametrize("restarted", [True, False], ids=["another leader", "the same leader"])
def test_delays_hold_after_a_leader_whose_clock_was_an_hour_ahead(
    world: DelayWorld, restarted: bool
) -> None:
    levels = (1, 2, 3, 4, 5)
    step = world.restart if restarted else world.clock.step
    step(HOUR)
    for _ in range(8):
        world.park(*levels)
        world.run(1000)
    step(-HOUR)
    for _ in range(8):
        world.park(*levels)
        world.run(1000)
    assert all(world.parked[name][1] <= 10_000 for name in world.seen), "the others wait"
    world.run(2 * HOUR, 1000)
    waits = world.waits()
    assert set(waits) == set(world.parked)
    assert min(waits.values()) >= 0, "none before its time"
    assert max(waits.values()) <= 3000, "none much later"
    for level in levels:
        told = [name for name in world.broker.bodies("T") if name.endswith(f"level{level}")]
        assert told == [name for name in world.parked if name.endswith(f"level{level}")]


@pytest.mark.parametrize("restarted", [True, False], ids=["another leader", "the same leader"])
def test_delays_hold_over_a_clock_that_goes_back_an_hour(
    world: DelayWorld, restarted: bool
) -> None:
    world.park(2, 3, 4)
    world.run(5000)
    (world.restart if restarted else world.clock.step)(-HOUR)
    assert world.seen == {}
    world.park(2, 3, 4)
    world.run(HOUR, 500)
    waits = world.waits()
    assert set(waits) == set(world.parked)
    assert min(waits.values()) >= 0
    assert max(waits.values()) <= 10_000, "at most what passed before anybody looked"


def test_a_restart_while_the_log_is_ahead_delivers_none_before_its_time(world: DelayWorld) -> None:
    world.restart(HOUR)
    world.park(2, 3, 4)
    world.restart(-HOUR)
    for _ in range(4):
        world.run(4000)
        world.park(2, 3)
        world.restart()
    world.run(HOUR, 500)
    waits = world.waits()
    assert set(waits) == set(world.parked)
    assert min(waits.values()) >= 0
    # What the former leader parked is counted from the last restart at worst.
    assert max(waits.values()) <= 17_000


def test_a_clock_that_goes_back_twice_holds_nothing_up_for_longer_than_its_delay(
    world: DelayWorld,
) -> None:
    world.restart(2 * HOUR)
    world.park(2, 2, 3)
    world.restart(-HOUR)
    world.park(2, 2, 3)
    world.restart(-HOUR)
    world.park(2, 2, 3)
    world.run(130_000, 500)
    waits = world.waits()
    assert set(waits) == set(world.parked)
    assert min(waits.values()) >= 0
    assert max(waits.values()) <= 60_000


def test_nothing_is_delivered_before_it_can_be_read_how_far_the_levels_are(
    world: DelayWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DelayService, "_note", lambda _: True)  # the log alone knows it
    world.park(1, 1, 2)
    world.run(1500)
    first = list(world.seen)
    assert len(first) == 2
    hidden = hidden_queues(monkeypatch)
    hidden.add((SCHEDULE_TOPIC, FIRING_QUEUE))
    world.restart()
    world.park(1)
    world.run(20_000)
    assert list(world.seen) == first
    hidden.clear()
    world.run(1000)
    assert sorted(world.broker.bodies("T")) == sorted(world.parked)


def test_a_shift_is_that_of_the_first_look_after_the_clock_was_set_back() -> None:
    shift = ClockShift()
    shift.notice(1000, 1000)
    assert shift.corrected(900, 900) == 900
    shift.notice(newest_ms=HOUR, now_ms=10_000)
    shift.notice(newest_ms=HOUR, now_ms=60_000)
    assert shift.corrected(HOUR, HOUR) == 10_000
    assert shift.corrected(HOUR - 5000, HOUR - 5000) == 5000
    assert shift.corrected(9000, 9000) == 9000, "from before the clock was ahead"
    assert shift.corrected(70_000, HOUR) == 70_000, "read while the log's time stood still"
    assert shift.corrected(HOUR + 1, HOUR + 1) == HOUR + 1


@pytest.mark.parametrize("seed", range(examples(150)))
def test_crashes_and_cuts_leave_each_message_of_the_log_delivered_once(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part of any write, at any call, may be all that a crash leaves of it."""
    rng = Random(seed)
    monkeypatch.setattr(level_module, "BATCH_MAX", rng.choice([1, 3, 256]))
    monkeypatch.setattr(level_module, "UNITS_MAX", rng.choice([1, 2, 256]))
    monkeypatch.setattr(level_module, "BATCH_BYTES_MAX", rng.choice([1, 700, 4 << 20]))
    monkeypatch.setattr(levels_module, "NOTE_MS", rng.choice([0, 700, 30_000]))
    world = DelayWorld()
    for _ in range(rng.randint(2, 6)):
        for _ in range(rng.randint(1, 6)):
            act(world, rng)
        crash_and_start(world, rng)
        world.seen = dict.fromkeys(world.broker.bodies("T"), 0)
        assert len(world.seen) == world.broker.store.queue_range("T", 0)[1]
    expected = wanted(world.broker)
    world.run(70_000, 5000)
    assert sorted(world.broker.bodies("T")) == sorted(expected)


def crash_and_start(world: DelayWorld, rng: Random) -> None:
    """Go on until the machine stops in the middle of a call, and start again on what is left."""
    left = crash(world.vfs, rng, lambda: act(world, rng))
    if left is None:
        world.broker.close()
    world.vfs = left or world.vfs
    world.broker = DelayBroker(world.vfs, world.clock)
    world.broker.loop.run()


def act(world: DelayWorld, rng: Random) -> None:
    """Do one thing that may happen to a broker."""
    what = rng.random()
    if what < 0.4:
        world.park(*[rng.choice([1, 1, 2, 3]) for _ in range(rng.randint(1, 8))])
    elif what < 0.5:
        world.broker.store.request_sync()
    else:
        world.clock.advance(rng.choice([50, 400, 1200, 12_000]))
        world.broker.loop.run()
        world.broker.store.tick()


def test_messages_that_have_no_place_any_more_hold_nobody_up(world: DelayWorld) -> None:
    world.park(1, 1)
    world.broker.topics.delete("T")
    world.run(3000)
    assert world.broker.delay.dropped == 2
    world.broker.topics.create_or_update(TopicConfig(name="T", read_queues=1, write_queues=1))
    world.parked.clear()
    world.park(1)
    world.restart()
    world.run(3000)
    assert world.broker.bodies("T") == ["m2-level1"]


def test_messages_that_are_delivered_together_are_counted_and_told_of(world: DelayWorld) -> None:
    told = set[tuple[bytes, int]]()
    messages = world.broker.messages
    messages.on_arrival(lambda tails: told.update((each.topic, each.queue_id) for each in tails))
    world.park(1)
    world.run(1500)
    told.clear()
    world.park(1, 1, 1)
    before = messages.appended
    world.run(1500)
    assert told >= {(b"T", 0)}
    assert messages.appended - before == 4, "a firing record, and three messages"
    world.park(1, 1)
    messages.refuse(PutStatus.BUSY)
    world.run(1100)
    assert messages.failed == 3, "a firing record, and two messages"


class Slave:
    """A slave outside of the shard, which hears of everything."""

    url, refusal = "meta://there", None

    def __init__(self) -> None:
        self.told: list[bytes] = []

    def forward(self, jobs: Sequence[PutJob], placed: Sequence[Placed]) -> list[PutJob]:
        entries = [entry for job in jobs for entry in job[0]]
        for entry, place in zip(entries, placed, strict=True):
            if place[3] >= 0 and entry[ENTRY_TAIL].topic == b"T":
                self.told.append(entry[ENTRY_BODY])
        return list(jobs)


def test_slave_outside_of_the_shard_is_told_each_message(world: DelayWorld) -> None:
    world.broker.messages.pair = slave = Slave()
    for _ in range(2):
        world.park(1, 1, 1)
        world.run(1500)
    assert slave.told == [name.encode() for name in world.parked]


def test_messages_wait_while_another_masters_are_copied_and_come_afterwards(
    world: DelayWorld,
) -> None:
    messages = world.broker.messages
    world.park(1, 1, 1)
    messages.copied_from = "meta://there"
    told: list[PutStatus] = []
    for _ in range(15):
        world.clock.advance(100)
        tail = world.broker.store.tail("T", 0)
        entry = make_entry(tail, b"copied", born_ms=1, born_host=bytes(8))
        messages.put_copies([entry], None, lambda _, status, __: told.append(status), None)
        world.broker.loop.run()
    assert told == [PutStatus.OK] * 15, "each is answered, whatever else is refused in its turn"
    assert world.broker.bodies("T") == ["copied"] * 15
    messages.copied_from = ""
    world.clock.advance(2000)
    world.broker.loop.run()
    assert world.broker.bodies("T")[15:] == list(world.parked)


@pytest.mark.parametrize("lost", range(4))
def test_what_was_delivered_is_known_without_a_record_that_names_it(
    world: DelayWorld, monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    monkeypatch.setattr(levels_module, "NOTE_MS", 30_000)
    for _ in range(4):
        world.park(1, 1, 1)
        world.run(1500)
    assert world.broker.store.queue_range(SCHEDULE_TOPIC, FIRING_QUEUE) == (0, 4)
    for _ in range(2):
        world.vfs = damaged(world.vfs, world.broker.store, SCHEDULE_TOPIC, FIRING_QUEUE, lost)
        world.broker = DelayBroker(world.vfs, world.clock)
        world.run(1000)
        world.park(1)
        world.run(2000)
    assert world.broker.bodies("T") == list(world.parked)


@pytest.mark.parametrize("rolled", [True, False])
@pytest.mark.parametrize("noted", [True, False])
def test_damaged_message_has_none_behind_it_delivered_again(
    world: DelayWorld, monkeypatch: pytest.MonkeyPatch, *, noted: bool, rolled: bool
) -> None:
    monkeypatch.setattr(levels_module, "NOTE_MS", 0 if noted else 30_000)
    world.park(1, 1, 1, 1)
    world.run(1500)
    while rolled and world.broker.store.log_end < world.broker.store.config.segment_bytes_max:
        world.broker.park(6, 2000 * "x")  # due in two hours
    world.vfs = damaged(world.vfs, world.broker.store, "T", 0, 1)
    world.broker = DelayBroker(world.vfs, world.clock)
    world.broker.loop.run()
    world.broker.park(1, "last")
    world.clock.advance(2000)
    world.broker.loop.run()
    first, _, *others = world.parked
    assert world.broker.bodies("T") == [first, *others, "last"]


def test_timer_that_carries_a_level_stands_for_no_message_of_that_level(world: DelayWorld) -> None:
    world.park(1)
    store = world.broker.store
    for properties in (b"", b"__IMAGO_TIMER\x010-0\x02DELAY\x010\x02TIMER_OUT_MS\x015\x02"):
        entry = make_entry(
            store.tail("T", 0), b"other", properties=properties, born_ms=1, born_host=bytes(8)
        )
        world.broker.put(entry)
        world.broker.loop.run()
    world.vfs = damaged(world.vfs, store, "T", 0, 0)
    world.broker = DelayBroker(world.vfs, world.clock)
    world.clock.advance(2000)
    world.broker.loop.run()
    assert world.broker.bodies("T") == ["other", *world.parked]


def test_level_that_failed_once_delivers_later(
    world: DelayWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.park(1, 1)

    def failing(_: level_module.Level) -> None:
        monkeypatch.undo()
        raise RuntimeError("a fault of one level")

    monkeypatch.setattr(level_module.Level, "_deliver", failing)
    world.run(5000)
    assert world.broker.bodies("T") == list(world.parked)
