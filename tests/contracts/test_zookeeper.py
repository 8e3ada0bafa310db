"""What only a real ZooKeeper can show: time-outs, restarts, addresses."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.client import KazooClient
from kazoo.protocol.connection import ConnectionHandler

from imago_broker.cluster.settings import CoordinatorConfig
from imago_broker.cluster.zookeeper import zookeeper_coordinator
from imago_broker.model.registry.cluster import (
    BrokerRecord,
    RegistryConnection,
    ShardQueues,
    TopicPlacement,
)
from imago_broker.ports import CoordinatorConflictError, CoordinatorUnavailableError
from imago_testing.clusters.registry import SECONDS_MAX, in_state
from imago_testing.processes.ports import free_port_block
from imago_testing.processes.servers import wait_until
from imago_testing.processes.zookeeper import RunningZooKeeper, running_zookeeper

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.zookeeper

RECORD = BrokerRecord(
    shard=0,
    uuid="disk-a",
    host="127.0.0.1",
    metaq=8123,
    rocketmq=10911,
    fast=10909,
    replication=10912,
    admin=8080,
    broker_name="shard-0",
)


async def test_an_address_where_nobody_answers_is_named() -> None:
    address = f"127.0.0.1:{free_port_block(1)}"
    config = CoordinatorConfig(connect_timeout_ms=500)
    with pytest.raises(CoordinatorUnavailableError, match=address):
        await zookeeper_coordinator(config, address).start()


async def test_an_address_of_the_wrong_form_is_refused() -> None:
    with pytest.raises(CoordinatorConflictError, match=r"host:port"):
        await zookeeper_coordinator(CoordinatorConfig(), "127.0.0.1:port").start()


async def test_a_session_timeout_that_the_server_changes_is_refused(
    zookeeper: RunningZooKeeper,
) -> None:
    config = CoordinatorConfig(session_timeout_ms=100_000)
    with pytest.raises(CoordinatorConflictError, match=r"grants sessions of 60000 ms"):
        await zookeeper_coordinator(config, zookeeper.address).start()


async def test_nodes_without_data_as_metaqs_clients_make_them_are_read(
    zookeeper: RunningZooKeeper,
) -> None:
    outsider = KazooClient(zookeeper.address)
    await asyncio.to_thread(outsider.start)
    await asyncio.to_thread(outsider.create, "/none/brokers/ids", None, makepath=True)
    coordinator = zookeeper_coordinator(CoordinatorConfig(metaq_root="/none"), zookeeper.address)
    await coordinator.start()
    try:
        root, nodes = await coordinator.metaq_consumers.metaq_tree()
        assert (root, nodes["/none/brokers/ids"].data) == ("/none", "")
    finally:
        await coordinator.stop()
        await asyncio.to_thread(outsider.stop)
        outsider.close()


async def test_one_reachable_server_of_several_addresses_is_enough(
    zookeeper: RunningZooKeeper,
) -> None:
    dead = f"127.0.0.1:{free_port_block(1)}"
    hosts = f"{dead},{zookeeper.address}/several/deep"
    coordinator = zookeeper_coordinator(CoordinatorConfig(), hosts)
    await coordinator.start()
    assert coordinator.view().cluster_id
    await coordinator.stop()


async def test_a_restart_of_zookeeper_costs_no_registration(tmp_path: Path) -> None:
    with running_zookeeper(tmp_path) as server:
        config = CoordinatorConfig(session_timeout_ms=20_000)
        coordinator = zookeeper_coordinator(config, server.address)
        await coordinator.start()
        incarnation = await coordinator.register(RECORD)
        server.kill()
        await in_state(coordinator, RegistryConnection.SUSPENDED)
        server.start()
        await in_state(coordinator, RegistryConnection.CONNECTED)
        topic = TopicPlacement(name="after", shards={0: ShardQueues(1, 1)})
        await coordinator.publish_topic(topic)
        assert coordinator.registered
        assert coordinator.registered.incarnation == incarnation
        await coordinator.stop()


@pytest.mark.full
async def test_a_zookeeper_that_lost_its_data_is_filled_again(tmp_path: Path) -> None:
    port = free_port_block(1)
    first, second = tmp_path / "first", tmp_path / "second"
    with running_zookeeper(first, port=port) as server:
        config = CoordinatorConfig(session_timeout_ms=2000)
        coordinator = zookeeper_coordinator(config, server.address)
        await coordinator.start()
        cluster_id = coordinator.view().cluster_id
        await coordinator.register(RECORD)
        await coordinator.publish_topic(TopicPlacement(name="t", shards={0: ShardQueues(1, 1)}))
        server.kill()
    await in_state(coordinator, RegistryConnection.SUSPENDED)
    with running_zookeeper(second, port=port) as server:
        await in_state(coordinator, RegistryConnection.CONNECTED)
        await coordinator.publish_topic(TopicPlacement(name="u", shards={0: ShardQueues(1, 1)}))
        other = zookeeper_coordinator(config, server.address)
        await other.start()
        assert [found.uuid for found in other.view().brokers] == ["disk-a"]
        assert set(other.view().topics) == {"t", "u"}
        assert other.view().cluster_id == cluster_id
        await other.stop()
        await coordinator.stop()


async def test_a_broker_whose_event_loop_hangs_is_gone_for_the_others(
    zookeeper: RunningZooKeeper,
) -> None:
    config = CoordinatorConfig(session_timeout_ms=2000, cluster="hanging")
    coordinator = zookeeper_coordinator(config, zookeeper.address)
    await coordinator.start()
    before = await coordinator.register(RECORD)
    other = KazooClient(hosts=zookeeper.address)
    await asyncio.to_thread(other.start)
    # This blocks the event loop: kazoo's threads alone would keep the session for ever.
    wait_until(
        lambda: other.exists("/imago/hanging/brokers/0-0") is None,
        seconds_max=60,
        what="the registration of the hanging broker is gone",
    )
    assert coordinator.lease_end_ms == 0
    lost = asyncio.Event()
    coordinator.on_state(lambda state: lost.set() if state is RegistryConnection.LOST else None)
    async with asyncio.timeout(50):
        await lost.wait()
    await in_state(coordinator, RegistryConnection.CONNECTED)
    assert await coordinator.register(RECORD) > before
    await asyncio.to_thread(other.stop)
    other.close()
    await coordinator.stop()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_client_whose_thread_ends_is_replaced(
    zookeeper: RunningZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The longest session that the server grants: whatever is over before it ended was not its end.
    config = CoordinatorConfig(session_timeout_ms=60_000, cluster="ended")
    coordinator = zookeeper_coordinator(config, zookeeper.address)
    await coordinator.start()
    before = await coordinator.register(RECORD)
    lost = asyncio.Event()
    coordinator.on_state(lambda state: lost.set() if state is RegistryConnection.LOST else None)
    read, failed = ConnectionHandler._read_response, [False]

    def out_of_order(self: Any, header: Any, buffer: Any, offset: int) -> Any:
        if failed[0]:
            return read(self, header, buffer, offset)
        failed[0] = True
        _, answer, xid = self.client._pending.popleft()
        problem = RuntimeError("xids do not match, expected %r received %r", xid, xid + 1)
        answer.set_exception(problem)
        raise problem

    monkeypatch.setattr(ConnectionHandler, "_read_response", out_of_order)
    # Before the session's own time-out, of which nobody would be told.
    async with asyncio.timeout(SECONDS_MAX):
        with suppress(CoordinatorUnavailableError):
            await coordinator.publish_topic(TopicPlacement(name="t", shards={0: ShardQueues(1, 1)}))
        await lost.wait()
        await in_state(coordinator, RegistryConnection.CONNECTED)
    assert failed[0]
    await coordinator.publish_topic(TopicPlacement(name="u", shards={0: ShardQueues(1, 1)}))
    assert coordinator.registered
    assert coordinator.registered.incarnation > before
    await coordinator.stop()
