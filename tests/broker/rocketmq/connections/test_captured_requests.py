"""What original clients sent to original brokers, sent to ours: the answers agree."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from imago_testing.frames.remoting import Capture, load_captures
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.header import decode_header
from imago_wire.remoting.messages import decode_messages

if TYPE_CHECKING:
    from imago_broker.app import Broker
    from imago_testing.peers.remoting import RemotingPeer
    from imago_wire.remoting.command import RemotingCommand

CAPTURED = Path(__file__).parents[3] / "wire" / "remoting" / "golden" / "captured.hex"
CAPTURES = load_captures(CAPTURED)
V5 = "RocketMQ 5.3.3, JSON headers"
V5_BINARY = "RocketMQ 5.3.3, client with ROCKETMQ (binary) headers"
V4 = "RocketMQ 4.9.7, JSON headers"
V4_BINARY = "RocketMQ 4.9.7, ROCKETMQ (binary) headers both ways"
ALL = [V5, V5_BINARY, V4, V4_BINARY]


def capture(group: str, what: str) -> Capture:
    return next(
        one for one in CAPTURES if one.name.startswith(group + ":") and f" {what} " in one.name
    )


def command(one: Capture) -> RemotingCommand:
    header = one.data[8 : 8 + one.header_size]
    return decode_header(one.data[4], header, one.data[8 + one.header_size :])


async def replay(peer: RemotingPeer, group: str, code: int) -> RemotingCommand:
    """Send the captured request's own bytes; return our answer."""
    one = capture(group, f"request {code}")
    assert one.is_whole
    peer.write(one.data)
    return await peer.answer(command(one).opaque)


@pytest.mark.parametrize("group", ALL)
async def test_send(peer: RemotingPeer, group: str) -> None:
    original = command(capture(group, "response to 310"))
    for _ in range(2):
        answer = await replay(peer, group, 310)
        assert answer.code == original.code
        assert answer.remark == original.remark
        assert set(original.ext) <= set(answer.ext)
        assert set(answer.ext) - set(original.ext) <= {"transactionId"}
        for same in ("queueId", "MSG_REGION", "TRACE_ON"):
            assert answer.ext[same] == original.ext[same]
        assert len(answer.ext["msgId"]) == len(original.ext["msgId"])
        if "transactionId" in original.ext:
            assert answer.ext["transactionId"] == original.ext["transactionId"]


@pytest.mark.parametrize("group", [V5, V4])
async def test_batch(peer: RemotingPeer, group: str) -> None:
    original = command(capture(group, "response to 320"))
    for first_offset in ("0", "2"):
        answer = await replay(peer, group, 320)
        assert answer.code == original.code
        assert answer.ext["queueId"] == original.ext["queueId"]
        assert answer.ext["queueOffset"] == first_offset
        assert len(answer.ext["msgId"].split(",")) == len(original.ext["msgId"].split(","))
        assert answer.ext.get("transactionId", "") in (original.ext.get("transactionId", ""), "")
    queue_id = int(original.ext["queueId"])
    messages = await peer.messages("bench", queueId=queue_id)
    assert [m.body for m in messages] == [b"b1", b"b2"] * 2


@pytest.mark.parametrize("group", [V5, V5_BINARY, V4])
async def test_heartbeat_is_accepted(peer: RemotingPeer, broker: Broker, group: str) -> None:
    assert (await replay(peer, group, 34)).code == ResponseCode.SUCCESS
    assert broker.rocketmq.clients.registry.producers("wire_producer") or group == V4


@pytest.mark.parametrize("group", ALL)
async def test_pull(peer: RemotingPeer, group: str) -> None:
    original = command(capture(group, "response to 11"))
    request = command(capture(group, "request 11"))
    await peer.put("bench", b"oneway", queue_id=0)
    await peer.call(
        RequestCode.HEART_BEAT,
        {},
        b'{"clientID":"c","consumerDataSet":[{"groupName":"wire_group","consumeType":'
        b'"CONSUME_PASSIVELY","messageModel":"CLUSTERING","consumeFromWhere":'
        b'"CONSUME_FROM_FIRST_OFFSET","subscriptionDataSet":[{"topic":"bench","subString":"*",'
        b'"subVersion":%s}]}]}' % request.ext["subVersion"].encode(),
    )
    answer = await replay(peer, group, 11)
    assert (answer.code, answer.remark) == (original.code, original.remark)
    assert set(original.ext) <= set(answer.ext)
    for name in original.ext:
        assert answer.ext[name] == original.ext[name]
    (ours,), (theirs,) = decode_messages(answer.body), decode_messages(original.body)
    assert ours.queue_offset == theirs.queue_offset
    assert ours.topic == theirs.topic


@pytest.mark.parametrize("group", [V5, V4])
async def test_one_way_commit_is_taken_and_not_answered(
    peer: RemotingPeer, broker: Broker, group: str
) -> None:
    await peer.put("bench", b"x")
    await peer.pull("bench", consumerGroup="wire_group")
    one = command(capture(group, "request 15"))
    peer.write(capture(group, "request 15").data)
    assert (await peer.pull("bench")).code == ResponseCode.SUCCESS
    assert peer.unread == []
    assert broker.offsets.query("wire_group", "bench", 0) == int(one.ext["commitOffset"])


async def test_offset_of_a_young_queue_and_list_of_consumers(peer: RemotingPeer) -> None:
    await peer.put("bench", b"x")
    offset = await replay(peer, V5, 14)
    original = command(capture(V5, "response to 14"))
    assert (offset.code, offset.ext) == (original.code, original.ext)
    nobody = await replay(peer, V5, 38)
    assert nobody.code == ResponseCode.SYSTEM_ERROR
    assert (await replay(peer, V5, 35)).code == ResponseCode.SUCCESS
