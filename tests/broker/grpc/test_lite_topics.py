"""Lite topics of RocketMQ 5.5: light queues below a topic, which clients take up one by one."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.features.pop.lite_topics import wants as lite
from imago_broker.features.pop.reading import PopAsk, PopReader
from imago_broker.model.groups import GroupConfig
from imago_broker.model.topics.topics import TopicConfig
from imago_broker.processors.grpc import checks, lite_topics
from imago_broker.processors.grpc.consuming import receiving
from imago_broker.service.groups.pull_hold import PullHold
from imago_testing.clusters.shard_brokers import until
from imago_testing.peers.features import pop_of
from imago_testing.peers.sdk_calls import asks, consumer, message, named, received, sends, telemetry
from imago_testing.peers.sdk_peer import HEADERS, SdkPeer
from imago_wire.grpc.codes import SdkCode
from imago_wire.grpc.messages import duration, make
from imago_wire.record_format.references import lite_queue

if TYPE_CHECKING:
    from imago_broker.app import Broker
    from imago_broker.features.pop.feature import PopServices

ADD, REMOVE, ALL, NONE = range(4)
PUSH, SIMPLE = 5, 6
GROUP = "readers"


@pytest.fixture(autouse=True)
async def chats(broker: Broker) -> None:
    config = TopicConfig(
        name="chats", read_queues=2, write_queues=2, attributes={"message.type": "LITE"}
    )
    broker.topics.create_or_update(config)


def said(name: str, message_id: str, body: bytes = b"x") -> Any:
    made = message("chats", body, message_id=message_id)
    made.system_properties.lite_topic = name
    return made


async def send(peer: SdkPeer, name: str, *ids: str) -> None:
    answer = await peer.call("SendMessage", sends(*[said(name, each) for each in ids]))
    assert answer.status.code == SdkCode.OK, answer


async def wants(peer: SdkPeer, action: int, *names: str, client: str = "", **told: Any) -> Any:
    headers = {**HEADERS, "x-mq-client-id": client} if client else HEADERS
    request = make(
        "SyncLiteSubscriptionRequest",
        action=action,
        topic=named(told.pop("topic", "chats")),
        group=named(GROUP),
        lite_topic_set=names,
        **told,
    )
    return await peer.call("SyncLiteSubscription", request, headers)


async def got(peer: SdkPeer, client: str = "", **told: Any) -> list[Any]:
    headers = {**HEADERS, "x-mq-client-id": client} if client else HEADERS
    code, found = await received(peer, asks(topic="chats", **told), headers)
    assert code in (SdkCode.OK, SdkCode.MESSAGE_NOT_FOUND), code
    return found


def ids(messages: list[Any]) -> list[str]:
    return [each.system_properties.message_id for each in messages]


async def acknowledge(peer: SdkPeer, *messages: Any) -> None:
    entries = [
        make(
            "AckMessageEntry",
            message_id=each.system_properties.message_id,
            receipt_handle=each.system_properties.receipt_handle,
            lite_topic=each.system_properties.lite_topic,
        )
        for each in messages
    ]
    request = make("AckMessageRequest", group=named(GROUP), topic=named("chats"), entries=entries)
    assert (await peer.call("AckMessage", request)).status.code == SdkCode.OK


def postponing(one: Any, milliseconds: int, *, suspend: bool = False) -> Any:
    return make(
        "ChangeInvisibleDurationRequest",
        group=named(GROUP),
        topic=named("chats"),
        receipt_handle=one.system_properties.receipt_handle,
        message_id=one.system_properties.message_id,
        invisible_duration=duration(milliseconds),
        lite_topic=one.system_properties.lite_topic,
        suspend=suspend,
    )


async def test_who_has_not_said_what_it_is_gets_nothing_of_the_topic_itself(
    peer: SdkPeer, broker: Broker
) -> None:
    """A new master hears receives before telemetry: messages that were acknowledged came again,
    and with them those of lite topics that the client never took up."""
    await telemetry(peer, consumer(GROUP, "chats", kind=PUSH))
    await wants(peer, ADD, "ann")
    await send(peer, "ann", "a1")
    await send(peer, "eve", "e1")
    await acknowledge(peer, *(await got(peer)))
    left = make("NotifyClientTerminationRequest", group=named(GROUP))
    assert (await peer.call("NotifyClientTermination", left)).status.code == SdkCode.OK
    other = await SdkPeer.connect(broker.ports.grpc_port)
    code, found = await received(other, asks(topic="chats"))
    assert (code, ids(found)) == (SdkCode.UNRECOGNIZED_CLIENT_TYPE, [])
    assert (await wants(other, ALL, "ann")).status.code == SdkCode.OK  # said again by SDKs
    await send(peer, "ann", "a2")
    assert ids(await got(other)) == ["a2"]
    await other.close()


async def test_a_client_gets_what_it_wants_of_a_topic_in_order(peer: SdkPeer) -> None:
    await telemetry(peer, consumer(GROUP, "chats", kind=PUSH))
    await send(peer, "ann", "a1", "a2")
    await send(peer, "bob", "b1")
    await send(peer, "eve", "e1")
    assert (await wants(peer, ADD, "ann", "bob")).status.code == SdkCode.OK
    first = await got(peer)
    assert sorted(ids(first)) == ["a1", "a2", "b1"]
    told = next(each for each in first if ids([each]) == ["a1"])
    assert (told.system_properties.lite_topic, told.system_properties.message_type) == ("ann", 5)
    assert not told.user_properties
    await send(peer, "ann", "a3")  # it waits for those before it
    await acknowledge(peer, *[each for each in first if ids([each]) != ["a2"]])
    await send(peer, "bob", "b2")
    assert ids(await got(peer)) == ["b2"]
    await acknowledge(peer, *[each for each in first if ids([each]) == ["a2"]])
    assert ids(await got(peer)) == ["a3"]


@pytest.fixture
async def endless(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> PopServices:
    """POP whose waits are never over by themselves: each look is somebody's doing."""
    monkeypatch.setattr(PullHold, "_set_timer", lambda _: None)
    return pop_of(broker)


async def woken(peer: SdkPeer, waiting: int) -> list[str]:
    async with asyncio.timeout(50):
        answers = await peer.answers(waiting, "ReceiveMessageResponse")
    return ids([each.message for each in answers[1:-1]])


async def begin(peer: SdkPeer, pop: PopServices, client: str = "") -> int:
    """Have a client wait for messages."""
    headers = {**HEADERS, "x-mq-client-id": client} if client else HEADERS
    number = peer.start("ReceiveMessage", asks(topic="chats"), headers)
    await until(lambda: len(pop.waiting) == 1)
    return number


async def test_who_waits_is_woken_by_a_message_and_by_what_it_adds(
    peer: SdkPeer, endless: PopServices
) -> None:
    await telemetry(peer, consumer(GROUP, "chats", kind=SIMPLE))
    await wants(peer, ALL, "ann")
    waiting = await begin(peer, endless)
    await send(peer, "bob", "b1")  # nobody wants it
    assert len(endless.waiting) == 1
    await send(peer, "ann", "a1")
    assert await woken(peer, waiting) == ["a1"]
    waiting = await begin(peer, endless)
    await wants(peer, ALL, "bob")
    assert await woken(peer, waiting) == ["b1"]
    await wants(peer, REMOVE, "bob")
    await send(peer, "bob", "b2")
    await begin(peer, endless)


@pytest.mark.parametrize("how", ["acknowledged", "put off", "reset", "late"])
async def test_who_waits_is_woken_when_a_lite_topic_is_free_again(
    peer: SdkPeer, broker: Broker, endless: PopServices, how: str
) -> None:
    """Another client has a message of it out, or had it."""
    for client in ("", "other"):
        headers = {**HEADERS, "x-mq-client-id": client} if client else HEADERS
        await telemetry(peer, consumer(GROUP, "chats", kind=SIMPLE), headers)
        await wants(peer, ADD, "ann", client=client)
    await send(peer, "ann", "a1", "a2")
    (one,) = await got(peer, batch_size=1)
    if how == "late":  # when it has come back nobody was waiting
        changed = await peer.call("ChangeInvisibleDuration", postponing(one, 1000))
        await until(lambda: endless.parts.clock.epoch_ms() > due_ms(endless))
        assert changed.receipt_handle
        assert ids(await got(peer, "other")) == ["a1", "a2"]
        return
    waiting = await begin(peer, endless, "other")
    if how == "acknowledged":
        await acknowledge(peer, one)
        assert await woken(peer, waiting) == ["a2"]
        return
    if how == "put off":
        await peer.call("ChangeInvisibleDuration", postponing(one, 1000))
    else:
        broker.offsets.reset(GROUP, lite_queue("chats", "ann"), {0: 0})
    assert await woken(peer, waiting) == ["a1", "a2"]


def due_ms(pop: PopServices) -> int:
    known = pop.service.known((GROUP, lite_queue("chats", "ann"), 0))
    assert known is not None
    return known.state.due_ms or 0


async def test_only_lite_topics_in_which_something_happened_are_looked_at(
    peer: SdkPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"n{number}" for number in range(40)]
    await telemetry(peer, consumer(GROUP, "chats", kind=SIMPLE))
    for name in names:
        await send(peer, name, name)
    await wants(peer, ALL, *names)
    for count in (32, 8):
        found = await got(peer)
        assert len(found) == count
        await acknowledge(peer, *found)
    looked: list[str] = []
    look = PopReader._look

    def noted(reader: PopReader, ask: PopAsk, *more: Any) -> Any:
        looked.append(ask.topic)
        return look(reader, ask, *more)

    monkeypatch.setattr(PopReader, "_look", noted)
    await send(peer, "n7", "again")  # those acknowledged may have more: they are looked at once
    assert ids(await got(peer)) == ["again"]
    looked.clear()
    await send(peer, "n9", "more")
    assert ids(await got(peer)) == ["more"]
    assert looked == [lite_queue("chats", "n9")]


async def test_the_same_try_gets_the_same_again(peer: SdkPeer) -> None:
    """Its answer was lost; what happened in other lite topics meanwhile comes with it."""
    await telemetry(peer, consumer(GROUP, "chats", kind=SIMPLE))
    await wants(peer, ADD, "ann", "bob")
    await send(peer, "ann", "a1")

    async def tried(attempt: str) -> list[str]:
        request = asks(topic="chats")
        request.attempt_id = attempt
        return ids((await received(peer, request))[1])

    assert await tried("one") == ["a1"]
    await send(peer, "bob", "b1")
    assert sorted(await tried("one")) == ["a1", "b1"]
    assert await tried("two") == []


async def test_what_comes_again_counts_unless_it_was_only_put_off(peer: SdkPeer) -> None:
    await telemetry(peer, consumer(GROUP, "chats", kind=SIMPLE))
    await wants(peer, ADD, "ann")
    await send(peer, "ann", "a1", "a2")
    attempts = []
    for suspend in (False, True, False):
        (one,) = await got(peer, batch_size=1)
        attempts.append((ids([one]), one.system_properties.delivery_attempt))
        changed = await peer.call("ChangeInvisibleDuration", postponing(one, 0, suspend=suspend))
        assert changed.status.code == SdkCode.OK
    assert attempts == [(["a1"], 1), (["a1"], 2), (["a1"], 2)]


async def test_what_is_given_up_is_a_dead_letter_of_its_topic(peer: SdkPeer) -> None:
    await telemetry(peer, consumer(GROUP, "chats", kind=PUSH))
    await wants(peer, ADD, "ann")
    await send(peer, "ann", "a1", "a2")
    (one,) = await got(peer, batch_size=1)
    request = make(
        "ForwardMessageToDeadLetterQueueRequest",
        group=named(GROUP),
        topic=named("chats"),
        receipt_handle=one.system_properties.receipt_handle,
        message_id="a1",
        lite_topic="ann",
    )
    answer = await peer.call("ForwardMessageToDeadLetterQueue", request)
    assert answer.status.code == SdkCode.OK
    assert ids(await got(peer)) == ["a2"]
    other = {**HEADERS, "x-mq-client-id": "undertaker"}
    _, dead = await received(peer, asks("undertakers", f"%DLQ%{GROUP}"), other)
    assert [each.system_properties.dead_letter_queue.topic for each in dead] == ["chats"]


async def test_a_group_goes_on_where_a_client_says(peer: SdkPeer) -> None:
    await telemetry(peer, consumer(GROUP, "chats", kind=SIMPLE))
    await send(peer, "ann", "a0", "a1", "a2")
    found = []
    for option in ({"policy": 2}, {"policy": 1}, {"offset": 2}, {"tail_n": 1}):
        told = make("OffsetOption", **option)
        assert (await wants(peer, ADD, "ann", offset_option=told)).status.code == SdkCode.OK
        taken = await got(peer, batch_size=1)
        found.append(ids(taken))
        await acknowledge(peer, *taken) if taken else None
        await wants(peer, REMOVE, "ann")
    assert found == [[], ["a0"], ["a2"], ["a2"]]


async def test_of_an_exclusive_group_the_last_client_has_a_lite_topic(
    peer: SdkPeer, broker: Broker
) -> None:
    attributes = {"lite.sub.model": "Exclusive", "lite.bind.topic": "chats"}
    broker.groups.update(GroupConfig(name=GROUP, attributes=attributes))
    number = await telemetry(peer, consumer(GROUP, "chats", kind=PUSH))
    await wants(peer, ADD, "ann", "bob")
    await wants(peer, ADD, "ann", client="other")
    command = await peer.message(number, "TelemetryCommand")
    assert command.notify_unsubscribe_lite_command.lite_topic == "ann"
    await send(peer, "ann", "a1")
    await send(peer, "bob", "b1")
    assert ids(await got(peer)) == ["b1"]


async def test_a_client_that_leaves_wants_nothing(peer: SdkPeer, broker: Broker) -> None:
    await telemetry(peer, consumer(GROUP, "chats", kind=PUSH))
    await wants(peer, ADD, "ann", "bob")
    pop = pop_of(broker)
    assert pop.lite.count == 2
    await peer.call("NotifyClientTermination", make("NotifyClientTerminationRequest"))
    assert pop.lite.count == 0
    await wants(peer, ADD, "ann")
    await wants(peer, NONE)
    assert pop.lite.count == 0


async def test_who_has_said_nothing_for_long_wants_nothing(
    peer: SdkPeer, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await telemetry(peer, consumer(GROUP, "chats", kind=PUSH))
    await wants(peer, ADD, "ann", client="silent")
    monkeypatch.setattr(lite, "SILENT_MS_MAX", -1)
    await wants(peer, ALL, "bob")
    pop = pop_of(broker)
    assert pop.lite.count == 1


async def test_what_cannot_be_is_refused_with_the_originals_codes(
    peer: SdkPeer, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await telemetry(peer, consumer(GROUP, "chats", kind=PUSH))
    monkeypatch.setattr(checks, "LITE_TOPIC_SIZE_MAX", 4)
    monkeypatch.setattr(lite_topics, "LITE_NAMES_MAX", 3)
    for told, code in (
        (wants(peer, ADD, "abcd"), SdkCode.OK),
        (wants(peer, ADD, "abcde"), SdkCode.ILLEGAL_LITE_TOPIC),
        (wants(peer, ADD, "a$b"), SdkCode.ILLEGAL_LITE_TOPIC),
        (wants(peer, ADD, "", "a"), SdkCode.ILLEGAL_LITE_TOPIC),
        (wants(peer, ADD, "a", "b", "c"), SdkCode.OK),
        (wants(peer, ADD, "a", "b", "c", "d"), SdkCode.BAD_REQUEST),
        (wants(peer, 4, "a"), SdkCode.BAD_REQUEST),
        (wants(peer, ADD, "a", topic="plain"), SdkCode.BAD_REQUEST),
    ):
        assert (await told).status.code == code
    monkeypatch.setattr(lite, "WANTED_MAX", 16)
    answer = await wants(peer, ADD, "e")
    assert answer.status.code == SdkCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED
    monkeypatch.undo()
    attributes = {"lite.sub.client.quota": "1", "lite.bind.topic": "chats"}
    broker.groups.update(GroupConfig(name=GROUP, attributes=attributes))
    answer = await wants(peer, ALL, "a", "b")
    assert answer.status.code == SdkCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED
    assert (await wants(peer, ALL, "a")).status.code == SdkCode.OK
    bound = replace(GroupConfig(name=GROUP), attributes={"lite.bind.topic": "others"})
    broker.groups.update(bound)
    assert (await wants(peer, ADD, "b")).status.code == SdkCode.INTERNAL_SERVER_ERROR


async def test_a_client_with_too_much_to_do_gets_no_more(
    peer: SdkPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiving, "LITE_OUT_MAX", 1)
    await telemetry(peer, consumer(GROUP, "chats", kind=PUSH))
    await wants(peer, ADD, "ann", "bob", "eve")
    for number, name in enumerate(("ann", "bob", "eve")):
        await send(peer, name, f"{number}")
    for _ in range(2):
        assert len(await got(peer, batch_size=1, auto_renew=True)) == 1
    code, _ = await received(peer, asks(topic="chats", auto_renew=True))
    assert code == SdkCode.FORBIDDEN


async def test_more_lite_topics_than_allowed_are_not_made(peer: SdkPeer, broker: Broker) -> None:
    broker.messages.light.queues_max = 1
    await send(peer, "ann", "a1", "a2")
    answer = await peer.call("SendMessage", sends(said("bob", "b1")))
    assert answer.status.code == SdkCode.LITE_TOPIC_QUOTA_EXCEEDED
    assert lite_queue("chats", "ann") in broker.messages.light


async def test_no_message_reaches_another_topics_lite_topics(peer: SdkPeer, broker: Broker) -> None:
    """Light queues are off, and a property of the user's names one of a topic of others."""
    foreign = message("plain", properties={"INNER_MULTI_DISPATCH": lite_queue("chats", "ann")})
    assert (await peer.call("SendMessage", sends(foreign))).status.code == SdkCode.OK
    await asyncio.sleep(0)
    assert len(broker.messages.light) == 0
