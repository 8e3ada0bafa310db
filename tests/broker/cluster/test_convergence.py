"""Whatever happens to sessions and nodes, the registry ends up as all processes want it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imago_broker.cluster import coordinator as coordinator_module
from imago_broker.cluster import mirror
from imago_broker.cluster.coordinator import TreeCoordinator
from imago_broker.cluster.edits import edits
from imago_broker.cluster.memory import MemoryEnsemble, MemoryTree
from imago_broker.cluster.metaq_tree import metaq_tree, publication
from imago_broker.cluster.metaq_tree.metaq_tree import MetaqPaths
from imago_broker.cluster.settings import CoordinatorConfig
from imago_broker.cluster.tree import (
    BadVersionError,
    Create,
    Delete,
    NodeError,
    Operation,
    SetData,
    TreeUnavailableError,
)
from imago_broker.cluster.znodes import Paths
from imago_broker.model.registry.cluster import (
    BrokerRecord,
    ForeignBroker,
    ShardQueues,
    TopicPlacement,
)
from imago_broker.ports import CoordinatorError
from imago_testing.searching import examples

if TYPE_CHECKING:
    from collections.abc import Sequence

SHARDS = 2
NAMES = ("a", "b", "c")
TURNS_MAX = 20_000
PATHS = Paths("imago")


@dataclass(slots=True)
class Process:
    """One broker process and what it wants."""

    shard: int
    tree: MemoryTree
    coordinator: TreeCoordinator
    topics: dict[str, TopicPlacement] = field(default_factory=dict)
    foreign: dict[tuple[str, str, int], ForeignBroker] = field(default_factory=dict)
    asked: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def record(self) -> BrokerRecord:
        return BrokerRecord(
            shard=self.shard,
            uuid=f"disk-{self.shard}",
            host="127.0.0.1",
            metaq=8123 + self.shard,
            rocketmq=10911 + 10 * self.shard,
            fast=10909 + 10 * self.shard,
            replication=10912 + 10 * self.shard,
            admin=8080 + self.shard,
            broker_name=f"shard-{self.shard}",
        )

    def publish(self, name: str, queues: int) -> None:
        desired = TopicPlacement(name=name, shards={self.shard: ShardQueues(queues, queues)})
        self.topics[name] = desired
        self._ask(self.coordinator.publish_topic(desired))

    def remove(self, name: str) -> None:
        self.topics.pop(name, None)
        self._ask(self.coordinator.remove_topic(name))

    def put_foreign(self, version: int) -> None:
        broker = ForeignBroker(
            cluster="other",
            broker_name=f"of-{self.shard}",
            broker_id=0,
            address="10.0.0.1:1",
            data_version={"counter": version},
        )
        self.foreign[broker.key] = broker
        self._ask(self.coordinator.put_foreign(broker))

    def _ask(self, work: object) -> None:
        assert asyncio.iscoroutine(work)
        task = asyncio.create_task(_tolerant(work))
        self.asked.add(task)


async def _tolerant(work: object) -> None:
    assert asyncio.iscoroutine(work)
    try:
        await work
    except CoordinatorError:
        return


Step = tuple[str, int, str, int]
Action = Callable[[Process, MemoryTree, str, int], Awaitable[None]]


async def publish(process: Process, _: MemoryTree, name: str, number: int) -> None:
    process.publish(name, number)


async def remove(process: Process, _: MemoryTree, name: str, __: int) -> None:
    process.remove(name)


async def put_foreign(process: Process, _: MemoryTree, __: str, number: int) -> None:
    process.put_foreign(number)


async def suspend(process: Process, *_: object) -> None:
    process.tree.suspend()


async def resume(process: Process, *_: object) -> None:
    process.tree.resume()


async def expire(process: Process, *_: object) -> None:
    process.tree.expire()


async def wipe_topics(_: Process, outsider: MemoryTree, name: str, __: int) -> None:
    await meddle(outsider, SetData(PATHS.bucket(name), b"{}"))


async def drop_node(process: Process, outsider: MemoryTree, *_: object) -> None:
    await meddle(outsider, Delete(PATHS.broker(process.shard, 0)))


async def leave_stale_node(process: Process, outsider: MemoryTree, name: str, __: int) -> None:
    parent = f"/meta/brokers/topics-pub/{name}"
    node = Create(f"{parent}/{process.shard}-m", b"old", ephemeral=True)
    await meddle(outsider, Create(parent), node)


async def let_run(_: Process, __: MemoryTree, ___: str, number: int) -> None:
    for _turn in range(number * 5):
        await asyncio.sleep(0)


ACTIONS: dict[str, Action] = {
    action.__name__: action
    for action in (
        publish, remove, put_foreign, suspend, resume, expire,
        wipe_topics, drop_node, leave_stale_node, let_run,
    )
}  # fmt: skip
steps = st.tuples(
    st.sampled_from(["publish", *ACTIONS]),
    st.integers(0, SHARDS - 1),
    st.sampled_from(NAMES),
    st.integers(1, 4),
)


async def play(script: Sequence[Step]) -> None:
    ensemble = MemoryEnsemble()
    processes = []
    config = CoordinatorConfig(operation_timeout_ms=1, session_timeout_ms=120_000)
    for shard in range(SHARDS):
        tree = MemoryTree(ensemble)
        process = Process(shard, tree, TreeCoordinator(config, tree, process_id=str(shard)))
        await process.coordinator.start()
        processes.append(process)
        process._ask(process.coordinator.register(process.record))
    outsider = MemoryTree(ensemble)
    await outsider.start()
    for action, shard, name, number in script:
        await ACTIONS[action](processes[shard], outsider, name, number)
    for process in processes:
        process.tree.resume()
    await settled(lambda: all(stands(process, processes) for process in processes))
    await settled(lambda: public_tree(ensemble) == expected_tree(processes))
    for process in processes:
        await asyncio.gather(*process.asked)
        await process.coordinator.stop()
    await outsider.stop()


async def meddle(outsider: MemoryTree, *operations: Operation) -> None:
    """What others do may fail for them."""
    for operation in operations:
        try:
            await outsider.commit([operation])
        except NodeError:
            continue


async def settled(condition: Callable[[], bool]) -> None:
    for _ in range(TURNS_MAX):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("the registry does not settle")


def stands(process: Process, processes: Sequence[Process]) -> bool:
    """Whether a process sees what all want."""
    view = process.coordinator.view()
    desired = {
        name: {p.shard: p.topics[name].shards[p.shard] for p in processes if name in p.topics}
        for name in NAMES
    }
    seen = {name: dict(topic.shards) for name, topic in view.topics.items()}
    foreign = {key: broker for p in processes for key, broker in p.foreign.items()}
    return (
        [broker.uuid for broker in view.brokers] == [p.record.uuid for p in processes]
        and seen == {name: shards for name, shards in desired.items() if shards}
        and {broker.key: broker for broker in view.foreign} == foreign
        and process.coordinator.registered in view.brokers
    )


def public_tree(ensemble: MemoryEnsemble) -> dict[str, bytes]:
    """Ephemeral nodes of MetaQ's tree as they stand, whoever's they are."""
    return {
        path: entry.data
        for path, entry in ensemble._entries.items()
        if path.startswith("/meta/") and entry.owner
    }


def expected_tree(processes: Sequence[Process]) -> dict[str, bytes]:
    """The same as the plan wants it."""
    nodes: dict[str, bytes] = {}
    for process in processes:
        paths = MetaqPaths("/meta", process.shard)
        nodes |= metaq_tree.broker_nodes(paths, process.record, 0)
        nodes |= metaq_tree.topic_nodes(paths, process.record, process.topics.values())
    return nodes


@pytest.mark.simulation
@settings(max_examples=examples(75), deadline=None)
@given(script=st.lists(steps, max_size=25), at_once=st.sampled_from([1, 2, 128]))
def test_the_registry_settles_whatever_happens(script: list[Step], at_once: int) -> None:
    # A stranger's node of a topic that nobody wants stays: it is not ours to delete.
    kept = {(shard, name) for action, shard, name, _ in script if action == "publish"}
    kept -= {(shard, name) for action, shard, name, _ in script if action == "remove"}
    script = [s for s in script if s[0] != "leave_stale_node" or (s[1], s[2]) in kept]
    with (
        patch.object(coordinator_module, "RETRY_SECONDS", 0.0),
        patch.object(mirror, "READS_AT_ONCE", at_once),
        patch.object(publication, "TOPICS_AT_ONCE", at_once),
    ):
        asyncio.run(play(script))


class AlwaysLate(MemoryTree):
    """A tree in which somebody else is always faster."""

    async def commit(self, operations: Sequence[Operation]) -> None:
        raise BadVersionError(operations[0].path)


async def test_an_edit_that_always_loses_gives_up() -> None:
    tree = AlwaysLate(MemoryEnsemble())
    await tree.start()
    with (
        patch.object(edits, "TRIES_MAX", 3),
        pytest.raises(TreeUnavailableError, match="by others 3 times"),
    ):
        await edits.change(tree, "/a", lambda _: b"x")
    with pytest.raises(TreeUnavailableError, match="taken by others"):
        await edits.claim(tree, "/a", b"x")
    await tree.stop()
