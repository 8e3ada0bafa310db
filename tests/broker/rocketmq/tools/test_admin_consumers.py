"""What tools do to consumers over real sockets: reset their offsets, ask them questions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from imago_broker.model.registry.cluster import Role
from imago_broker.service.role import ALONE, ShardRole
from imago_testing.peers.popping import acknowledge, pop, receipts
from imago_testing.peers.remoting import RemotingPeer, heartbeat, pull_ext
from imago_wire.remoting.bodies.client import MessageQueue
from imago_wire.remoting.bodies.stats import (
    QueryCorrectionOffsetBody,
    ResetOffsetBody,
    ResetOffsetBodyForC,
)
from imago_wire.remoting.codes import RequestCode as Code
from imago_wire.remoting.codes import ResponseCode
from imago_wire.remoting.command import FLAG_RESPONSE, RemotingCommand
from imago_wire.remoting.frame import encode_frame
from imago_wire.remoting.messages import decode_messages

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from imago_broker.app import Broker

    Connect = Callable[..., Awaitable[RemotingPeer]]

QUEUE = MessageQueue("T", "shard-0", 0)


def reset(**more: object) -> dict[str, object]:
    return {"group": "G", "topic": "T", "timestamp": 0, "isForce": "true", **more}


async def test_reset_sends_the_next_pull_to_the_new_place_once(
    peer: RemotingPeer, broker: Broker
) -> None:
    for _ in range(3):
        await peer.put("T", b"x")
    await peer.call(Code.HEART_BEAT, {}, heartbeat("G"))
    broker.offsets.commit("G", "T", 0, 3)
    answer = await peer.call(Code.INVOKE_BROKER_TO_RESET_OFFSET, reset())
    assert ResetOffsetBody.decode(answer.body).offset_table[QUEUE] == 0
    where = {"consumerGroup": "G", "topic": "T", "queueId": 0}
    late = await peer.call(Code.UPDATE_CONSUMER_OFFSET, {**where, "commitOffset": 3})
    assert (late.code, late.remark) == (0, "Offset has been previously reset")
    assert (await peer.call(Code.QUERY_CONSUMER_OFFSET, where)).ext == {"offset": "0"}
    moved = await peer.pull("T", 3, consumerGroup="G")
    assert moved.code == ResponseCode.PULL_OFFSET_MOVED
    assert moved.ext["nextBeginOffset"] == "0"
    assert (await peer.pull("T", 0, consumerGroup="G")).code == ResponseCode.SUCCESS
    late = await peer.call(Code.UPDATE_CONSUMER_OFFSET, {**where, "commitOffset": 2})
    assert late.remark is None
    assert broker.offsets.query("G", "T", 0) == 2


async def test_pull_that_is_sent_away_does_not_commit_where_it_was(
    peer: RemotingPeer, broker: Broker
) -> None:
    for _ in range(3):
        await peer.put("T", b"x")
    await peer.call(Code.HEART_BEAT, {}, heartbeat("G"))
    await peer.call(Code.INVOKE_BROKER_TO_RESET_OFFSET, reset())
    moved = await peer.pull("T", 3, consumerGroup="G", sysFlag=1 | 4, commitOffset=3)
    assert moved.code == ResponseCode.PULL_OFFSET_MOVED
    assert broker.offsets.query("G", "T", 0) == 0


async def test_reset_ends_with_its_topic(peer: RemotingPeer, broker: Broker) -> None:
    for _ in range(3):
        await peer.put("T", b"old")
    broker.offsets.commit("G", "T", 0, 1)
    broker.groups.get_or_create("G")
    where = {"queueId": 0, "offset": 3}
    await peer.call(Code.INVOKE_BROKER_TO_RESET_OFFSET, reset(**where))
    await peer.call(Code.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
    await peer.put("T", b"new")
    assert [each.body for each in await peer.messages("T", consumerGroup="G")] == [b"new"]


async def test_reset_ends_with_the_leadership(peer: RemotingPeer, broker: Broker) -> None:
    """Another master has led meanwhile: the group went on there."""
    for _ in range(3):
        await peer.put("T", b"x")
    broker.groups.get_or_create("G")
    await peer.call(Code.INVOKE_BROKER_TO_RESET_OFFSET, reset())
    broker.role.change(ShardRole(role=Role.SLAVE, epoch=1))
    broker.role.change(ALONE)
    answer = await peer.pull("T", 2, consumerGroup="G")
    assert (answer.code, answer.ext["nextBeginOffset"]) == (ResponseCode.SUCCESS, "3")


async def test_who_pops_after_a_reset_has_heard_of_it(peer: RemotingPeer, broker: Broker) -> None:
    for _ in range(3):
        await peer.put("T", b"x")
    broker.groups.get_or_create("G")
    await peer.call(Code.INVOKE_BROKER_TO_RESET_OFFSET, reset())
    popped = await pop(peer, consumerGroup="G")
    for each in receipts(popped):
        await acknowledge(peer, each, consumerGroup="G")
    answer = await peer.pull("T", 3, consumerGroup="G")
    assert (answer.code, answer.ext["nextBeginOffset"]) == (ResponseCode.PULL_NOT_FOUND, "3")


async def test_reset_wakes_a_held_pull(
    peer: RemotingPeer, connect: Connect, broker: Broker
) -> None:
    await peer.put("T", b"x")
    waiting = await connect()
    await waiting.call(Code.HEART_BEAT, {}, heartbeat("G"))
    opaque = waiting.send(11, pull_ext("T", 1, sysFlag=6, consumerGroup="G"))
    while not len(broker.rocketmq.delivery.hold):
        await peer.call(Code.GET_MAX_OFFSET, {"topic": "T", "queueId": 0})
    await peer.call(Code.INVOKE_BROKER_TO_RESET_OFFSET, reset())
    moved = await waiting.answer(opaque)
    assert moved.code == ResponseCode.PULL_OFFSET_MOVED
    assert moved.ext["nextBeginOffset"] == "0"


@pytest.mark.parametrize("language", ["JAVA", "CPP"])
async def test_reset_is_told_to_clients_before_5(
    peer: RemotingPeer, connect: Connect, language: str
) -> None:
    await peer.put("T", b"x")
    old = await connect()
    header = json.dumps(
        {"code": 34, "flag": 0, "opaque": 1, "language": language, "version": 317}
    ).encode()
    body = heartbeat("G")
    size = 4 + len(header) + len(body)
    old.write(size.to_bytes(4, "big") + len(header).to_bytes(4, "big") + header + body)
    await old.answer(1)
    await peer.call(Code.INVOKE_BROKER_TO_RESET_OFFSET, reset())
    told = await old.request(Code.RESET_CONSUMER_CLIENT_OFFSET)
    assert told.is_oneway
    assert (told.ext["group"], told.ext["topic"]) == ("G", "T")
    if language == "CPP":
        places = {
            one.queue_id: one.offset for one in ResetOffsetBodyForC.decode(told.body).offset_table
        }
    else:
        table = ResetOffsetBody.decode(told.body).offset_table
        places = {queue.queue_id: place for queue, place in table.items()}
    assert places == {0: 0, 1: 0, 2: 0, 3: 0}


@pytest.mark.parametrize(
    ("ext", "code", "remark"),
    [
        (reset(topic="None"), ResponseCode.TOPIC_NOT_EXIST, "Topic None does not exist"),
        (
            reset(group="None"),
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            "Group None does not exist",
        ),
        (
            reset(queueId=0, offset=9),
            ResponseCode.SYSTEM_ERROR,
            "Target offset 9 not in consume queue range [0-1]",
        ),
        (reset(queueId=44), ResponseCode.SYSTEM_ERROR, "Queue 44 does not exist"),
    ],
)
async def test_reset_that_cannot_be_is_refused(
    peer: RemotingPeer, broker: Broker, ext: dict[str, object], code: int, remark: str
) -> None:
    await peer.put("T", b"x")
    broker.groups.get_or_create("G")
    answer = await peer.call(Code.INVOKE_BROKER_TO_RESET_OFFSET, ext)
    assert (answer.code, answer.remark) == (code, remark)


async def test_reset_without_force_never_goes_forward(peer: RemotingPeer, broker: Broker) -> None:
    for _ in range(3):
        await peer.put("T", b"x")
    broker.groups.get_or_create("G")
    broker.offsets.commit("G", "T", 0, 1)
    for force, place in (("false", 1), ("true", 3)):
        ext = reset(timestamp=-1, isForce=force)
        await peer.call(Code.INVOKE_BROKER_TO_RESET_OFFSET, ext)
        assert broker.offsets.query("G", "T", 0) == place


async def test_questions_to_a_consumer_are_passed_on_and_answered(
    peer: RemotingPeer, connect: Connect
) -> None:
    consumer = await connect()
    await peer.put("T", b"body")
    (message,) = await peer.messages("T")
    await consumer.call(Code.HEART_BEAT, {}, heartbeat("G"))
    ask = {"consumerGroup": "G", "clientId": "client"}
    info = peer.send(Code.GET_CONSUMER_RUNNING_INFO, {**ask, "jstackEnable": "false"})
    asked = await consumer.request(Code.GET_CONSUMER_RUNNING_INFO)
    reply = RemotingCommand(code=0, flag=FLAG_RESPONSE, opaque=asked.opaque, body=b'{"a":1}')
    consumer.write(encode_frame(reply))
    assert (await peer.answer(info)).body == b'{"a":1}'
    direct = peer.send(Code.CONSUME_MESSAGE_DIRECTLY, {**ask, "msgId": message.offset_message_id})
    asked = await consumer.request(Code.CONSUME_MESSAGE_DIRECTLY)
    assert [m.body for m in decode_messages(asked.body)] == [b"body"]
    reply = RemotingCommand(code=1, flag=FLAG_RESPONSE, opaque=asked.opaque, remark="no")
    consumer.write(encode_frame(reply))
    relayed = await peer.answer(direct)
    assert (relayed.code, relayed.remark) == (1, "no")
    gone = await peer.call(Code.GET_CONSUMER_RUNNING_INFO, {**ask, "clientId": "x"})
    assert (gone.code, gone.remark) == (1, "The Consumer <G> <x> not online")


async def test_a_consumer_is_not_shown_the_signature_of_who_asks(
    peer: RemotingPeer, connect: Connect
) -> None:
    """It covers neither the code nor the borders between fields, and the consumer has chosen its
    own name: with it, it could sign requests in the name of who asks."""
    consumer = await connect()
    await peer.put("T", b"body")
    (message,) = await peer.messages("T")
    await consumer.call(Code.HEART_BEAT, {}, heartbeat("G"))
    ask = {"consumerGroup": "G", "clientId": "client", "jstackEnable": "false"}
    credentials = {"AccessKey": "root", "Signature": "c2lnbmVk", "SecurityToken": "token"}
    peer.send(Code.GET_CONSUMER_RUNNING_INFO, ask | credentials)
    asked = await consumer.request(Code.GET_CONSUMER_RUNNING_INFO)
    assert asked.ext == ask
    ask["msgId"] = message.offset_message_id
    peer.send(Code.CONSUME_MESSAGE_DIRECTLY, ask | credentials)
    asked = await consumer.request(Code.CONSUME_MESSAGE_DIRECTLY)
    assert asked.ext == {**ask, "brokerName": "shard-0"}


async def test_question_to_a_consumer_that_goes_away_is_answered(
    peer: RemotingPeer, connect: Connect
) -> None:
    consumer = await connect()
    await consumer.call(Code.HEART_BEAT, {}, heartbeat("G"))
    ask = {"consumerGroup": "G", "clientId": "client"}
    opaque = peer.send(Code.GET_CONSUMER_RUNNING_INFO, ask)
    await consumer.request(Code.GET_CONSUMER_RUNNING_INFO)
    await consumer.close()
    assert (await peer.answer(opaque)).code == ResponseCode.CONSUME_MSG_TIMEOUT


async def test_places_in_memory_of_consumers_are_gathered(
    peer: RemotingPeer, connect: Connect
) -> None:
    consumer = await connect()
    await consumer.call(Code.HEART_BEAT, {}, heartbeat("G"))
    opaque = peer.send(Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, {"topic": "T", "group": "G"})
    asked = await consumer.request(Code.GET_CONSUMER_STATUS_FROM_CLIENT)
    body = b'{"messageQueueTable":{{"brokerName":"shard-0","queueId":0,"topic":"T"}:7}}'
    consumer.write(
        encode_frame(RemotingCommand(code=0, flag=FLAG_RESPONSE, opaque=asked.opaque, body=body))
    )
    answer = await peer.answer(opaque)
    assert b'{"consumerTable":{"client":{' in answer.body
    assert answer.body.endswith(b":7}}}")


async def test_lag_of_absurd_offsets_is_told_as_far_as_a_number_goes(peer: RemotingPeer) -> None:
    for queue in (0, 1):
        await peer.put("T", b"x", queue_id=queue)
        ext = {"consumerGroup": "g", "topic": "T", "queueId": queue, "commitOffset": 2**63 - 1}
        assert (await peer.call(15, ext)).code == ResponseCode.SUCCESS
    answer = await peer.call(317, {"isOrder": "false"})
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    assert b'"totalDiff":-9223372036854775808' in answer.body


async def test_correction_offsets_are_of_all_groups_but_those_left_out(
    peer: RemotingPeer, broker: Broker
) -> None:
    for _ in range(3):
        await peer.put("T", b"x")
    for group, place in (("Slow", 1), ("Own", 2), ("Fast", 3)):
        broker.offsets.commit(group, "T", 0, place)
    broker.offsets.commit("Fast", "T", 1, 7)
    own_alone = (1 << 63) - 1

    async def told(group: str, left_out: str | None = None) -> dict[int, int]:
        ext = {"topic": "T", "compareGroup": group}
        more = {} if left_out is None else {"filterGroups": left_out}
        answer = await peer.call(Code.QUERY_CORRECTION_OFFSET, ext | more)
        assert answer.code == ResponseCode.SUCCESS
        return dict(QueryCorrectionOffsetBody.decode(answer.body).correction_offsets)

    assert await told("Own") == {0: 1, 1: 7}
    assert await told("Own", "") == {0: 1, 1: 7}
    assert await told("Own", "Slow") == {0: 2, 1: 7}
    assert await told("Own", "Slow,Own") == {0: own_alone, 1: 7}
    assert await told("Fast", "Fast") == {0: 1, 1: own_alone}
    assert await told("Unknown", "Own,Slow,Fast") == {}
