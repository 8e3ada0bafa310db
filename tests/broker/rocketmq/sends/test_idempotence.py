"""Idempotent producers over real sockets: numbers as properties, repeats, refusals, restarts."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import pytest

from imago_broker.app import Broker
from imago_log.metadata.known_producers import RUNS_MAX
from imago_testing.peers.remoting import RemotingPeer, send_ext
from imago_wire.record_format.sequences import Sequence, wire_properties
from imago_wire.remoting.codes import ResponseCode
from imago_wire.remoting.messages import BatchEntry, encode_batch

if TYPE_CHECKING:
    from imago_broker.config import BrokerConfig
    from imago_wire.remoting.command import RemotingCommand

P = "00000000000000aa"


def numbered(number: int, epoch: int = 0, producer: str = P) -> str:
    return f"UNIQ_KEY\x01{number:032d}\x02" + wire_properties(Sequence(producer, epoch, number))


async def put(peer: RemotingPeer, number: int, epoch: int = 0) -> RemotingCommand:
    return await peer.put("T", b"%d" % number, properties=numbered(number, epoch))


def batch(*numbers: int) -> bytes:
    return encode_batch([BatchEntry(b"%d" % n, numbered(n).encode()) for n in numbers])


async def test_repeat_gets_the_original_offset_and_id(peer: RemotingPeer) -> None:
    first, second = await put(peer, 0), await put(peer, 1)
    again = await put(peer, 0)
    assert (first.code, second.code, again.code) == (0, 0, 0)
    assert second.ext["queueOffset"] == "1"
    assert again.ext == first.ext
    assert [m.body for m in await peer.messages("T")] == [b"0", b"1"]


async def test_batch_is_repeated_as_a_whole(peer: RemotingPeer) -> None:
    first = await peer.call(320, send_ext("T", m="true"), batch(0, 1, 2))
    again = await peer.call(320, send_ext("T", m="true"), batch(0, 1, 2))
    assert first.code == again.code == ResponseCode.SUCCESS
    assert again.ext["queueOffset"] == first.ext["queueOffset"] == "0"
    assert again.ext["msgId"] == first.ext["msgId"]
    assert first.ext["msgId"].count(",") == 2
    assert len(await peer.messages("T")) == 3
    half = await peer.call(320, send_ext("T", m="true"), batch(2, 3))
    assert half.code == ResponseCode.IMAGO_OUT_OF_ORDER_SEQUENCE


async def test_many_in_one_packet_are_stored_once_each(peer: RemotingPeer) -> None:
    await peer.put("T", b"-", queue_id=1)  # from now on the fast path is open
    sent = [0, 1, 1, 2, 0, 2, 3]
    asked = [peer.send(310, send_ext("T", 0, numbered(n)), b"%d" % n) for n in sent]
    answers = [await peer.answer(opaque) for opaque in asked]
    assert [int(answer.ext["queueOffset"]) for answer in answers] == sent
    assert [m.body for m in await peer.messages("T")] == [b"0", b"1", b"2", b"3"]


async def test_refusals_name_cause_and_cure(peer: RemotingPeer) -> None:
    unknown = await put(peer, 7)
    assert unknown.code == ResponseCode.IMAGO_OUT_OF_ORDER_SEQUENCE
    assert "does not know" in (unknown.remark or "")
    await put(peer, 0)
    gap = await put(peer, 2)
    assert gap.code == ResponseCode.IMAGO_OUT_OF_ORDER_SEQUENCE
    assert "OutOfOrderSequence: producer 00000000000000aa, queue T/0, epoch 0" in (gap.remark or "")
    assert "2 came where 1 is expected" in (gap.remark or "")
    assert (await put(peer, 0, epoch=4)).code == ResponseCode.SUCCESS
    fenced = await put(peer, 1)
    assert fenced.code == ResponseCode.IMAGO_PRODUCER_FENCED
    assert "epoch 0 is over, epoch 4 has begun" in (fenced.remark or "")
    late = await put(peer, 3, epoch=5)
    assert "epoch 5 has to begin with 0" in (late.remark or "")
    assert [m.body for m in await peer.messages("T")] == [b"0", b"0"]


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ("__IMAGO_PID\x01xyz\x02__IMAGO_EPOCH\x010\x02__IMAGO_SEQ\x010\x02", "hexadecimal"),
        ("__IMAGO_PID\x01a\x02__IMAGO_EPOCH\x01-1\x02__IMAGO_SEQ\x010\x02", "__IMAGO_EPOCH"),
        ("__IMAGO_PID\x01a\x02__IMAGO_EPOCH\x010\x02__IMAGO_SEQ\x01\x02", "__IMAGO_SEQ"),
        (numbered(1 << 63), "__IMAGO_SEQ"),
        (numbered(0) + "DELAY\x013\x02", "neither delayed"),
    ],
)
async def test_numbers_that_make_no_sense(peer: RemotingPeer, properties: str, said: str) -> None:
    answer = await peer.put("T", b"x", properties=properties)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert said in (answer.remark or "")
    assert (await peer.put("T", b"y")).ext["queueOffset"] == "0"


@pytest.mark.parametrize("numbers", [(0, 2), (1, 0), (0, 0)])
async def test_batch_of_other_numbers_is_refused(
    peer: RemotingPeer, numbers: tuple[int, int]
) -> None:
    answer = await peer.call(320, send_ext("T", m="true"), batch(*numbers))
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    mixed = encode_batch([BatchEntry(b"0", numbered(0).encode()), BatchEntry(b"1", b"A\x01b\x02")])
    answer = await peer.call(320, send_ext("T", m="true"), mixed)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL


@pytest.mark.parametrize("known", [False, True], ids=["slow path", "fast path"])
async def test_echo_of_a_consumed_message_claims_nothing(
    peer: RemotingPeer, *, known: bool
) -> None:
    if known:
        await peer.put("U", b"-")
    await put(peer, 0)
    (seen,) = await peer.messages("T")
    assert seen.properties["__IMAGO_SENT"] == f"{P}.0.0"
    assert "__IMAGO_PID" not in seen.properties
    echoed = "".join(f"{name}\x01{value}\x02" for name, value in seen.properties.items())
    for topic in ("T", "U"):
        answer = await peer.put(topic, b"echo", properties=echoed)
        assert answer.code == ResponseCode.SUCCESS
        body = encode_batch([BatchEntry(b"echo", echoed.encode())])
        assert (await peer.call(320, send_ext(topic, m="true"), body)).code == 0
        for message in (await peer.messages(topic))[-2:]:
            assert message.body == b"echo"
            assert not any(name.startswith("__IMAGO_") for name in message.properties)
    assert (await put(peer, 1)).code == ResponseCode.SUCCESS, "nobody else has taken its number"


async def test_message_given_back_is_nobodys(peer: RemotingPeer) -> None:
    await put(peer, 0)
    (seen,) = await peer.messages("T")
    back = {"offset": seen.physical_offset, "group": "G", "delayLevel": -1}
    assert (await peer.call(36, back)).code == ResponseCode.SUCCESS
    (dead,) = await peer.messages("%DLQ%G")
    assert dead.body == b"0"
    assert not any(name.startswith("__IMAGO_") for name in dead.properties)


async def test_compressed_bodies_and_restart(config: BrokerConfig) -> None:
    for start in (0, 2):
        running = Broker(config)
        await running.start()
        peer = await RemotingPeer.connect(running.rocketmq_port)
        packed = zlib.compress(b"x" * 1000)
        for number in (start, start + 1):
            answer = await peer.call(310, send_ext("T", 0, numbered(number), f=1), packed)
            assert answer.code == ResponseCode.SUCCESS
            assert answer.ext["queueOffset"] == str(number)
        for number in range(start + 2):
            answer = await peer.call(310, send_ext("T", 0, numbered(number), f=1), packed)
            assert answer.ext["queueOffset"] == str(number), "also what came before the restart"
        assert len(await peer.messages("T")) == start + 2
        await peer.close()
        await running.stop()


@pytest.mark.parametrize("epoch_first", [False, True], ids=["fast path", "slow path"])
async def test_repeat_of_long_ago_is_confirmed_without_its_place(
    peer: RemotingPeer, *, epoch_first: bool
) -> None:
    """Properties in another order than our clients' go the slow path: the same answer."""

    def properties(number: int) -> str:
        text = numbered(number)
        if not epoch_first:
            return text
        kept, _, _ = text.partition("__IMAGO_PID")
        return f"{kept}__IMAGO_EPOCH\x010\x02__IMAGO_SEQ\x01{number}\x02__IMAGO_PID\x01{P}\x02"

    for number in range(RUNS_MAX + 2):
        assert (await peer.put("T", b"n", properties=properties(number))).code == 0
        await peer.put("T", b"-")
    again = await peer.put("T", b"n", properties=properties(0))
    assert again.code == ResponseCode.SUCCESS
    assert (again.ext["queueOffset"], again.ext["msgId"]) == ("-1", "")
    assert again.ext["MSG_REGION"] == "DefaultRegion"
    near = await peer.put("T", b"n", properties=properties(RUNS_MAX + 1))
    assert near.ext["queueOffset"] == str(2 * (RUNS_MAX + 1))


async def test_requests_leave_their_lane_whatever_becomes_of_them(
    peer: RemotingPeer, broker: Broker
) -> None:
    await put(peer, 0)
    for number, epoch in ((1, 0), (1, 0), (5, 0), (0, 1), (2, 0)):
        await put(peer, number, epoch)
    await peer.call(320, send_ext("T", m="true"), batch(9, 10))
    assert broker.rocketmq.lanes.send.running == 0
