"""What every coordinator promises, whatever its registry stands on."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from imago_broker.cluster.znodes import Paths
from imago_broker.model.cluster import (
    BrokerRecord,
    Connection,
    ForeignBroker,
    Role,
    ShardQueues,
    TopicPlacement,
)
from imago_broker.ports import CoordinatorConflictError, RegistryDamagedError
from imago_testing.registry import Registry, in_state, until

BUCKET_OF_ORDERS = Paths("imago").bucket("orders")


def broker(uuid: str = "disk-a", *, shard: int = 0, metaq: int = 8123) -> BrokerRecord:
    return BrokerRecord(
        shard=shard,
        uuid=uuid,
        host="127.0.0.1",
        metaq=metaq + shard,
        rocketmq=10911 + 10 * shard,
        fast=10909 + 10 * shard,
        replication=10912 + 10 * shard,
        admin=8080 + shard,
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


async def test_a_new_cluster_gets_an_id_that_all_its_processes_see(registry: Registry) -> None:
    one, two = await registry.join(), await registry.join()
    assert one.view().cluster_id
    assert one.view().cluster_id == two.view().cluster_id


async def test_clusters_of_different_names_do_not_see_each_other(registry: Registry) -> None:
    one, two = await registry.join(), await registry.join(cluster="second", metaq_broker_id_base=1)
    await one.register(broker())
    assert await two.register(broker("disk-z", metaq=9000)) > 0
    assert [found.uuid for found in one.view().brokers] == ["disk-a"]
    assert [found.uuid for found in two.view().brokers] == ["disk-z"]


async def test_settings_that_contradict_the_cluster_are_refused(registry: Registry) -> None:
    await registry.join()
    with pytest.raises(CoordinatorConflictError, match=r"broker_id_base = 0"):
        await registry.join(metaq_broker_id_base=5)


async def test_a_registered_broker_is_seen_by_all(registry: Registry) -> None:
    one, two = await registry.join(), await registry.join()
    incarnation = await one.register(broker())
    seen = (await until(two, lambda view: len(view.brokers) == 1)).brokers[0]
    assert seen == replace(broker(), replica=0, incarnation=incarnation)
    assert one.registered == seen
    assert one.view().master(0) == seen


async def test_replica_numbers_belong_to_data_folders_for_ever(registry: Registry) -> None:
    one, two = await registry.join(), await registry.join()
    first = await one.register(broker("disk-a"))
    await two.register(replace(broker("disk-b", metaq=8200), role=Role.SLAVE))
    assert two.registered
    assert two.registered.replica == 1
    await one.stop()
    again = await registry.join()
    second = await again.register(broker("disk-a"))
    assert again.registered
    assert again.registered.replica == 0
    assert second > first
    wiped = await registry.join()
    await wiped.register(replace(broker("disk-c", metaq=8300), role=Role.SLAVE))
    assert wiped.registered
    assert wiped.registered.replica == 2


async def test_what_a_former_life_left_behind_is_replaced_at_once(registry: Registry) -> None:
    former, now = await registry.join(), await registry.join()
    before = await former.register(broker())
    await former.publish_topic(topic("orders"))
    # The former process is dead, its session is not yet.
    after = await now.register(broker())
    await now.publish_topic(topic("orders", 8))
    assert after > before
    assert [b.incarnation for b in now.view().brokers] == [after]
    path = "/meta/brokers/topics-pub/orders/0-m"
    assert await registry.data(path) == '{"numParts":8,"broker":"0-m"}'
    await former.stop()
    assert await registry.data(path) == '{"numParts":8,"broker":"0-m"}'
    assert await registry.data("/meta/brokers/ids/0/master") == "meta://127.0.0.1:8123"


async def test_a_process_whose_place_was_taken_is_fenced(registry: Registry) -> None:
    former, now = await registry.join(), await registry.join()
    await former.register(broker())
    await former.publish_topic(topic("orders"))
    after = await now.register(broker())
    await in_state(former, Connection.FENCED)
    assert former.registered is None
    with pytest.raises(CoordinatorConflictError, match="taken this broker's place"):
        await former.publish_topic(topic("orders", 16))
    with pytest.raises(CoordinatorConflictError, match="taken this broker's place"):
        await former.register(broker())
    view = await until(now, lambda view: bool(view.brokers))
    assert [found.incarnation for found in view.brokers] == [after]


async def test_a_change_of_role_keeps_the_incarnation(registry: Registry) -> None:
    one, two = await registry.join(), await registry.join()
    as_slave = await one.register(replace(broker(), role=Role.SLAVE))
    assert await registry.names("/meta/brokers/ids/0") == ["slave1"]
    assert await one.register(broker()) == as_slave
    view = await until(two, lambda view: view.master(0) is not None)
    assert view.brokers[0].incarnation == as_slave
    assert await registry.names("/meta/brokers/ids/0") == ["master", "master_config_checksum"]


async def test_topics_follow_a_change_of_role(registry: Registry) -> None:
    one = await registry.join()
    await one.register(replace(broker(), role=Role.SLAVE))
    await one.publish_topic(topic("orders"))
    assert await registry.names("/meta/brokers/topics-sub/orders") == ["0-s1"]
    await one.register(broker())
    await one.publish_topic(topic("other"))
    assert await registry.names("/meta/brokers/topics-sub/orders") == ["0-m"]


async def test_unregistering_leaves_the_placement_and_nothing_else(registry: Registry) -> None:
    one, two = await registry.join(), await registry.join()
    await one.register(broker())
    await one.publish_topic(topic("orders"))
    await one.unregister()
    assert one.registered is None
    view = await until(two, lambda view: not view.brokers)
    assert set((await until(two, lambda view: bool(view.topics))).topics) == {"orders"}
    assert view.master(0) is None
    assert await registry.names("/meta/brokers/ids") == []
    for branch in ("topics", "topics-pub", "topics-sub"):
        assert await registry.names(f"/meta/brokers/{branch}/orders") == []


async def test_stopping_takes_the_broker_away_for_others(registry: Registry) -> None:
    one, two = await registry.join(), await registry.join()
    await one.register(broker())
    await one.put_foreign(foreign())
    await until(two, lambda view: bool(view.brokers and view.foreign))
    await one.stop()
    view = await until(two, lambda view: not view.brokers and not view.foreign)
    assert view.brokers == ()
    assert one.state is Connection.LOST


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


async def test_wishes_made_before_registration_are_written_with_it(registry: Registry) -> None:
    one = await registry.join(operation_timeout_ms=30_000)
    publishing = asyncio.create_task(one.publish_topic(topic("early")))
    await one.register(broker())
    await publishing
    assert await registry.names("/meta/brokers/topics-pub/early") == ["0-m"]
    assert set((await until(one, lambda view: bool(view.topics))).topics) == {"early"}


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


async def test_registration_waits_for_a_dead_stranger_to_go(registry: Registry) -> None:
    await registry.write("/meta/brokers/ids/0/master", b"meta://10.9.9.9:8123", ephemeral=True)
    one = await registry.join(stranger_wait_ms=20_000)
    registering = asyncio.create_task(one.register(broker()))
    await until(one, lambda view: bool(view.brokers))
    await registry.delete("/meta/brokers/ids/0/master")
    assert await registering > 0
    assert await registry.data("/meta/brokers/ids/0/master") == "meta://127.0.0.1:8123"


async def test_a_new_session_writes_everything_again(registry: Registry) -> None:
    one, two = await registry.join(), await registry.join()
    before = await one.register(broker())
    await one.publish_topics([topic("orders"), topic("returns")])
    await one.put_foreign(foreign())
    states: list[Connection] = []
    one.on_state(states.append)
    await registry.expire(one)
    await until(two, lambda v: bool(v.brokers) and v.brokers[0].incarnation > before)
    await until(two, lambda view: bool(view.foreign))
    await one.publish_topic(topic("more"))
    for name in ("orders", "returns", "more"):
        assert await registry.names(f"/meta/brokers/topics-pub/{name}") == ["0-m"]
    assert await registry.data("/meta/brokers/ids/0/master") == "meta://127.0.0.1:8123"
    assert states[-2:] == [Connection.LOST, Connection.CONNECTED]
    assert one.registered
    assert one.registered.incarnation > before


async def test_silence_becomes_loss_by_our_own_clock_and_heals(registry: Registry) -> None:
    one = await registry.join()
    await one.register(broker())
    states: list[Connection] = []
    one.on_state(states.append)
    await registry.cut(one)
    try:
        await in_state(one, Connection.LOST)
    finally:
        await registry.heal(one)
    await in_state(one, Connection.CONNECTED)
    assert states[:2] == [Connection.SUSPENDED, Connection.LOST]
    await one.publish_topic(topic("after"))
    assert await registry.names("/meta/brokers/topics-pub/after") == ["0-m"]
    assert one.view().master(0) is not None


async def test_a_wish_made_in_silence_is_written_afterwards(registry: Registry) -> None:
    one = await registry.join(operation_timeout_ms=60_000)
    await one.register(broker())
    await registry.cut(one)
    try:
        publishing = asyncio.create_task(one.publish_topic(topic("silent")))
        await in_state(one, Connection.SUSPENDED)
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
    await one.put_kv("ns", "key", "value")
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
        await one.put_kv("ns", "key", "value")
    await registry.write(path, b"{}")
    view = await until(one, lambda v: v.topics.get("orders") == topic("orders", 8))
    assert path not in view.refused


async def test_kv_is_changed_by_compare_and_set(registry: Registry) -> None:
    one, two = await registry.join(), await registry.join()
    await asyncio.gather(
        *(one.put_kv("a", f"one-{n}", "1") for n in range(20)),
        *(two.put_kv("a", f"two-{n}", "2") for n in range(20)),
    )
    view = await until(one, lambda view: len(view.kv.get("a", {})) == 40)
    assert view.kv["a"]["two-19"] == "2"
    for number in range(20):
        await two.put_kv("a", f"one-{number}", None)
        await two.put_kv("a", f"two-{number}", None)
    assert dict(two.view().kv) == {}


async def test_wiped_write_permission_is_seen_and_given_back(registry: Registry) -> None:
    one, two = await registry.join(), await registry.join()
    await one.set_write_wiped("shard-3", True)
    await one.set_write_wiped("shard-4", True)
    await until(two, lambda view: view.wiped == frozenset({"shard-3", "shard-4"}))
    await two.set_write_wiped("shard-3", False)
    assert two.view().wiped == frozenset({"shard-4"})


async def test_a_foreign_broker_lives_with_the_session_that_holds_it(registry: Registry) -> None:
    one, two, three = [await registry.join() for _ in range(3)]
    await one.put_foreign(foreign(1))
    await two.put_foreign(foreign(2, zone="z"))
    view = await until(three, lambda view: view.foreign == (foreign(2, zone="z"),))
    assert len(view.foreign) == 1, "one broker that two name services hold"
    await two.stop()
    await until(three, lambda view: view.foreign == (foreign(1),))
    await one.put_foreign(foreign(3))
    await until(three, lambda view: view.foreign == (foreign(3),))
    await one.remove_foreign(foreign().key)
    await until(three, lambda view: view.foreign == ())
    await one.remove_foreign(foreign().key)


async def test_a_foreign_broker_that_somebody_deletes_comes_back(registry: Registry) -> None:
    one = await registry.join()
    await one.put_foreign(foreign())
    gone: list[bool] = []
    one.on_change(lambda view: gone.append(not view.foreign))
    folder = "/imago/imago/namesrv/foreign"
    (name,) = await registry.names(folder)
    await registry.delete(f"{folder}/{name}")
    await until(one, lambda view: any(gone) and view.foreign == (foreign(),))


async def test_snapshots_are_never_changed_in_place(registry: Registry) -> None:
    one = await registry.join()
    seen: list[int] = []
    one.on_change(lambda view: seen.append(view.version))
    before = one.view()
    await one.put_kv("a", "b", "c")
    assert before.kv == {}
    assert one.view().version > before.version
    assert seen == sorted(seen)
    assert seen[-1] == one.view().version


async def test_a_callback_that_fails_does_not_stop_the_others(
    registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    one = await registry.join()

    def fail(_: object) -> None:
        raise RuntimeError("a mistake in a callback")

    seen: list[int] = []
    one.on_change(fail)
    one.on_change(lambda view: seen.append(view.version))
    await one.put_kv("a", "b", "c")
    assert seen
    assert "a mistake in a callback" in caplog.text


async def test_stop_may_be_called_twice(registry: Registry) -> None:
    one = await registry.join()
    await one.stop()
    await one.stop()


async def test_many_topics_are_published_and_seen(registry: Registry) -> None:
    one, two = await registry.join(), await registry.join()
    await one.register(broker())
    names = [f"t-{number}" for number in range(1000)]
    await one.publish_topics([topic(name) for name in names])
    await until(two, lambda view: len(view.topics) == 1000)
    assert len(await registry.names("/meta/brokers/topics-sub")) == 1000
