"""Foreign brokers hear that the smallest id of their name has changed, if that is wanted."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

from imago_testing.peers.remoting import WAIT_SECONDS
from imago_wire.crc import crc31
from imago_wire.remoting.bodies.config import DataVersion, TopicConfigSerializeWrapper
from imago_wire.remoting.bodies.register import RegisterBrokerBody
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.frame import FrameDecoder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from imago_broker.app import Broker
    from imago_testing.peers.remoting import RemotingPeer
    from imago_wire.remoting.command import RemotingCommand

    Connect = Callable[..., Awaitable[RemotingPeer]]


class Member:
    """A foreign broker: a port on which it is told things, and a connection to the name service."""

    def __init__(self, peer: RemotingPeer) -> None:
        self.peer = peer
        self.told: asyncio.Queue[RemotingCommand] = asyncio.Queue()
        self.address = ""
        self.server: asyncio.Server | None = None

    @classmethod
    async def listening(cls, peer: RemotingPeer) -> Member:
        member = cls(peer)
        member.server = server = await asyncio.start_server(member.serve, "127.0.0.1", 0)
        member.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        return member

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        decoder = FrameDecoder()
        while data := await reader.read(1 << 16):
            decoder.feed(data)
            while (frame := decoder.next_frame()) is not None:
                self.told.put_nowait(frame)
        writer.close()

    async def register(self, broker_id: int, **more: object) -> None:
        wrapper = TopicConfigSerializeWrapper(data_version=DataVersion(counter=1, timestamp=5))
        body = RegisterBrokerBody(topic_config_serialize_wrapper=wrapper).encode()
        ext = {
            "brokerName": "broker-a",
            "brokerAddr": self.address,
            "clusterName": "Other",
            "haServerAddr": f"ha-{broker_id}",
            "brokerId": broker_id,
            "enableActingMaster": "true",
            "bodyCrc32": crc31(body),
            **more,
        }
        answer = await self.peer.call(RequestCode.REGISTER_BROKER, ext, body)
        assert answer.code == ResponseCode.SUCCESS

    async def heard(self) -> dict[str, str]:
        async with asyncio.timeout(WAIT_SECONDS):
            notice = await self.told.get()
        assert notice.code == RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE
        assert notice.is_oneway
        return dict(notice.ext)


@pytest.fixture
async def member(connect: Connect) -> AsyncIterator[Callable[[], Awaitable[Member]]]:
    members: list[Member] = []

    async def made() -> Member:
        members.append(await Member.listening(await connect()))
        return members[-1]

    yield made
    for one in members:
        if one.server is not None:
            one.server.close()
            await one.server.wait_closed()


async def switch_on(peer: RemotingPeer) -> None:
    answer = await peer.call(
        RequestCode.UPDATE_NAMESRV_CONFIG, {}, b"notifyMinBrokerIdChanged=true\n"
    )
    assert answer.code == ResponseCode.SUCCESS


async def test_those_that_stay_hear_that_the_smallest_is_gone(
    peer: RemotingPeer, member: Callable[[], Awaitable[Member]]
) -> None:
    await switch_on(peer)
    members = [await member() for _ in range(3)]
    for number, one in enumerate(members):
        await one.register(number)
    await members[0].peer.close()
    said = {
        "minBrokerId": "1",
        "minBrokerAddr": members[1].address,
        "offlineBrokerAddr": members[0].address,
    }
    assert [await one.heard() for one in members[1:]] == [said, said]
    ask = {"clusterName": "Other", "brokerName": "broker-a", "brokerId": 1}
    await members[1].peer.call(
        RequestCode.UNREGISTER_BROKER, {**ask, "brokerAddr": members[1].address}
    )
    assert (await members[2].heard())["minBrokerId"] == "2"
    assert members[0].told.empty()


async def test_those_that_are_there_hear_of_a_smaller_one(
    peer: RemotingPeer, member: Callable[[], Awaitable[Member]]
) -> None:
    await switch_on(peer)
    slave, master = await member(), await member()
    await slave.register(1)
    await master.register(0)
    assert await slave.heard() == {
        "minBrokerId": "0",
        "minBrokerAddr": master.address,
        "haBrokerAddr": "ha-0",
    }
    await master.register(0)  # every 30 s: nothing new
    await master.peer.close()
    assert (await slave.heard())["offlineBrokerAddr"] == master.address
    assert master.told.empty()


async def test_who_does_not_act_as_a_master_or_cannot_be_reached_is_not_told(
    peer: RemotingPeer, member: Callable[[], Awaitable[Member]]
) -> None:
    await switch_on(peer)
    master, plain, away, last = [await member() for _ in range(4)]
    away.address = "127.0.0.1:1"
    await master.register(0)
    await plain.register(1, enableActingMaster="false")
    await away.register(2)
    await last.register(3)
    await master.peer.close()
    assert (await last.heard())["minBrokerId"] == "1"
    assert plain.told.empty()


async def test_nobody_is_told_unless_it_is_switched_on(
    peer: RemotingPeer, member: Callable[[], Awaitable[Member]]
) -> None:
    master, slave = await member(), await member()
    await master.register(0)
    await slave.register(1)
    await master.peer.close()
    await switch_on(peer)
    again = await member()
    await again.register(0)
    assert "offlineBrokerAddr" not in await slave.heard()
    assert slave.told.empty()


async def test_a_name_service_that_stops_says_nothing_of_those_it_closes(
    peer: RemotingPeer, broker: Broker, member: Callable[[], Awaitable[Member]]
) -> None:
    await switch_on(peer)
    members = [await member() for _ in range(2)]
    for number, one in enumerate(members):
        await one.register(number)
    await broker.stop()
    with contextlib.suppress(ConnectionError):
        await members[0].peer.closed()
    assert all(one.told.empty() for one in members)
