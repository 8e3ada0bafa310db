"""Registries that the contract suite runs against: the one in memory, and a real ZooKeeper."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from imago_broker.cluster.coordinator import TreeCoordinator
from imago_broker.cluster.memory import MemoryEnsemble, MemoryTree
from imago_broker.cluster.settings import CoordinatorConfig
from imago_broker.cluster.tree import Create, Delete, NodeError, NodeTree, Operation, SetData
from imago_broker.cluster.zookeeper import ZooKeeperTree
from imago_broker.model.registry.cluster import (
    BrokerRecord,
    ForeignBroker,
    ShardQueues,
    TopicPlacement,
)
from imago_testing.processes.zookeeper import end_session

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_broker.model.registry.cluster import ClusterView, RegistryConnection
    from imago_testing.processes.zookeeper import RunningZooKeeper

SECONDS_MAX = 50
CONFIG = CoordinatorConfig(session_timeout_ms=2000, stranger_wait_ms=500)


def broker(uuid: str = "disk-a", *, shard: int = 0, process: int | None = None) -> BrokerRecord:
    """A record whose ports are those of the n-th process of a machine; n = shard unless given."""
    n = shard if process is None else process
    return BrokerRecord(
        shard=shard,
        uuid=uuid,
        host="127.0.0.1",
        metaq=8123 + n,
        rocketmq=10911 + 10 * n,
        fast=10909 + 10 * n,
        replication=10912 + 10 * n,
        admin=8080 + n,
        broker_name=f"shard-{shard}",
    )


def topic(name: str, queues: int = 4, *, shard: int = 0, **changes: object) -> TopicPlacement:
    placement = TopicPlacement(name=name, shards={shard: ShardQueues(queues, queues)})
    return replace(placement, **changes)  # type: ignore[arg-type]  # names of fields


def foreign(version: int = 1, **changes: object) -> ForeignBroker:
    value = ForeignBroker(
        cluster="other",
        broker_name="broker-a",
        broker_id=0,
        address="10.0.0.1:10911",
        data_version={"stateVersion": 0, "timestamp": 1700000000000, "counter": version},
        topics={"orders": {"readQueueNums": 4, "writeQueueNums": 4, "perm": 6}},
    )
    return replace(value, **changes)  # type: ignore[arg-type]  # names of fields


class Backend(Protocol):
    """One kind of registry, empty at first."""

    def tree(self, config: CoordinatorConfig) -> NodeTree:
        """A new session with it."""

    async def expire(self, tree: NodeTree) -> None:
        """End a session as after a long cut; it comes back with a new one by itself."""

    async def cut(self, tree: NodeTree) -> None:
        """Let the registry fall silent."""

    async def heal(self, tree: NodeTree) -> None:
        """Let it answer again."""


class MemoryBackend:
    def __init__(self) -> None:
        self._ensemble = MemoryEnsemble()

    def tree(self, config: CoordinatorConfig) -> NodeTree:
        del config
        return MemoryTree(self._ensemble)

    async def expire(self, tree: NodeTree) -> None:
        assert isinstance(tree, MemoryTree)
        tree.expire()

    async def cut(self, tree: NodeTree) -> None:
        assert isinstance(tree, MemoryTree)
        tree.suspend()

    async def heal(self, tree: NodeTree) -> None:
        assert isinstance(tree, MemoryTree)
        tree.resume()


class ZooKeeperBackend:
    def __init__(self, server: RunningZooKeeper, chroot: str) -> None:
        self._server = server
        self._hosts = server.address + chroot

    def tree(self, config: CoordinatorConfig) -> NodeTree:
        return ZooKeeperTree(
            self._hosts,
            session_timeout_ms=config.session_timeout_ms,
            connect_timeout_ms=config.connect_timeout_ms,
        )

    async def expire(self, tree: NodeTree) -> None:
        assert isinstance(tree, ZooKeeperTree)
        await asyncio.to_thread(end_session, self._server.address, tree._client)

    async def cut(self, tree: NodeTree) -> None:
        del tree
        self._server.pause()

    async def heal(self, tree: NodeTree) -> None:
        del tree
        self._server.resume()


class Registry:
    """A registry with the sessions that a test opens; closes what the test leaves open."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self._open: list[TreeCoordinator] = []
        self._trees: dict[TreeCoordinator, NodeTree] = {}
        self._outsider: NodeTree | None = None

    async def join(self, config: CoordinatorConfig = CONFIG, **changes: object) -> TreeCoordinator:
        """Start a coordinator of a new process."""
        config = replace(config, **changes)  # type: ignore[arg-type]  # names of fields
        tree = self.backend.tree(config)
        coordinator = TreeCoordinator(config, tree)
        self._open.append(coordinator)
        self._trees[coordinator] = tree
        await coordinator.start()
        return coordinator

    async def expire(self, coordinator: TreeCoordinator) -> None:
        await self.backend.expire(self._trees[coordinator])

    async def cut(self, coordinator: TreeCoordinator) -> None:
        await self.backend.cut(self._trees[coordinator])

    async def heal(self, coordinator: TreeCoordinator) -> None:
        await self.backend.heal(self._trees[coordinator])

    async def outsider(self) -> NodeTree:
        """A session of somebody who is not ours: MetaQ clients, humans, strangers."""
        if self._outsider is None:
            self._outsider = self.backend.tree(CONFIG)
            await self._outsider.start()
        return self._outsider

    async def data(self, path: str) -> str | None:
        node = await (await self.outsider()).get(path)
        return None if node is None else node.data.decode()

    async def names(self, path: str) -> list[str]:
        return list(await (await self.outsider()).children(path))

    async def write(self, path: str, data: bytes, *, ephemeral: bool = False) -> None:
        """Write a node, whatever it holds, with its parents."""
        tree = await self.outsider()
        parts = path.split("/")
        for end in range(2, len(parts)):
            parent = "/".join(parts[:end])
            if await tree.get(parent) is None:
                await tree.commit([Create(parent)])
        exists = await tree.get(path)
        write: Operation = SetData(path, data) if exists else Create(path, data, ephemeral)
        await tree.commit([write])

    async def delete(self, path: str) -> None:
        await (await self.outsider()).commit([Delete(path)])

    async def delete_all(self, path: str) -> None:
        """Delete a node and all below it, while others may still write there."""
        tree = await self.outsider()
        while await tree.get(path) is not None:
            with contextlib.suppress(NodeError):
                for name in await tree.children(path):
                    await self.delete_all(f"{path}/{name}")
                await tree.commit([Delete(path)])

    async def close(self) -> None:
        for coordinator in self._open:
            await coordinator.stop()
        if self._outsider is not None:
            await self._outsider.stop()


async def until(
    coordinator: TreeCoordinator, condition: Callable[[ClusterView], bool]
) -> ClusterView:
    """Return the first snapshot for which the condition holds."""
    changed = asyncio.Event()
    coordinator.on_change(lambda _: changed.set())
    async with asyncio.timeout(SECONDS_MAX):
        while not condition(coordinator.view()):
            changed.clear()
            await changed.wait()
    return coordinator.view()


async def in_state(coordinator: TreeCoordinator, state: RegistryConnection) -> None:
    """Return once the session is in this state."""
    changed = asyncio.Event()
    coordinator.on_state(lambda _: changed.set())
    async with asyncio.timeout(SECONDS_MAX):
        while coordinator.state is not state:
            changed.clear()
            await changed.wait()
