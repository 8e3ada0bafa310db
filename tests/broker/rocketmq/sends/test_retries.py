"""Delays, messages given back, retries and dead letters over real sockets."""

from __future__ import annotations

import asyncio
import zlib
from typing import TYPE_CHECKING

import pytest

from imago_broker.model.topics.topics import TopicConfig
from imago_broker.service.puts.put_status import PutStatus
from imago_testing.peers.remoting import RemotingPeer, pull_ext, send_ext
from imago_testing.peers.transactions import ROLLBACK, end, half
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.messages import decode_messages

if TYPE_CHECKING:
    from imago_broker.app import Broker
    from imago_wire.records.record import StoredMessage

BACK = RequestCode.CONSUMER_SEND_MSG_BACK


async def next_message(peer: RemotingPeer, topic: str, offset: int = 0) -> StoredMessage:
    """Wait for the next message of a topic's first queue."""
    answer = await peer.call(11, pull_ext(topic, offset, sysFlag=6))
    return decode_messages(answer.body)[0]


async def test_delayed_message_waits_in_the_schedule_topic_and_then_arrives(
    peer: RemotingPeer, broker: Broker
) -> None:
    await peer.put("T", b"now", queue_id=1)
    sent = await peer.put("T", b"later", properties="TAGS\x01a\x02DELAY\x011\x02UNIQ_KEY\x01u\x02")
    assert sent.code == ResponseCode.SUCCESS
    assert (await peer.pull("T")).code == ResponseCode.PULL_NOT_FOUND
    (parked,) = await peer.messages("SCHEDULE_TOPIC_XXXX", queueId=0)
    assert parked.properties["REAL_TOPIC"] == "T"
    assert parked.properties["REAL_QID"] == "0"
    arrived = await next_message(peer, "T")
    assert arrived.body == b"later"
    assert arrived.tags == "a"
    assert arrived.unique_key == "u"
    # Not at once. The second counts from its arrival: on a busy machine it is stored later.
    assert arrived.store_ms - parked.store_ms >= 500
    broker.rocketmq.delays.levels.stop()
    assert broker.store.meta("delay") == {"1": 1, "firings": 1}


async def test_delayed_message_is_found_by_its_tag_when_it_arrives(peer: RemotingPeer) -> None:
    await peer.put("T", b"x", queue_id=1)
    await peer.put("T", b"later", properties="TAGS\x01a\x02DELAY\x011\x02")
    answer = await peer.call(11, pull_ext("T", sysFlag=6, subscription="a"))
    assert [m.body for m in decode_messages(answer.body)] == [b"later"]


async def test_level_above_the_last_is_the_last(peer: RemotingPeer) -> None:
    await peer.put("T", b"x", queue_id=1)
    await peer.put("T", b"much later", properties="DELAY\x0199\x02")
    (parked,) = await peer.messages("SCHEDULE_TOPIC_XXXX", queueId=17)
    assert parked.properties["DELAY"] == "18"


@pytest.mark.parametrize("level", ["x", "1.5", "9" * 40, "\u0661"])
async def test_delay_that_is_no_number_is_refused(peer: RemotingPeer, level: str) -> None:
    answer = await peer.put("T", b"x", properties=f"DELAY\x01{level}\x02")
    assert answer.code == ResponseCode.SYSTEM_ERROR


async def test_delays_go_on_after_a_restart(peer: RemotingPeer, broker: Broker) -> None:
    await peer.put("T", b"x", queue_id=1)
    broker.rocketmq.delays.levels.stop()
    for n in range(3):
        await peer.put("T", b"%d" % n, properties="DELAY\x011\x02")
    broker.rocketmq.delays.levels.start()
    bodies = [(await next_message(peer, "T", n)).body for n in range(3)]
    assert bodies == [b"0", b"1", b"2"]
    broker.rocketmq.delays.levels.stop()
    broker.rocketmq.delays.levels.start()
    await peer.put("T", b"3", properties="DELAY\x011\x02")
    assert (await next_message(peer, "T", 3)).body == b"3"


async def given_back(peer: RemotingPeer, message: StoredMessage, **more: object) -> int:
    ext = {"group": "G", "offset": message.physical_offset, "delayLevel": 1, **more}
    return (await peer.call(BACK, ext)).code


async def test_message_given_back_comes_again_with_where_it_came_from(peer: RemotingPeer) -> None:
    await peer.put("T", b"body", properties="TAGS\x01a\x02UNIQ_KEY\x01u\x02KEYS\x01k\x02")
    (message,) = await peer.messages("T")
    assert await given_back(peer, message) == ResponseCode.SUCCESS
    again = await next_message(peer, "%RETRY%G")
    assert again.body == b"body"
    assert again.reconsume_times == 1
    assert again.born_ms == message.born_ms
    assert again.born_host == message.born_host
    assert again.properties["RETRY_TOPIC"] == "T"
    assert again.properties["ORIGIN_MESSAGE_ID"] == message.offset_message_id
    assert again.properties["KEYS"] == "k"
    assert again.properties["UNIQ_KEY"] == "u"
    assert again.properties["WAIT"] == "false"
    assert await given_back(peer, again) == ResponseCode.SUCCESS
    third = await next_message(peer, "%RETRY%G", 1)
    assert third.reconsume_times == 2
    assert third.properties["RETRY_TOPIC"] == "T"
    assert third.properties["ORIGIN_MESSAGE_ID"] == message.offset_message_id


async def test_level_of_a_retry_grows_with_its_number(peer: RemotingPeer) -> None:
    await peer.put("T", b"body")
    (message,) = await peer.messages("T")
    assert await given_back(peer, message, delayLevel=0) == ResponseCode.SUCCESS
    (parked,) = await peer.messages("SCHEDULE_TOPIC_XXXX", queueId=2)
    assert parked.properties["REAL_TOPIC"] == "%RETRY%G"


@pytest.mark.parametrize(
    ("more", "version"),
    [({"delayLevel": -1}, 479), ({"maxReconsumeTimes": 0}, 479), ({"maxReconsumeTimes": 0}, 121)],
)
async def test_message_that_was_tried_enough_is_a_dead_letter(
    peer: RemotingPeer, more: dict[str, int], version: int
) -> None:
    await peer.put("T", b"body")
    (message,) = await peer.messages("T")
    ext = {"group": "G", "offset": message.physical_offset, "delayLevel": 0, **more}
    assert (await peer.call(BACK, ext, version=version)).code == ResponseCode.SUCCESS
    (dead,) = await peer.messages("%DLQ%G")
    assert dead.body == b"body"
    assert dead.properties["DLQ_ORIGIN_TOPIC"] == "T"
    assert dead.properties["DLQ_ORIGIN_MESSAGE_ID"] == message.offset_message_id
    assert "DELAY" not in dead.properties


async def test_maximum_of_an_ancient_client_does_not_count(peer: RemotingPeer) -> None:
    await peer.put("T", b"body")
    (message,) = await peer.messages("T")
    ext = {
        "group": "G",
        "offset": message.physical_offset,
        "delayLevel": 0,
        "maxReconsumeTimes": 0,
    }
    assert (await peer.call(BACK, ext, version=120)).code == ResponseCode.SUCCESS
    (parked,) = await peer.messages("SCHEDULE_TOPIC_XXXX", queueId=2)
    assert parked.body == b"body"


async def test_retry_sent_by_the_client_itself_becomes_a_dead_letter_after_its_last_try(
    peer: RemotingPeer,
) -> None:
    await peer.put("%RETRY%G", b"again", j=2, l=2)
    assert [m.body for m in await peer.messages("%RETRY%G")] == [b"again"]
    await peer.put("%RETRY%G", b"dead", j=3, l=2, properties="DELAY\x013\x02")
    (dead,) = await peer.messages("%DLQ%G")
    assert dead.body == b"dead"
    assert "DELAY" not in dead.properties


@pytest.mark.parametrize("offset", [0, 7, -1, 1 << 60])
async def test_nothing_can_be_given_back_from_where_no_message_is(
    peer: RemotingPeer, offset: int
) -> None:
    await peer.put("T", b"body")
    (message,) = await peer.messages("T")
    where = offset if offset != 0 else message.physical_offset + 1
    answer = await peer.call(BACK, {"group": "G", "offset": where, "delayLevel": 0})
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == f"look message by offset failed, {where}"


async def test_many_delayed_messages_of_one_moment_all_arrive_in_order(
    peer: RemotingPeer,
) -> None:
    await peer.put("T", b"x", queue_id=1)
    opaques = [peer.send(310, send_ext("T", 0, "DELAY\x011\x02"), b"%04d" % n) for n in range(700)]
    for opaque in opaques:
        assert (await peer.answer(opaque)).code == ResponseCode.SUCCESS
    bodies: list[bytes] = []
    async with asyncio.timeout(50):
        while len(bodies) < 700:
            ext = pull_ext("T", len(bodies), sysFlag=6, maxMsgNums=1000)
            bodies += [m.body for m in decode_messages((await peer.call(11, ext)).body)]
    assert bodies == [b"%04d" % n for n in range(700)]


async def test_delayed_message_whose_topic_is_gone_is_dropped_and_the_next_one_arrives(
    peer: RemotingPeer,
) -> None:
    for topic in ("Gone", "T"):
        await peer.put(topic, b"x", queue_id=1)
        await peer.put(topic, topic.encode(), properties="DELAY\x011\x02")
    await peer.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "Gone"})
    assert (await next_message(peer, "T")).body == b"T"


async def test_delayed_message_waits_for_a_broker_that_cannot_write(
    peer: RemotingPeer, broker: Broker
) -> None:
    await peer.put("T", b"x", queue_id=1)
    await peer.put("T", b"later", properties="DELAY\x011\x02")
    broker.messages.refuse(PutStatus.DISK_FULL)
    held = await peer.call(11, pull_ext("T", sysFlag=6, suspendTimeoutMillis=1500))
    assert held.code == ResponseCode.PULL_NOT_FOUND
    broker.messages.refuse(None)
    assert (await next_message(peer, "T")).body == b"later"
    assert broker.store.queue_range("T", 0) == (0, 1)


@pytest.mark.parametrize("level", [0, 1])
async def test_compressed_message_given_back_stays_what_it_was(
    peer: RemotingPeer, level: int
) -> None:
    packed = zlib.compress(b"plain" * 100)
    await peer.put("T", packed, f=1, properties=f"DELAY\x01{level}\x02" if level else "")
    (message,) = decode_messages((await peer.call(11, pull_ext("T", sysFlag=6))).body)
    assert message.body == b"plain" * 100
    assert await given_back(peer, message) == ResponseCode.SUCCESS
    again = await next_message(peer, "%RETRY%G")
    assert again.body == b"plain" * 100
    assert again.sys_flag & 1


HIVE = "row\x01a\x01b\x02UNIQ_KEY\x01u\x02TAGS\x01t\x02"


async def test_value_with_a_separator_in_it_is_delivered_late_as_it_was_sent(
    peer: RemotingPeer, broker: Broker
) -> None:
    await peer.put("T", b"x", queue_id=1)
    await peer.put("T", b"odd", properties="DELAY\x011\x02" + HIVE)
    await peer.put("T", b"next", properties="DELAY\x011\x02")
    odd = await next_message(peer, "T")
    assert (odd.body, odd.properties["row"], odd.tags) == (b"odd", "a\x01b", "t")
    answer = await peer.call(11, pull_ext("T", 1, sysFlag=6))
    assert [m.body for m in decode_messages(answer.body)] == [b"next"]
    broker.rocketmq.delays.levels.stop()
    broker.rocketmq.delays.levels.start()


async def test_value_with_a_separator_in_it_is_given_back_as_it_was_sent(
    peer: RemotingPeer,
) -> None:
    await peer.put("T", b"odd", properties=HIVE)
    (message,) = await peer.messages("T")
    assert await given_back(peer, message) == ResponseCode.SUCCESS
    again = await next_message(peer, "%RETRY%G")
    assert again.properties["row"] == "a\x01b"
    assert await given_back(peer, again, delayLevel=-1) == ResponseCode.SUCCESS
    (dead,) = await peer.messages("%DLQ%G")
    assert dead.properties["row"] == "a\x01b"


async def test_level_goes_on_after_an_unexpected_error(
    peer: RemotingPeer, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await peer.put("T", b"x", queue_id=1)
    failed = asyncio.Event()
    real = broker.store.queue_range

    def failing(topic: str, queue_id: int) -> tuple[int, int]:
        if topic == "SCHEDULE_TOPIC_XXXX" and not failed.is_set():
            failed.set()
            raise OSError("a disk has its moods")
        return real(topic, queue_id)

    monkeypatch.setattr(broker.store, "queue_range", failing)
    await peer.put("T", b"later", properties="DELAY\x011\x02")
    await failed.wait()
    assert (await next_message(peer, "T")).body == b"later"


@pytest.mark.parametrize(
    "body", [b"not compressed", zlib.compress(b"\0" * (8 << 20))], ids=["plain", "bomb"]
)
async def test_delayed_body_that_cannot_be_inflated_is_refused_at_once(
    peer: RemotingPeer, body: bytes
) -> None:
    await peer.put("T", b"x", queue_id=1)
    answer = await peer.put("T", body, f=1, properties="DELAY\x011\x02")
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL


@pytest.mark.parametrize("size", [100, 1 << 20])
async def test_delayed_compressed_message_arrives_for_readers_of_both_protocols(
    peer: RemotingPeer, size: int
) -> None:
    await peer.put("T", b"x", queue_id=1)
    packed = zlib.compress(b"p" * size)
    sent = await peer.put("T", packed, f=1, properties="TAGS\x01a\x02DELAY\x011\x02")
    assert sent.code == ResponseCode.SUCCESS
    arrived = await next_message(peer, "T")
    assert arrived.body == b"p" * size
    assert int(arrived.properties["__METAQ_LEN"], 16) == 4 + 1 + size
    assert "IMAGO_SHAPE" not in arrived.properties


async def test_delayed_and_given_back_messages_wait_for_the_level_of_their_topic(
    peer: RemotingPeer, broker: Broker
) -> None:
    attributes = {"acknowledgement": "leader-fsync"}
    broker.topics.create_or_update(
        TopicConfig(name="Safe", read_queues=1, write_queues=1, attributes=attributes)
    )
    await peer.put("Safe", b"later", properties="DELAY\x0118\x02")
    assert broker.store.durable_end >= broker.store.log_end
    await peer.put("Safe", b"now")
    (message,) = await peer.messages("Safe")
    assert await given_back(peer, message, delayLevel=18) == ResponseCode.SUCCESS
    assert broker.store.durable_end >= broker.store.log_end


async def test_nobody_gives_back_what_no_consumer_was_given(peer: RemotingPeer) -> None:
    await peer.put("T", b"first", queue_id=1)
    rolled_back = await half(peer, b"rolled back")
    assert (await end(peer, rolled_back, ROLLBACK)).code == ResponseCode.SUCCESS
    parked = [
        await peer.put("T", b"later", properties=f"{delay}\x0118\x02UNIQ_KEY\x01u\x02")
        for delay in ("DELAY", "TIMER_DELAY_SEC")
    ]
    offsets = [int(sent.ext["msgId"][16:], 16) for sent in parked]
    for offset in (rolled_back.log_offset, *offsets):
        answer = await peer.call(BACK, {"offset": offset, "group": "consumers", "delayLevel": 1})
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert (answer.remark or "").startswith("look message by offset failed")
