"""Request and reply over real sockets: the requester gets its reply pushed, its sender hears it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from imago_testing.peers.remoting import send_ext
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.command import FLAG_RESPONSE, RemotingCommand
from imago_wire.remoting.frame import encode_frame

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from imago_broker.app import Broker
    from imago_testing.peers.remoting import RemotingPeer

REPLIES = "imago_REPLY_TOPIC"
CLIENT = "10.0.0.1@1"
OF_REQUEST = f"CORRELATION_ID\x01c-1\x02REPLY_TO_CLIENT\x01{CLIENT}\x02MSG_TYPE\x01reply\x02"


async def produce(peer: RemotingPeer, *groups: str, client: str = CLIENT) -> None:
    told = {"clientID": client, "producerDataSet": [{"groupName": name} for name in groups]}
    answer = await peer.call(RequestCode.HEART_BEAT, body=json.dumps(told).encode())
    assert answer.code == ResponseCode.SUCCESS


def reply(peer: RemotingPeer, properties: str = OF_REQUEST, code: int = 325, **more: object) -> int:
    return peer.send(code, send_ext(REPLIES, 0, properties, **more), b"the reply")


def take(peer: RemotingPeer, pushed: RemotingCommand, code: int = 0) -> None:
    peer.write(encode_frame(RemotingCommand(code=code, flag=FLAG_RESPONSE, opaque=pushed.opaque)))


@pytest.fixture
async def requester(connect: Callable[..., Awaitable[RemotingPeer]]) -> RemotingPeer:
    peer = await connect()
    await produce(peer, "P")
    return peer


@pytest.mark.parametrize("code", [324, 325])
async def test_reply_is_pushed_to_its_requester_and_kept(
    peer: RemotingPeer, requester: RemotingPeer, code: int
) -> None:
    asked = reply(peer, code=code, h=7)
    pushed = await requester.request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT)
    assert pushed.body == b"the reply"
    assert pushed.ext["topic"] == REPLIES
    assert (pushed.ext["sysFlag"], pushed.ext["flag"]) == ("0", "7")
    assert OF_REQUEST in pushed.ext["properties"]
    assert "PUSH_REPLY_TIME\x01" in pushed.ext["properties"]
    assert pushed.ext["bornHost"].startswith("127.0.0.1:")
    assert pushed.ext["storeHost"].rpartition(":")[2].isdigit()
    take(requester, pushed)
    answer = await peer.answer(asked)
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
    assert answer.ext["queueOffset"] == "0"
    assert len(answer.ext["msgId"]) == 32
    assert answer.ext["MSG_REGION"] == "DefaultRegion"
    (kept,) = await peer.messages(REPLIES)
    assert kept.properties["CORRELATION_ID"] == "c-1"


async def test_reply_to_nobody_is_refused_with_the_original_words_and_kept(
    peer: RemotingPeer,
) -> None:
    answer = await peer.answer(reply(peer))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == f"push reply message fail, channel of {CLIENT} not found."
    answer = await peer.answer(reply(peer, "CORRELATION_ID\x01c\x02"))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == "reply message properties[REPLY_TO_CLIENT] is null"
    assert len(await peer.messages(REPLIES)) == 2


async def test_requester_that_refuses_or_goes_fails_the_reply(
    peer: RemotingPeer, requester: RemotingPeer
) -> None:
    asked = reply(peer)
    take(requester, await requester.request(326), code=1)
    answer = await peer.answer(asked)
    assert (answer.code, answer.remark) == (1, f"push reply message to {CLIENT}fail.")
    asked = reply(peer)
    await requester.request(326)
    await requester.close()
    answer = await peer.answer(asked)
    assert (answer.code, answer.remark) == (1, f"push reply message to {CLIENT}fail.")
    answer = await peer.answer(reply(peer))
    assert answer.remark == f"push reply message fail, channel of {CLIENT} not found."


async def test_requester_is_found_until_it_has_left_its_last_group(
    peer: RemotingPeer, requester: RemotingPeer
) -> None:
    await produce(requester, "P", "Q")
    leave = RequestCode.UNREGISTER_CLIENT
    await requester.call(leave, {"clientID": CLIENT, "producerGroup": "P"})
    asked = reply(peer)
    take(requester, await requester.request(326))
    assert (await peer.answer(asked)).code == ResponseCode.SUCCESS
    await requester.call(leave, {"clientID": CLIENT, "producerGroup": "Q"})
    answer = await peer.answer(reply(peer))
    assert answer.remark == f"push reply message fail, channel of {CLIENT} not found."


async def test_newest_connection_of_a_client_gets_the_reply(
    peer: RemotingPeer, requester: RemotingPeer, connect: Callable[..., Awaitable[RemotingPeer]]
) -> None:
    again = await connect()
    await produce(again, "P")
    await requester.close()
    await peer.call(RequestCode.GET_ALL_PRODUCER_INFO)
    asked = reply(peer)
    take(again, await again.request(326))
    assert (await peer.answer(asked)).code == ResponseCode.SUCCESS


async def test_reply_to_an_unknown_or_closed_topic_is_refused(peer: RemotingPeer) -> None:
    for topic, code in (("nowhere", 17), ("SCHEDULE_TOPIC_XXXX", 16), ("a b", 29)):
        answer = await peer.call(325, send_ext(topic, 0, OF_REQUEST), b"x")
        assert answer.code == code, answer.remark


async def test_one_way_reply_is_pushed_too(peer: RemotingPeer, requester: RemotingPeer) -> None:
    peer.send(325, send_ext(REPLIES, 0, OF_REQUEST), b"the reply", oneway=True)
    pushed = await requester.request(326)
    take(requester, pushed)
    assert pushed.body == b"the reply"


async def test_replies_are_not_kept_where_the_setting_says_so(
    peer: RemotingPeer, requester: RemotingPeer, broker: Broker
) -> None:
    settings = broker.rocketmq.settings
    settings.change(replace(settings.current, store_replies=False))
    asked = reply(peer)
    take(requester, await requester.request(326))
    answer = await peer.answer(asked)
    assert (answer.code, answer.ext["msgId"]) == (ResponseCode.SUCCESS, "0")
    assert await peer.messages(REPLIES) == []
