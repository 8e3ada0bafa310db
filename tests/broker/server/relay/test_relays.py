"""After a planned change of master the former master passes its clients' requests on."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.server import client_ports
from imago_broker.server.relay import relay
from imago_testing.clusters.brokers import running_broker
from imago_testing.clusters.roles import lead_again, step_down
from imago_testing.peers.metaq import metaq_peer, put_frame, put_place, value_body
from imago_testing.peers.remoting import RemotingPeer, heartbeat, pull_ext, send_ext
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.command import RemotingCommand
from imago_wire.remoting.frame import encode_frame

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from imago_broker.app import Broker
    from imago_broker.model.registry.cluster import BrokerRecord

LINGER_MS = 60_000
"""Longer than any test: they end it themselves."""


@pytest.fixture
async def brokers(tmp_path: Path) -> AsyncIterator[tuple[Broker, Broker]]:
    """The former master and the new one; both have the topic T with one message."""
    async with (
        running_broker(tmp_path / "former") as former,
        running_broker(tmp_path / "next") as following,
    ):
        for broker in (former, following):
            peer = await RemotingPeer.connect(broker.rocketmq_port)
            await peer.put("T", b"first")
            await peer.close()
        yield former, following


@pytest.fixture
def former(brokers: tuple[Broker, Broker]) -> Broker:
    return brokers[0]


@pytest.fixture
def following(brokers: tuple[Broker, Broker]) -> Broker:
    return brokers[1]


@pytest.fixture
async def peer(former: Broker) -> AsyncIterator[RemotingPeer]:
    connected = await RemotingPeer.connect(former.rocketmq_port)
    yield connected
    await connected.close()


def end(broker: Broker, queue_id: int = 0) -> int:
    return broker.store.queue_range("T", queue_id)[1]


async def relayed(former: Broker, following: Broker) -> None:
    """Have the former master relay; return once it does."""
    former.client_ports.relay_to(following.record(), LINGER_MS)
    while former.client_ports.waiting:  # noqa: ASYNC110  what another task comes to
        await asyncio.sleep(0.001)


async def turns(count: int = 20) -> None:
    """Let the loop see what the sockets have."""
    for _ in range(count):
        await asyncio.sleep(0.001)


async def test_requests_wait_while_the_mastership_moves(
    former: Broker, following: Broker, peer: RemotingPeer
) -> None:
    former.client_ports.hold_puts()
    opaque = peer.send(RequestCode.SEND_MESSAGE_V2, send_ext("T"), b"waits")
    await turns()
    assert end(former) == 1
    await relayed(former, following)
    answer = await peer.answer(opaque)
    assert (answer.code, answer.ext["queueOffset"]) == (ResponseCode.SUCCESS, "1")
    assert (end(former), end(following)) == (1, 2)


async def test_a_request_that_comes_with_its_connection_waits_too(
    former: Broker, following: Broker
) -> None:
    former.client_ports.hold_puts()
    sent = put_frame("T", 0, b"at once")
    with socket.create_connection(("127.0.0.1", former.metaq_port)) as client:
        client.sendall(sent)
        client.setblocking(False)
        await turns()
        assert end(former) == 1
        await relayed(former, following)
        answer = await asyncio.get_running_loop().sock_recv(client, 1 << 10)
        assert answer.startswith(b"result 200 ")
    assert (end(former), end(following)) == (1, 2)


async def test_requests_that_waited_are_served_here_when_nobody_took_over(
    former: Broker, peer: RemotingPeer
) -> None:
    former.client_ports.hold_puts()
    opaque = peer.send(RequestCode.SEND_MESSAGE_V2, send_ext("T"), b"waits")
    await turns()
    former.client_ports.release()
    assert (await peer.answer(opaque)).code == ResponseCode.SUCCESS
    assert end(former) == 2


async def test_metaq_puts_and_gets_go_to_the_new_master(former: Broker, following: Broker) -> None:
    async with metaq_peer(former.metaq_port) as client:
        await client.put("T", 0, b"here")
        former.client_ports.hold_puts()
        await client.send(put_frame("T", 0, b"there"))
        await turns()
        await relayed(former, following)
        _, _, position = put_place(await client.frame())
        assert b"there" in value_body(await client.get("T", 0, position))
        assert (end(former), end(following)) == (2, 2)


async def test_a_frame_in_two_halves_is_passed_on_whole(
    former: Broker, following: Broker, peer: RemotingPeer
) -> None:
    ext = {name: str(value) for name, value in send_ext("T").items()}
    frame = encode_frame(
        RemotingCommand(code=RequestCode.SEND_MESSAGE_V2, opaque=77, ext=ext, body=b"halves")
    )
    peer.write(frame[:40])
    await turns()
    await relayed(former, following)
    peer.write(frame[40:])
    assert (await peer.answer(77)).code == ResponseCode.SUCCESS
    assert end(following) == 2


async def test_a_command_in_two_halves_is_passed_on_whole(
    former: Broker, following: Broker
) -> None:
    async with metaq_peer(former.metaq_port) as client:
        put = put_frame("T", 1, b"halves")
        await client.send(put[:20])
        await turns()
        await relayed(former, following)
        await client.send(put[20:])
        put_place(await client.frame())
    assert end(following, 1) == 1


async def test_held_polls_end_and_consumers_are_known_to_the_new_master(
    former: Broker, following: Broker, peer: RemotingPeer
) -> None:
    await peer.call(RequestCode.HEART_BEAT, body=heartbeat("consumers"))
    held = peer.send(RequestCode.PULL_MESSAGE, pull_ext("T", 1, sysFlag=6))
    await turns()
    await relayed(former, following)
    assert (await peer.answer(held)).code == ResponseCode.PULL_NOT_FOUND
    again = peer.send(RequestCode.PULL_MESSAGE, pull_ext("T", 1, sysFlag=2))
    await turns()
    group = following.rocketmq.clients.registry.consumers("consumers")
    assert group is not None
    assert group.client_ids == ["client"]
    direct = await RemotingPeer.connect(following.rocketmq_port)
    await direct.put("T", b"wakes")
    assert (await peer.answer(again)).code == ResponseCode.SUCCESS
    # The new master's own requests reach the client, and the repeated heartbeat is not answered.
    await direct.call(RequestCode.HEART_BEAT, body=heartbeat("consumers").replace(b"client", b"b"))
    await peer.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)
    assert not [one for one in peer.unread if one.is_response]
    await direct.close()


async def test_connections_made_later_are_relayed_too(former: Broker, following: Broker) -> None:
    await relayed(former, following)
    late = await RemotingPeer.connect(former.ports.fast_port)
    assert (await late.put("T", b"late")).code == ResponseCode.SUCCESS
    await late.close()
    async with metaq_peer(former.metaq_port) as client:
        put_place(await client.put("T", 0, b"later"))
    assert (end(former), end(following)) == (1, 3)


async def test_after_the_relay_the_session_serves_again_and_owed_answers_still_come(
    former: Broker, following: Broker, peer: RemotingPeer
) -> None:
    await peer.call(RequestCode.HEART_BEAT, body=heartbeat("consumers"))
    await relayed(former, following)
    owed = peer.send(RequestCode.PULL_MESSAGE, pull_ext("T", 1, sysFlag=2))
    await turns()
    former.client_ports.release()
    assert (await peer.put("T", b"here again")).code == ResponseCode.SUCCESS
    assert (end(former), end(following)) == (2, 1)
    direct = await RemotingPeer.connect(following.rocketmq_port)
    await direct.put("T", b"wakes")
    assert (await peer.answer(owed)).code == ResponseCode.SUCCESS
    await direct.close()


async def test_a_metaq_connection_goes_on_where_the_relay_ends(
    former: Broker, following: Broker
) -> None:
    async with metaq_peer(former.metaq_port) as client:
        await relayed(former, following)
        await client.send(put_frame("T", 0, b"one") + put_frame("T", 0, b"two", opaque=2))
        await turns()
        former.client_ports.release()
        await client.send(put_frame("T", 0, b"three", opaque=3))
        frames = await client.frames(3)
        assert [frame.startswith(b"result 200 ") for frame in frames] == [True, True, True]
    assert (end(former), end(following)) == (2, 3)


@pytest.mark.parametrize("gone", [{"metaq": 1, "rocketmq": 1, "fast": 1}, {"metaq": 1, "fast": 1}])
async def test_without_the_new_master_the_session_answers_itself(
    former: Broker, following: Broker, gone: dict[str, Any]
) -> None:
    former.client_ports.relay_to(replace(following.record(), **gone), LINGER_MS)
    peer = await RemotingPeer.connect(former.ports.fast_port)
    assert (await peer.put("T", b"stays")).code == ResponseCode.SUCCESS
    await peer.close()
    async with metaq_peer(former.metaq_port) as client:
        put_place(await client.put("T", 0, b"stays too"))
    assert (end(former), end(following)) == (3, 1)


@pytest.mark.parametrize("protocol", ["rocketmq", "metaq"])
async def test_requests_wait_until_the_new_master_leads(
    former: Broker, following: Broker, peer: RemotingPeer, protocol: str
) -> None:
    record = following.record()
    if protocol == "metaq":
        record = replace(record, rocketmq=0, fast=0)
    step_down(following)
    former.client_ports.hold_puts()
    former.client_ports.relay_to(record, LINGER_MS)
    assert former.client_ports.relaying
    async with metaq_peer(former.metaq_port) as client:
        await client.send(put_frame("T", 0, b"waits"))
        await turns()
        assert (end(former), end(following)) == (1, 1)
        lead_again(following)
        put_place(await client.frame())
    assert (end(former), end(following)) == (1, 2)
    # A port that the new master does not have goes on by itself.
    answer = await peer.put("T", b"x")
    assert answer.code == ResponseCode.SUCCESS
    assert end(former) == (2 if protocol == "metaq" else 1)


async def test_requests_are_served_here_when_nobody_leads_in_time(
    former: Broker, following: Broker, peer: RemotingPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_ports, "TAKEOVER_SECONDS_MAX", 0.05)
    step_down(following)
    former.client_ports.relay_to(following.record(), LINGER_MS)
    assert (await peer.put("T", b"stays")).code == ResponseCode.SUCCESS
    assert not former.client_ports.relaying


async def test_the_sessions_go_on_by_themselves_when_the_new_master_goes(
    former: Broker, following: Broker, peer: RemotingPeer
) -> None:
    await relayed(former, following)
    await peer.put("T", b"there")
    async with metaq_peer(former.metaq_port) as client:
        put_place(await client.put("T", 0, b"there"))
        await following.stop()
        put_place(await client.put("T", 0, b"here"))
        assert (await peer.put("T", b"here")).code == ResponseCode.SUCCESS
    assert end(former) == 3


async def test_stop_of_a_relaying_broker_leaves_no_connection(
    former: Broker, following: Broker, peer: RemotingPeer
) -> None:
    await relayed(former, following)
    await peer.put("T", b"there")
    async with metaq_peer(former.metaq_port) as client:
        put_place(await client.put("T", 0, b"there"))
        await former.stop()
        assert await client.is_closed_without_an_answer()
    assert await peer.closed()
    assert former.client_ports.relays == 0
    assert following.ports.rocketmq.connections == 0


@pytest.mark.parametrize("answer", [b"", b"\xff\xff\xff\xff"])
async def test_session_answers_itself_when_the_new_master_does_not_know_the_client(
    former: Broker,
    following: Broker,
    peer: RemotingPeer,
    monkeypatch: pytest.MonkeyPatch,
    answer: bytes,
) -> None:
    asked = []

    async def at_once(record: BrokerRecord, *_: object, **__: object) -> None:
        asked.append(record)

    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        while await reader.read(1 << 16):
            pass
        writer.close()

    if not answer:
        monkeypatch.setattr(relay, "JOIN_SECONDS_MAX", 0.05)
    monkeypatch.setattr(client_ports, "until_it_leads", at_once)
    server = await asyncio.start_server(mute, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    await peer.call(RequestCode.HEART_BEAT, body=heartbeat("consumers"))
    former.client_ports.relay_to(replace(following.record(), rocketmq=port), LINGER_MS)
    async with asyncio.timeout(50):
        assert (await peer.put("T", b"stays")).code == ResponseCode.SUCCESS
    assert end(former) == 2
    assert len(asked) == 1, "it was about to be relayed"
    server.close()
