"""Two shards of one broker each in the test's process: one registry in memory, admin over HTTP."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import aiohttp

from imago_broker.app import Broker
from imago_broker.cluster.memory import MemoryEnsemble, memory_coordinator
from imago_broker.cluster.settings import CoordinatorConfig
from imago_broker.model.topics.topics import TopicConfig
from imago_testing.peers.admin import Admin, broker_config
from imago_testing.peers.remoting import RemotingPeer
from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection
    from pathlib import Path

    from imago_broker.config.sections.security_sections import TlsSection

LOOKS_MAX = 1000


@dataclass
class Pair:
    """Brokers of shards 0 and 1."""

    one: Admin
    two: Admin
    ensemble: MemoryEnsemble

    def nodes(self) -> str:
        """Return all paths and contents of the registry."""
        entries = self.ensemble._entries.items()
        return "\n".join(f"{path} {entry.data!r}" for path, entry in entries)

    async def drain(self, admin: Admin, **body: object) -> None:
        status, answer = await admin.call("POST", "/admin/v1/drain", body)
        assert (status, answer.get("draining")) == (200, True), answer

    async def shard(self, number: int) -> dict[str, Any]:
        _, body = await self.one.call("GET", "/admin/v1/cluster")
        return next(dict(s) for s in body["shards"] if s["id"] == number)

    async def until(self, number: int, holds: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """Return the shard as it is shown once this holds."""
        shown: dict[str, Any] = {}
        for _ in range(LOOKS_MAX):
            if holds(shown := await self.shard(number)):
                return shown
            await asyncio.sleep(0.05)
        raise TimeoutError(f"shard-{number} is shown so: {shown}")


@asynccontextmanager
async def running_pair(
    folder: Path, *tls: TlsSection, closed: bool = False, without_admin: Collection[int] = ()
) -> AsyncIterator[Pair]:
    """Run two brokers with a registry in memory; they stop in order. `tls`: of each its own.

    `closed`: with access control. `without_admin`: the shards whose broker has no admin interface.
    """
    ensemble, settings = MemoryEnsemble(), CoordinatorConfig(session_timeout_ms=60_000)
    brokers: list[Broker] = []
    for shard in range(2):
        own = folder / str(shard)
        own.mkdir()
        config = broker_config(own)
        config = replace(
            config,
            broker=replace(config.broker, shard=shard, seal_linger_ms=0),
            store=replace(config.store, segment_bytes_max=8 << 20),
            tls=tls[shard] if tls else config.tls,
            acl=replace(config.acl, enabled=closed),
            admin=replace(config.admin, enabled=shard not in without_admin),
        )
        brokers.append(Broker(config, coordinator=memory_coordinator(settings, ensemble)))
        await brokers[-1].start()
    for broker in brokers:  # each knows the other's shard, or a call may leave it out
        await eventually(partial(_sees_both, broker))
    async with aiohttp.ClientSession() as session:
        one, two = (Admin(session, broker) for broker in brokers)
        yield Pair(one, two, ensemble)
    for broker in brokers:
        await broker.stop()


def _sees_both(broker: Broker) -> bool:
    return broker.coordinator.view().shards() == (0, 1)


async def eventually(holds: Callable[[], object]) -> None:
    """Wait until something holds; TimeoutError."""
    for _ in range(LOOKS_MAX):
        if holds():
            return
        await asyncio.sleep(0.05)
    raise TimeoutError


def make(admin: Admin, name: str, queues: int = 2, **changes: Any) -> TopicConfig:
    """Make a topic on one shard alone."""
    wanted = TopicConfig(name=name, write_queues=queues, read_queues=queues, **changes)
    return admin.broker.topics.create_or_update(wanted, sent_to=True)


async def put(admin: Admin, topic: str, properties: str = "") -> None:
    """Put one message into queue 0."""
    peer = await RemotingPeer.connect(admin.broker.rocketmq_port)
    sent = await peer.put(topic, b"x", queue_id=0, properties=properties)
    assert sent.code == ResponseCode.SUCCESS
    await peer.close()


def there(admin: Admin, topic: str) -> TopicConfig:
    """Return a topic's settings on a shard that has it."""
    config = admin.broker.topics.get(topic)
    assert config is not None
    return config
