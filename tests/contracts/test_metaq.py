"""What every coordinator promises to MetaQ clients: their public tree."""

from __future__ import annotations

from dataclasses import replace

import pytest

from imago_broker.model.cluster import (
    Role,
    ShardQueues,
)
from imago_broker.ports import CoordinatorConflictError
from imago_testing.registry import Registry, broker, topic, until


async def test_topics_follow_a_change_of_role(registry: Registry) -> None:
    one = await registry.join()
    await one.register(replace(broker(), role=Role.SLAVE))
    await one.publish_topic(topic("orders"))
    assert await registry.names("/meta/brokers/topics-sub/orders") == ["0-s1"]
    await one.register(broker())
    await one.publish_topic(topic("other"))
    assert await registry.names("/meta/brokers/topics-sub/orders") == ["0-m"]


async def test_metaq_finds_broker_and_topics_exactly_as_the_original_writes_them(
    registry: Registry,
) -> None:
    one = await registry.join(metaq_broker_id_base=7, metaq_config_checksum=4294967295)
    await one.register(broker(shard=2))
    await one.publish_topic(topic("orders", 4, shard=2))
    ids = "/meta/brokers/ids"
    assert await registry.names(ids) == ["9"]
    assert await registry.data(f"{ids}/9") == "meta://127.0.0.1:8125"
    assert await registry.data(f"{ids}/9/master") == "meta://127.0.0.1:8125"
    assert await registry.data(f"{ids}/9/master_config_checksum") == "4294967295"
    brokers = "/meta/brokers"
    assert await registry.data(f"{brokers}/topics/orders/9-m") == "4"
    payload = '{"numParts":4,"broker":"9-m"}'
    assert await registry.data(f"{brokers}/topics-pub/orders/9-m") == payload
    assert await registry.data(f"{brokers}/topics-sub/orders/9-m") == payload
    tree = await registry.outsider()
    ephemeral = {
        path: bool(node and node.owner)
        for path in (f"{ids}/9", f"{ids}/9/master", f"{brokers}/topics-sub/orders/9-m")
        for node in [await tree.get(path)]
    }
    assert list(ephemeral.values()) == [False, True, True]


async def test_metaq_is_told_a_new_number_of_partitions_by_a_new_node(registry: Registry) -> None:
    one = await registry.join()
    await one.register(broker())
    await one.publish_topic(topic("orders", 4))
    path, tree = "/meta/brokers/topics-sub/orders/0-m", await registry.outsider()
    before = await tree.get(path)
    await one.publish_topic(topic("orders", 8))
    after = await tree.get(path)
    assert before
    assert after
    assert after.data == b'{"numParts":8,"broker":"0-m"}'
    assert after.created > before.created


async def test_metaq_does_not_see_what_is_not_for_it(registry: Registry) -> None:
    one = await registry.join()
    await one.register(broker())
    await one.publish_topics(
        [
            topic("system", dual=False),
            topic("write-only", shards={0: ShardQueues(4, 4, perm=2)}),
            topic("sealed", shards={0: ShardQueues(0, 4)}),
            topic("hidden", attributes={"metaq.publish": "false", "metaq.subscribe": "false"}),
        ]
    )
    assert await registry.names("/meta/brokers/topics-pub") == ["write-only"]
    assert await registry.names("/meta/brokers/topics-sub") == ["sealed"]
    assert await registry.names("/meta/brokers/topics") == ["sealed", "write-only"]
    assert set(one.view().topics) == {"system", "write-only", "sealed", "hidden"}


async def test_metaq_clients_may_make_parents_first(registry: Registry) -> None:
    one = await registry.join()
    await one.register(broker())
    for branch in ("topics-pub", "topics-sub"):
        await registry.write(f"/meta/brokers/{branch}/orders", b"")
    await one.publish_topic(topic("orders"))
    assert await registry.names("/meta/brokers/topics-pub/orders") == ["0-m"]
    assert await registry.names("/meta/brokers/topics/orders") == ["0-m"]


async def test_a_stranger_with_our_metaq_id_is_not_driven_out(registry: Registry) -> None:
    await registry.write("/meta/brokers/ids/0/master", b"meta://10.9.9.9:8123", ephemeral=True)
    one = await registry.join()
    with pytest.raises(CoordinatorConflictError, match=r"id 0 is held by meta://10\.9\.9\.9:8123"):
        await one.register(broker())
    assert await registry.data("/meta/brokers/ids/0/master") == "meta://10.9.9.9:8123"
    assert one.registered is None
    assert (await until(one, lambda view: not view.brokers)).brokers == ()
