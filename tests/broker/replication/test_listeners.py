"""Further listeners: what clients are told depends on where they came in, over failovers too."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.app.ports.entrances import HOSTS_BYTES_MAX, ToldHosts
from imago_broker.app.ports.listeners import Ports
from imago_broker.config import load
from imago_broker.model.registry.seen import record_at
from imago_client import Client, Message
from imago_client.config import ClientConfig, ProducerConfig
from imago_testing.clusters.brokers import running_broker
from imago_testing.clusters.shard_brokers import TOPIC, ShardBrokers, until
from imago_testing.peers.metaq import metaq_peer, put_frame
from imago_testing.peers.remoting import RemotingPeer, send_ext
from imago_testing.peers.sdk_calls import named
from imago_testing.peers.sdk_peer import SdkPeer
from imago_testing.virtual.clocks import ManualClock
from imago_wire.grpc.messages import make
from imago_wire.remoting.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from imago_broker.app import Broker

OUT, TOLD = "localhost", "203.0.113.9"
LISTENERS = (
    f"out host={OUT} namesrv=0 metaq=0 rocketmq=0 grpc=0,"
    f"far host={TOLD} namesrv=0 metaq=0:31000 rocketmq=0:31010 grpc=0:31081"
)


@pytest.fixture
async def three(tmp_path: Path) -> AsyncIterator[ShardBrokers]:
    """Three members in sync; member 0 leads. Each has two listeners besides its own ports."""
    made = ShardBrokers(
        tmp_path,
        "namesrv.enabled=true",
        "replication.handover_linger_ms=60000",
        f"broker.listeners={LISTENERS}",
    )
    try:
        await made.start(0, 1, 2)
        await made.all_in_sync(0, 1, 2)
        await made.put(0, b"first")
        views = [broker.coordinator.view for broker in made.brokers.values()]
        await until(lambda: all(TOPIC in view().topics for view in views))
        yield made
    finally:
        for broker in made.brokers.values():
            broker.client_ports.release()  # nobody waits for the relays' end
        await made.close()


def port(broker: Broker, listener: str, protocol: str) -> int:
    """Return the port of a listener; of the broker itself without one."""
    own = {"namesrv": broker.ports.names, "grpc": broker.ports.grpc, "metaq": broker.ports.metaq}
    own["rocketmq"] = broker.ports.rocketmq
    for each in broker.ports.entrances:
        if each.name == listener:
            return each.ports[protocol].port
    return own[protocol].port


async def addresses(broker: Broker, listener: str) -> dict[str, Any]:
    """Return the addresses that a listener's name service tells of the topic's shard."""
    peer = await RemotingPeer.connect(port(broker, listener, "namesrv"))
    answer = await peer.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC})
    group = await peer.call(
        RequestCode.GET_BROKER_MEMBER_GROUP, {"clusterName": "imago", "brokerName": "shard-0"}
    )
    await peer.close()
    (data,) = json.loads(answer.body)["brokerDatas"]
    told: dict[str, Any] = data["brokerAddrs"]
    quoted = re.sub(rb"([{,])(\d+):", rb'\1"\2":', group.body)  # bare broker ids
    assert json.loads(quoted)["brokerMemberGroup"]["brokerAddrs"] == told
    return told


async def endpoint(broker: Broker, listener: str) -> tuple[str, int]:
    peer = await SdkPeer.connect(port(broker, listener, "grpc"))
    answer = await peer.call("QueryRoute", make("QueryRouteRequest", topic=named(TOPIC)))
    await peer.close()
    (address,) = answer.message_queues[0].broker.endpoints.addresses
    return address.host, address.port


async def hand_over(shard: ShardBrokers, leader: int, target: int) -> None:
    done, reason = await shard.shell(leader).hand_over(shard.brokers[target].uuid, "test")
    assert done, reason
    assert await shard.led(but=leader) == target


async def test_routes_tell_the_addresses_of_the_listener_that_was_asked(
    three: ShardBrokers,
) -> None:
    for broker in three.brokers.values():
        members = zip(("0", "2", "3"), three.brokers.values(), strict=True)
        ports = {
            number: {name: port(each, name, "rocketmq") for name in ("", "out")}
            for number, each in members
        }
        own = {number: f"127.0.0.1:{of['']}" for number, of in ports.items()}
        out = {number: f"{OUT}:{of['out']}" for number, of in ports.items()}
        assert await addresses(broker, "") == own
        assert await addresses(broker, "out") == out
        assert await addresses(broker, "far") == dict.fromkeys(ports, f"{TOLD}:31010")


async def test_sdks_are_led_to_the_listener_and_by_members_that_pass_them_on(
    three: ShardBrokers,
) -> None:
    master = three.brokers[0]
    for broker in three.brokers.values():  # a member that follows passes the connection on
        assert await endpoint(broker, "") == ("127.0.0.1", master.ports.grpc_port)
        assert await endpoint(broker, "out") == (OUT, port(master, "out", "grpc"))
        assert await endpoint(broker, "far") == (TOLD, 31081)


async def test_who_asks_the_wrong_member_is_told_the_listeners_address(three: ShardBrokers) -> None:
    master, slave = three.brokers[0], three.brokers[1]
    told = {
        "": f"127.0.0.1:{master.rocketmq_port} (MetaQ meta://127.0.0.1:{master.metaq_port})",
        "far": f"{TOLD}:31010 (MetaQ meta://{TOLD}:31000)",
    }
    for listener, where in told.items():
        peer = await RemotingPeer.connect(port(slave, listener, "rocketmq"))
        answer = await peer.call(RequestCode.GET_MAX_OFFSET, {"topic": TOPIC, "queueId": 0})
        assert answer.code != ResponseCode.SUCCESS
        assert f"the master of the shard is {where}" in (answer.remark or "")
        await peer.close()
        async with metaq_peer(port(slave, listener, "metaq")) as client:
            assert where.encode() in await client.ask(put_frame(TOPIC, 0, b"x"))


async def test_open_connections_of_a_listener_see_no_error_over_a_handover(
    three: ShardBrokers,
) -> None:
    peer = await RemotingPeer.connect(port(three.brokers[0], "out", "rocketmq"))
    stop = asyncio.Event()
    codes: list[int] = []
    frames: list[bytes] = []

    async def send_rocketmq() -> None:
        while not stop.is_set():
            body = b"rocketmq %d" % len(codes)
            codes.append((await peer.call(RequestCode.SEND_MESSAGE_V2, send_ext(TOPIC), body)).code)

    async def send_metaq() -> None:
        async with metaq_peer(port(three.brokers[0], "out", "metaq")) as client:
            while not stop.is_set():
                frames.append(await client.ask(put_frame(TOPIC, 0, b"metaq %d" % len(frames))))

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(send_rocketmq())
        tasks.create_task(send_metaq())
        await until(lambda: min(len(codes), len(frames)) > 20)
        await hand_over(three, 0, 1)
        before = len(codes), len(frames)
        await until(lambda: len(codes) > before[0] + 20 and len(frames) > before[1] + 20)
        entrance = next(e for e in three.brokers[1].ports.entrances if e.name == "out")
        assert entrance.ports["rocketmq"].connections == 1, "passed on to the same listener"
        assert entrance.ports["metaq"].connections == 1
        stop.set()
    assert set(codes) == {ResponseCode.SUCCESS}
    assert all(frame.startswith(b"result 200") for frame in frames)
    await peer.close()


async def test_a_client_outside_sends_through_handover_and_death_by_its_listener_alone(
    three: ShardBrokers,
) -> None:
    bootstrap = tuple(
        f"127.0.0.1:{port(broker, 'out', 'namesrv')}" for broker in three.brokers.values()
    )
    before = [broker.ports.rocketmq.accepted for broker in three.brokers.values()]
    async with Client(ClientConfig(bootstrap=bootstrap, failover_timeout_s=20.0)) as client:
        producer = client.producer(ProducerConfig(send_timeout_s=20.0))
        for number in range(20):
            await producer.send(Message(TOPIC, b"%d" % number))
        assert [broker.ports.rocketmq.accepted for broker in three.brokers.values()] == before
        await hand_over(three, 0, 1)
        for number in range(20, 40):
            await producer.send(Message(TOPIC, b"%d" % number))
        three.brokers[0].client_ports.release()  # nobody waits for the relays' end
        await three.kill(0)
        for number in range(40, 60):
            await producer.send(Message(TOPIC, b"%d" % number))
    found = three.bodies(await three.led(but=0))
    assert set(found) == {b"first", *(b"%d" % number for number in range(60))}


async def test_clients_are_told_of_a_broker_once_a_file_says_its_host(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    settings = (
        "namesrv.enabled=true",
        f"broker.listener_hosts_file={hosts}",
        "broker.listeners=lb namesrv=0 metaq=0:8123 rocketmq=0:10911 grpc=0:8081",
        "metaq.listener=lb",
    )
    async with running_broker(tmp_path / "data", *settings) as broker:
        assert broker.record().metaq_url == f"meta://127.0.0.1:{broker.metaq_port}"
        peer = await RemotingPeer.connect(broker.rocketmq_port)
        await peer.call(RequestCode.SEND_MESSAGE_V2, send_ext(TOPIC), b"x")
        await peer.close()
        names = await RemotingPeer.connect(port(broker, "lb", "namesrv"))
        answer = await names.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC})
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST, "nobody knows where it is"
        await names.close()
        hosts.write_text("lb=203.0.113.77\n")
        await until(
            lambda: broker.coordinator.view().brokers[0].metaq_url == "meta://203.0.113.77:8123"
        )
        assert await addresses(broker, "lb") == {"0": "203.0.113.77:10911"}
        assert await endpoint(broker, "lb") == ("203.0.113.77", 8081)
        assert await addresses(broker, "") == {"0": f"127.0.0.1:{broker.rocketmq_port}"}


async def test_a_member_without_listeners_is_told_by_what_it_tells_everybody(
    tmp_path: Path,
) -> None:
    told = ("broker.advertised_host=203.0.113.1", "rocketmq.advertised_port=30910")
    async with running_broker(tmp_path / "before", *told) as broker:
        seen = record_at(broker.record(), "out")
        assert seen is not None
        assert seen.rocketmq_address == "203.0.113.1:30910"
    async with running_broker(tmp_path / "closed") as broker:
        assert record_at(broker.record(), "out") is None


def test_a_file_without_end_is_not_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("in=10.0.0.1\n" + " " * HOSTS_BYTES_MAX + "\nlate=10.0.0.2\n")
    assert ToldHosts(str(path)).hosts == {"in": "10.0.0.1"}


def test_a_listener_that_asks_for_tls_has_it_on_its_own_ports_alone() -> None:
    """And a connection of such a one is not passed on to a port without."""
    config = load("[broker]\nlisteners = ['out rocketmq=0']\n[rocketmq]\nport = 0\n")
    view: Any = None
    entrance = Ports(config, view, view, ManualClock()).entrances[0]
    record: Any = type("R", (), {"listener": lambda _, __: None, "rocketmq": 10911})()
    assert [door.port_of(record) for door in entrance.doors()] == [10911]
    entrance.setting = type(entrance.setting)(name="out", ports={"rocketmq": 0}, tls=True)
    assert [door.port_of(record) for door in entrance.doors()] == [0]
