"""What RocketMQ's dashboard (2.1) and its exporter for Prometheus ask, in their own order.

Their calls and what they take apart of the answers are read from their sources; both use the same
admin client as mqadmin, whose every command tests/interop runs.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from imago_testing.peers.remoting import heartbeat
from imago_wire.remoting.codes import RequestCode as Code
from imago_wire.remoting.codes import ResponseCode
from imago_wire.remoting.messages import decode_messages
from imago_wire.remoting.texts.properties_text import decode_properties_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from imago_broker.app import Broker
    from imago_testing.peers.remoting import RemotingPeer

    Connect = Callable[..., Awaitable[RemotingPeer]]

WHOLE = re.compile(
    r"msg(Put|Get)Total(TodayNow|TodayMorning|YesterdayMorning)"
    r"|(send|pull|query)ThreadPoolQueue(Size|Capacity|HeadWaitTimeMills)"
    r"|commitLog(Min|Max)Offset|(put|get)MessageEntireTimeMax|putMessage(Times|Size)Total"
    r"|bootTimestamp|brokerVersion|startAcceptSendRequestTimeStamp|earliestMessageTimeStamp"
    r"|dispatch(MaxBuffer|BehindBytes)|pageCacheLockTimeMills|remainTransientStoreBufferNumbs"
)
"""Figures that the exporter reads as whole numbers: without one of them it has none at all."""
WHOLE_COUNT = 29
FRACTIONS = ("consumeQueueDiskRatio", "commitLogDiskRatio", "putMessageAverageSize")
RATES = ("putTps", "getMissTps", "getTransferredTps", "getTotalTps", "getFoundTps")


class Servers(NamedTuple):
    """A broker with a topic, a consumer and a producer, and the name service beside it."""

    broker: RemotingPeer
    names: RemotingPeer
    consumer: RemotingPeer


@pytest.fixture
async def servers(broker: Broker, connect: Connect) -> Servers:
    peer, names = await connect(), await connect(broker.ports.namesrv_port)
    consumer = await connect()
    await consumer.call(Code.HEART_BEAT, {}, heartbeat("G"))
    for number in range(3):
        await peer.put("T", b"x" * 10, properties=f"KEYS\x01k{number}\x02")
    await consumer.pull("T", consumerGroup="G")
    at = {"consumerGroup": "G", "topic": "T", "queueId": 0, "commitOffset": 1}
    await consumer.call(Code.UPDATE_CONSUMER_OFFSET, at)
    return Servers(peer, names, consumer)


async def told(peer: RemotingPeer, code: int, **ext: object) -> Any:
    answer = await peer.call(code, ext)
    assert answer.code == ResponseCode.SUCCESS, (code, answer.remark)
    return _json(answer.body)


def _json(body: bytes) -> Any:
    """Read it as fastjson does: keys of tables may be numbers, and objects."""
    text = re.sub(r"([{,])(\d+):", r'\1"\2":', body.decode())
    text = re.sub(r'(\{"brokerName":[^{}]*\}):', lambda found: json.dumps(found[1]) + ":", text)
    return json.loads(text)


async def stats(peer: RemotingPeer, name: str, key: str) -> float:
    found = await told(peer, Code.VIEW_BROKER_STATS_DATA, statsName=name, statsKey=key)
    return float(found["statsMinute"]["tps"])


async def test_the_exporter_finds_all_that_it_tells_prometheus(servers: Servers) -> None:
    peer, names, consumer = servers
    cluster = await told(names, Code.GET_BROKER_CLUSTER_INFO)
    ((shard, data),) = cluster["brokerAddrTable"].items()
    ((cluster_name, shards),) = cluster["clusterAddrTable"].items()
    assert shards == [shard] == [data["brokerName"]]
    assert set(data["brokerAddrs"]) == {"0"}, "MixAll.MASTER_ID"
    assert "T" in (await told(names, Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER))["topicList"]
    # collectTopicOffset
    offsets = (await told(peer, Code.GET_TOPIC_STATS_INFO, topic="T"))["offsetTable"]
    assert sum(one["maxOffset"] for one in offsets.values()) == 3
    assert max(one["lastUpdateTimestamp"] for one in offsets.values()) > 0
    # collectProducer
    producers = (await told(peer, Code.GET_ALL_PRODUCER_INFO))["data"]
    assert [one["clientId"] for one in producers["P"]] == ["client"]
    # collectConsumerOffset
    assert (await told(peer, Code.QUERY_TOPIC_CONSUME_BY_WHO, topic="T"))["groupList"] == ["G"]
    online = await told(peer, Code.GET_CONSUMER_CONNECTION_LIST, consumerGroup="G")
    assert (online["messageModel"], len(online["connectionSet"])) == ("CLUSTERING", 1)
    lag = await told(peer, Code.GET_CONSUME_STATS, consumerGroup="G", topic="T")
    assert "consumeTps" in lag
    queues = list(lag["offsetTable"].values())
    assert sum(one["brokerOffset"] - one["consumerOffset"] for one in queues) == 2
    assert all(one["lastTimestamp"] >= 0 for one in queues)
    await _ask_a_client(peer, consumer)
    # collectBrokerStatsTopic, collectBrokerStats
    assert (await told(names, Code.GET_ROUTEINFO_BY_TOPIC, topic="T"))["brokerDatas"]
    for name, key in (
        ("TOPIC_PUT_NUMS", "T"),
        ("TOPIC_PUT_SIZE", "T"),
        ("GROUP_GET_NUMS", "T@G"),
        ("GROUP_GET_SIZE", "T@G"),
        ("BROKER_PUT_NUMS", cluster_name),
        ("BROKER_GET_NUMS", cluster_name),
    ):
        assert await stats(peer, name, key) >= 0, name
    none = {"statsName": "SNDBCK_PUT_NUMS", "statsKey": "T@G"}  # it is not said before it happens
    assert (await peer.call(Code.VIEW_BROKER_STATS_DATA, none)).code == ResponseCode.SYSTEM_ERROR


async def _ask_a_client(peer: RemotingPeer, consumer: RemotingPeer) -> None:
    """Ask what a consumer does, which the broker asks it."""
    where = {"consumerGroup": "G", "clientId": "client", "jstackEnable": "false"}
    peer.send(Code.GET_CONSUMER_RUNNING_INFO, where)
    asked = await consumer.request(Code.GET_CONSUMER_RUNNING_INFO)
    assert asked.ext["consumerGroup"] == "G"


async def test_the_exporter_can_take_the_brokers_figures_apart(servers: Servers) -> None:
    table = (await told(servers.broker, Code.GET_BROKER_RUNTIME_INFO))["table"]
    whole = {key: int(value) for key, value in table.items() if WHOLE.fullmatch(key)}
    assert len(whole) == WHOLE_COUNT, sorted(whole)
    assert whole["msgPutTotalTodayNow"] == 3
    assert all(float(table[key]) >= 0 for key in FRACTIONS)
    assert all(len([float(rate) for rate in table[key].split(" ")]) == 3 for key in RATES)
    words = table["commitLogDirCapacity"].split(" ")
    assert float(words[2]) >= float(words[6]) > 0
    assert (words[3], words[7]) == ("B,", "B.")
    assert float(table["remainHowManyDataToFlush"].split(" ")[0]) >= 0
    steps = [step.split(":") for step in table["putMessageDistributeTime"].split(" ")]
    assert sum(int(count) for _, count in steps) == 3
    levels = [value for key, value in table.items() if key.startswith("scheduleMessageOffset")]
    assert all(len([int(place) for place in value.split(",")]) == 2 for value in levels)


async def test_the_dashboards_pages_have_what_they_show(servers: Servers, broker: Broker) -> None:
    peer, names, _ = servers
    # Cluster, Dashboard
    await told(names, Code.GET_BROKER_CLUSTER_INFO)
    table = (await told(peer, Code.GET_BROKER_RUNTIME_INFO))["table"]
    shown = ("brokerVersionDesc", "putTps", "getTransferredTps", "msgPutTotalTodayMorning")
    assert all(table[key] for key in shown)
    settings = await peer.call(Code.GET_BROKER_CONFIG, {})
    assert decode_properties_text(settings.body)["brokerName"] == "shard-0"
    # Topic: status, route, consumers, configuration
    await told(names, Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    await told(peer, Code.GET_TOPIC_STATS_INFO, topic="T")
    route = await told(names, Code.GET_ROUTEINFO_BY_TOPIC, topic="T")
    assert route["queueDatas"][0]["brokerName"] == "shard-0"
    assert (await told(peer, Code.GET_TOPIC_CONFIG, topic="T"))["topicName"] == "T"
    assert "T" in (await told(peer, Code.GET_ALL_TOPIC_CONFIG))["topicConfigTable"]
    # Consumer: list, detail, configuration, reset
    groups = await told(peer, Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    assert "G" in groups["subscriptionGroupTable"]
    whole = await told(peer, Code.GET_CONSUME_STATS, consumerGroup="G")
    assert any("T" in queue for queue in whole["offsetTable"])
    one = await told(peer, Code.GET_SUBSCRIPTIONGROUP_CONFIG, group="G")
    assert one["groupName"] == "G"
    await told(peer, Code.QUERY_CONSUME_TIME_SPAN, topic="T", group="G")
    back = {"topic": "T", "group": "G", "timestamp": 0, "isForce": "true"}
    assert (await peer.call(Code.INVOKE_BROKER_TO_RESET_OFFSET, back)).code == 0
    assert broker.offsets.query("G", "T", 0) in (0, 1), "its consumer is told, and goes back"


async def test_the_dashboard_finds_producers_and_messages(servers: Servers) -> None:
    peer, names, _ = servers
    at = {"topic": "T", "producerGroup": "P"}
    assert (await told(peer, Code.GET_PRODUCER_CONNECTION_LIST, **at))["connectionSet"]
    (found,) = await _by_key(peer, "k1")
    viewed = await peer.call(Code.VIEW_MESSAGE_BY_ID, {"offset": found.physical_offset})
    assert [each.body for each in decode_messages(viewed.body)] == [b"x" * 10]
    queue = {"topic": "T", "queueId": 0}
    ends = [await peer.call(code, queue) for code in (Code.GET_MIN_OFFSET, Code.GET_MAX_OFFSET)]
    assert [end.ext["offset"] for end in ends] == ["0", "3"]
    placed = await peer.call(Code.SEARCH_OFFSET_BY_TIMESTAMP, {**queue, "timestamp": 0})
    assert placed.ext["offset"] == "0"
    # Ops: keys and values, permissions of a broker
    wiped = await names.call(Code.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "none"})
    assert wiped.code == ResponseCode.SUCCESS


async def _by_key(peer: RemotingPeer, key: str) -> list[Any]:
    asked = {"topic": "T", "key": key, "maxNum": 64, "beginTimestamp": 0, "endTimestamp": 1 << 62}
    answer = await peer.call(Code.QUERY_MESSAGE, asked)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return decode_messages(answer.body)
