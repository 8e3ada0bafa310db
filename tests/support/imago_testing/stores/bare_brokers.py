"""A broker's services over a store in memory, by a clock that is turned by hand: no ports.

A `BareBroker` is one life of them. A `Succession` has leaders follow each other, each on a part of
what the last one had, and `crash` ends a life in the middle of any call to the file system.
"""

from __future__ import annotations

from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from imago_broker.core.puts.acknowledgement import Acknowledgement
from imago_broker.model.topics.topics import TopicConfig
from imago_broker.service.puts.copies import read_copy
from imago_broker.service.puts.messages import MessageService
from imago_broker.service.topics.topics import TopicService
from imago_testing.stores.members import open_member
from imago_testing.stores.vfs import MemoryVfs
from imago_testing.virtual.clocks import ManualClock
from imago_testing.virtual.timers import ManualLoop
from imago_wire.record_format.layout import UNIT
from imago_wire.records.record import scan_records

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from pathlib import Path

    from imago_log import MessageStore
    from imago_wire.records.record import Entry


class BareBroker:
    """Store, messages and topics, for one life of a broker."""

    def __init__(self, store: MessageStore, clock: ManualClock, *, topics: dict[str, int]) -> None:
        """`topics`: how many queues those have that are there from the start."""
        self.store, self.clock, self.loop = store, clock, ManualLoop(clock)
        self.event_loop = cast("asyncio.AbstractEventLoop", self.loop)
        self.messages = MessageService(
            store, loop=self.event_loop, clock=clock, level_of=lambda _: Acknowledgement.LEADER
        )
        self.topics = TopicService(
            store,
            default_level=Acknowledgement.LEADER,
            topics_max=100,
            auto_create_enabled=True,
            default_queues=8,
            before_change=self.messages.flush_turn,
        )
        for name, queues in topics.items():
            if self.topics.get(name) is None:
                config = TopicConfig(name=name, read_queues=queues, write_queues=queues)
                self.topics.create_or_update(config)

    def put(self, entry: Entry) -> None:
        """Put a message at the end of this turn, and ask nothing about it."""
        self.messages.put_one(entry, None, lambda *_: None, None)

    def bodies(self, topic: str, queue_id: int = 0) -> list[str]:
        """Return what readers see of a queue, without what fills bodies up."""
        found, at = list[str](), 0
        while True:
            read = self.store.read(topic, queue_id, at, messages_max=10_000, bytes_max=1 << 24)
            if not read.count:
                return found
            found += [body.rstrip(b".").decode() for body in bodies(read.body)]
            at = read.next_offset

    def confirm(self) -> None:
        """All members have all of the log."""
        self.store.set_high_watermark(self.store.log_end)
        self.messages.acknowledgements.progressed()
        self.loop.run()

    def close(self) -> None:
        self.messages.acknowledgements.close()
        self.store.close()


def damaged(
    vfs: MemoryVfs, store: MessageStore, topic: str, queue_id: int, offset: int
) -> MemoryVfs:
    """Return what a kill leaves, with one message of a queue damaged in the log."""
    place: int = UNIT.unpack(store.units(topic, queue_id, offset, 1))[0]
    base = place - place % store.config.segment_bytes_max
    left = vfs.crashed(power_loss=False)
    left.flip_bit(store.config.data_dir / "commitlog" / f"{base:020d}", place - base + 100)
    return left


def bodies(data: bytes) -> list[bytes]:
    """Return the bodies of records that follow each other."""
    found, at = [], 0
    while at < len(data):
        copy = read_copy(data, at)
        found.append(copy.body)
        at += copy.size
    return found


def leading_store(
    vfs: MemoryVfs,
    clock: ManualClock,
    epoch: int,
    cut: int | None,
    before_lead: Callable[[MessageStore], object] = bool,
) -> MessageStore:
    """Open a member's store and have it lead; `cut`: where what it has of the log ends."""
    store = open_member(vfs, cast("Any", clock.epoch_ms), segment_bytes_max=8192)
    if cut is not None:
        store.follow(epoch - 1)
        store.truncate(cut)
        before_lead(store)
    store.lead(epoch)
    return store


L = TypeVar("L", bound=BareBroker)


class Succession(Generic[L]):
    """Leaders that follow each other: what the members had confirmed is never lost."""

    def __init__(
        self,
        seed: int,
        leader: Callable[[MessageStore, ManualClock], L],
        before_lead: Callable[[MessageStore], object] = bool,
    ) -> None:
        """`before_lead` is called with the store of each that is to lead."""
        self._before_lead = before_lead
        self.rng, self.clock, self.vfs = Random(seed), ManualClock(), MemoryVfs()
        self.epoch, self.confirmed_end = 1, 0
        self._leader = leader
        self.leader = leader(leading_store(self.vfs, self.clock, 1, None), self.clock)

    def confirm_log(self) -> None:
        """All members have all of the log."""
        self.leader.loop.run()
        self.leader.confirm()
        self.confirmed_end = self.leader.store.log_end

    def next_leader(self) -> int:
        """Kill the leader; another one has a part of what was not confirmed. Return its end."""
        cut = self.rng.choice(self.borders())
        self.vfs = self.vfs.crashed(power_loss=False)
        self.epoch += 2
        store = leading_store(self.vfs, self.clock, self.epoch, cut, self._before_lead)
        self.leader = self._leader(store, self.clock)
        return cut

    def borders(self) -> list[int]:
        """Return the ends of all records that are not confirmed, of any append."""
        store, at = self.leader.store, self.confirmed_end
        found = [at]
        while at < store.log_end:
            data = bytes(store.read_log(at, 1 << 20))
            scan = scan_records(data, at)
            found += [view.physical_offset + view.size for view in scan.views]
            at += len(data)
        return found

    def pass_time(self, ms: int) -> None:
        for _ in range(0, ms, 100):
            self.clock.advance(100)
            self.leader.loop.run()

    def maybe_end_turn(self) -> None:
        if self.rng.random() < 0.7:
            self.leader.loop.run()

    def happen(self, *shares: tuple[float, Callable[[], None]]) -> None:
        """Let one of these happen; each has the share from the one before it up to its own."""
        roll = self.rng.random()
        next(happen for share, happen in shares if roll < share)()


def crash(vfs: MemoryVfs, rng: Random, act: Callable[[], None]) -> MemoryVfs | None:
    """Act until the machine stops in the middle of a call. Return what is left; None: it did not.

    A part of any write may be all that is there.
    """
    calls = count(1)
    stop_at, power_loss = rng.randint(1, 60), rng.random() < 0.3
    left: list[MemoryVfs] = []

    def look(_what: str, _path: Path) -> None:
        if next(calls) == stop_at:
            left.append(vfs.crashed(power_loss=power_loss, rng=rng))

    vfs.before_call = look
    for _ in range(60):
        act()
        if left:
            break
    vfs.before_call = None
    return left[0] if left else None
