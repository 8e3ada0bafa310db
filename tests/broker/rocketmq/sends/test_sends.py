"""Sends over real sockets: queues, batches, delays, refusals, and the order of a connection."""

from __future__ import annotations

import asyncio
import lzma
import zlib
from typing import TYPE_CHECKING

import pytest

from imago_broker.model.topics.topics import TopicConfig
from imago_broker.processors.rocketmq.pull import queries
from imago_broker.service.puts.put_status import PutStatus
from imago_testing.peers.remoting import RemotingPeer, send_ext
from imago_wire.record_format import properties as props
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.command import SerializeType
from imago_wire.remoting.messages import BatchEntry, encode_batch
from imago_wire.remoting.texts.message_ids import parse_offset_message_id

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from imago_broker.app import Broker

    Connect = Callable[..., Awaitable[RemotingPeer]]


async def test_send_creates_its_topic_and_is_read_back_unchanged(peer: RemotingPeer) -> None:
    sent = await peer.put("T", b"body", queue_id=3, properties="TAGS\x01a\x02KEYS\x01k\x02")
    assert sent.code == ResponseCode.SUCCESS
    assert sent.remark is None
    assert sent.ext["queueId"] == "3"
    assert sent.ext["queueOffset"] == "0"
    assert sent.ext["MSG_REGION"] == "DefaultRegion"
    assert sent.ext["TRACE_ON"] == "true"
    (message,) = await peer.messages("T", queueId=3)
    assert message.body == b"body"
    assert message.topic == "T"
    assert message.tags == "a"
    assert message.keys == ["k"]
    assert message.born_ms == 1_700_000_000_000
    assert message.offset_message_id == sent.ext["msgId"]
    assert message.properties["CLUSTER"] == "imago"


async def test_second_send_takes_the_short_way_and_answers_the_same_fields(
    peer: RemotingPeer,
) -> None:
    first = await peer.put("T", b"1")
    second = await peer.put("T", b"2")
    assert set(first.ext) == set(second.ext)
    assert second.ext["queueOffset"] == "1"
    assert second.ext["transactionId"] == "0" * 32
    assert [m.body for m in await peer.messages("T")] == [b"1", b"2"]


@pytest.mark.parametrize("times", [1, 2], ids=["slow path", "fast path"])
@pytest.mark.parametrize("serialize", list(SerializeType))
async def test_answer_has_the_header_form_of_its_request(
    peer: RemotingPeer, serialize: SerializeType, times: int
) -> None:
    for _ in range(times):
        answer = await peer.call(310, send_ext("T"), b"x", serialize=serialize)
        assert answer.serialize is serialize
        assert answer.code == ResponseCode.SUCCESS


async def test_long_header_names_of_send_message_are_understood(peer: RemotingPeer) -> None:
    ext = {
        "producerGroup": "g",
        "topic": "T",
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 4,
        "queueId": 1,
        "sysFlag": 0,
        "bornTimestamp": 5,
        "flag": 7,
        "properties": "",
    }
    assert (await peer.call(RequestCode.SEND_MESSAGE, ext, b"x")).code == ResponseCode.SUCCESS
    (message,) = await peer.messages("T", queueId=1)
    assert message.flag == 7
    assert message.unique_key is not None
    assert len(message.unique_key) == 32


async def test_negative_queue_lets_the_broker_choose(peer: RemotingPeer) -> None:
    chosen = {(await peer.put("T", b"x", queue_id=-1)).ext["queueId"] for _ in range(40)}
    assert chosen <= {"0", "1", "2", "3"}
    assert len(chosen) > 1


async def test_one_way_send_is_stored_and_never_answered(peer: RemotingPeer) -> None:
    for body in (b"1", b"2"):
        peer.send(310, send_ext("T"), body, oneway=True)
    peer.send(310, send_ext("T", queue_id=99), b"refused", oneway=True)
    assert (await peer.put("T", b"3")).code == ResponseCode.SUCCESS
    assert peer.unread == []
    assert [m.body for m in await peer.messages("T")] == [b"1", b"2", b"3"]


@pytest.mark.parametrize("known", [False, True], ids=["slow path", "fast path"])
async def test_batch_is_stored_as_messages_of_their_own(peer: RemotingPeer, known: bool) -> None:
    if known:
        await peer.put("T", b"0", queue_id=1)
    entries = [BatchEntry(b"b%d" % n, b"UNIQ_KEY\x01%032d\x02" % n) for n in range(5)]
    answer = await peer.call(320, send_ext("T", m="true"), encode_batch(entries))
    assert answer.code == ResponseCode.SUCCESS
    messages = await peer.messages("T")
    assert [m.body for m in messages] == [b"b0", b"b1", b"b2", b"b3", b"b4"]
    assert answer.ext["msgId"].split(",") == [m.offset_message_id for m in messages]
    assert answer.ext["queueOffset"] == "0"


async def test_batch_flag_without_the_batch_code_is_a_batch(peer: RemotingPeer) -> None:
    body = encode_batch([BatchEntry(b"1"), BatchEntry(b"2")])
    assert (await peer.call(310, send_ext("T", m="true"), body)).code == ResponseCode.SUCCESS
    assert [m.body for m in await peer.messages("T")] == [b"1", b"2"]


@pytest.mark.parametrize("known", [False, True], ids=["slow path", "fast path"])
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"garbage",
        b"\x00\x00\x00\x20" + b"\xff" * 60,
        encode_batch([BatchEntry(b"x", b"DELAY\x013\x02")]),
        encode_batch([BatchEntry(b"x", b"TRAN_MSG\x01true\x02")]),
        encode_batch([BatchEntry(b"ok"), BatchEntry(b"x" * 100)])[:-1],
    ],
    ids=["empty", "garbage", "lying sizes", "delayed", "half", "cut"],
)
async def test_batch_that_does_not_add_up_is_illegal_and_stores_nothing(
    peer: RemotingPeer, body: bytes, known: bool
) -> None:
    if known:
        await peer.put("T", b"0", queue_id=1)
    answer = await peer.call(320, send_ext("T"), body)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert (await peer.pull("T")).code == ResponseCode.PULL_NOT_FOUND


async def test_batch_to_a_retry_topic_is_refused(peer: RemotingPeer) -> None:
    body = encode_batch([BatchEntry(b"1")])
    answer = await peer.call(320, send_ext("%RETRY%g"), body)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert answer.remark == "batch request does not support retry group %RETRY%g"


async def test_body_at_the_limit_is_stored_and_one_more_byte_is_illegal(
    peer: RemotingPeer, broker: Broker
) -> None:
    limit = broker.config.rocketmq.message_bytes_max
    assert (await peer.put("T", b"x" * limit)).code == ResponseCode.SUCCESS
    for _ in range(2):
        answer = await peer.put("T", b"x" * (limit + 1))
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert answer.remark is not None
        assert f"limit {limit}B" in answer.remark


async def test_properties_over_32_kib_are_illegal(peer: RemotingPeer) -> None:
    await peer.put("T", b"x")
    answer = await peer.put("T", b"x", properties="K\x01" + "v" * 32767 + "\x02")
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL


@pytest.mark.parametrize(
    ("topic", "code", "part"),
    [
        ("", ResponseCode.INVALID_PARAMETER, "blank"),
        ("a b", ResponseCode.INVALID_PARAMETER, "illegal characters"),
        ("../../etc/passwd", ResponseCode.INVALID_PARAMETER, "illegal characters"),
        ("a\x00b", ResponseCode.INVALID_PARAMETER, "illegal characters"),
        ("é", ResponseCode.INVALID_PARAMETER, "illegal characters"),
        ("t" * 128, ResponseCode.INVALID_PARAMETER, "longer than"),
        ("SCHEDULE_TOPIC_XXXX", ResponseCode.NO_PERMISSION, "forbidden"),
        ("IMAGO_META", ResponseCode.NO_PERMISSION, "forbidden"),
        ("RMQ_SYS_TRANS_HALF_TOPIC", ResponseCode.NO_PERMISSION, "forbidden"),
    ],
)
async def test_topic_that_nobody_may_send_to_is_refused(
    peer: RemotingPeer, topic: str, code: ResponseCode, part: str
) -> None:
    answer = await peer.put(topic, b"x")
    assert answer.code == code
    assert answer.remark is not None
    assert part in answer.remark
    assert (await peer.put("good", b"x")).code == ResponseCode.SUCCESS


async def test_topic_without_a_template_is_unknown(peer: RemotingPeer) -> None:
    answer = await peer.put("T", b"x", c="NO_SUCH_TEMPLATE")
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert answer.remark is not None
    assert answer.remark.startswith("topic[T] not exist, apply first please!\nSee ")


async def test_queue_beyond_the_last_is_invalid(peer: RemotingPeer) -> None:
    await peer.put("T", b"x")
    answer = await peer.put("T", b"x", queue_id=4)
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert answer.remark is not None
    assert answer.remark.startswith("request queueId[4] is illegal")


async def test_reserved_properties_that_a_client_echoes_are_made_anew(peer: RemotingPeer) -> None:
    await peer.put("T", b"first")
    (first,) = await peer.messages("T")
    await peer.put("T", b"second!", properties=props.encode(first.properties).decode())
    second = (await peer.messages("T"))[1]
    assert second.properties["__METAQ_POS"] != first.properties["__METAQ_POS"]
    assert second.properties["CLUSTER"] == "imago"
    assert list(second.properties).count("CLUSTER") == 1


@pytest.mark.parametrize("times", [1, 2], ids=["slow path", "fast path"])
async def test_message_for_light_queues_is_in_its_topic_alone(
    peer: RemotingPeer, broker: Broker, times: int
) -> None:
    """As at an original broker with its default settings, where LMQ is off."""
    light = "%LMQ%one,%LMQ%two"
    for _ in range(times):
        sent = await peer.put("T", b"x", properties=f"INNER_MULTI_DISPATCH\x01{light}\x02")
        assert sent.code == ResponseCode.SUCCESS
    found = await peer.messages("T")
    assert [message.properties["INNER_MULTI_DISPATCH"] for message in found] == [light] * times
    assert not any("INNER_MULTI_QUEUE_OFFSET" in message.properties for message in found)
    assert not any(config.name.startswith("%LMQ%") for config in broker.topics.all())
    assert (await peer.pull("%LMQ%one")).code == ResponseCode.TOPIC_NOT_EXIST


async def test_small_compressed_body_is_stored_as_sent(peer: RemotingPeer) -> None:
    packed = zlib.compress(b"plain" * 1000)
    assert (await peer.put("T", packed, f=1)).code == ResponseCode.SUCCESS
    (message,) = await peer.messages("T")
    assert message.body == b"plain" * 1000
    assert message.properties["__METAQ_LEN"] == f"{5000:08x}"


async def test_connection_keeps_its_order_when_a_large_body_is_inflated_elsewhere(
    peer: RemotingPeer,
) -> None:
    await peer.put("T", b"0")
    large = b"L" * (3 << 20)
    opaques = [
        peer.send(310, send_ext("T"), b"1"),
        peer.send(310, send_ext("T", f=1), zlib.compress(large)),
        peer.send(310, send_ext("T"), b"3"),
        peer.send(310, send_ext("T", f=1), zlib.compress(b"4" * 70_000)),
        peer.send(310, send_ext("T"), b"5"),
    ]
    offsets = [(await peer.answer(opaque)).ext["queueOffset"] for opaque in opaques]
    assert offsets == ["1", "2", "3", "4", "5"]
    bodies = [m.body for m in await peer.messages("T")]
    assert bodies == [b"0", b"1", large, b"3", b"4" * 70_000, b"5"]


@pytest.mark.parametrize(
    "body",
    [
        zlib.compress(b"\0" * (8 << 20)),
        zlib.compress(b"x" * 100_000)[:-4],
        b"not compressed at all",
        lzma.compress(b"x" * 100),
    ],
    ids=["bomb", "cut", "plain", "another format"],
)
async def test_compressed_body_that_cannot_be_inflated_is_illegal(
    peer: RemotingPeer, body: bytes
) -> None:
    assert (await peer.put("T", body, f=1)).code == ResponseCode.MESSAGE_ILLEGAL
    assert (await peer.put("T", b"next")).code == ResponseCode.SUCCESS
    assert [m.body for m in await peer.messages("T")] == [b"next"]


async def test_topic_without_metaq_stores_compressed_bodies_unseen(
    peer: RemotingPeer, broker: Broker
) -> None:
    attributes = {"dialects": "rocketmq"}
    broker.topics.create_or_update(
        TopicConfig(name="R", read_queues=1, write_queues=1, attributes=attributes)
    )
    assert (await peer.put("R", b"not compressed at all", f=1)).code == ResponseCode.SUCCESS


async def test_message_id_leads_to_the_message(peer: RemotingPeer) -> None:
    sent = await peer.put("T", b"body")
    _, offset = parse_offset_message_id(sent.ext["msgId"])
    viewed = await peer.call(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": offset})
    assert viewed.code == ResponseCode.SUCCESS
    assert viewed.body == (await peer.pull("T")).body


@pytest.mark.parametrize("offset", [1, -1, 1 << 62])
async def test_view_of_a_place_without_a_message_is_an_error(
    peer: RemotingPeer, offset: int
) -> None:
    await peer.put("T", b"body")
    viewed = await peer.call(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": offset})
    assert viewed.code == ResponseCode.SYSTEM_ERROR
    assert viewed.remark == f"can not find message by the offset, {offset}"


async def test_message_is_found_by_key_and_by_unique_id(peer: RemotingPeer) -> None:
    unique = "A" * 32
    await peer.put("T", b"1", properties=f"UNIQ_KEY\x01{unique}\x02KEYS\x01k1 k2\x02")
    span = {"topic": "T", "maxNum": 10, "beginTimestamp": 0, "endTimestamp": 1 << 62}
    by_key = await peer.call(RequestCode.QUERY_MESSAGE, {**span, "key": "k2"})
    assert by_key.code == ResponseCode.SUCCESS
    by_id = await peer.call(
        RequestCode.QUERY_MESSAGE, {**span, "key": unique, "_UNIQUE_KEY_QUERY": "true"}
    )
    assert by_id.body == by_key.body == (await peer.pull("T")).body
    none = await peer.call(RequestCode.QUERY_MESSAGE, {**span, "key": "k3"})
    assert none.code == ResponseCode.QUERY_NOT_FOUND


async def test_an_answer_to_a_key_has_as_many_bytes_as_a_pull(
    peer: RemotingPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for body in (b"1", b"2", b"3"):
        await peer.put("T", body * 1000, properties="KEYS\x01k\x02")
    ext = {"topic": "T", "key": "k", "maxNum": 64, "beginTimestamp": 0, "endTimestamp": 1 << 62}
    whole = await peer.call(RequestCode.QUERY_MESSAGE, ext)
    size = len(whole.body) // 3
    for bytes_max, count in ((1, 1), (2 * size - 1, 1), (2 * size, 2), (3 * size, 3)):
        monkeypatch.setattr(queries, "QUERY_BYTES_MAX", bytes_max)
        answer = await peer.call(RequestCode.QUERY_MESSAGE, ext)
        assert answer.body == whole.body[-count * size :], "the newest that fit"


async def test_fast_port_serves_sends_and_refuses_pulls(broker: Broker, connect: Connect) -> None:
    fast = await connect(broker.ports.fast_port)
    assert (await fast.put("T", b"x")).code == ResponseCode.SUCCESS
    refused = await fast.pull("T")
    assert refused.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert refused.remark == " request type 11 not supported"


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (PutStatus.DISK_FULL, ResponseCode.SERVICE_NOT_AVAILABLE),
        (PutStatus.NOT_WRITABLE, ResponseCode.SERVICE_NOT_AVAILABLE),
        (PutStatus.STOPPING, ResponseCode.SERVICE_NOT_AVAILABLE),
        (PutStatus.BUSY, ResponseCode.SYSTEM_BUSY),
    ],
)
@pytest.mark.parametrize("properties", ["", "UNIQ_KEY\x01u\x02CLUSTER\x01c\x02"])
async def test_broker_that_cannot_write_says_so(
    peer: RemotingPeer, broker: Broker, status: PutStatus, code: ResponseCode, properties: str
) -> None:
    await peer.put("T", b"before")
    broker.messages.refuse(status)
    refused = await peer.put("T", b"x", properties=properties)
    assert refused.code == code
    assert refused.ext == {}
    broker.messages.refuse(None)
    assert (await peer.put("T", b"after")).ext["queueOffset"] == "1"


async def test_topic_made_anew_while_a_body_is_inflated_gets_the_message_at_its_own_place(
    peer: RemotingPeer, connect: Connect, broker: Broker
) -> None:
    for _ in range(3):
        await peer.put("T", b"old")
    inflating = await connect()
    opaque = inflating.send(310, send_ext("T", f=1), zlib.compress(b"L" * (3 << 20)))
    async with asyncio.timeout(50):
        while not broker.rocketmq.lanes.send.running:  # noqa: ASYNC110  nothing tells
            await asyncio.sleep(0)
    broker.topics.delete("T")
    broker.topics.create_or_update(TopicConfig(name="T", read_queues=4, write_queues=4))
    answer = await inflating.answer(opaque)
    assert (answer.code, answer.ext["queueOffset"]) == (ResponseCode.SUCCESS, "0")
    assert broker.store.queue_range("T", 0) == (0, 1)


async def test_topic_deleted_while_a_body_is_inflated_is_unknown(
    connect: Connect, peer: RemotingPeer, broker: Broker
) -> None:
    await peer.put("T", b"old")
    inflating = await connect()
    opaque = inflating.send(310, send_ext("T", f=1), zlib.compress(b"L" * (3 << 20)))
    async with asyncio.timeout(50):
        while not broker.rocketmq.lanes.send.running:  # noqa: ASYNC110  nothing tells
            await asyncio.sleep(0)
    broker.topics.delete("T")
    assert (await inflating.answer(opaque)).code == ResponseCode.TOPIC_NOT_EXIST


async def test_connection_goes_on_when_inflating_fails_unexpectedly(
    peer: RemotingPeer, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await peer.put("T", b"old")

    def no_memory(*_: object) -> object:
        raise MemoryError

    opaque = peer.send(310, send_ext("T", f=1), zlib.compress(b"L" * (3 << 20)))
    async with asyncio.timeout(50):
        while not broker.rocketmq.lanes.send.running:  # noqa: ASYNC110  nothing tells
            await asyncio.sleep(0)
    monkeypatch.setattr(broker.store, "tail", no_memory)
    assert (await peer.answer(opaque)).code == ResponseCode.SYSTEM_ERROR
    monkeypatch.undo()
    assert broker.rocketmq.lanes.send.running == 0
    assert (await peer.put("T", b"next")).code == ResponseCode.SUCCESS
