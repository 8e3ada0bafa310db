"""A right is asked when it is used: what a request means may not be known yet when it comes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from imago_broker.model.access.access import AccessKind, AccessRule, Operation, Resource
from imago_broker.model.access.users import User
from imago_broker.model.topics.topics import TopicConfig
from imago_broker.service.access.access_edits import Actor
from imago_log.store import MessageStore
from imago_testing.clusters.shard_brokers import until
from imago_testing.peers.remoting import RemotingPeer, send_ext
from imago_testing.peers.signing import call_signed
from imago_testing.peers.transactions import COMMIT, ROLLBACK, Half, half_properties
from imago_wire.remoting.codes import RequestCode as Code
from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from imago_broker.app import Broker
    from imago_wire.remoting.command import RemotingCommand

BY = Actor("the tests", "nowhere")


def secret(user: str) -> str:
    return f"secret-of-{user}"


def allow(broker: Broker, user: str, topic: str) -> None:
    access = broker.core.access
    access.put_user(User(name=user, secret=secret(user)), BY)
    rule = AccessRule(Resource(AccessKind.TOPIC, topic), frozenset({Operation.PUBLISH}))
    access.set_rules(user, [rule], BY)


async def call(
    peer: RemotingPeer, code: Code, ext: dict[str, object], user: str
) -> RemotingCommand:
    return await call_signed(peer, code, ext, user=user, secret=secret(user))


@pytest.fixture
async def peer(broker: Broker) -> AsyncIterator[RemotingPeer]:
    broker.topics.create_or_update(TopicConfig(name="T", read_queues=1, write_queues=1))
    allow(broker, "victim", "T")
    allow(broker, "thief", "other")
    peer = await RemotingPeer.connect(broker.rocketmq_port)
    yield peer
    await peer.close()


@pytest.fixture
async def half(broker: Broker, peer: RemotingPeer) -> Half:
    """A half message of the victim."""
    ext = send_ext("T", properties=half_properties(), f=4, a="P")
    answer = await call(peer, Code.SEND_MESSAGE_V2, dict(ext), "victim")
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    assert len(broker.rocketmq.transactions.service.halves) == 1
    return Half(answer, "u")


def not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no record be seen, as before all members have what a new master has."""
    monkeypatch.setattr(MessageStore, "record_at", lambda _self, _offset: None)


async def test_the_end_of_anothers_transaction_is_refused_once_it_is_known_whose_it_is(
    broker: Broker, peer: RemotingPeer, half: Half
) -> None:
    service = broker.rocketmq.transactions.service
    term = service.term
    for user, code in (("thief", ResponseCode.NO_PERMISSION), ("victim", ResponseCode.SUCCESS)):
        term.ready = False
        with pytest.MonkeyPatch.context() as monkeypatch:
            not_seen(monkeypatch)
            asked = asyncio.create_task(call(peer, Code.END_TRANSACTION, half.header(COMMIT), user))
            await until(lambda: bool(term.held))
        service._is_ready(term)
        assert (await asked).code == code
    assert len(service.halves) == 0


@pytest.mark.parametrize("outcome", [COMMIT, ROLLBACK])
async def test_a_transaction_that_is_not_seen_yet_is_ended_by_who_may(
    broker: Broker,
    peer: RemotingPeer,
    half: Half,
    monkeypatch: pytest.MonkeyPatch,
    outcome: int,
) -> None:
    not_seen(monkeypatch)
    answer = await call(peer, Code.END_TRANSACTION, half.header(outcome), "thief")
    assert answer.code == ResponseCode.NO_PERMISSION, answer.remark
    assert len(broker.rocketmq.transactions.service.halves) == 1
    answer = await call(peer, Code.END_TRANSACTION, half.header(outcome), "victim")
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def test_the_end_of_anothers_transaction_is_not_told_whose_topic_it_is(
    broker: Broker, peer: RemotingPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.topics.create_or_update(TopicConfig(name="secret-name", read_queues=1, write_queues=1))
    allow(broker, "victim", "secret-name")
    ext = send_ext("secret-name", properties=half_properties("v"), f=4, a="P")
    answer = await call(peer, Code.SEND_MESSAGE_V2, dict(ext), "victim")
    one = Half(answer, "v")
    not_seen(monkeypatch)
    answer = await call(peer, Code.END_TRANSACTION, one.header(COMMIT), "thief")
    assert answer.code == ResponseCode.NO_PERMISSION
    assert "secret-name" not in (answer.remark or "")
