"""Priorities of messages, and tries that are asked again because their answer was lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.model.groups import GroupConfig
from imago_broker.model.topics.topics import TopicConfig
from imago_testing.peers.sdk_calls import acknowledged, asks, message, named, received, sends
from imago_wire.grpc.codes import SdkCode
from imago_wire.grpc.messages import make

if TYPE_CHECKING:
    from imago_broker.app import Broker
    from imago_testing.peers.sdk_peer import SdkPeer

QUEUES = 4


def urgent(priority: int, topic: str = "urgent") -> Any:
    made = message(topic, message_id=f"{priority:02}", body=b"x")
    made.system_properties.priority = priority
    return made


@pytest.fixture(autouse=True)
async def urgent_topic(broker: Broker) -> None:
    config = TopicConfig(
        name="urgent",
        read_queues=QUEUES,
        write_queues=QUEUES,
        attributes={"message.type": "PRIORITY"},
    )
    broker.topics.create_or_update(config)


async def test_the_highest_priority_comes_first(peer: SdkPeer) -> None:
    """What is above the last queue is in it; within a priority messages keep their order."""
    for priority in (1, 0, 3, 7, 2, 3):
        assert (await peer.call("SendMessage", sends(urgent(priority)))).status.code == SdkCode.OK
    _, got = await received(peer, asks(topic="urgent"))
    told = [each.system_properties for each in got]
    assert [each.priority for each in told] == [3, 7, 3, 2, 1, 0]
    assert {each.message_type for each in told} == {6}
    assert [each.queue_id for each in told] == [3, 3, 3, 2, 1, 0]
    assert not got[0].user_properties


async def test_a_group_may_go_without_priorities(peer: SdkPeer, broker: Broker) -> None:
    broker.groups.update(GroupConfig(name="readers", attributes={"priority.factor": "0"}))
    for _ in range(2):
        await peer.call("SendMessage", sends(*map(urgent, range(QUEUES))))
    firsts = {
        (await received(peer, asks(topic="urgent", batch_size=1)))[1][0].system_properties.priority
        for _ in range(QUEUES)
    }
    assert firsts == set(range(QUEUES)), "each receive begins with another queue"


@pytest.mark.parametrize(
    ("topic", "made", "code"),
    [
        ("urgent", message("urgent"), SdkCode.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        ("plain", urgent(1, "plain"), SdkCode.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        ("mixed", urgent(1, "mixed"), SdkCode.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        ("urgent", urgent(-1), SdkCode.BAD_REQUEST),
    ],
)
async def test_only_topics_of_priorities_take_them(
    peer: SdkPeer, topic: str, made: Any, code: SdkCode
) -> None:
    assert (await peer.call("SendMessage", sends(made))).status.code == code
    route = await peer.call("QueryRoute", make("QueryRouteRequest", topic=named(topic)))
    assert (6 in route.message_queues[0].accept_message_types) == (topic == "urgent")


def tried(attempt: str, group: str = "in-order") -> Any:
    request = asks(group, "ordered")
    request.attempt_id = attempt
    return request


async def test_the_same_try_gets_the_same_again(peer: SdkPeer, broker: Broker) -> None:
    """Its answer was lost: others wait for the messages, and their attempts are not counted."""
    broker.groups.update(GroupConfig(name="in-order", consume_message_orderly=True))
    told = [message("ordered", message_group="g", message_id=f"0{n}") for n in range(2)]
    await peer.call("SendMessage", sends(*told))
    _, first = await received(peer, tried("a"))
    _, again = await received(peer, tried("a"))
    assert [each.system_properties.message_id for each in again] == ["00", "01"]
    assert [each.system_properties.delivery_attempt for each in again] == [1, 1]
    assert await received(peer, tried("b")) == (SdkCode.MESSAGE_NOT_FOUND, [])
    await acknowledged(peer, *first, group="in-order", topic="ordered")  # they were replaced
    assert await received(peer, tried("b")) == (SdkCode.MESSAGE_NOT_FOUND, [])
    await acknowledged(peer, again[0], group="in-order", topic="ordered")
    _, rest = await received(peer, tried("a"))
    assert [each.system_properties.message_id for each in rest] == ["01"]
