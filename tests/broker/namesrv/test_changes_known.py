"""What is answered is in the name service's next answer, on whatever connection it is asked."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.app.clock import SystemClock
from imago_broker.cluster.memory import MemoryEnsemble, MemoryTree, memory_coordinator
from imago_broker.cluster.settings import CoordinatorConfig
from imago_broker.namesrv.server import NameService
from imago_broker.namesrv.settings import NameServiceConfig
from imago_broker.server.listener import Listener
from imago_broker.server.remoting.remoting_server import RemotingServer
from imago_testing.clusters.registry import broker as broker_record
from imago_testing.clusters.registry import topic
from imago_testing.peers.remoting import RemotingPeer
from imago_wire.remoting.codes import RequestCode as Code
from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from imago_broker.app import Broker

    Connect = Callable[..., Awaitable[RemotingPeer]]

TOPIC = {
    "topic": "T",
    "defaultTopic": "TBW102",
    "readQueueNums": 2,
    "writeQueueNums": 2,
    "perm": 6,
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": 0,
    "order": "false",
}
LIST = Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
ROUTE = Code.GET_ROUTEINFO_BY_TOPIC


async def listed(peer: RemotingPeer) -> list[str]:
    found: list[str] = json.loads((await peer.call(LIST)).body)["topicList"]
    return found


async def queue_data(peer: RemotingPeer, name: str = "T") -> dict[str, Any]:
    answer = await peer.call(ROUTE, {"topic": name})
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    (found,) = json.loads(answer.body)["queueDatas"]
    return dict(found)


async def test_topics_that_a_broker_answers_are_known_at_once(
    connect: Connect, broker: Broker
) -> None:
    tools, one, two = await connect(broker.rocketmq_port), await connect(), await connect()
    for n in range(5):
        made = await tools.call(Code.UPDATE_AND_CREATE_TOPIC, TOPIC)
        assert made.code == ResponseCode.SUCCESS
        assert "T" in await listed(one)
        assert (await queue_data(two))["writeQueueNums"] == 2
        await tools.call(Code.UPDATE_AND_CREATE_TOPIC, {**TOPIC, "perm": 4})
        assert (await queue_data(one))["perm"] == 4
        several = {"topicConfigList": [{"topicName": f"L{n}", "readQueueNums": 1}]}
        body = json.dumps(several).encode()
        answer = await tools.call(Code.UPDATE_AND_CREATE_TOPIC_LIST, {}, body)
        assert answer.code == ResponseCode.SUCCESS
        assert f"L{n}" in await listed(two)
        deleted = await tools.call(Code.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
        assert deleted.code == ResponseCode.SUCCESS
        assert "T" not in await listed(one)
        assert (await two.call(Code.DELETE_TOPIC_IN_NAMESRV, {"topic": "T"})).code == 0
        assert "T" not in await listed(two)
        assert (await one.call(ROUTE, {"topic": "T"})).code == ResponseCode.TOPIC_NOT_EXIST


async def test_answer_of_a_change_does_not_wait_for_a_registry_that_is_away(
    connect: Connect, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("imago_broker.app.registration.NEW_TOPIC_SECONDS_MAX", 0.05)

    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(broker.coordinator, "publish_topic", never)
    tools = await connect(broker.rocketmq_port)
    assert (await tools.call(Code.UPDATE_AND_CREATE_TOPIC, TOPIC)).code == ResponseCode.SUCCESS


async def test_marks_and_settings_are_known_at_once(connect: Connect, broker: Broker) -> None:
    tools, one, two = await connect(broker.rocketmq_port), await connect(), await connect()
    await tools.call(Code.UPDATE_AND_CREATE_TOPIC, TOPIC)
    where = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T"}
    for n in range(5):
        await one.call(Code.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "shard-0"})
        assert (await queue_data(two))["perm"] == 4
        await two.call(Code.ADD_WRITE_PERM_OF_BROKER, {"brokerName": "shard-0"})
        assert (await queue_data(one))["perm"] == 6
        await tools.call(Code.UPDATE_BROKER_CONFIG, {}, b"brokerPermission=4\n")
        assert (await queue_data(one))["perm"] == 4
        await tools.call(Code.UPDATE_BROKER_CONFIG, {}, b"brokerPermission=6\n")
        assert (await queue_data(two))["perm"] == 6
        await one.call(Code.PUT_KV_CONFIG, {**where, "value": f"shard-0:{n + 1}"})
        told = await two.call(Code.GET_KV_CONFIG, where)
        assert told.ext == {"value": f"shard-0:{n + 1}"}
        await two.call(Code.UPDATE_NAMESRV_CONFIG, {}, b"orderMessageEnable=true\n")
        routed = json.loads((await one.call(ROUTE, {"topic": "T"})).body)
        assert routed["orderTopicConf"] == f"shard-0:{n + 1}"
        await two.call(Code.DELETE_KV_CONFIG, where)
        assert (await one.call(Code.GET_KV_CONFIG, where)).code == ResponseCode.QUERY_NOT_FOUND


@pytest.fixture
async def unwatched() -> AsyncIterator[tuple[RemotingPeer, MemoryEnsemble]]:
    """A name service as a process of its own, whose watches come late."""
    ensemble = MemoryEnsemble()
    coordinator = memory_coordinator(CoordinatorConfig(cluster="imago"), ensemble)
    await coordinator.start()
    names = NameService(NameServiceConfig(port=0), coordinator, SystemClock())
    server = RemotingServer(table=names.table, loop=asyncio.get_running_loop())
    listener = Listener("127.0.0.1", 0, server.session)
    await listener.start()
    peer = await RemotingPeer.connect(listener.port)
    yield peer, ensemble
    await peer.close()
    await listener.stop()
    await names.stop()
    await coordinator.stop()


async def test_name_service_reads_a_topic_before_it_answers_that_it_is_gone(
    unwatched: tuple[RemotingPeer, MemoryEnsemble], monkeypatch: pytest.MonkeyPatch
) -> None:
    peer, ensemble = unwatched
    writer = memory_coordinator(CoordinatorConfig(cluster="imago"), ensemble)
    await writer.start()
    await writer.register(broker_record("disk", shard=0))
    await writer.publish_topic(topic("T", 2, shard=0))
    async with asyncio.timeout(50):
        while "T" not in await listed(peer):
            pass
    monkeypatch.setattr(MemoryTree, "fire", lambda *_: None)
    await writer.remove_topic("T")
    assert (await peer.call(Code.DELETE_TOPIC_IN_NAMESRV, {"topic": "T"})).code == 0
    assert "T" not in await listed(peer)
    assert (await peer.call(ROUTE, {"topic": "T"})).code == ResponseCode.TOPIC_NOT_EXIST
    await writer.stop()
