"""What every coordinator promises about topics: placement, garbage, repairs."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from imago_broker.cluster.znodes import Paths
from imago_broker.model.registry.cluster import (
    RegistryConnection,
    ShardQueues,
)
from imago_broker.ports import RegistryDamagedError
from imago_testing.clusters.registry import Registry, broker, foreign, in_state, topic, until

BUCKET_OF_ORDERS = Paths("imago").bucket("orders")


async def test_shards_publish_their_own_entry_of_a_topic(registry: Registry) -> None:
    one, two = await registry.join(), await registry.join()
    await one.register(broker("disk-a", shard=0))
    await two.register(broker("disk-b", shard=1))
    await one.publish_topic(topic("orders", 4, shard=0))
    await two.publish_topic(topic("orders", 6, shard=1, order=True))
    both = {0: ShardQueues(4, 4), 1: ShardQueues(6, 6)}
    view = await until(one, lambda view: len(view.topics["orders"].shards) == 2)
    assert view.topics["orders"] == replace(topic("orders"), shards=both, order=True)
    await one.remove_topic("orders")
    assert one.view().topics["orders"].shards == {1: ShardQueues(6, 6)}
    await two.remove_topic("orders")
    assert "orders" not in two.view().topics


async def test_topic_is_read_as_nobody_can_know_it_newer(registry: Registry) -> None:
    one, two = await registry.join(), await registry.join()
    await one.register(broker("disk-a", shard=0))
    for queues in range(1, 6):
        await one.publish_topic(topic("orders", queues, shard=0))
        await two.read_topic("orders")
        assert two.view().topics["orders"].shards == {0: ShardQueues(queues, queues)}
        await one.remove_topic("orders")
        await two.read_topic("orders")
        assert "orders" not in two.view().topics


@pytest.mark.full
async def test_shards_that_publish_at_once_lose_nothing(registry: Registry) -> None:
    names = [f"topic-{number}" for number in range(200)]
    coordinators = [await registry.join() for _ in range(3)]
    for shard, coordinator in enumerate(coordinators):
        await coordinator.register(broker(f"disk-{shard}", shard=shard))
    await asyncio.gather(
        *(
            coordinator.publish_topics([topic(name, shard=shard) for name in names])
            for shard, coordinator in enumerate(coordinators)
        )
    )
    for coordinator in coordinators:
        await until(
            coordinator,
            lambda view: all(
                name in view.topics and len(view.topics[name].shards) == 3 for name in names
            ),
        )


async def test_a_complete_list_removes_what_it_does_not_name(registry: Registry) -> None:
    one, two = await registry.join(), await registry.join()
    await one.register(broker("disk-a", shard=0))
    await two.register(broker("disk-b", shard=1))
    await one.publish_topics([topic("kept"), topic("gone"), topic("shared")])
    await two.publish_topics([topic("shared", shard=1)])
    await until(one, lambda view: len(view.topics["shared"].shards) == 2)
    await one.publish_topics([topic("kept")], complete=True)
    assert set(one.view().topics) == {"kept", "shared"}
    assert set(one.view().topics["shared"].shards) == {1}
    assert await registry.names("/meta/brokers/topics-pub/gone") == []


async def test_an_entry_that_somebody_removes_comes_back(registry: Registry) -> None:
    one = await registry.join()
    await one.register(broker())
    await one.publish_topic(topic("orders"))
    gone: list[bool] = []
    one.on_change(lambda view: gone.append("orders" not in view.topics))
    await registry.write(BUCKET_OF_ORDERS, b"{}")
    view = await until(one, lambda view: any(gone) and "orders" in view.topics)
    assert view.topics["orders"].shards == {0: ShardQueues(4, 4)}


@pytest.mark.full
async def test_a_registry_that_somebody_deletes_is_filled_again(registry: Registry) -> None:
    one = await registry.join()
    await one.register(broker())
    await one.publish_topic(topic("orders"))
    await one.put_foreign(foreign())
    await registry.delete_all("/imago")
    await one.publish_topic(topic("more"))
    two = await registry.join()
    view = await until(
        two, lambda view: len(view.topics) == 2 and bool(view.brokers and view.foreign)
    )
    assert set(view.topics) == {"orders", "more"}
    assert view.foreign == (foreign(),)
    assert (await until(one, lambda view: len(view.topics) == 2)).brokers == view.brokers


async def test_topics_desired_before_registration_are_written_with_it(registry: Registry) -> None:
    one = await registry.join(operation_timeout_ms=30_000)
    publishing = asyncio.create_task(one.publish_topic(topic("early")))
    await one.register(broker())
    await publishing
    assert await registry.names("/meta/brokers/topics-pub/early") == ["0-m"]
    assert set((await until(one, lambda view: bool(view.topics))).topics) == {"early"}


async def test_a_topic_desired_in_silence_is_written_afterwards(registry: Registry) -> None:
    one = await registry.join(operation_timeout_ms=60_000)
    await one.register(broker())
    await registry.cut(one)
    try:
        publishing = asyncio.create_task(one.publish_topic(topic("silent")))
        await in_state(one, RegistryConnection.LOST)
        assert not publishing.done()
    finally:
        await registry.heal(one)
    await publishing
    assert "silent" in one.view().topics


async def test_garbage_is_refused_and_the_last_good_content_stays(
    registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = await registry.join(), await registry.join()
    await one.register(broker())
    await one.publish_topic(topic("orders"))
    await one.marks.put_kv("ns", "key", "value")
    await until(two, lambda view: bool(view.kv) and bool(view.topics))
    path = BUCKET_OF_ORDERS
    await registry.write("/imago/imago/namesrv/kv", b"\xff\x00")
    await registry.write(path, b'{"orders": 5}')
    await registry.write("/imago/imago/brokers/junk", b"junk")
    view = await until(two, lambda view: len(view.refused) == 3)
    assert set(view.refused) == {
        path, "/imago/imago/namesrv/kv", "/imago/imago/brokers/junk"
    }  # fmt: skip
    assert view.topics["orders"].shards == {0: ShardQueues(4, 4)}
    assert view.kv == {"ns": {"key": "value"}}
    assert [found.uuid for found in view.brokers] == ["disk-a"]
    assert path in caplog.text


async def test_nothing_is_written_over_garbage_until_it_is_repaired(registry: Registry) -> None:
    one = await registry.join()
    await one.register(broker())
    await one.publish_topic(topic("orders"))
    path = BUCKET_OF_ORDERS
    await registry.write(path, b"not json")
    with pytest.raises(RegistryDamagedError, match=path):
        await one.publish_topic(topic("orders", 8))
    assert await registry.data(path) == "not json"
    await registry.write("/imago/imago/namesrv/kv", b"[]")
    with pytest.raises(RegistryDamagedError, match="namesrv/kv"):
        await one.marks.put_kv("ns", "key", "value")
    await registry.write(path, b"{}")
    view = await until(one, lambda v: v.topics.get("orders") == topic("orders", 8))
    assert path not in view.refused


async def test_many_topics_are_published_and_seen(registry: Registry) -> None:
    one, two = await registry.join(), await registry.join()
    await one.register(broker())
    names = [f"t-{number}" for number in range(1000)]
    await one.publish_topics([topic(name) for name in names])
    await until(two, lambda view: len(view.topics) == 1000)
    assert len(await registry.names("/meta/brokers/topics-sub")) == 1000
