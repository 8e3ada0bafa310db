"""Whatever a peer sends: an error or a closed connection, and nobody else notices."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from imago_testing.peers.remoting import RemotingPeer, pull_ext, send_ext
from imago_testing.peers.wild import says_nothing_of_itself
from imago_testing.searching import examples
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.command import RemotingCommand
from imago_wire.remoting.frame import encode_frame

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from imago_broker.app import Broker

    Connect = Callable[..., Awaitable[RemotingPeer]]

HEADER = b'{"code":28,"flag":0,"opaque":1,"version":479}'


def frame(header: bytes, body: bytes = b"", *, form: int = 0, size: int | None = None) -> bytes:
    total = 4 + len(header) + len(body) if size is None else size
    return struct.pack(">iI", total, form << 24 | len(header)) + header + body


BAD_FRAMES = [
    struct.pack(">i", 0x7FFFFFFF),
    struct.pack(">i", -1),
    struct.pack(">i", 0),
    struct.pack(">i", 3) + b"abc",
    struct.pack(">I", 0xFFFFFFFF) * 2,
    struct.pack(">ii", (16 << 20) - 3, 10),
    struct.pack(">iI", 100, 0x00FFFFFF),
    frame(HEADER, form=2),
    frame(HEADER, form=255),
    frame(b"{"),
    frame(b"[]"),
    frame(b""),
    frame(b"\xff" * 30),
    frame(b'{"code":"x"}'),
    frame(b'{"code":99999999999999}'),
    frame(b'{"code":28,"extFields":[1]}'),
    frame(b'{"code":28,"extFields":' + b'{"a":' * 5000 + b"1" + b"}" * 5000 + b"}"),
    frame(b"\x00" * 20, form=1),
    frame(b"\x00\x1c\x00\x01\xdf" + b"\x00" * 8 + b"\x7f\xff\xff\xff", form=1),
    frame(b"\x00\x1c\x00\x01\xdf" + b"\x00" * 12 + b"\xff\xff\xff\xff", form=1),
    frame(b"\x00\x1c\x00\x01\xdf" + b"\x00" * 12 + b"\x00\x00\x00\x04\x7f\xff\x00\x00", form=1),
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"put topic 0 4 0 0\r\nbody",
]


@pytest.mark.parametrize("port", ["rocketmq_port", "fast_port", "namesrv_port"])
async def test_bytes_that_are_no_frame_close_this_connection_only(
    peer: RemotingPeer, connect: Connect, broker: Broker, port: str
) -> None:
    for data in BAD_FRAMES:
        bad = await connect(getattr(broker.ports, port))
        bad.write(data)
        assert await bad.closed(), data
        assert (await peer.put("T", b"x")).code == ResponseCode.SUCCESS


async def test_frames_before_the_bad_one_are_answered(connect: Connect) -> None:
    bad = await connect()
    opaque = bad.send(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": 0})
    bad.write(struct.pack(">i", -1))
    assert (await bad.answer(opaque)).code == ResponseCode.SUCCESS
    assert await bad.closed()


BAD_FIELDS: list[dict[str, object]] = [
    {},
    {"consumerGroup": "g"},
    pull_ext("T", queueOffset="1e9"),
    pull_ext("T", queueOffset=1 << 64),
    pull_ext("T", queueId="0x1"),
    pull_ext("T", queueId=" 1"),
    pull_ext("T", queueId="\u0661"),
    pull_ext("T", maxMsgNums=-5),
    pull_ext("T", maxMsgNums=0),
    pull_ext("T", sysFlag=-1),
    pull_ext("T", maxMsgBytes=-(1 << 31)),
    pull_ext("T", subscription="a" * 100_000),
    pull_ext("T\x00"),
    pull_ext("../../../etc/passwd"),
    pull_ext("T", consumerGroup="../g"),
    pull_ext("T", consumerGroup="g" * 10_000),
    pull_ext("T", consumerGroup=""),
    {**pull_ext("T"), **{f"k{n}": "v" * 100 for n in range(2000)}},
    {"topic": "T", "queueId": str(-(1 << 31)), "x" * 30_000: "y"},
]


@pytest.mark.parametrize(
    "code", [11, 361, 12, 14, 15, 29, 30, 31, 32, 33, 35, 36, 38, 202, 208, 222, 300, 303, 321]
)
async def test_fields_that_cannot_be_are_answered_and_the_connection_stays(
    peer: RemotingPeer, code: int
) -> None:
    for ext in BAD_FIELDS:
        answer = await peer.call(code, ext)
        says_nothing_of_itself((answer.remark or "").encode())
        assert "internal error" not in (answer.remark or ""), ext
    assert (await peer.put("T", b"x")).code == ResponseCode.SUCCESS


PAGES = [(21, "topicSeq"), (21, "maxTopicNum"), (201, "groupSeq"), (201, "maxGroupNum")]


@pytest.mark.parametrize(("code", "name"), PAGES)
@pytest.mark.parametrize("value", ["x", "1.5", "\u0661", "9" * 5000, "-1", "1_0"])
async def test_page_at_no_number_is_refused_in_words_of_the_protocol(
    peer: RemotingPeer, code: int, name: str, value: str
) -> None:
    answer = await peer.call(code, {name: value})
    remark = answer.remark or ""
    says_nothing_of_itself(remark.encode())
    assert (answer.code, name in remark) == ((0, False) if value == "-1" else (1, True)), remark


BODIES = [
    b"",
    b"{}",
    b"[]",
    b"null",
    b"{",
    b"\xff\xfe\x00",
    b"1" * 400,
    b'{"a":' * 500,
    b'{"mqSet":[{"brokerName":1,"queueId":"x","topic":[]}]}',
    b'{"groupName":"../../x"}',
    b'{"topicConfigList":[{"topicName":"../../x","readQueueNums":1e99}]}',
    b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{}]}]}',
    b"maxMessageSize=-1",
    b"maxMessageSize=NaN\n",
    b"fileReservedTime=x\n",
    b"diskMaxUsedSpaceRatio=0x1\n",
    b'{"groupName":"g","attributes":"x"}',
    b'{"groupName":"g","attributes":[1]}',
    b'{"groupName":"g","retryQueueNums":"x"}',
    b'{"topicConfigList":[{"topicName":"t","attributes":"x","perm":"x"}]}',
    b'{"clientID":"c","consumerDataSet":[{"groupName":"g","unitMode":"x"}]}',
]


@pytest.mark.parametrize("code", [18, 25, 34, 41, 42, 46, 200, 225, 310, 320, 10])
async def test_bodies_that_cannot_be_are_answered_and_the_connection_stays(
    peer: RemotingPeer, code: int
) -> None:
    for body in BODIES:
        answer = await peer.call(code, {}, body)
        says_nothing_of_itself((answer.remark or "").encode())
        assert "internal error" not in (answer.remark or ""), body
    assert (await peer.put("T", b"x")).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("queues", [-1, 1 << 31, 1 << 20])
async def test_topic_with_senseless_numbers_of_queues_is_refused(
    peer: RemotingPeer, queues: int
) -> None:
    ext = {
        "topic": "N",
        "defaultTopic": "TBW102",
        "readQueueNums": queues,
        "writeQueueNums": queues,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
    }
    answer = await peer.call(17, ext)
    assert answer.code in (ResponseCode.INVALID_PARAMETER, ResponseCode.SYSTEM_ERROR)
    assert (await peer.call(351, {"topic": "N"})).code == ResponseCode.TOPIC_NOT_EXIST


async def test_answers_to_questions_that_were_never_asked_are_dropped(peer: RemotingPeer) -> None:
    peer.write(encode_frame(RemotingCommand(code=0, flag=1, opaque=77, body=b"x")))
    assert (await peer.put("T", b"x")).code == ResponseCode.SUCCESS


async def test_requests_in_single_bytes_are_served(peer: RemotingPeer) -> None:
    for byte in frame(HEADER):
        peer.write(bytes([byte]))
    answer = await peer.answer(1)
    assert json.loads(answer.body)["table"]["brokerActive"] == "true"


async def test_many_requests_in_one_write_are_all_answered(peer: RemotingPeer) -> None:
    await peer.put("T", b"0")
    opaques = [peer.send(310, send_ext("T"), b"%d" % n) for n in range(1000)]
    for number, opaque in enumerate(opaques, 1):
        assert (await peer.answer(opaque)).ext["queueOffset"] == str(number)


async def test_peer_that_reads_nothing_stops_being_served_before_it_costs_much(
    peer: RemotingPeer, connect: Connect, broker: Broker
) -> None:
    await peer.put("T", b"x" * (1 << 20))
    stalled = await connect()
    for _ in range(400):
        stalled.send(11, pull_ext("T"))
    # The broker stays responsive, and what it keeps for the stalled one is bounded.
    assert (await peer.put("T", b"x")).code == ResponseCode.SUCCESS
    sessions = [s for s in broker.ports.rocketmq._sessions if s.address]
    waiting = sum(s.transport.get_write_buffer_size() for s in sessions)
    assert waiting < 8 << 20
    # And once it reads, it gets every answer.
    for opaque in range(1, 401):
        assert len((await stalled.answer(opaque)).body) > 1 << 20


@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.binary(min_size=1, max_size=200))
async def test_random_headers_never_hurt(connect: Connect, data: bytes) -> None:
    bad, good = await connect(), await connect()
    bad.write(frame(data, form=data[0] & 1))
    bad.write(frame(HEADER))
    answer = await good.call(30, {"topic": "T", "queueId": 0})
    assert answer.code == ResponseCode.SUCCESS
    await bad.close()
    await good.close()
