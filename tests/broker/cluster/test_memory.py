"""The tree in memory follows ZooKeeper's rules, so that what passes on it passes on ZooKeeper."""

from __future__ import annotations

import pytest

from imago_broker.cluster.memory import MemoryEnsemble, MemoryTree, memory_coordinator
from imago_broker.cluster.settings import CoordinatorConfig
from imago_broker.cluster.tree import (
    NODE_BYTES_MAX,
    BadVersionError,
    Check,
    Create,
    Delete,
    NodeError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SetData,
    TreeUnavailableError,
)
from imago_broker.model.registry.cluster import BrokerRecord, ShardQueues, TopicPlacement


@pytest.fixture
async def tree() -> MemoryTree:
    tree = MemoryTree(MemoryEnsemble())
    await tree.start()
    return tree


async def test_a_node_needs_its_parent(tree: MemoryTree) -> None:
    with pytest.raises(NoNodeError):
        await tree.commit([Create("/a/b")])
    await tree.commit([Create("/a"), Create("/a/b", b"x")])
    assert await tree.children("/a") == ("b",)
    with pytest.raises(NodeExistsError):
        await tree.commit([Create("/a")])
    with pytest.raises(NotEmptyError):
        await tree.commit([Delete("/a")])


async def test_an_ephemeral_node_has_no_children(tree: MemoryTree) -> None:
    await tree.commit([Create("/e", ephemeral=True)])
    with pytest.raises(NodeError, match="ephemeral"):
        await tree.commit([Create("/e/child")])


async def test_versions_count_changes(tree: MemoryTree) -> None:
    await tree.commit([Create("/a", b"0")])
    await tree.commit([SetData("/a", b"1", 0)])
    with pytest.raises(BadVersionError):
        await tree.commit([SetData("/a", b"2", 0)])
    with pytest.raises(BadVersionError):
        await tree.commit([Delete("/a", 0)])
    node = await tree.get("/a")
    assert node
    assert (node.data, node.version) == (b"1", 1)


async def test_a_transaction_is_done_whole_or_not_at_all(tree: MemoryTree) -> None:
    await tree.commit([Create("/a", b"before"), Create("/b"), Create("/b/c", b"kept")])
    with pytest.raises(BadVersionError):
        await tree.commit(
            [
                SetData("/a", b"after"),
                Delete("/b/c"),
                Delete("/b"),
                Create("/d"),
                Check("/a", 99),
            ]
        )
    a, c = await tree.get("/a"), await tree.get("/b/c")
    assert a
    assert c
    assert (a.data, a.version, c.data) == (b"before", 0, b"kept")
    assert await tree.children("/") == ("a", "b")


async def test_a_node_can_be_deleted_and_made_in_one_transaction(tree: MemoryTree) -> None:
    await tree.commit([Create("/a", b"1")])
    before = await tree.get("/a")
    await tree.commit([Delete("/a"), Create("/a", b"2")])
    after = await tree.get("/a")
    assert before
    assert after
    assert after.created > before.created


async def test_data_has_a_limit(tree: MemoryTree) -> None:
    with pytest.raises(NodeError, match="at most"):
        await tree.commit([Create("/a", bytes(NODE_BYTES_MAX + 1))])


async def test_without_a_connection_nothing_is_answered(tree: MemoryTree) -> None:
    tree.suspend()
    with pytest.raises(TreeUnavailableError):
        await tree.get("/")
    tree.resume()
    assert await tree.children("/") == ()


@pytest.mark.full
async def test_ten_thousand_topics_do_not_mean_ten_thousand_watches() -> None:
    ensemble = MemoryEnsemble()
    coordinator = memory_coordinator(CoordinatorConfig(), ensemble)
    await coordinator.start()
    await coordinator.register(
        BrokerRecord(
            shard=0,
            uuid="u",
            host="h",
            metaq=1,
            rocketmq=2,
            fast=3,
            replication=4,
            admin=5,
            broker_name="shard-0",
        )
    )
    queues = {0: ShardQueues(4, 4)}
    names = [f"topic-{number}" for number in range(10_000)]
    await coordinator.publish_topics([TopicPlacement(name=n, shards=queues) for n in names])
    assert len(coordinator.view().topics) == 10_000
    assert ensemble.watch_count() < 100
    await coordinator.stop()


async def test_a_broker_alone_keeps_no_tree_for_metaq() -> None:
    coordinator = memory_coordinator(CoordinatorConfig())
    await coordinator.start()
    tree = coordinator._tree
    assert await tree.get("/meta") is None
    await coordinator.stop()
