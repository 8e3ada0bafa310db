"""Retention and what still has to come of old records: timers, delayed messages, transactions.

Real stores and services by a clock that is turned by hand. Files are so small that every message
has one nearly for itself, so all that may go is gone after a few ticks.
"""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from imago_broker.app.ticking import Ticker
from imago_broker.config.live import LiveSettings
from imago_broker.config.metaq_section import MetaqSection
from imago_broker.config.sections import RocketmqSection
from imago_broker.core.transactions import Outcome
from imago_broker.model import names
from imago_broker.service.copies import read_copy
from imago_broker.service.delays.levels import DelayService
from imago_broker.service.delays.parking import delayed_entry, timed_entry
from imago_broker.service.delays.timers import TimerService
from imago_broker.service.metaq_transactions.service import MetaqTransactions
from imago_broker.service.needed_records import NeededRecords
from imago_broker.service.offsets import ConsumerOffsets
from imago_broker.service.pop.service import PopService
from imago_broker.service.put_status import PutStatus
from imago_broker.service.transactions.checks import TransactionChecks
from imago_broker.service.transactions.half_messages import half_entry
from imago_broker.service.transactions.service import TransactionService
from imago_testing.stores.bare_brokers import BareBroker
from imago_testing.stores.in_memory import open_store
from imago_testing.stores.vfs import MemoryVfs
from imago_testing.virtual.clocks import ManualClock
from imago_wire.record import make_entry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from imago_wire.record import Entry

MINUTE, HOUR = 60_000, 3_600_000
DAY = 24 * HOUR
FILE = 4096
LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 5d"
PAST_RETENTION = 4 * DAY
BY_AGE = {"retention_ms": 3 * DAY}
BY_SIZE = {"retention_bytes": 4 * FILE}
SETTINGS = RocketmqSection(transaction_checks_max=10_000, transaction_timeout_ms=1000)


class RetainingLeader(BareBroker):
    """A broker's store and what waits in it, for one life."""

    def __init__(self, vfs: MemoryVfs, clock: ManualClock, limits: dict[str, int]) -> None:
        store = open_store(vfs, cast("Any", clock.epoch_ms), files_open_max=64, **limits)
        super().__init__(store, clock, topics={"T": 1, "FILL": 1})
        loop = self.event_loop
        self.topics.ensure_system_topics()
        self.delay = DelayService(self.messages, self.topics, loop=loop, clock=clock, levels=LEVELS)
        self.timers = TimerService(self.messages, self.topics, loop=loop, clock=clock)
        settings = LiveSettings(SETTINGS)
        self.transactions = TransactionService(
            self.messages, self.topics, self.delay, loop=loop, clock=clock, settings=settings
        )
        self.checks = TransactionChecks(
            self.transactions,
            self.messages,
            cast("Any", SimpleNamespace(producers=lambda _group: {})),
            loop=loop,
            clock=clock,
            settings=settings,
            broker_name="b",
        )
        self.transactions.half_tail()
        self.metaq_transactions = MetaqTransactions(
            self.messages,
            self.topics,
            loop=loop,
            clock=clock,
            settings=LiveSettings(MetaqSection()),
        )
        offsets = ConsumerOffsets(self.store, loop=loop)
        self.pops = PopService(self.messages, offsets, loop=loop)
        needed = NeededRecords(
            self.store,
            self.delay,
            self.transactions,
            self.timers,
            self.metaq_transactions.notes,
            self.pops,
        )
        self.ticker = Ticker(
            self.store,
            clock,
            needed=needed,
            sync_interval_ms=lambda: 0,
            sweep=lambda: None,
            fail=lambda error: pytest.fail(str(error)),
        )

    def start(self) -> None:
        self.messages.on_arrival(self.delay.arrived)
        self.messages.on_arrival(self.timers.arrived)
        self.delay.start()
        self.timers.start()
        self.transactions.start()
        self.metaq_transactions.start()
        self.pops.start()
        self.loop.run()

    def tick(self, times: int = 1, *, idle: bool = False) -> None:
        """Tick every four seconds; `idle`: the services do not get their turn."""

        async def tick() -> None:
            self.ticker._tick()
            self.ticker.stop()

        for _ in range(times):
            self.clock.advance(4000)
            if not idle:
                self.loop.run()
            asyncio.run(tick())

    def put(self, entry: Entry) -> None:
        super().put(entry)
        self.loop.run()

    def close(self) -> None:
        self.pops.stop()
        self.transactions.stop()
        self.metaq_transactions.stop()
        self.timers.stop()
        self.delay.stop()
        super().close()


class RetentionWorld:
    """One data folder and those who lead it, one after the other."""

    def __init__(self, limits: dict[str, int]) -> None:
        self.vfs, self.clock, self.limits = MemoryVfs(), ManualClock(), limits
        self.leader = RetainingLeader(self.vfs, self.clock, limits)
        self.leader.start()

    def fill(self, files: int = 12) -> None:
        """Write whole files that nobody needs."""
        leader = self.leader
        for _ in range(files * 4):
            leader.put(
                make_entry(leader.store.tail("FILL", 0), bytes(900), born_ms=1, born_host=bytes(8))
            )

    def restart(self) -> None:
        self.leader.close()
        self.leader = RetainingLeader(self.vfs, self.clock, self.limits)

    def fill_disk(self, ratio: float) -> None:
        self.vfs.total_bytes, self.vfs.used_bytes = 10_000, int(ratio * 10_000)

    def delivered(self) -> list[bytes]:
        found = self.leader.store.read("T", 0, 0, messages_max=1000, bytes_max=1 << 20)
        return [body for body, _ in _copies(found.body)]


def _copies(data: bytes) -> list[tuple[bytes, int]]:
    found, at = [], 0
    while at < len(data):
        copy = read_copy(data, at)
        found.append((copy.body, copy.physical_offset))
        at += copy.size
    return found


def park_timer(world: RetentionWorld) -> None:
    leader = world.leader
    due_ms = world.clock.epoch_ms() + 5 * DAY
    leader.put(
        timed_entry(
            leader.store, due_ms, topic="T", queue_id=0, body=b"it", properties=b"", flag=0,
            sys_flag=0, born_ms=1, born_host=bytes(8), reconsume_times=0,
        )
    )  # fmt: skip


def park_delayed(level: int) -> Callable[[RetentionWorld], None]:
    def park(world: RetentionWorld) -> None:
        leader = world.leader
        leader.put(
            delayed_entry(
                leader.store, leader.delay, level, topic="T", queue_id=0, body=b"it",
                properties=b"", flag=0, sys_flag=0, born_ms=1, born_host=bytes(8),
                reconsume_times=0,
            )
        )  # fmt: skip

    return park


def open_half(world: RetentionWorld) -> None:
    leader = world.leader
    entry = half_entry(
        leader.transactions.half_tail(), topic="T", queue_id=0, group="P", body=b"it",
        properties=b"TRAN_MSG\x01true\x02UNIQ_KEY\x01u\x02", flag=0, sys_flag=0, born_ms=1,
        born_host=bytes(8), shape=None,
    )  # fmt: skip

    def done(_: object, status: PutStatus, placed: Sequence[Any]) -> None:
        assert (status, bool(placed)) == (PutStatus.OK, True)

    leader.transactions.put_half(entry, "P", (30 * DAY, True), None, done, None)
    leader.loop.run()


def prepare(world: RetentionWorld) -> None:
    leader = world.leader
    transactions, key = leader.metaq_transactions, "XID:1:aa:bb:q"
    told: list[object] = []
    transactions.begin(key, "q", world, 0)
    transactions.put(
        transactions.open.get(key, world),
        topic="T",
        partition=0,
        flag=0,
        body=b"it",
        born_host=bytes(8),
    )
    assert transactions.prepare(key, world, told.append)
    leader.loop.run()
    assert told == [PutStatus.OK]


def commit(world: RetentionWorld) -> None:
    """End what is open as its producer would."""
    prepared = world.leader.metaq_transactions
    for key in prepared.open.recoverable(None):
        prepared.commit(key, world, one_phase=False, told=lambda _: None)
    transactions = world.leader.transactions
    for offset in tuple(transactions.halves):
        transactions.end(offset, Outcome.COMMITTED, lambda _: None)


WAITING: dict[str, Callable[[RetentionWorld], None]] = {
    "timer": park_timer,
    "level": park_delayed(18),
    "transaction": open_half,
    "prepared": prepare,
}


def lost(world: RetentionWorld) -> tuple[int, ...]:
    """Return how many of each kind are lost, in the order above."""
    leader = world.leader
    return (
        leader.timers.figures.lost,
        leader.delay.lost,
        leader.transactions.counts.lost,
        leader.metaq_transactions.counts.lost,
    )


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


@pytest.mark.parametrize("what", WAITING)
def test_full_disk_takes_what_waits_and_says_so(what: str, caplog: Any) -> None:
    world = RetentionWorld(BY_SIZE)
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
    world = RetentionWorld(BY_SIZE)
    WAITING[what](world)
    at = world.leader.store.log_end
    world.leader.metaq_transactions.notes.note()
    world.fill()
    world.fill_disk(0.86)
    world.leader.ticker._needed.look = lambda: None  # type: ignore[method-assign]
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
