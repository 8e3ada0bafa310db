"""A right is asked when it is used: what a request means may not be known yet when it comes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from imago_broker.features.pop.feature import PopServices
from imago_broker.model.access.access import AccessKind, AccessRule, Operation, Resource
from imago_broker.model.access.users import User
from imago_broker.model.topics.topics import TopicConfig
from imago_broker.service.access.access_edits import Actor
from imago_log.store import MessageStore
from imago_testing.clusters.shard_brokers import until
from imago_testing.peers.popping import pop_ext
from imago_testing.peers.remoting import RemotingPeer, pull_ext, send_ext
from imago_testing.peers.signing import call_signed
from imago_testing.peers.transactions import COMMIT, ROLLBACK, Half, half_properties
from imago_wire.remoting.codes import RequestCode as Code
from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

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


def not_seen(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no record be seen, as before all members have what a new master has."""
    monkeypatch.setattr(broker.store, "record_at", lambda _offset: None)


async def test_the_end_of_anothers_transaction_is_refused_once_it_is_known_whose_it_is(
    broker: Broker, peer: RemotingPeer, half: Half
) -> None:
    service = broker.rocketmq.transactions.service
    term = service.term
    for user, code in (("thief", ResponseCode.NO_PERMISSION), ("victim", ResponseCode.SUCCESS)):
        term.ready = False
        with pytest.MonkeyPatch.context() as monkeypatch:
            not_seen(broker, monkeypatch)
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
    not_seen(broker, monkeypatch)
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
    not_seen(broker, monkeypatch)
    answer = await call(peer, Code.END_TRANSACTION, one.header(COMMIT), "thief")
    assert answer.code == ResponseCode.NO_PERMISSION
    assert "secret-name" not in (answer.remark or "")


def allow_all(broker: Broker, user: str, topic: str) -> None:
    access = broker.core.access
    access.put_user(User(name=user, secret=secret(user)), BY)
    named = ((AccessKind.TOPIC, topic), (AccessKind.GROUP, "g"))
    rules = [AccessRule(Resource(kind, name), frozenset(Operation)) for kind, name in named]
    access.set_rules(user, rules, BY)


@pytest.mark.parametrize("known", [False, True], ids=["slow path", "fast path"])
@pytest.mark.parametrize("code", [Code.PULL_MESSAGE, Code.POP_MESSAGE])
async def test_who_waits_for_messages_gets_none_once_the_right_is_gone(
    broker: Broker, peer: RemotingPeer, code: Code, known: bool
) -> None:
    for user in ("ann", "bob"):
        allow_all(broker, user, "T")
    if known:
        await call(peer, Code.PULL_MESSAGE, pull_ext("T", consumerGroup="g"), "ann")
    now_ms = broker.clock.epoch_ms()
    ext = pull_ext("T", sysFlag=6, consumerGroup="g")
    if code is Code.POP_MESSAGE:
        ext = pop_ext(pollTime=20_000, bornTime=now_ms)
    waits = asyncio.create_task(call(peer, code, ext, "ann"))
    parts = broker.rocketmq
    pops = next(each.parts for each in parts.features if isinstance(each.parts, PopServices))
    await until(lambda: len(parts.delivery.hold) + len(pops.waiting) == 1)
    broker.core.access.set_rules("ann", [], BY)
    other = await RemotingPeer.connect(broker.rocketmq_port)
    sent = await call(other, Code.SEND_MESSAGE_V2, send_ext("T"), "bob")
    assert sent.code == ResponseCode.SUCCESS, sent.remark
    await other.close()
    assert (await waits).body == b""
    assert (await call(peer, code, ext, "ann")).code == ResponseCode.NO_PERMISSION


async def test_a_timer_is_not_taken_back_by_whose_right_went_before_it_was_seen(
    broker: Broker, peer: RemotingPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ext = send_ext("T", properties="UNIQ_KEY\x01u\x02TIMER_DELAY_SEC\x01900\x02")
    sent = await call(peer, Code.SEND_MESSAGE_V2, ext, "victim")
    assert sent.code == ResponseCode.SUCCESS, sent.remark
    seen: list[Callable[[], None]] = []
    messages = broker.core.messages
    monkeypatch.setattr(MessageStore, "high_watermark", 0)
    monkeypatch.setattr(messages, "when_visible", lambda _offset, told: seen.append(told))
    recall: dict[str, object] = {"topic": "T", "recallHandle": sent.ext["recallHandle"]}
    asked = asyncio.create_task(call(peer, Code.RECALL_MESSAGE, recall, "victim"))
    await until(lambda: bool(seen))
    monkeypatch.undo()
    broker.core.access.set_rules("victim", [], BY)
    seen[0]()
    assert (await asked).code == ResponseCode.NO_PERMISSION
    allow(broker, "victim", "T")
    assert (await call(peer, Code.RECALL_MESSAGE, recall, "victim")).code == ResponseCode.SUCCESS
