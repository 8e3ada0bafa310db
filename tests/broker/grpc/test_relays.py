"""Connections to a member that is not the master: the master serves them all the same."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from imago_broker.model.access.access import AccessKind, AccessRule, Operation, Resource
from imago_broker.model.access.users import User
from imago_broker.model.topics.topics import TopicConfig
from imago_broker.server.relay.relay import Address
from imago_broker.service.access.access_edits import Actor
from imago_testing.clusters.brokers import running_broker
from imago_testing.clusters.shard_pair import eventually
from imago_testing.peers.sdk_calls import message, sends
from imago_testing.peers.sdk_peer import HEADERS, SdkPeer, signed_headers
from imago_wire.grpc.codes import SdkCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from imago_broker.app import Broker

ANN = User(name="ann", secret="password-of-ann")
RULES = [AccessRule(Resource(AccessKind.TOPIC, "plain"), frozenset({Operation.PUBLISH}))]


def sent_to(broker: Broker, to: Address | None) -> None:
    """Have a broker take another one for the master of its shard."""
    factory: Any = broker.ports.grpc.protocol_factory
    factory.args[0].relays.to = lambda: to


class Pair(NamedTuple):
    follower: Broker
    master: Broker

    @property
    def of_master(self) -> Address:
        return Address("127.0.0.1", self.master.ports.grpc_port)

    async def connected(self) -> SdkPeer:
        return await SdkPeer.connect(self.follower.ports.grpc_port)


@asynccontextmanager
async def pair(folder: Path, *settings: str) -> AsyncIterator[Pair]:
    async with (
        running_broker(folder / "follower", *settings) as follower,
        running_broker(folder / "master", *settings) as master,
    ):
        for each in (follower, master):
            each.core.access.put_account(ANN, RULES, Actor("test", "127.0.0.1"))
        master.topics.create_or_update(TopicConfig(name="plain", read_queues=1, write_queues=1))
        both = Pair(follower, master)
        sent_to(follower, both.of_master)
        yield both


async def code_of(peer: SdkPeer, headers: Mapping[str, str] = HEADERS) -> int:
    """Return how a send to a topic ends that the master alone has."""
    answer = await peer.call("SendMessage", sends(message(body=b"x" * 40_000)), headers)
    code: int = answer.status.code
    return code


NOT_THERE = SdkCode.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE


@pytest.mark.parametrize("secured", [False, True])
async def test_the_master_serves_as_if_it_were_asked_itself(
    tmp_path: Path, *, secured: bool
) -> None:
    (tmp_path / "token").write_text("t" * 40)
    secret = (f"admin.token_file={tmp_path / 'token'}", "acl.enabled=true") if secured else ()
    async with pair(tmp_path, *secret) as both:
        peer = await both.connected()
        for _ in range(3):
            assert await code_of(peer, signed_headers("ann", "password-of-ann")) == SdkCode.OK
        (session,) = both.master.ports.grpc.sessions
        if secured:
            assert tuple(session.peer_name[:2]) == peer.writer.get_extra_info("sockname")
            assert await code_of(peer) == SdkCode.UNAUTHORIZED
        await peer.close()
        await eventually(lambda: not both.master.ports.grpc.sessions)
        assert both.follower.ports.grpc.places.taken == 0


async def test_a_master_that_is_not_reached_leaves_the_connection_here(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        await both.master.ports.grpc.stop()
        peer = await both.connected()
        assert await code_of(peer) == NOT_THERE
        await peer.close()


async def test_no_two_members_pass_a_connection_to_each_other(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        sent_to(both.master, Address("127.0.0.1", both.follower.ports.grpc_port))
        peer = await both.connected()
        assert await code_of(peer) == SdkCode.OK, "who got it second serves it"
        await peer.close()


async def test_a_connection_ends_when_the_master_is_another_one(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        relayed = await both.connected()
        assert await code_of(relayed) == SdkCode.OK
        sent_to(both.follower, None)
        await relayed.ended()
        await relayed.close()
        served = await both.connected()
        assert await code_of(served) == NOT_THERE
        sent_to(both.follower, both.of_master)
        await served.ended()
        await served.close()
        assert served.goaway is not None
        again = await both.connected()
        assert await code_of(again) == SdkCode.OK
        await again.close()


async def test_a_connection_ends_with_the_masters(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        peer = await both.connected()
        assert await code_of(peer) == SdkCode.OK
        for session in both.master.ports.grpc.sessions:
            session.transport.abort()
        await peer.ended()
        await peer.close()
