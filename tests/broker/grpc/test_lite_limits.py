"""What clients may say of lite topics, how much of it is kept, and what it costs."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.features.pop.lite_topics import requests, wants
from imago_broker.features.pop.waiting import PopWaiting
from imago_broker.model.access.access import AccessKind, AccessRule, Operation, Resource
from imago_broker.model.access.users import User
from imago_broker.model.groups import GroupConfig
from imago_broker.model.topics.topics import TopicConfig
from imago_broker.processors.grpc.routes import RouteCalls
from imago_broker.processors.rocketmq.exchange import RequestError
from imago_broker.server.broker_calls import MasterCalls
from imago_broker.service.access.access_edits import Actor
from imago_broker.service.groups.pull_hold import PullHold
from imago_testing.clusters.brokers import running_broker
from imago_testing.peers.features import pop_of
from imago_testing.peers.remoting import RemotingPeer
from imago_testing.peers.sdk_calls import consumer, message, named, sends, telemetry
from imago_testing.peers.sdk_peer import HEADERS, SdkPeer, signed_headers
from imago_wire.grpc.codes import SdkCode
from imago_wire.grpc.messages import make
from imago_wire.record_format.references import lite_queue
from imago_wire.remoting.bodies.lite import (
    LiteAction,
    LiteSubscription,
    OffsetOption,
    OffsetOptionType,
)
from imago_wire.remoting.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from imago_broker.app import Broker

GROUP = "readers"
CHATS = TopicConfig(
    name="chats", read_queues=1, write_queues=1, attributes={"message.type": "LITE"}
)
QUOTA = ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED
INVALID = ResponseCode.INVALID_PARAMETER


@pytest.fixture(autouse=True)
async def chats(broker: Broker) -> None:
    broker.topics.create_or_update(CHATS)
    broker.groups.update(GroupConfig(name=GROUP))


@pytest.fixture
async def remoting(broker: Broker) -> AsyncIterator[RemotingPeer]:
    connected = await RemotingPeer.connect(broker.rocketmq_port)
    yield connected
    await connected.close()


def told(client: str, *names: str, **more: Any) -> LiteSubscription:
    known = {"group": GROUP, "topic": "chats", "action": LiteAction.PARTIAL_ADD, **more}
    return LiteSubscription(client_id=client, lite_topic_set=frozenset(names), **known)


async def said(remoting: RemotingPeer, *clients: LiteSubscription) -> int:
    body = json.dumps({"subscriptionSet": [json.loads(each.encode()) for each in clients]})
    answer = await remoting.call(RequestCode.LITE_SUBSCRIPTION_CTL, {}, body.encode())
    return answer.code


async def test_one_request_speaks_of_few_clients_and_names(
    remoting: RemotingPeer, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "SUBSCRIPTIONS_MAX", 2)
    monkeypatch.setattr(requests, "LITE_NAMES_MAX", 3)
    assert await said(remoting, *[told(f"c{n}") for n in range(3)]) == INVALID
    assert await said(remoting, told("c0", "a", "b"), told("c1", "a", "b")) == INVALID
    assert pop_of(broker).lite.count == 0
    assert await said(remoting, told("c0", "a", "b"), told("c1", "a")) == ResponseCode.SUCCESS
    assert pop_of(broker).lite.count == 3
    # What a client has is looked at again each time that it is spoken of.
    assert await said(remoting, told("c0", "c"), told("c0", "d")) == INVALID


async def test_names_and_ids_that_none_has_are_refused(
    remoting: RemotingPeer, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wants, "CLIENT_ID_SIZE_MAX", 4)
    for client, name in (("c0", "a$b"), ("c0", ""), ("c0", "a" * 65), ("c0123", "a"), ("", "a")):
        assert await said(remoting, told(client, name)) == INVALID, (client, name)
    assert len(pop_of(broker).lite) == pop_of(broker).lite.count == 0


async def test_of_clients_that_want_nothing_nothing_is_kept(broker: Broker) -> None:
    wanted = pop_of(broker).lite
    for action in LiteAction:
        wanted.sync(told("c", action=action))
    assert len(wanted) == 0
    wanted.sync(told("c", "a", "b"))
    for action, names in ((LiteAction.PARTIAL_REMOVE, ("a", "b")), (LiteAction.COMPLETE_ADD, ())):
        wanted.sync(told("c", *names, action=action))
        assert len(wanted) == wanted.count == 0
        wanted.sync(told("c", "a"))


async def test_few_clients_want_all_lite_topics(
    remoting: RemotingPeer, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each remembers of all lite topics whether something has happened there."""
    monkeypatch.setattr(wants, "ALL_MAX", 4)
    monkeypatch.setattr(requests, "LITE_NAMES_MAX", 2 * wants.LOOKS)
    broker.groups.update(GroupConfig(name=GROUP, attributes={"lite.sub.wildcard": "true"}))
    wanted, every = pop_of(broker).lite, {"action": LiteAction.COMPLETE_ADD}
    assert await said(remoting, *[told(f"c{n}", **every) for n in range(3)]) == INVALID
    for number in range(2):
        wanted.sync(told(f"c{number}", **every), "ann")
        wanted.sync(told(f"c{number}", **every), "ann")
    with pytest.raises(RequestError, match="2 clients of one user"):
        wanted.sync(told("c2", **every), "ann")
    assert await said(remoting, told("c2", **every), told("c3", **every)) == 0
    assert await said(remoting, told("c4", **every)) == QUOTA
    wanted.sync(told("c1", action=LiteAction.COMPLETE_REMOVE), "ann")
    assert await said(remoting, told("c4", **every)) == ResponseCode.SUCCESS
    wanted.clear()
    for number in range(4):
        assert await said(remoting, told(f"c{number}", **every)) == ResponseCode.SUCCESS


def lines_of(call: Any) -> int:
    """Return how many lines of Python a call goes through."""
    count = 0

    def trace(_frame: Any, event: str, _argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(None)
    return count


@pytest.mark.parametrize("model", ["", "Exclusive"])
async def test_what_one_client_says_costs_the_same_among_many(broker: Broker, model: str) -> None:
    broker.groups.update(GroupConfig(name=GROUP, attributes={"lite.sub.model": model}))
    wanted = pop_of(broker).lite
    wanted.sync(told("first", "a"))
    wanted.sync(told("own", "mine"))
    alone = lines_of(lambda: wanted.sync(told("own", "mine")))
    for number in range(200):
        wanted.sync(told(f"c{number}", "a" if model else f"n{number}", group=f"g{number}"))
        wanted.sync(told(f"d{number}", f"m{number}"))
    assert lines_of(lambda: wanted.sync(told("own", "mine"))) == alone


async def test_a_light_queue_that_goes_costs_the_same_among_many_that_wait(broker: Broker) -> None:
    pulls = PullHold(asyncio.get_running_loop(), broker.clock)
    pops = PopWaiting(asyncio.get_running_loop(), broker.clock)

    def gone() -> int:
        name = lite_queue("chats", "ann")
        return sum(
            lines_of(lambda each=each: each.light_queue_gone(name)) for each in (pulls, pops)
        )

    def hold(number: int) -> None:
        name = b"T%d" % number
        pulls.hold(name, 0, hold_ms=60_000, wake=lambda _: False)
        pops.hold(name, 0, group="g", in_order=False, hold_ms=60_000, wake=lambda _: False)

    hold(0)
    alone = gone()
    for number in range(100):
        hold(number)
    assert gone() == alone
    pulls.release_all()
    pops.release_all()


async def test_one_user_and_one_group_have_a_share(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wants, "WANTED_MAX", 8)
    wanted = pop_of(broker).lite
    wanted.sync(told("a1", "a", "b"), "ann")
    for client, group, user in (("a2", "other", "ann"), ("b1", GROUP, "bob")):
        with pytest.raises(RequestError) as refused:
            wanted.sync(told(client, "c", group=group), user)
        assert refused.value.reply.code == QUOTA
    wanted.sync(told("b1", "c", "d", group="third"), "bob")
    wanted.sync(told("a1", "c", action=LiteAction.COMPLETE_ADD), "ann")
    wanted.sync(told("a2", "c", group="other"), "ann")
    assert wanted.count == 4
    wanted.sync(told("a1", "a"), "eve")  # somebody else has its id now
    wanted.sync(told("a3", "c", group="other"), "ann")


async def test_few_clients_of_a_group_share_a_lite_topic(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wants, "SHARING_MAX", 2)
    wanted = pop_of(broker).lite
    wanted.sync(told("a", "room"))
    wanted.sync(told("b", "room", "other"))
    with pytest.raises(RequestError, match="2 clients of this group"):
        wanted.sync(told("c", "room"))
    wanted.sync(told("c", "room", group="others"))
    wanted.sync(told("b", "room"))  # it says it again


async def test_where_a_group_goes_on_is_kept_of_what_is_there(
    broker: Broker, peer: SdkPeer
) -> None:
    """And never behind the end: what comes next would be skipped."""
    made = message("chats", message_id="a1")
    made.system_properties.lite_topic = "ann"
    assert (await peer.call("SendMessage", sends(made))).status.code == SdkCode.OK
    wanted = pop_of(broker).lite
    option = OffsetOption(type=OffsetOptionType.OFFSET, value=1 << 62)
    wanted.sync(told("c", "ann", *[f"none{n}" for n in range(9)], offset_option=option))
    assert broker.offsets.of_group(GROUP) == {lite_queue("chats", "ann"): {0: 1}}


ANN = User(name="ann", secret="password-of-ann")
SIGNED = signed_headers("ann", "password-of-ann")


def rule(kind: AccessKind, name: str) -> AccessRule:
    return AccessRule(Resource(kind, name), frozenset({Operation.SUBSCRIBE}))


async def test_a_users_rights_are_asked_for_on_each_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The access point passes on who asks: what a client may want there is decided there."""
    (tmp_path / "token").write_text("t" * 40)
    settings = (f"admin.token_file={tmp_path / 'token'}", "acl.enabled=true")
    of_group, of_topic = rule(AccessKind.GROUP, GROUP), rule(AccessKind.TOPIC, "chats")
    monkeypatch.setattr(RouteCalls, "brokers_of", lambda *_: ("shard-0", "shard-1"))
    async with (
        running_broker(tmp_path / "own", *settings) as own,
        running_broker(tmp_path / "other", "broker.shard=1", *settings) as other,
    ):
        for each in (own, other):
            each.topics.create_or_update(CHATS)
            each.core.access.put_account(ANN, [of_group, of_topic], Actor("test", "127.0.0.1"))
        there = {"shard-1": ("127.0.0.1", other.rocketmq_port)}
        monkeypatch.setattr(MasterCalls, "_address", lambda _, broker: there.get(broker))
        peer = await SdkPeer.connect(own.ports.grpc_port)
        await telemetry(peer, consumer(GROUP, "chats", kind=6), SIGNED)

        async def wants(*names: str) -> int:
            request = make(
                "SyncLiteSubscriptionRequest",
                topic=named("chats"),
                group=named(GROUP),
                lite_topic_set=names,
            )
            answer = await peer.call("SyncLiteSubscription", request, SIGNED)
            return int(answer.status.code)

        assert await wants("ann") == SdkCode.OK
        assert [pop_of(each).lite.count for each in (own, other)] == [1, 1]
        found = pop_of(other).lite.of((GROUP, HEADERS["x-mq-client-id"]))
        assert found is not None
        assert (found.user, list(found.queues)) == ("ann", [lite_queue("chats", "ann")])
        other.core.access.put_account(ANN, [of_topic], Actor("test", "127.0.0.1"))
        assert await wants("bob") == SdkCode.FORBIDDEN
        assert pop_of(other).lite.count == 1
        own.core.access.put_account(ANN, [of_group], Actor("test", "127.0.0.1"))
        assert await wants("eve") == SdkCode.UNAUTHORIZED
        await peer.close()
