"""What only a broker or a receiver says of a message is taken out of what a sender brings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_testing.peers.remoting import pull_ext, send_ext
from imago_testing.peers.transactions import COMMIT, end, half
from imago_wire.record_format import properties as props
from imago_wire.record_format.sequences import Sequence, wire_properties
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.messages import BatchEntry, decode_messages, encode_batch

if TYPE_CHECKING:
    from imago_testing.peers.remoting import RemotingPeer
    from imago_wire.records.record import StoredMessage

NAMES = sorted(name.decode() for name in props.NOT_SENDERS)
OF_RETRIES = {name.decode() for name in props.OF_RETRIES}
UNIQUE = "UNIQ_KEY\x01u\x02"
FORGED = "".join(f"{name}\x01forged\x02" for name in NAMES) + UNIQUE + "own\x01kept\x02"
NO_TIMER = FORGED.replace("TIMER_OUT_MS\x01forged\x02", "")


def forged(message: StoredMessage) -> list[str]:
    """Return the properties whose values its sender chose."""
    assert message.properties["own"] == "kept"
    return [name for name, value in message.properties.items() if value == "forged"]


async def arrived(peer: RemotingPeer, topic: str, offset: int = 0) -> StoredMessage:
    answer = await peer.call(11, pull_ext(topic, offset, sysFlag=6))
    return decode_messages(answer.body)[0]


@pytest.mark.parametrize("name", NAMES)
async def test_short_and_careful_way_take_each_out(peer: RemotingPeer, name: str) -> None:
    for _ in range(3):  # the first makes the topic, the second its queue
        await peer.put("T", b"", properties=f"own\x01kept\x02{name}\x01forged\x02{UNIQUE}")
    assert [forged(each) for each in await peer.messages("T")] == [[], [], []]


@pytest.mark.parametrize("sys_flag", [0, 1], ids=["plain", "compressed"])
async def test_names_come_out_whatever_is_beside_them(peer: RemotingPeer, sys_flag: int) -> None:
    await peer.call(
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        {"topic": "T", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6,
         "topicFilterType": "SINGLE_TAG", "defaultTopic": "", "attributes": "+dialects=rocketmq"},
    )  # fmt: skip
    for ended in (FORGED, FORGED.removesuffix("\x02"), f"{FORGED}POP_CK\x01forged\x02"):
        sent = await peer.put("T", b"body", properties=ended, f=sys_flag)
        assert sent.code == ResponseCode.SUCCESS
    for message in decode_messages((await peer.pull("T")).body, inflate=False):
        assert forged(message) == []


@pytest.mark.parametrize("known", [False, True], ids=["slow path", "fast path"])
@pytest.mark.parametrize("code", [310, 320])
async def test_they_come_out_of_each_message_of_a_batch(
    peer: RemotingPeer, code: int, known: bool
) -> None:
    if known:
        await peer.put("T", b"0", queue_id=1)
    body = encode_batch([BatchEntry(b"%d" % n, NO_TIMER.encode()) for n in range(3)])
    assert (await peer.call(code, send_ext("T", m="true"), body)).code == ResponseCode.SUCCESS
    assert [forged(each) for each in await peer.messages("T")] == [[], [], []]


async def test_they_come_out_of_numbered_messages(peer: RemotingPeer) -> None:
    for number in range(3):
        claim = wire_properties(Sequence("0123456789abcdef", 0, number))
        sent = await peer.put("T", b"", properties=FORGED + claim)
        assert sent.code == ResponseCode.SUCCESS
    messages = await peer.messages("T")
    assert [forged(each) for each in messages] == [[], [], []]
    assert all("__IMAGO_SENT" in each.properties for each in messages)


@pytest.mark.parametrize("asks", ["DELAY\x011\x02", "TIMER_DELAY_MS\x01100\x02"])
async def test_they_come_out_of_what_waits(peer: RemotingPeer, asks: str) -> None:
    for n in range(3):
        await peer.put("T", b"", properties=NO_TIMER + asks)
        message = await arrived(peer, "T", n)
        assert forged(message) == []
        assert message.properties["REAL_TOPIC"] == "T"


async def test_they_come_out_of_half_messages(peer: RemotingPeer) -> None:
    await peer.put("T", b"", queue_id=1)
    for n in range(3):
        one = await half(peer, b"", unique=f"u{n}", more=FORGED.replace(UNIQUE, ""))
        await end(peer, one, COMMIT)
        assert forged(await arrived(peer, "T", n)) == []


async def test_echo_of_a_timer_that_was_delivered_does_not_wait_again(peer: RemotingPeer) -> None:
    await peer.put("T", b"echo", properties=FORGED + "TIMER_DELAY_SEC\x0190\x02")
    (message,) = await peer.messages("T")
    assert "TIMER_DELAY_SEC" not in message.properties


async def test_consumer_that_sends_back_itself_says_where_from(peer: RemotingPeer) -> None:
    for _ in range(2):
        sent = await peer.put("%RETRY%G", b"", properties=FORGED, j=1)
        assert sent.code == ResponseCode.SUCCESS
    for message in await peer.messages("%RETRY%G"):
        assert set(forged(message)) == OF_RETRIES


async def test_they_come_out_of_replies(peer: RemotingPeer) -> None:
    await peer.call(325, send_ext("imago_REPLY_TOPIC", 0, FORGED), b"")
    (message,) = await peer.messages("imago_REPLY_TOPIC")
    assert forged(message) == []


async def stored_before(peer: RemotingPeer, monkeypatch: pytest.MonkeyPatch) -> StoredMessage:
    """Return a message as a version stored it that believed its sender."""
    with monkeypatch.context() as older:
        older.setattr(props, "as_sent", lambda data, **_: data)
        await peer.put("T", b"", properties=FORGED)
    (message,) = await peer.messages("T")
    assert set(forged(message)) == set(NAMES)
    return message


@pytest.mark.parametrize("level", [1, -1], ids=["retry", "dead letter"])
async def test_copy_says_itself_where_its_message_came_from(
    peer: RemotingPeer, monkeypatch: pytest.MonkeyPatch, level: int
) -> None:
    message = await stored_before(peer, monkeypatch)
    ext = {"group": "G", "offset": message.physical_offset, "delayLevel": level}
    answer = await peer.call(RequestCode.CONSUMER_SEND_MSG_BACK, ext)
    assert answer.code == ResponseCode.SUCCESS
    copy = await arrived(peer, "%RETRY%G" if level > 0 else "%DLQ%G")
    assert forged(copy) == []
    assert copy.properties["RETRY_TOPIC"] == "T"
    assert copy.properties["ORIGIN_MESSAGE_ID"] == message.offset_message_id
    if level < 0:
        assert copy.properties["DLQ_ORIGIN_TOPIC"] == "T"
        assert copy.properties["DLQ_ORIGIN_MESSAGE_ID"] == message.offset_message_id


@pytest.mark.parametrize("known", [False, True], ids=["slow path", "fast path"])
@pytest.mark.parametrize("code", [310, 320])
@pytest.mark.parametrize(
    "asks",
    ["DELAY\x011\x02", "TIMER_DELAY_MS\x0190000\x02", "TIMER_DELIVER_MS\x019999999999999\x02"],
)
async def test_batch_whose_header_asks_to_wait_is_refused(
    peer: RemotingPeer, asks: str, code: int, known: bool
) -> None:
    await peer.put("T", b"0", queue_id=1)
    body = encode_batch([BatchEntry(b"%d" % n, b"UNIQ_KEY\x01u\x02") for n in range(2)])
    if known:
        await peer.call(code, send_ext("T", m="true"), body)
    before = len(await peer.messages("T"))
    for properties in (UNIQUE + asks, asks):
        answer = await peer.call(code, send_ext("T", 0, properties, m="true"), body)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert len(await peer.messages("T")) == before
    answer = await peer.call(code, send_ext("T", 0, UNIQUE + "DELAY\x010\x02", m="true"), body)
    assert answer.code == ResponseCode.SUCCESS


@pytest.mark.parametrize("level", ["+1", "0001", "+0001", "1"])
@pytest.mark.parametrize("half_first", [False, True], ids=["at once", "half"])
async def test_level_is_read_as_java_reads_numbers(
    peer: RemotingPeer, level: str, half_first: bool
) -> None:
    await peer.put("T", b"", queue_id=1)
    asks = f"DELAY\x01{level}\x02{UNIQUE}"
    if half_first:
        await end(peer, await half(peer, b"later", more=f"DELAY\x01{level}\x02"), COMMIT)
    else:
        assert (await peer.put("T", b"later", properties=asks)).code == ResponseCode.SUCCESS
    (parked,) = await peer.messages("SCHEDULE_TOPIC_XXXX", queueId=0)
    assert parked.properties["DELAY"] == "1"
