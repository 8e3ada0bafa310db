"""What every coordinator promises to MetaQ clients: their public tree."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from imago_broker.cluster.edits import edits
from imago_broker.core.metaq.metaq_tree_check import check_tree
from imago_broker.model.metaq_tree import OffsetCopy
from imago_broker.model.registry.cluster import (
    Role,
    ShardQueues,
)
from imago_broker.model.registry.shard import Member, ShardState
from imago_broker.ports import CoordinatorConflictError
from imago_testing.clusters.registry import Registry, broker, topic, until

if TYPE_CHECKING:
    from imago_broker.cluster.coordinator import TreeCoordinator


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


async def test_patterns_stand_in_metaqs_tree_under_their_own_names(registry: Registry) -> None:
    one = await registry.join()
    await one.register(broker())
    await one.publish_topic(topic("orders", 4))
    await one.offer_patterns([topic("a.b*", 3), topic("logs-*", 2)])
    payload = '{"numParts":3,"broker":"0-m"}'
    assert await registry.data("/meta/brokers/topics/a.b*/0-m") == "3"
    assert await registry.data("/meta/brokers/topics-pub/a.b*/0-m") == payload
    assert await registry.data("/meta/brokers/topics-sub/a.b*/0-m") == payload
    assert set(one.view().topics) == {"orders"}, "a pattern is no topic"
    await one.register(replace(broker(), role=Role.SLAVE))
    await one.offer_patterns([topic("logs-*", 5)])
    await one.register(broker())
    await one.publish_topic(topic("orders", 5))
    assert await registry.names("/meta/brokers/topics-pub/a.b*") == []
    again = '{"numParts":5,"broker":"0-m"}'
    assert await registry.data("/meta/brokers/topics-pub/logs-*/0-m") == again
    await one.unregister()
    assert await registry.names("/meta/brokers/topics-pub/logs-*") == []


async def test_a_checksum_that_changes_is_told_and_nothing_else_is_written_again(
    registry: Registry,
) -> None:
    one = await registry.join(metaq_config_checksum=1)
    await one.register(broker())
    tree = await registry.outsider()
    path = "/meta/brokers/ids/0/master"
    before = await tree.get(path)
    one.tell_checksum(4294967295)
    await one.publish_topic(topic("orders"))  # a pass that began after the checksum was told
    assert await registry.data("/meta/brokers/ids/0/master_config_checksum") == "4294967295"
    after = await tree.get(path)
    assert before
    assert after
    assert (after.created, after.version) == (before.created, before.version)


async def test_a_new_session_shows_patterns_and_checksum_again(registry: Registry) -> None:
    one = await registry.join(metaq_config_checksum=1)
    await one.register(broker())
    await one.offer_patterns([topic("logs-*", 2)])
    one.tell_checksum(7)
    await one.publish_topic(topic("orders", 4))
    tree = await registry.outsider()
    paths = (
        "/meta/brokers/topics-pub/logs-*/0-m",
        "/meta/brokers/topics-pub/orders/0-m",
        "/meta/brokers/ids/0/master",
        "/meta/brokers/ids/0/master_config_checksum",
    )
    before = [await tree.get(path) for path in paths]
    await registry.expire(one)
    async with asyncio.timeout(50):
        while True:
            after = [await tree.get(path) for path in paths]
            if all(a and b and a.owner != b.owner for a, b in zip(after, before, strict=True)):
                break
            await asyncio.sleep(0.02)
    assert [node and node.data for node in after] == [node and node.data for node in before]
    assert after[3]
    assert after[3].data == b"7"


async def test_offsets_of_moved_partitions_are_copied_where_there_are_none(
    registry: Registry,
) -> None:
    one = await registry.join()
    await one.register(broker())
    tree = await registry.outsider()
    folder = "/meta/consumers/g/offsets/orders"
    parents = ["/meta/consumers", "/meta/consumers/g", "/meta/consumers/g/offsets", folder]
    offsets = {"0-2": b"-5-100", "0-3": b"7-30", "1-1": b"9-1"}
    nodes = [(path, b"") for path in parents]
    await edits.ensure(tree, nodes)
    await edits.ensure(tree, [(f"{folder}/{name}", data) for name, data in offsets.items()])
    copy = OffsetCopy(source=0, target=1, first=2, last=4, target_first=0)
    assert await one.metaq_consumers.copy_offsets("orders", copy) == [f"{folder}/1-0"]
    assert await registry.data(f"{folder}/1-0") == "-5-100"
    assert await registry.data(f"{folder}/1-1") == "9-1", "what was there stays"
    assert await one.metaq_consumers.copy_offsets("orders", copy) == []


async def test_owners_are_told_and_offsets_written_as_the_dashboard_of_the_original_does(
    registry: Registry,
) -> None:
    one = await registry.join(metaq_broker_id_base=4)
    await one.register(broker())
    tree, folder = await registry.outsider(), "/meta/consumers/g/owners/orders"
    parents = ["/meta/consumers", "/meta/consumers/g", "/meta/consumers/g/owners", folder]
    await edits.ensure(tree, [(path, b"") for path in parents])
    await edits.ensure(tree, [(f"{folder}/4-1", b"g_a"), (f"{folder}/5-0", b"g_b")])
    consumers = one.metaq_consumers
    assert await consumers.metaq_owners("orders", "g") == {1: "g_a"}
    assert await consumers.metaq_owners("orders", "h") == {}
    for position in (77, 99):
        await consumers.set_metaq_offset("orders", "g", 1, position)
        path = "/meta/consumers/g/offsets/orders/4-1"
        assert await registry.data(path) == f"0-{position}"
    assert await consumers.metaq_progress(["orders"], ["g"]) == {"orders": {"g": {1: 99}}}


async def test_the_whole_tree_is_read_and_right(registry: Registry) -> None:
    one = await registry.join()
    await one.register(broker())
    await one.publish_topic(topic("orders", 4))
    root, nodes = await one.metaq_consumers.metaq_tree()
    assert nodes["/meta/brokers/topics/orders/0-m"] == ("4", True)
    assert check_tree(nodes, root) == []


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


async def test_the_tree_follows_the_leadership_of_the_shard(registry: Registry) -> None:
    one, two = await registry.join(), await registry.join()
    for member, record in ((one, broker("disk-a")), (two, broker("disk-b", process=1))):
        await member.register(replace(record, role=Role.ELECTING))
        await member.publish_topics([topic("orders"), topic("returns")])
    assert one.registered
    assert two.registered
    first, second = (Member(m.uuid, m.incarnation) for m in (one.registered, two.registered))
    state = ShardState(leader=first, epoch=1, in_sync=(first, second), cause="new")
    written = await one.shard_states.change_shard(0, state)
    await settled(one, two)
    ids = ["master", "master_config_checksum", "slave2"]
    assert await registry.names("/meta/brokers/ids/0") == ids
    assert await registry.data("/meta/brokers/ids/0/master") == "meta://127.0.0.1:8123"
    path, readers = "/meta/brokers/topics-pub/orders", "/meta/brokers/topics-sub/orders"
    assert await registry.names(path) == ["0-m"]
    assert await registry.names(readers) == ["0-m", "0-s2"]
    tree = await registry.outsider()
    before = await tree.get(f"{path}/0-m")

    await one.shard_states.change_shard(
        0, replace(written, leader=second, epoch=2, cause="handover")
    )
    await settled(one, two)
    assert await registry.names("/meta/brokers/ids/0") == [*ids[:2], "slave1"]
    assert await registry.data("/meta/brokers/ids/0/master") == "meta://127.0.0.1:8124"
    assert await registry.names(path) == ["0-m"]
    assert await registry.names(readers) == ["0-m", "0-s1"]
    after = await tree.get(f"{path}/0-m")
    assert before
    assert after
    assert after.created > before.created, "clients watch children only"

    await one.stop()
    assert await registry.names(readers) == ["0-m"]
    assert await registry.data("/meta/brokers/ids/0/master") == "meta://127.0.0.1:8124"


async def test_a_master_follows_one_that_left_its_nodes_behind(registry: Registry) -> None:
    one, two = await registry.join(), await registry.join()
    await one.register(broker("disk-a"))
    await one.publish_topic(topic("orders"))
    await two.register(replace(broker("disk-b", process=1), role=Role.ELECTING))
    await two.publish_topic(topic("orders"))
    assert two.registered
    second = Member(two.registered.uuid, two.registered.incarnation)
    # As after a crash: the nodes of the former master stand for as long as its session.
    await two.shard_states.change_shard(
        0, ShardState(leader=second, epoch=2, in_sync=(second,), cause="died")
    )
    await settled(two)
    assert await registry.data("/meta/brokers/ids/0/master") == "meta://127.0.0.1:8124"
    node = await (await registry.outsider()).get("/meta/brokers/topics-sub/orders/0-m")
    assert node
    assert node.owner == two._tree.session_id


async def test_an_original_slave_keeps_its_number_and_its_topics(registry: Registry) -> None:
    number, topics = "/meta/brokers/ids/0/slave1", "/meta/brokers/topics-sub/orders/0-s1"
    await registry.write(number, b"meta://10.9.9.9:8123", ephemeral=True)
    await registry.write(topics, b'{"numParts":1,"broker":"0-s1"}', ephemeral=True)
    one, two = await registry.join(), await registry.join()
    for member, record in ((one, broker("disk-a")), (two, broker("disk-b", process=1))):
        await member.register(replace(record, role=Role.ELECTING))
        await member.publish_topic(topic("orders", 4))
    assert one.registered
    assert two.registered
    first, second = (Member(m.uuid, m.incarnation) for m in (one.registered, two.registered))
    state = ShardState(leader=second, epoch=1, in_sync=(first, second), cause="new")
    written = await two.shard_states.change_shard(0, state)
    await settled(one, two)
    assert await registry.data(number) == "meta://10.9.9.9:8123"
    assert await registry.data(topics) == '{"numParts":1,"broker":"0-s1"}'
    # It may lead, and gives its place back without a trace.
    written = await one.shard_states.change_shard(0, replace(written, leader=first, epoch=2))
    await settled(one, two)
    ids = ["master", "master_config_checksum", "slave1", "slave2"]
    assert await registry.names("/meta/brokers/ids/0") == ids
    await one.shard_states.change_shard(0, replace(written, leader=second, epoch=3))
    await settled(one, two)
    await one.stop()
    assert await registry.data(number) == "meta://10.9.9.9:8123"
    assert await registry.data(topics) == '{"numParts":1,"broker":"0-s1"}'


async def test_a_slave_takes_the_place_of_its_own_former_life(registry: Registry) -> None:
    one, two = await registry.join(), await registry.join()
    await one.register(replace(broker(), role=Role.SLAVE))
    await two.register(replace(broker(), role=Role.SLAVE))
    await settled(two)
    node = await (await registry.outsider()).get("/meta/brokers/ids/0/slave1")
    assert node
    assert node.owner == two._tree.session_id


async def test_who_alone_may_lead_is_never_a_slave(registry: Registry) -> None:
    one = await registry.join()
    await one.register(replace(broker(), role=Role.ELECTING))
    await one.publish_topic(topic("orders", 4))
    assert one.registered
    former = Member(one.registered.uuid, one.registered.incarnation - 1)
    state = ShardState(leader=former, epoch=1, in_sync=(former,), cause="new")
    written = await one.shard_states.change_shard(0, state)
    await settled(one)
    assert await registry.names("/meta/brokers/ids/0") == []
    now = Member(one.registered.uuid, one.registered.incarnation)
    leads = replace(written, leader=now, epoch=2, in_sync=(now,))
    written = await one.shard_states.change_shard(0, leads)
    await settled(one)
    readers = "/meta/brokers/topics-sub/orders"
    assert await registry.names(readers) == ["0-m"]
    # It resigns, as at its end: what stands stays until it takes that away itself.
    await one.shard_states.change_shard(0, replace(written, leader=None))
    await settled(one)
    ids = ["master", "master_config_checksum"]
    assert await registry.names("/meta/brokers/ids/0") == ids
    assert await registry.names(readers) == ["0-m"]
    await one.unregister()
    assert await registry.names("/meta/brokers/ids") == []
    assert await registry.names(readers) == []


async def test_only_the_leader_says_where_topics_are(registry: Registry) -> None:
    one, two = await registry.join(), await registry.join()
    await one.register(broker("disk-a"))
    first = Member("disk-a", one.registered.incarnation if one.registered else 0)
    await one.shard_states.change_shard(
        0, ShardState(leader=first, epoch=1, in_sync=(first,), cause="new")
    )
    await one.publish_topic(topic("orders", 4))
    await two.register(replace(broker("disk-b", process=1), role=Role.SLAVE))
    # What a follower has heard of so far is no authority on what there is.
    await two.publish_topics([topic("stale", 1)], complete=True)
    view = await until(two, lambda view: bool(view.topics))
    assert set(view.topics) == {"orders"}
    assert set((await until(one, lambda view: bool(view.topics))).topics) == {"orders"}


async def test_leadership_does_not_wait_for_the_tree(registry: Registry) -> None:
    one, two = await registry.join(), await registry.join()
    names = [f"topic-{number:03d}" for number in range(300)]
    for member, record in ((one, broker("disk-a")), (two, broker("disk-b", process=1))):
        await member.register(replace(record, role=Role.ELECTING))
    assert one.registered
    assert two.registered
    first, second = (Member(m.uuid, m.incarnation) for m in (one.registered, two.registered))
    state = ShardState(leader=first, epoch=1, in_sync=(first, second), cause="new")
    written = await one.shard_states.change_shard(0, state)
    for member in (one, two):
        await member.publish_topics([topic(name) for name in names])
    tree = await registry.outsider()
    last = f"/meta/brokers/topics-pub/{names[-1]}/0-m"
    before = await tree.get(last)

    await one.shard_states.change_shard(
        0, replace(written, leader=second, epoch=2, cause="handover")
    )
    during = await tree.get(last)
    assert before == during, "who leads is known before clients of MetaQ are told of all topics"
    # While all that is written, the shard's state can change as ever.
    now = await two.shard_states.read_shard(0)
    assert now
    await two.shard_states.change_shard(0, replace(now, in_sync=(second,), cause="gone"))
    await settled(two)
    after = await tree.get(last)
    assert after
    assert after.owner == two._tree.session_id


async def settled(*members: TreeCoordinator) -> None:
    """Return once every member has written what the last state asks for."""
    for member in members:
        await member.publish_topics([])
        await member._reader.refresh_everything()
        await member.publish_topics([])
