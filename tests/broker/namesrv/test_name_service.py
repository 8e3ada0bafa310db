"""The name service over real sockets: routes, settings, foreign brokers."""

from __future__ import annotations

import asyncio
import json
import zlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.app.clock import SystemClock
from imago_broker.cluster.memory import memory_coordinator
from imago_broker.cluster.settings import CoordinatorConfig
from imago_broker.namesrv.name_settings import FIXED
from imago_broker.namesrv.server import run
from imago_broker.namesrv.settings import NameServiceConfig
from imago_broker.server.listener import Listener
from imago_broker.server.remoting.remoting_server import RemotingServer
from imago_testing.frames.remoting import load_captures
from imago_testing.peers.remoting import RemotingPeer
from imago_wire.crc import crc31
from imago_wire.remoting.bodies.config import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from imago_wire.remoting.bodies.register import RegisterBrokerBody, encode_register_body
from imago_wire.remoting.bodies.route import QueueData, TopicRouteData
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.command import SerializeType
from imago_wire.remoting.header import decode_header
from imago_wire.remoting.texts.properties_text import decode_properties_text, encode_properties_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from imago_broker.app import Broker
    from imago_broker.processors.rocketmq.rows import Table

    Connect = Callable[..., Awaitable[RemotingPeer]]

CAPTURED = Path(__file__).parents[2] / "wire" / "remoting" / "golden" / "captured.hex"
ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC
NAME = {"brokerName": "broker-a", "brokerAddr": "10.9.9.9:10911", "clusterName": "Other"}


async def until_routed(peer: RemotingPeer, topic: str) -> dict[str, Any]:
    """Ask until the registry has heard of the topic."""
    async with asyncio.timeout(50):
        while True:
            answer = await peer.call(ROUTE, {"topic": topic})
            if answer.code == ResponseCode.SUCCESS:
                found: dict[str, Any] = json.loads(answer.body)
                return found


@pytest.mark.parametrize(
    ("version", "ext", "quoted"),
    [
        (407, {}, True),
        (479, {}, True),
        (401, {}, True),
        (400, {}, False),
        (317, {}, False),
        (333, {"acceptStandardJsonOnly": "true"}, True),
    ],
)
async def test_broker_ids_are_quoted_for_those_that_read_standard_json(
    peer: RemotingPeer, broker: Broker, version: int, ext: dict[str, str], quoted: bool
) -> None:
    answer = await peer.call(ROUTE, {"topic": "TBW102", **ext}, version=version)
    address = f"127.0.0.1:{broker.rocketmq_port}"
    expected = f'{{"0":"{address}"}}' if quoted else f'{{0:"{address}"}}'
    assert expected in answer.body.decode()


async def test_route_of_the_template_lets_producers_create_topics(
    peer: RemotingPeer,
) -> None:
    captured = next(
        one
        for one in load_captures(CAPTURED)
        if one.name == "RocketMQ 5.3.3, JSON headers: JSON response to 105 code 0 <- 22876"
    )
    body = captured.data[8 + captured.header_size :]
    original = json.loads(body)
    answer = await peer.call(ROUTE, {"topic": "TBW102"})
    ours = json.loads(answer.body)
    assert set(ours) == set(original)
    assert set(ours["brokerDatas"][0]) == set(original["brokerDatas"][0])
    assert ours["queueDatas"] == [{**original["queueDatas"][0], "brokerName": "shard-0"}]


@pytest.mark.parametrize(
    "part",
    [
        "RocketMQ 5.3.3, JSON headers: JSON response to 105 code 17",
        "RocketMQ 4.9.7, ROCKETMQ (binary) headers both ways: ROCKETMQ response to 105 code 17",
    ],
)
async def test_unknown_topic_is_answered_as_by_the_original(peer: RemotingPeer, part: str) -> None:
    captured = next(one for one in load_captures(CAPTURED) if part in one.name)
    original = decode_header(captured.data[4], captured.data[8 : 8 + captured.header_size])
    answer = await peer.call(ROUTE, {"topic": "bench"}, serialize=original.serialize)
    assert answer.code == original.code
    assert (answer.remark or "").split("\n")[0] == (original.remark or "").split("\n")[0]
    assert answer.serialize is original.serialize


async def test_topic_made_by_a_send_is_routed(
    peer: RemotingPeer, connect: Connect, broker: Broker
) -> None:
    sender = await connect(broker.rocketmq_port)
    await sender.put("Fresh", b"x")
    found = await until_routed(peer, "Fresh")
    assert found["queueDatas"][0]["writeQueueNums"] == 4
    listed = await peer.call(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    assert "Fresh" in json.loads(listed.body)["topicList"]
    of_cluster = await peer.call(RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "imago"})
    assert "Fresh" in json.loads(of_cluster.body)["topicList"]


async def test_lists_of_system_and_unit_topics(peer: RemotingPeer) -> None:
    system = await peer.call(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
    assert "imago" in json.loads(system.body)["topicList"]
    for code in (
        RequestCode.GET_UNIT_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
    ):
        listed = await peer.call(code)
        assert (listed.code, json.loads(listed.body)["topicList"]) == (ResponseCode.SUCCESS, [])


async def test_heartbeat_of_a_broker_is_taken(peer: RemotingPeer) -> None:
    beat = {"clusterName": "C", "brokerName": "b", "brokerAddr": "127.0.0.1:1", "brokerId": "0"}
    assert (await peer.call(RequestCode.BROKER_HEARTBEAT, beat)).code == ResponseCode.SUCCESS


async def test_key_value_settings_are_kept(peer: RemotingPeer) -> None:
    where = {"namespace": "N", "key": "k"}
    missing = await peer.call(RequestCode.GET_KV_CONFIG, where)
    assert missing.code == ResponseCode.QUERY_NOT_FOUND
    assert missing.remark == "No config item, Namespace: N Key: k"
    put = await peer.call(RequestCode.PUT_KV_CONFIG, {**where, "value": "v=1;ü"})
    assert put.code == ResponseCode.SUCCESS
    assert (await peer.call(RequestCode.GET_KV_CONFIG, where)).ext == {"value": "v=1;ü"}
    listed = await peer.call(RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": "N"})
    assert json.loads(listed.body) == {"table": {"k": "v=1;ü"}}
    await peer.call(RequestCode.DELETE_KV_CONFIG, where)
    assert (await peer.call(RequestCode.GET_KV_CONFIG, where)).code == ResponseCode.QUERY_NOT_FOUND
    none = await peer.call(RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": "N"})
    assert none.code == ResponseCode.QUERY_NOT_FOUND
    senseless = await peer.call(RequestCode.PUT_KV_CONFIG, {"key": "k", "value": "v"})
    assert senseless.code == ResponseCode.SYSTEM_ERROR
    assert senseless.remark == "namespace or key is null"


async def test_write_permission_is_wiped_and_given_back(
    peer: RemotingPeer, connect: Connect, broker: Broker
) -> None:
    sender = await connect(broker.rocketmq_port)
    await sender.put("T", b"x")
    await until_routed(peer, "T")
    broker_name = {"brokerName": "shard-0"}
    wiped = await peer.call(RequestCode.WIPE_WRITE_PERM_OF_BROKER, broker_name)
    assert int(wiped.ext["wipeTopicCount"]) > 0
    assert (await until_routed(peer, "T"))["queueDatas"][0]["perm"] == 4
    given = await peer.call(RequestCode.ADD_WRITE_PERM_OF_BROKER, broker_name)
    assert given.ext["addTopicCount"] == wiped.ext["wipeTopicCount"]
    assert (await until_routed(peer, "T"))["queueDatas"][0]["perm"] == 6
    unknown = await peer.call(RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "x"})
    assert unknown.ext == {"wipeTopicCount": "0"}


def registration(**topics: int) -> RegisterBrokerBody:
    table = {
        name: TopicConfig(topic_name=name, read_queue_nums=n, write_queue_nums=n)
        for name, n in topics.items()
    }
    return RegisterBrokerBody(
        topic_config_serialize_wrapper=TopicConfigSerializeWrapper(
            data_version=DataVersion(counter=3, timestamp=5), topic_config_table=table
        )
    )


def register_ext(body: bytes, broker_id: int = 0, **more: object) -> dict[str, object]:
    return {
        **NAME,
        "haServerAddr": "10.9.9.9:10912",
        "brokerId": broker_id,
        "bodyCrc32": crc31(body),
        **more,
    }


@pytest.mark.parametrize("compressed", [False, True])
async def test_foreign_broker_registers_and_is_routed_until_its_connection_closes(
    peer: RemotingPeer, connect: Connect, compressed: bool
) -> None:
    value = registration(Foreign=5)
    body = encode_register_body(value, version=479) if compressed else value.encode()
    foreign = await connect()
    answer = await foreign.call(RequestCode.REGISTER_BROKER, register_ext(body), body)
    assert answer.code == ResponseCode.SUCCESS
    found = await until_routed(peer, "Foreign")
    assert found["brokerDatas"][0]["brokerAddrs"] == {"0": "10.9.9.9:10911"}
    assert found["queueDatas"][0]["readQueueNums"] == 5
    await foreign.close()
    async with asyncio.timeout(50):
        while (await peer.call(ROUTE, {"topic": "Foreign"})).code == ResponseCode.SUCCESS:
            pass


async def test_foreign_slave_is_told_its_master(connect: Connect) -> None:
    body = registration(Foreign=1).encode()
    master, slave = await connect(), await connect()
    await master.call(RequestCode.REGISTER_BROKER, register_ext(body), body)
    ext = register_ext(body, 1, brokerAddr="10.9.9.8:10911", haServerAddr="10.9.9.8:10912")
    answer = await slave.call(RequestCode.REGISTER_BROKER, ext, body)
    assert answer.ext == {"haServerAddr": "10.9.9.9:10912", "masterAddr": "10.9.9.9:10911"}
    group = await slave.call(
        RequestCode.GET_BROKER_MEMBER_GROUP, {"clusterName": "Other", "brokerName": "broker-a"}
    )
    assert b'{0:"10.9.9.9:10911",1:"10.9.9.8:10911"}' in group.body


async def test_foreign_broker_learns_whether_its_topics_are_known(connect: Connect) -> None:
    foreign = await connect()
    body = registration(Foreign=1).encode()
    ask = {**NAME, "brokerId": 0}
    same = DataVersion(counter=3, timestamp=5).encode()
    query = RequestCode.QUERY_DATA_VERSION
    assert (await foreign.call(query, ask, same)).ext == {"changed": "true"}
    await foreign.call(RequestCode.REGISTER_BROKER, register_ext(body), body)
    assert (await foreign.call(query, ask, same)).ext == {"changed": "false"}
    newer = DataVersion(counter=4, timestamp=5).encode()
    assert (await foreign.call(query, ask, newer)).ext == {"changed": "true"}
    gone = await foreign.call(RequestCode.UNREGISTER_BROKER, ask)
    assert gone.code == ResponseCode.SUCCESS
    assert (await foreign.call(query, ask, same)).ext == {"changed": "true"}


async def test_topic_of_a_foreign_broker_is_taken_out_of_the_routes(connect: Connect) -> None:
    foreign = await connect()
    body = registration(Foreign=1, Other=1).encode()
    await foreign.call(RequestCode.REGISTER_BROKER, register_ext(body), body)
    await until_routed(foreign, "Foreign")
    await foreign.call(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "Foreign"})
    assert (await foreign.call(ROUTE, {"topic": "Foreign"})).code == ResponseCode.TOPIC_NOT_EXIST
    await until_routed(foreign, "Other")


@pytest.mark.parametrize(
    ("change", "body", "remark"),
    [
        ({"bodyCrc32": 1}, registration(F=1).encode(), "crc32 not match"),
        ({"brokerName": "shard-0"}, b"", "belongs to this cluster's own brokers"),
        ({"brokerId": "x"}, b"", "brokerId"),
        ({"brokerId": -1}, b"", "broker_id"),
        ({"brokerName": ""}, b"", "broker_name"),
        ({"bodyCrc32": 0}, b"\x78\x9c\x00", ""),
        ({"bodyCrc32": 0}, zlib.compress(b"\xff" * 100), ""),
        ({"bodyCrc32": 0}, b'{"topicConfigSerializeWrapper":[]}', ""),
    ],
)
async def test_registration_that_makes_no_sense_is_refused(
    connect: Connect, change: dict[str, object], body: bytes, remark: str
) -> None:
    foreign = await connect()
    ext = {**register_ext(body), **change}
    answer = await foreign.call(RequestCode.REGISTER_BROKER, ext, body)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert remark in (answer.remark or "")
    assert "internal error" not in (answer.remark or "")
    assert (await foreign.call(ROUTE, {"topic": "TBW102"})).code == ResponseCode.SUCCESS


async def test_settings_of_the_name_service(peer: RemotingPeer, broker: Broker) -> None:
    shown = await peer.call(RequestCode.GET_NAMESRV_CONFIG)
    assert f"listenPort={broker.ports.namesrv_port}\n" in shown.body.decode()
    await peer.call(
        RequestCode.PUT_KV_CONFIG,
        {"namespace": "ORDER_TOPIC_CONFIG", "key": "TBW102", "value": "shard-0:8"},
    )
    before = json.loads((await peer.call(ROUTE, {"topic": "TBW102"})).body)
    assert "orderTopicConf" not in before
    change = await peer.call(RequestCode.UPDATE_NAMESRV_CONFIG, {}, b"orderMessageEnable=true\n")
    assert change.code == ResponseCode.SUCCESS
    after = json.loads((await peer.call(ROUTE, {"topic": "TBW102"})).body)
    assert after["orderTopicConf"] == "shard-0:8"
    black = await peer.call(RequestCode.UPDATE_NAMESRV_CONFIG, {}, b"kvConfigPath=/tmp/x\n")
    assert black.code == ResponseCode.NO_PERMISSION
    unknown = await peer.call(RequestCode.UPDATE_NAMESRV_CONFIG, {}, b"other=1\n")
    assert unknown.code == ResponseCode.SYSTEM_ERROR


async def test_every_setting_of_the_originals_is_shown_and_taken(
    peer: RemotingPeer, caplog: pytest.LogCaptureFixture
) -> None:
    show, change = RequestCode.GET_NAMESRV_CONFIG, RequestCode.UPDATE_NAMESRV_CONFIG
    before = decode_properties_text((await peer.call(show)).body)
    assert {"serverWorkerThreads", "notifyMinBrokerIdChanged", "productEnvName"} <= before.keys()
    for name, value in before.items():
        answer = await peer.call(change, {}, encode_properties_text({name: value}))
        assert answer.code == (ResponseCode.NO_PERMISSION if name in FIXED else 0)
    assert "setting_without_effect" not in caplog.text, "nothing was changed"
    for wrong in (b"enableTopicList=perhaps\n", b"waitSecondsForService=x\n", b"other=1\n"):
        answer = await peer.call(change, {}, b"scanNotActiveBrokerInterval=7\n" + wrong)
        assert answer.code == ResponseCode.SYSTEM_ERROR
    assert decode_properties_text((await peer.call(show)).body) == before
    assert (await peer.call(change, {}, b"scanNotActiveBrokerInterval=7\n")).code == 0
    assert "setting_without_effect name=scanNotActiveBrokerInterval" in caplog.text
    for setting, code in (("enableAllTopicList", 206), ("enableTopicList", 311)):
        assert (await peer.call(code)).code == 0
        assert (await peer.call(change, {}, f"{setting}=false\n".encode())).code == 0
        refused = await peer.call(code)
        assert (refused.code, refused.remark) == (ResponseCode.SYSTEM_ERROR, "disable")


async def test_topic_is_registered_by_hand_on_a_foreign_broker(
    peer: RemotingPeer, connect: Connect
) -> None:
    foreign, body = await connect(), registration(Foreign=5).encode()
    await foreign.call(RequestCode.REGISTER_BROKER, register_ext(body), body)
    await until_routed(peer, "Foreign")

    def route(broker_name: str) -> bytes:
        queues = QueueData(broker_name=broker_name, perm=6, read_queue_nums=3, write_queue_nums=2)
        return TopicRouteData(queue_datas=(queues,)).encode()

    ask = RequestCode.REGISTER_TOPIC_IN_NAMESRV
    name = str(NAME["brokerName"])
    assert (await peer.call(ask, {"topic": "ByHand"}, route(name))).code == ResponseCode.SUCCESS
    found = (await until_routed(peer, "ByHand"))["queueDatas"]
    assert [(one["readQueueNums"], one["writeQueueNums"]) for one in found] == [(3, 2)]
    assert (await peer.call(ask, {"topic": "Nowhere"}, route("nobody"))).code == 0
    refused = await peer.call(ask, {"topic": "Ours"}, route("shard-0"))
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert "have it create the topic" in (refused.remark or "")


async def test_unknown_code_is_answered_and_the_connection_stays(peer: RemotingPeer) -> None:
    answer = await peer.call(10, {}, b"x", serialize=SerializeType.ROCKETMQ)
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert answer.remark == " request type 10 not supported"
    assert (await peer.call(ROUTE, {"topic": "TBW102"})).code == ResponseCode.SUCCESS


async def test_name_service_runs_as_a_process_of_its_own() -> None:
    stop, ports = asyncio.Event(), asyncio.Queue[int]()

    async def serve(table: Table, host: str, port: int) -> Listener:
        server = RemotingServer(table=table, loop=asyncio.get_running_loop())
        listener = Listener(host, port, server.session)
        await listener.start()
        ports.put_nowait(listener.port)
        return listener

    running = asyncio.create_task(
        run(
            NameServiceConfig(host="127.0.0.1", port=0),
            coordinator=memory_coordinator(CoordinatorConfig(cluster="alone")),
            clock=SystemClock(),
            serve=serve,
            stop=stop,
        )
    )
    peer = await RemotingPeer.connect(await ports.get())
    answer = await peer.call(RequestCode.GET_BROKER_CLUSTER_INFO)
    assert json.loads(answer.body) == {"brokerAddrTable": {}, "clusterAddrTable": {}}
    await peer.close()
    stop.set()
    assert await running == 0


async def test_broker_that_stops_does_not_wait_for_foreign_brokers(
    connect: Connect, broker: Broker
) -> None:
    foreign = await connect()
    body = registration(Foreign=1).encode()
    await foreign.call(RequestCode.REGISTER_BROKER, register_ext(body), body)
    await broker.stop()
    assert await foreign.closed()


async def test_template_is_not_routed_while_topics_are_not_made_by_themselves(
    peer: RemotingPeer, broker: Broker
) -> None:
    for enabled, code in ((False, ResponseCode.TOPIC_NOT_EXIST), (True, ResponseCode.SUCCESS)):
        changed = replace(broker.config.rocketmq, auto_create_topic=enabled)
        broker.apply(replace(broker.config, rocketmq=changed))
        async with asyncio.timeout(50):
            while (await peer.call(ROUTE, {"topic": "TBW102"})).code != code:
                pass
