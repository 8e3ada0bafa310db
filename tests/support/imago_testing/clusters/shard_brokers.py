"""The brokers of a shard in the test's process: real stores and sockets, registry in memory."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING, Any

from imago_broker.app import Broker
from imago_broker.cluster.coordinator import TreeCoordinator
from imago_broker.cluster.memory import MemoryEnsemble, MemoryTree
from imago_broker.cluster.settings import CoordinatorConfig
from imago_broker.core.puts.acknowledgement import Acknowledgement
from imago_broker.model.registry.cluster import Role
from imago_broker.model.topics.topics import TopicConfig
from imago_testing.clusters.brokers import loopback_config
from imago_wire.records.record import decode_record, make_entry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from imago_broker.replication.shell import ShardShell
    from imago_broker.service.puts.gate import ShardGate
    from imago_broker.service.puts.put_status import PutStatus
    from imago_log.store import MessageStore
    from imago_wire.records.record import Placed

TOPIC = "orders"
SECONDS_MAX = 50.0
HOST = bytes([127, 0, 0, 1, 0, 0, 0, 9])
SESSION_MS = 12_000
"""Long: a busy machine must not end leases. Members that die close their session at once."""


class ShardBrokers:
    """Members 0, 1, … of shard 0. Whoever is asked for something runs, unless it was stopped."""

    def __init__(
        self, folder: Path, *overrides: str, replicas: int = 3, session_ms: int = SESSION_MS
    ) -> None:
        self.folder = folder
        self.ensemble = MemoryEnsemble()
        self.brokers: dict[int, Broker] = {}
        self.trees: dict[int, MemoryTree] = {}
        self.more: dict[int, tuple[str, ...]] = {}
        """Settings of one member alone, in force from its next start."""
        self._session_ms = session_ms
        self._overrides = (
            f"broker.replicas={replicas}",
            "zookeeper.connect=memory",
            f"zookeeper.session_timeout_ms={session_ms}",
            "admin.enabled=false",
            "namesrv.enabled=false",
            *overrides,
        )

    async def start(self, *numbers: int) -> None:
        """Start members, one after the other."""
        for number in numbers:
            tree = self.trees[number] = MemoryTree(self.ensemble)
            settings = CoordinatorConfig(session_timeout_ms=self._session_ms, stranger_wait_ms=200)
            broker = Broker(
                loopback_config(
                    self.folder / f"member-{number}", *self._overrides, *self.more.get(number, ())
                ),
                coordinator=TreeCoordinator(settings, tree),
            )
            await broker.start()
            self.brokers[number] = broker

    async def stop(self, number: int) -> None:
        """Stop a member in order."""
        await self.brokers.pop(number).stop()

    async def kill(self, number: int) -> None:
        """End a member without a word: no hand-over, no sync, no clean mark."""
        await self.brokers.pop(number).stop(clean=False)

    def wipe(self, number: int) -> None:
        """Lose a stopped member's disk."""
        shutil.rmtree(self.folder / f"member-{number}")

    async def close(self) -> None:
        """Stop everything."""
        for number in list(self.brokers):
            await self.stop(number)

    def store(self, number: int) -> MessageStore:
        """The log of a member."""
        return self.brokers[number].store

    def shell(self, number: int) -> ShardShell:
        """The replication shell of a member."""
        member = self.brokers[number].member
        assert member is not None
        assert member.shell is not None
        return member.shell

    def gate(self, number: int) -> ShardGate:
        """What a member may take and acknowledge."""
        gate = self.brokers[number].gate
        assert gate is not None
        return gate

    @property
    def leader(self) -> int | None:
        """The member that leads and takes puts; None while there is none."""
        for number, broker in self.brokers.items():
            if broker.role.current.role is Role.MASTER:
                return number
        return None

    async def led(self, *, but: int | None = None) -> int:
        """Wait for a leader; return its number."""
        await until(lambda: self.leader not in (None, but))
        leader = self.leader
        assert leader is not None
        return leader

    def in_sync(self, seen_by: int) -> set[int]:
        """Members whose present life is in sync, as one member's view of the registry has it."""
        state = self.brokers[seen_by].coordinator.view().states.get(0)
        if state is None:
            return set()
        return {
            number
            for number, broker in self.brokers.items()
            if (own := broker.coordinator.registered) is not None
            and (own.uuid, own.incarnation) in state.in_sync
        }

    async def all_in_sync(self, *numbers: int) -> None:
        """Wait until exactly these members are in sync, as every one that runs sees it."""
        await until(lambda: all(self.in_sync(number) == set(numbers) for number in self.brokers))

    async def same_logs(self) -> None:
        """Wait until all logs end alike and are whole; then compare them byte by byte."""
        stores = [broker.store for broker in self.brokers.values()]
        await until(lambda: not any(store.damaged_ranges() for store in stores))
        await until(lambda: len({store.log_end for store in stores}) == 1)
        start = max(store.log_start for store in stores)
        logs = {log_bytes(store, start) for store in stores}
        assert len(logs) == 1
        assert len({epochs_from(store, start) for store in stores}) == 1

    async def put(
        self,
        number: int,
        *bodies: bytes,
        level: Acknowledgement | None = Acknowledgement.REPLICATED,
    ) -> list[PutStatus]:
        """Put messages through a member, each for itself; return how each ended."""
        broker = self.brokers[number]
        if broker.topics.get(TOPIC) is None:
            broker.topics.create_or_update(TopicConfig(name=TOPIC, read_queues=1, write_queues=1))
        futures = []
        tail = broker.store.tail(TOPIC, 0)
        for body in bodies:
            entry = make_entry(tail, body, born_ms=1, born_host=HOST)
            done: asyncio.Future[PutStatus] = asyncio.get_running_loop().create_future()
            broker.messages.put_one(entry, level, _answer, done)
            futures.append(done)
        return list(await asyncio.gather(*futures))

    def bodies(self, number: int) -> list[bytes]:
        """The bodies of all messages that a reader of this member sees, in order."""
        store = self.brokers[number].store
        first, end = store.queue_range(TOPIC, 0)
        places = store.placed(TOPIC, 0, first, end - first) if end > first else []
        return [decode_record(store.read_log(place[1], place[2])).body for place in places]


def _answer(done: Any, status: PutStatus, _: Sequence[Placed]) -> None:
    if not done.done():
        done.set_result(status)


def log_bytes(store: MessageStore, start: int) -> bytes:
    """All bytes of a log from an offset on."""
    parts, at = [], start
    while at < store.log_end:
        part = bytes(store.read_log(at, 1 << 20))
        parts.append(part)
        at += len(part)
    return b"".join(parts)


def epochs_from(store: MessageStore, start: int) -> tuple[tuple[int, int], ...]:
    """The epochs of a log, where they have bytes behind an offset."""
    epochs = [pair for pair in store.epochs if pair[1] < store.log_end]
    ends = [begin for _, begin in epochs[1:]] + [store.log_end]
    return tuple(
        (epoch, max(begin, start))
        for (epoch, begin), end in zip(epochs, ends, strict=True)
        if end > start
    )


async def until(holds: Callable[[], bool]) -> None:
    """Wait until a condition holds; TimeoutError when it does not come to that."""
    async with asyncio.timeout(SECONDS_MAX):
        while not holds():  # noqa: ASYNC110  what several brokers have come to
            await asyncio.sleep(0.005)


def take_nothing(data: bytes) -> None:
    """Stand in a session for `received`: its member gets no more of the log."""
    del data
