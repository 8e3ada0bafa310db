"""What MetaQ's session factories make besides consumers, and their blocking face."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from imago_client import UsageError
from imago_client.blocking.metaq_sessions import MetaqSessionFactory as BlockingFactory
from imago_client.errors import ConnectionLostError
from imago_client.metaq import (
    MetaqConfig,
    MetaqError,
    MetaqSessionFactory,
    Xid,
)
from imago_testing.peers.metaq_group import Taken, committed, put, quick, until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from kazoo.client import KazooClient

    from imago_broker.app import Broker

pytestmark = [pytest.mark.zookeeper]


async def test_ordered_producer_keeps_what_its_partition_cannot_take(
    factory: MetaqSessionFactory, tree_broker: Broker, tmp_path: Path
) -> None:
    def close() -> None:
        tree_broker.core.topics.handles.close_partitions("orders", 0, 3)

    partitions = {"orders": {0: 4, 9: 1}}
    async with factory.ordered_producer(tmp_path, partitions, every_s=3600) as producer:
        keys = [b"k%d" % number for number in range(40)]
        results = {key: await producer.send("orders", b"first " + key, key=key) for key in keys}
        away = [key for key, result in results.items() if result is None]
        assert away  # those of the broker that is not there
        assert producer.kept == len(away)
        assert await producer.resend() == 0
    async with factory.ordered_producer(tmp_path, {"orders": {9: 1}}, every_s=3600) as producer:
        assert producer.kept == len(away)
        close()
        here = factory.ordered_producer(tmp_path / "here", {"orders": {0: 4}}, every_s=3600)
        async with here:
            assert await here.send("orders", b"second", key=b"k") is None
            assert await here.send("orders", b"third", key=b"k") is None
            assert here.kept == 2
            tree_broker.core.topics.handles.open_partitions("orders")
            assert await here.resend() == 2
            fourth = await here.send("orders", b"fourth", key=b"k")
            assert fourth is not None
    found = [each async for each in factory.browse("orders")]
    number = fourth.partition.number
    last = [each.payload for each in found if each.partition.number == number][-3:]
    assert last == [b"second", b"third", b"fourth"]


async def test_oneway_producer_keeps_what_finds_no_room_or_fails(
    factory: MetaqSessionFactory, tmp_path: Path
) -> None:
    async with factory.oneway_producer(tmp_path, window=2, every_s=3600) as producer:
        for number in range(5):
            producer.send("orders", b"%d" % number)
        producer.send("nothing", b"x")
        assert producer.kept == 4
    async with factory.oneway_producer(tmp_path, every_s=3600) as producer:
        await until(lambda: producer.kept == 1, "the others are sent")
        assert "nothing" in producer.failures[-1]
    found = sorted([each.payload async for each in factory.browse("orders")])
    assert found == [b"%d" % number for number in range(5)]


async def test_browser_partitions_stats_and_transactions(factory: MetaqSessionFactory) -> None:
    bodies = await put(factory, 300)
    found = [each async for each in factory.browse("orders", size_max=100)]
    assert sorted(each.payload for each in found) == sorted(bodies)
    assert [str(each.broker_id) for each in await factory.partitions("orders")] == ["0"] * 4
    [(server, stats)] = (await factory.stats()).items()
    assert stats["cmd_put"] == "300"
    assert await factory.stats("orders", server=server)
    async with await factory.transaction("orders", "other") as transaction:
        await transaction.send("orders", b"one", partition=0)
        await transaction.send("other", b"two", partition=1)
    assert [each.payload async for each in factory.browse("other")] == [b"two"]
    resource, xid = await factory.xa_resource("q", "other"), Xid(b"global")
    await resource.begin(xid)
    await resource.send(xid, "other", b"three", partition=1)
    await resource.commit(xid, one_phase=True)
    assert [each.payload async for each in factory.browse("other")] == [b"two", b"three"]


async def test_broadcast_consumers_read_all_each_from_its_own_place(
    factory: MetaqSessionFactory, tree: KazooClient, tmp_path: Path
) -> None:
    bodies, taken = await put(factory, 8), Taken()
    consumer = factory.broadcast_consumer("g", tmp_path).subscribe("orders", taken)
    async with consumer:
        await until(lambda: len(taken.messages) == 8, "all have come")
        assert consumer.config.group.startswith("g-")
    assert sorted(taken.bodies) == sorted(bodies)
    assert (tmp_path / "offsets.json").exists()
    assert committed(tree, consumer.config.group) == {}


async def test_default_topic_lends_its_partitions(factory: MetaqSessionFactory) -> None:
    producer = factory.producer(default_topic="orders", select=lambda _, each, __: each[-1])
    with pytest.raises(MetaqError, match="do not accept topic unknown"):
        await producer.send("unknown", b"x")  # the broker has no pattern for it
    assert (await producer.send("other", b"x")).partition.number == 1


async def test_wrong_uses_are_refused(factory: MetaqSessionFactory, config: MetaqConfig) -> None:
    consumer = factory.consumer(quick())
    with pytest.raises(UsageError, match="at least one topic"):
        await consumer.start()
    consumer.subscribe("orders", Taken())
    with pytest.raises(UsageError, match="once"):
        consumer.subscribe("orders", Taken())
    async with consumer:
        with pytest.raises(UsageError, match="runs already"):
            await consumer.start()
    with pytest.raises(UsageError, match="zookeeper"):
        MetaqSessionFactory(MetaqConfig(servers=("a:1",)))
    nobody = MetaqConfig(zookeeper="127.0.0.1:1", connect_timeout_s=0.2)
    with pytest.raises(ConnectionLostError, match="no ZooKeeper within"):
        await MetaqSessionFactory(nobody).start()
    with pytest.raises(UsageError, match="name those"):
        await factory.transaction()
    assert config.zookeeper is not None


def in_thread(work: Callable[[BlockingFactory], None], config: MetaqConfig) -> Awaitable[None]:
    """Run blocking calls beside the broker's loop."""

    def run() -> None:
        with BlockingFactory(config) as factory:
            work(factory)

    return asyncio.to_thread(run)


async def test_blocking_members_share_and_go_back(tree_broker: Broker, config: MetaqConfig) -> None:
    def work(factory: BlockingFactory) -> None:
        producer = factory.producer()
        sent = [producer.send("orders", b"m%d" % number) for number in range(20)]
        assert [each.partition.number for each in sent[:4]] == [1, 2, 3, 0]
        with factory.consumer(quick(), ["orders"]) as first:
            assert len(first.poll(20)) == 5
            first.rollback()
            bodies = {each.payload for _ in range(4) for each in first.poll(20)}
            assert len(bodies) == 20
            assert first.poll(0.2) == []
            with (
                BlockingFactory(config) as others,
                others.consumer(quick(), ["orders"]) as second,
            ):
                members = (first, second)
                while {len(each.positions) for each in members} != {2}:
                    assert first.poll(0.1) == second.poll(0.1) == []
        with factory.consumer(quick("h"), ["orders"], wanted=lambda _, __: False) as nothing:
            while sum(nothing.positions.values()) < 10 * 22 + 10 * 23:
                assert nothing.poll(0.1) == []

    assert tree_broker.metaq_port
    async with asyncio.timeout(100):
        await in_thread(work, config)


async def test_blocking_factory_makes_the_rest_too(
    tree_broker: Broker, config: MetaqConfig, tmp_path: Path
) -> None:
    def work(factory: BlockingFactory) -> None:
        kept = tmp_path / "kept"
        with factory.ordered_producer(kept, {"orders": {0: 4, 9: 4}}) as ordered:
            results = [ordered.send("orders", b"o", key=b"%d" % n) for n in range(20)]
            assert ordered.kept == results.count(None) > 0
            assert ordered.resend() == 0
        assert len(list(factory.browse("orders", size_max=50))) == 20 - results.count(None)
        assert len(factory.partitions("orders")) == 4
        assert factory.stats()
        with factory.transaction("other") as transaction:
            transaction.send("other", b"x", partition=0)
        with factory.broadcast_consumer("b", ["other"], tmp_path) as all_of_it:
            assert [each.payload for each in all_of_it.poll(20)] == [b"x"]

    await in_thread(work, config)
    assert tree_broker.core.metaq_transactions.open.count == 0
