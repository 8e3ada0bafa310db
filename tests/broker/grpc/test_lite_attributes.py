"""What groups and topics say of lite topics by attributes of RocketMQ 5.5; its other producers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.features.pop.lite_topics import wants
from imago_broker.model.groups import GroupConfig
from imago_broker.model.topics.attributes import LITE_MINUTES, attributes_problem, lite_minutes
from imago_broker.model.topics.topics import TopicConfig
from imago_broker.service.puts import light_queues
from imago_testing.peers.features import pop_of
from imago_testing.peers.remoting import RemotingPeer
from imago_testing.peers.sdk_calls import asks, consumer, message, named, received, sends, telemetry
from imago_wire.grpc.codes import SdkCode
from imago_wire.grpc.messages import make
from imago_wire.record_format.references import lite_queue
from imago_wire.remoting.codes import RequestCode

if TYPE_CHECKING:
    from imago_broker.app import Broker
    from imago_testing.peers.sdk_peer import SdkPeer

ADD, REMOVE, ALL = range(3)
SIMPLE, GROUP = 6, "readers"


def lite_topic(broker: Broker, minutes: str = "-1") -> None:
    told = {"message.type": "LITE", LITE_MINUTES: minutes}
    config = TopicConfig(name="chats", read_queues=1, write_queues=1, attributes=told)
    broker.topics.create_or_update(config)


async def reader(peer: SdkPeer, broker: Broker, **attributes: str) -> None:
    lite_topic(broker)
    told = {name.replace("_", "."): value for name, value in attributes.items()}
    broker.groups.update(GroupConfig(name=GROUP, attributes=told))
    await telemetry(peer, consumer(GROUP, "chats", kind=SIMPLE))


async def send(peer: SdkPeer, *names: str) -> None:
    for name in names:
        made = message("chats", message_id=f"0{name}")
        made.system_properties.lite_topic = name
        assert (await peer.call("SendMessage", sends(made))).status.code == SdkCode.OK


async def sync(peer: SdkPeer, action: int, *names: str) -> int:
    request = make(
        "SyncLiteSubscriptionRequest",
        action=action,
        topic=named("chats"),
        group=named(GROUP),
        lite_topic_set=names,
    )
    found: int = (await peer.call("SyncLiteSubscription", request)).status.code
    return found


async def got(peer: SdkPeer) -> list[str]:
    """Take what there is, and acknowledge it."""
    _, found = await received(peer, asks(topic="chats"))
    for each in found:
        told: dict[str, Any] = {
            "message_id": each.system_properties.message_id,
            "receipt_handle": each.system_properties.receipt_handle,
            "lite_topic": each.system_properties.lite_topic,
        }
        entries = [make("AckMessageEntry", **told)]
        request = make(
            "AckMessageRequest", group=named(GROUP), topic=named("chats"), entries=entries
        )
        assert (await peer.call("AckMessage", request)).status.code == SdkCode.OK
    return sorted(each.system_properties.lite_topic for each in found)


async def test_a_group_may_want_all_lite_topics_there_are(peer: SdkPeer, broker: Broker) -> None:
    await reader(peer, broker, lite_sub_wildcard="true", lite_sub_model="Exclusive")
    await send(peer, "ann")
    assert await sync(peer, ADD, "ann") == SdkCode.INTERNAL_SERVER_ERROR
    assert await sync(peer, ALL) == SdkCode.OK
    assert await got(peer) == ["ann"]
    await send(peer, "bob", "ann", "eve")
    assert await got(peer) == ["ann", "bob", "eve"]
    assert pop_of(broker).lite.count == 1
    other = TopicConfig(
        name="chatter", read_queues=1, write_queues=1, attributes={"message.type": "LITE"}
    )
    broker.topics.create_or_update(other)
    made = message("chatter", message_id="01")
    made.system_properties.lite_topic = "ann"
    await peer.call("SendMessage", sends(made))
    assert await got(peer) == [], "it is of another topic"


async def test_one_look_goes_over_some_lite_topics_and_the_next_over_the_rest(
    peer: SdkPeer, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[int] = []
    monkeypatch.setattr(wants, "LOOKS_LOW", 1)
    await reader(peer, broker, lite_sub_wildcard="true", lite_sub_client_max_event_cnt="2")
    names = [f"l{number}" for number in range(9)]
    await send(peer, *names)
    assert await sync(peer, ALL) == SdkCode.OK
    found: list[str] = []
    while len(found) < 9:
        some = await got(peer)
        found += some
        lines.append(len(some))
    assert (sorted(found), max(lines)) == (names, 2)
    looks = pop_of(broker).lite.looks_max
    for said, expected in (("x", 400), ("0", 1), ("99999", 10_000), ("-1", 400)):
        broker.groups.update(
            GroupConfig(name=GROUP, attributes={"lite.sub.client.max.event.cnt": said})
        )
        assert looks(GROUP) == expected


async def test_who_waits_goes_over_quiet_lite_topics_to_the_one_with_a_message(
    peer: SdkPeer, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wants, "LOOKS_LOW", 1)
    monkeypatch.setattr(wants, "LOOKS", 1)
    await reader(peer, broker, lite_sub_wildcard="true")
    names = [f"l{number}" for number in range(5)]
    await send(peer, *names)
    await sync(peer, ALL)
    for _ in names:
        await got(peer)
    wanted = pop_of(broker).lite.of((GROUP, "test@1@0@a"))
    assert wanted is not None
    await send(peer, "l4")
    wanted.ready = dict.fromkeys(lite_queue("chats", name) for name in names)
    assert await got(peer) == ["l4"]


@pytest.mark.parametrize("again", [True, False])
async def test_a_group_may_begin_again_in_what_its_client_gives_up(
    peer: SdkPeer, broker: Broker, *, again: bool
) -> None:
    await reader(peer, broker, lite_sub_reset_offset_unsubscribe=str(again).lower())
    await send(peer, "ann")
    await sync(peer, ADD, "ann", "none")
    assert await got(peer) == ["ann"]
    await sync(peer, REMOVE, "ann", "none")
    await sync(peer, ADD, "ann")
    assert await got(peer) == (["ann"] if again else [])


async def test_a_lite_topic_without_messages_for_long_goes(
    peer: SdkPeer, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    lite_topic(broker, minutes="20")
    await send(peer, "ann", "bob")
    light, now_ms = broker.core.messages.light, broker.clock.epoch_ms()
    ann = lite_queue("chats", "ann")

    def expire(minutes: int) -> None:
        light._looked_ms = 0
        at_ms = now_ms + minutes * 60_000 + 30_000
        light.expire(lambda name: lite_minutes(broker.topics.get(name)), at_ms, lambda: None)

    expire(19)
    assert ann in light
    monkeypatch.setattr(light_queues, "LOOKS_MAX", 1)
    expire(20)
    assert len(light) == 1
    expire(20)
    assert len(light) == 0
    await send(peer, "ann")
    assert broker.store.queue_range(ann, 0) == (0, 1)
    lite_topic(broker, minutes="1")
    expire(14)
    assert ann in light, "none goes sooner than at RocketMQ"
    lite_topic(broker, minutes="-1")
    expire(10**6)
    assert ann in light


def test_an_expiry_has_its_bounds() -> None:
    bad = ("43201", "x", "0000000000043201", "9" * 5000)
    for value in ("-1", "0", "43200", *bad):
        problem = attributes_problem({LITE_MINUTES: value}, acknowledgements=frozenset())
        assert (problem is None) == (value not in bad), value


async def test_producers_of_the_other_protocol_put_into_lite_topics_and_priorities(
    peer: SdkPeer, broker: Broker
) -> None:
    remoting = await RemotingPeer.connect(broker.rocketmq_port)
    await reader(peer, broker)
    urgent = TopicConfig(
        name="urgent", read_queues=4, write_queues=4, attributes={"message.type": "PRIORITY"}
    )
    broker.topics.create_or_update(urgent)
    sent = await remoting.put("chats", b"x", properties="__LITE_TOPIC\x01ann\x02UNIQ_KEY\x0101\x02")
    assert sent.code == 0
    await sync(peer, ADD, "ann")
    assert await got(peer) == ["ann"]
    for priority, queue in (("2", 2), ("9", 3), ("", 0), ("x", 0)):
        properties = f"_SYS_MSG_PRIORITY_\x01{priority}\x02"
        sent = await remoting.put("urgent", b"x", properties=properties)
        assert (sent.code, sent.ext["queueId"]) == (0, str(queue))
    plain = await remoting.put("plain", b"x", properties="__LITE_TOPIC\x01ann\x02")
    assert (plain.code, lite_queue("plain", "ann") in broker.core.messages.light) == (0, False)
    broker.topics.delete("chats")
    broker.topics.delete("urgent")
    await remoting.close()


async def test_a_group_that_nobody_may_make_is_not_found(peer: SdkPeer, broker: Broker) -> None:
    broker.groups.auto_create_enabled = False
    code, _ = await received(peer, asks("nobodys"))
    assert code == SdkCode.CONSUMER_GROUP_NOT_FOUND


async def test_a_groups_attributes_are_changed_as_rocketmqs_tools_say_it(broker: Broker) -> None:
    remoting = await RemotingPeer.connect(broker.rocketmq_port)

    async def after(**changes: str) -> dict[str, str]:
        told = json.dumps({"groupName": GROUP, "attributes": changes})
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        assert (await remoting.call(code, {}, told.encode())).code == 0
        found = broker.groups.get(GROUP)
        assert found is not None
        return dict(found.attributes)

    assert await after(**{"+lite.sub.wildcard": "true", "plain": "1"}) == {
        "lite.sub.wildcard": "true",
        "plain": "1",
    }
    assert len(await after()) == 2, "what is not named stays"
    assert await after(**{"-lite.sub.wildcard": "", "+plain": "2"}) == {"plain": "2"}
    await remoting.close()
