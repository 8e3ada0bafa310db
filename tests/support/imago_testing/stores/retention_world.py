"""A store whose old files go while timers, delayed messages and transactions still wait in them.

Real services by a clock that is turned by hand. Files are so small that every message has one
nearly for itself, so all that may go is gone after a few ticks.
"""

from __future__ import annotations

import asyncio
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from imago_broker.app.ticking import Ticker
from imago_broker.config.live import LiveSettings
from imago_broker.config.sections.metaq_section import MetaqSection
from imago_broker.config.sections.sections import RocketmqSection
from imago_broker.core.transactions.transactions import Outcome
from imago_broker.features.pop.service import PopService
from imago_broker.service.delays.levels.levels import DelayService
from imago_broker.service.delays.parking import delayed_entry, timed_entry
from imago_broker.service.delays.timers.timers import TimerService
from imago_broker.service.groups.clients import ClientRegistry
from imago_broker.service.groups.offsets import ConsumerOffsets
from imago_broker.service.metaq_transactions.service import MetaqTransactions
from imago_broker.service.needed_records import NeededRecords
from imago_broker.service.puts.copies import read_copy
from imago_broker.service.puts.put_status import PutStatus
from imago_broker.service.readers import LogClaims, QueueReaders
from imago_broker.service.transactions.checks import TransactionChecks
from imago_broker.service.transactions.half_messages import half_entry
from imago_broker.service.transactions.service import TransactionService
from imago_testing.stores.bare_brokers import BareBroker
from imago_testing.stores.in_memory import open_store
from imago_testing.stores.vfs import MemoryVfs
from imago_testing.virtual.clocks import ManualClock
from imago_wire.records.record import make_entry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from imago_wire.records.record import Entry

MINUTE, HOUR = 60_000, 3_600_000
DAY = 24 * HOUR
FILE = 4096
TICK_MS = 4000
LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 5d"
PAST_RETENTION = 4 * DAY
BY_AGE = {"retention_ms": 3 * DAY}
BY_SIZE = {"retention_bytes": 4 * FILE}
SETTINGS = RocketmqSection(transaction_checks_max=10_000, transaction_timeout_ms=1000)


OLDEST = {"disk_force_unread": True}


class Keeping(NamedTuple):
    """A feature, as far as it has to do with what the log keeps."""

    needed_from: Callable[[], int] = lambda: sys.maxsize
    log_shortened: Callable[[], None] = lambda: None


class NoMetaqGroups:
    """A tree in which no group of MetaQ's has told its progress."""

    async def metaq_progress(self, _: object) -> dict[str, Any]:
        return {}


def _raise(error: Exception) -> None:
    raise error


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
            transactions=self.transactions,
            messages=self.messages,
            clients=cast("Any", SimpleNamespace(producers=lambda _group: {})),
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
        offsets = self.offsets = ConsumerOffsets(self.store, loop=loop)
        self.pops = PopService(self.messages, offsets, loop=loop)
        clients = ClientRegistry(lambda _client, _topic: True)
        readers = QueueReaders(self.store, self.topics, offsets, clients, clock=clock, cluster="c")
        self.readers = readers
        self.elsewhere: dict[str, set[str]] | None = {}
        """By topic the groups that other shards know; None: one of them does not say."""
        needed = NeededRecords(
            self.store,
            self.metaq_transactions.notes,
            [
                Keeping(self.delay.needed_from),
                Keeping(self.transactions.needed_from, self.transactions.log_shortened),
                Keeping(self.timers.needed_from, self.timers.log_shortened),
                Keeping(log_shortened=self.pops.log_shortened),
            ],
        )
        self.ticker = Ticker(
            store=self.store,
            clock=clock,
            claims=LogClaims(needed, readers, lambda: True),
            needed=needed,
            sync_interval_ms=lambda: 0,
            sweep=lambda: None,
            fail=_raise,
        )

    async def read_elsewhere(self) -> dict[str, set[str]] | None:
        return self.elsewhere

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
        """Tick every `TICK_MS`; `idle`: the services do not get their turn."""

        async def tick() -> None:
            self.readers.look(cast("Any", NoMetaqGroups()), self.read_elsewhere)
            await asyncio.sleep(0)
            self.ticker._tick()
            self.ticker.stop()

        for _ in range(times):
            self.clock.advance(TICK_MS)
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

    def read_fill(self) -> None:
        """Have a group read all of what nobody needs."""
        leader = self.leader
        leader.offsets.commit("G", "FILL", 0, leader.store.queue_range("FILL", 0)[1])
        leader.loop.run()

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
