"""What every coordinator promises about brokers: identity, sessions, fencing."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from imago_broker.model.registry.cluster import (
    RegistryConnection,
    Role,
)
from imago_broker.ports import CoordinatorConflictError
from imago_testing.clusters.registry import Registry, broker, foreign, in_state, topic, until


async def test_a_new_cluster_gets_an_id_that_all_its_processes_see(registry: Registry) -> None:
    one, two = await registry.join(), await registry.join()
    assert one.view().cluster_id
    assert one.view().cluster_id == two.view().cluster_id


async def test_clusters_of_different_names_do_not_see_each_other(registry: Registry) -> None:
    one, two = await registry.join(), await registry.join(cluster="second", metaq_broker_id_base=1)
    await one.register(broker())
    assert await two.register(broker("disk-z", process=1)) > 0
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
    await two.register(replace(broker("disk-b", process=1), role=Role.SLAVE))
    assert two.registered
    assert two.registered.replica == 1
    await one.stop()
    again = await registry.join()
    second = await again.register(broker("disk-a"))
    assert again.registered
    assert again.registered.replica == 0
    assert second > first
    wiped = await registry.join()
    await wiped.register(replace(broker("disk-c", process=2), role=Role.SLAVE))
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
    await in_state(former, RegistryConnection.FENCED)
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
    assert one.state is RegistryConnection.LOST


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
    states: list[RegistryConnection] = []
    one.on_state(states.append)
    await registry.expire(one)
    await until(two, lambda v: bool(v.brokers) and v.brokers[0].incarnation > before)
    await until(two, lambda view: bool(view.foreign))
    await one.publish_topic(topic("more"))
    for name in ("orders", "returns", "more"):
        assert await registry.names(f"/meta/brokers/topics-pub/{name}") == ["0-m"]
    assert await registry.data("/meta/brokers/ids/0/master") == "meta://127.0.0.1:8123"
    assert states[-2:] == [RegistryConnection.LOST, RegistryConnection.CONNECTED]
    assert one.registered
    assert one.registered.incarnation > before


async def test_silence_becomes_loss_by_our_own_clock_and_heals(registry: Registry) -> None:
    one = await registry.join()
    await one.register(broker())
    states: list[RegistryConnection] = []
    one.on_state(states.append)
    await registry.cut(one)
    try:
        await in_state(one, RegistryConnection.LOST)
    finally:
        await registry.heal(one)
    await in_state(one, RegistryConnection.CONNECTED)
    # A cut is noticed late; that the lease has run out we know by ourselves.
    assert states[-2:] == [RegistryConnection.LOST, RegistryConnection.CONNECTED]
    await one.publish_topic(topic("after"))
    assert await registry.names("/meta/brokers/topics-pub/after") == ["0-m"]
    assert one.view().master(0) is not None


async def test_stop_may_be_called_twice(registry: Registry) -> None:
    one = await registry.join()
    await one.stop()
    await one.stop()
