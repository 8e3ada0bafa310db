"""A port that closes: clients that know GO_AWAY hear that what they still ask was not done."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from imago_broker.app import Broker
from imago_broker.cluster.memory import MemoryEnsemble, memory_coordinator
from imago_broker.cluster.settings import CoordinatorConfig
from imago_testing.clusters.brokers import loopback_config
from imago_testing.peers.remoting import RemotingPeer, pull_ext, send_ext
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.command import SerializeType
from imago_wire.remoting.peer import Version

if TYPE_CHECKING:
    from pathlib import Path

    from imago_broker.config import BrokerConfig

KNOWS, DOES_NOT_KNOW = int(Version.V5_3_2), int(Version.V5_3_1)


async def served(port: int, version: int) -> RemotingPeer:
    """Return a peer that the port has served once, so that it knows its version."""
    peer = await RemotingPeer.connect(port)
    await peer.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "t"}, version=version)
    return peer


async def sent_until_refused(peer: RemotingPeer) -> int:
    """Send one after the other until GO_AWAY comes; return how many were acknowledged."""
    acknowledged = 0
    while True:
        answer = await peer.call(310, send_ext("t"), b"body", version=KNOWS)
        if answer.code == ResponseCode.GO_AWAY:
            assert answer.remark == "please go away"
            return acknowledged
        acknowledged += answer.code == ResponseCode.SUCCESS


async def codes_until_closed(peer: RemotingPeer, version: int) -> set[int]:
    """Send one after the other until the port closes the connection; return what it answered."""
    codes = set()
    try:
        while True:
            codes.add((await peer.call(310, send_ext("t"), b"body", version=version)).code)
    except ConnectionError:
        return codes


@pytest.mark.parametrize("port", ["rocketmq", "fast", "names"])
@pytest.mark.parametrize("serialize", SerializeType)
async def test_a_client_that_knows_it_is_told_to_go_away(
    broker: Broker, port: str, serialize: SerializeType
) -> None:
    peer = await served(getattr(broker.ports, port).port, KNOWS)
    stopping = asyncio.create_task(broker.stop())
    while True:
        answer = await peer.call(
            RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "t"}, version=KNOWS, serialize=serialize
        )
        if answer.code == ResponseCode.GO_AWAY:
            break
    assert (answer.remark, answer.serialize) == ("please go away", serialize)
    await peer.close()
    await stopping


async def test_what_was_refused_is_not_stored(config: BrokerConfig) -> None:
    broker = Broker(config)
    await broker.start()
    peer = await served(broker.rocketmq_port, KNOWS)
    await peer.put("t", b"first")
    stopping = asyncio.create_task(broker.stop())
    acknowledged = 1 + await sent_until_refused(peer)
    peer.send(310, send_ext("t"), b"nobody waits", version=KNOWS, oneway=True)
    later = await peer.call(310, send_ext("t"), b"later", version=KNOWS)
    assert later.code == ResponseCode.GO_AWAY
    await peer.close()
    await stopping
    again = Broker(config)
    await again.start()
    try:
        reader = await RemotingPeer.connect(again.rocketmq_port)
        assert len(await reader.messages("t", maxMsgNums=1000)) == acknowledged
        await reader.close()
    finally:
        await again.stop()


async def test_a_held_pull_is_answered_first(broker: Broker) -> None:
    peer = await served(broker.rocketmq_port, KNOWS)
    await peer.put("t", b"body")
    waiting = {"sysFlag": 2 | 4, "suspendTimeoutMillis": 15_000}
    held = peer.send(11, pull_ext("t", 1, **waiting), version=KNOWS)
    await peer.call(RequestCode.GET_TOPIC_CONFIG, {"topic": "t"}, version=KNOWS)
    stopping = asyncio.create_task(broker.stop())
    assert (await peer.answer(held)).code == ResponseCode.PULL_NOT_FOUND
    await peer.close()
    await stopping


async def test_a_client_that_does_not_know_it_is_served_or_cut_off(broker: Broker) -> None:
    peer = await served(broker.rocketmq_port, DOES_NOT_KNOW)
    stopping = asyncio.create_task(broker.stop())
    codes = await codes_until_closed(peer, DOES_NOT_KNOW)
    await peer.close()
    assert codes <= {ResponseCode.SUCCESS, ResponseCode.SERVICE_NOT_AVAILABLE}
    await stopping


async def test_nobody_stays_for_ever(broker: Broker) -> None:
    """A client that knows it and goes on all the same is cut off."""
    peer = await served(broker.rocketmq_port, KNOWS)
    stopping = asyncio.create_task(broker.stop())
    assert ResponseCode.GO_AWAY in await codes_until_closed(peer, KNOWS)
    await peer.close()
    await stopping


async def test_a_member_that_has_no_successor_tells_its_clients_too(tmp_path: Path) -> None:
    """Requests wait while it hands its shard over; nobody takes it."""
    config = loopback_config(tmp_path, "zookeeper.connect=memory")
    coordinator = memory_coordinator(CoordinatorConfig(), MemoryEnsemble())
    broker = Broker(config, coordinator=coordinator)
    await broker.start()
    async with asyncio.timeout(50):
        while not broker.role.current.leads:  # noqa: ASYNC110  the registry
            await asyncio.sleep(0.01)
    peers = [await served(broker.rocketmq_port, version) for version in (KNOWS, DOES_NOT_KNOW)]
    stopping = asyncio.create_task(broker.stop())
    known, unknown = await asyncio.gather(
        codes_until_closed(peers[0], KNOWS), codes_until_closed(peers[1], DOES_NOT_KNOW)
    )
    for peer in peers:
        await peer.close()
    await stopping
    assert ResponseCode.GO_AWAY in known
    refused = {ResponseCode.SUCCESS, ResponseCode.SERVICE_NOT_AVAILABLE}
    assert known <= {*refused, ResponseCode.GO_AWAY}
    assert unknown <= refused
