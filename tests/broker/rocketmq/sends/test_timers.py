"""Messages at a time of their own over real sockets: parked, fired, refused, taken back."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from imago_broker.features.delays import recalling
from imago_broker.service.delays.timers.timer_bucket import bucket_of
from imago_broker.service.puts.put_status import PutStatus
from imago_broker.shard_work.remaining import measure
from imago_log.store import MessageStore
from imago_testing.clusters.shard_brokers import ShardBrokers, until
from imago_testing.peers.remoting import RemotingPeer, pull_ext, send_ext
from imago_testing.peers.transactions import COMMIT, end, half
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.messages import BatchEntry, decode_messages, encode_batch
from imago_wire.remoting.texts.handles import RecallHandle, parse_recall_handle

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from imago_broker.app import Broker
    from imago_wire.records.record import StoredMessage

PARKED = "rmq_sys_wheel_timer"
THREE_DAYS_MS = 259_200_000
TOO_LONG = (
    "timer message illegal, the delay time should not be bigger than the max delay 259200000ms; or "
    "if set del msg, the delay time should be bigger than the current time"
)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def arriving(peer: RemotingPeer, offset: int = 0) -> StoredMessage:
    """Wait for a message of the topic's first queue."""
    answer = await peer.call(11, pull_ext("T", offset, sysFlag=6))
    return decode_messages(answer.body)[0]


async def recall(peer: RemotingPeer, handle: str, topic: str = "T") -> Any:
    return await peer.call(RequestCode.RECALL_MESSAGE, {"topic": topic, "recallHandle": handle})


def change(broker: Broker, **settings: Any) -> None:
    live = broker.rocketmq.settings
    live.change(replace(live.current, **settings))


@pytest.fixture(autouse=True)
async def topic(peer: RemotingPeer) -> None:
    await peer.put("T", b"first", queue_id=1)


@pytest.mark.parametrize(
    ("name", "value"), [("TIMER_DELIVER_MS", 0), ("TIMER_DELAY_MS", 700), ("TIMER_DELAY_SEC", 1)]
)
async def test_timed_message_waits_where_nobody_sees_it_and_then_arrives(
    peer: RemotingPeer, broker: Broker, name: str, value: int
) -> None:
    before = now_ms()
    asked = before + 800 if name == "TIMER_DELIVER_MS" else value
    properties = f"{name}\x01{asked}\x02TAGS\x01a\x02UNIQ_KEY\x01u\x02"
    sent = await peer.put("T", b"later", properties=properties)
    assert sent.code == ResponseCode.SUCCESS
    handle = parse_recall_handle(sent.ext["recallHandle"])
    assert (handle.topic, handle.broker_name, handle.message_id) == (
        "T",
        broker.config.broker_name,
        "u",
    )
    assert before + 600 < handle.deliver_ms < before + 60_000
    assert (await peer.pull("T")).code == ResponseCode.PULL_NOT_FOUND
    (parked,) = await peer.messages(PARKED, queueId=bucket_of(handle.deliver_ms))
    assert parked.properties["REAL_TOPIC"] == "T"
    assert parked.properties["TIMER_OUT_MS"] == str(handle.deliver_ms)
    arrived = await arriving(peer)
    assert (arrived.body, arrived.tags, arrived.unique_key) == (b"later", "a", "u")
    assert arrived.store_ms >= handle.deliver_ms
    assert arrived.properties["__IMAGO_TIMER"].endswith("-0")


async def test_timed_message_is_read_by_metaq_once_it_has_fired(
    peer: RemotingPeer, broker: Broker
) -> None:
    assert broker.metaq_port
    await peer.put("T", b"later", properties="TIMER_DELAY_MS\x01300\x02UNIQ_KEY\x01u\x02")
    assert broker.store.position_range("T", 0) == (0, 0)
    await arriving(peer)
    read = broker.store.read_positions("T", 0, 0, 1 << 20)
    assert isinstance(read.data, bytes)
    assert b"later" in read.data


async def test_time_that_is_over_means_now(peer: RemotingPeer) -> None:
    for name, value in (("TIMER_DELIVER_MS", 5), ("TIMER_DELAY_SEC", -3), ("TIMER_DELAY_MS", 0)):
        sent = await peer.put("T", b"x", properties=f"{name}\x01{value}\x02UNIQ_KEY\x01u\x02")
        assert sent.code == ResponseCode.SUCCESS
        assert "recallHandle" not in sent.ext
    assert len(await peer.messages("T")) == 3


@pytest.mark.parametrize(
    "properties",
    [
        f"TIMER_DELAY_MS\x01{THREE_DAYS_MS + 1}\x02",
        "TIMER_DELAY_SEC\x01259201\x02",
        "TIMER_DELIVER_MS\x0199999999999999\x02",
        "TIMER_DELIVER_MS\x01tomorrow\x02",
        f"TIMER_DELAY_SEC\x01{'9' * 40}\x02",
        "TIMER_DELAY_MS\x01\u0661\x02",
    ],
)
async def test_time_that_cannot_be_is_refused_in_the_original_s_words(
    peer: RemotingPeer, properties: str
) -> None:
    sent = await peer.put("T", b"x", properties=properties)
    assert (sent.code, sent.remark) == (ResponseCode.MESSAGE_ILLEGAL, TOO_LONG)


async def test_longest_delay_is_a_setting(peer: RemotingPeer, broker: Broker) -> None:
    sent = await peer.put("T", b"x", properties=f"TIMER_DELAY_MS\x01{THREE_DAYS_MS}\x02")
    assert sent.code == ResponseCode.SUCCESS
    change(broker, timer_delay_ms_max=1000)
    sent = await peer.put("T", b"x", properties="TIMER_DELAY_MS\x011001\x02")
    assert sent.code == ResponseCode.MESSAGE_ILLEGAL
    change(broker, timer_delay_ms_max=0)
    sent = await peer.put("T", b"x", properties="TIMER_DELAY_SEC\x015\x02")
    assert sent.code == ResponseCode.SYSTEM_ERROR
    assert sent.remark == "accurate timer message is not enabled, timerWheelEnable is false"


async def test_level_wins_over_a_time_and_what_was_a_timer_is_none(peer: RemotingPeer) -> None:
    both = "DELAY\x0118\x02TIMER_DELAY_MS\x01100\x02UNIQ_KEY\x01u\x02"
    assert "recallHandle" not in (await peer.put("T", b"x", properties=both)).ext
    (parked,) = await peer.messages("SCHEDULE_TOPIC_XXXX", queueId=17)
    assert "TIMER_DELAY_MS" not in parked.properties
    echo = "TIMER_DELAY_MS\x0190000\x02TIMER_OUT_MS\x015\x02UNIQ_KEY\x01u\x02"
    await peer.put("T", b"echo", properties=echo)
    assert [each.body for each in await peer.messages("T")] == [b"echo"]


async def test_nobody_may_send_to_where_timers_wait(peer: RemotingPeer) -> None:
    sent = await peer.put(PARKED, b"x")
    assert sent.code == ResponseCode.NO_PERMISSION


async def test_timer_in_a_batch_is_refused(peer: RemotingPeer) -> None:
    body = encode_batch([BatchEntry(b"x", b"TIMER_DELAY_MS\x01500\x02")])
    answer = await peer.call(320, send_ext("T"), body)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL


async def test_client_cannot_forge_the_mark_of_a_fired_timer(peer: RemotingPeer) -> None:
    await peer.put("T", b"x", properties="__IMAGO_TIMER\x011-2\x02UNIQ_KEY\x01u\x02")
    (message,) = await peer.messages("T")
    assert "__IMAGO_TIMER" not in message.properties


async def test_recalled_message_never_arrives(peer: RemotingPeer, broker: Broker) -> None:
    handles = []
    for unique in ("u1", "u2"):
        properties = f"TIMER_DELAY_MS\x011500\x02UNIQ_KEY\x01{unique}\x02"
        handles.append((await peer.put("T", b"x", properties=properties)).ext["recallHandle"])
    answer = await recall(peer, handles[0])
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
    assert answer.ext["msgId"] == "u1"
    assert (await recall(peer, handles[0])).code == ResponseCode.SUCCESS
    arrived = await arriving(peer)
    assert arrived.unique_key == "u2"
    assert broker.rocketmq.delays.timers.pending == 0
    refused = await recall(peer, handles[1])
    assert (refused.code, refused.remark) == (604, "recall failed, timestamp invalid")
    assert len(await peer.messages("T")) == 1


async def test_recall_that_fails_takes_back_no_recall_before_it(
    peer: RemotingPeer, broker: Broker
) -> None:
    sent = await peer.put("T", b"x", properties="TIMER_DELAY_MS\x011500\x02UNIQ_KEY\x01u\x02")
    assert (await recall(peer, sent.ext["recallHandle"])).code == ResponseCode.SUCCESS
    broker.messages.refuse(PutStatus.DISK_FULL)
    answer = await recall(peer, sent.ext["recallHandle"])
    assert (answer.code, answer.remark) == (1, "recall failed, execute error")
    broker.messages.refuse(None)
    await peer.put("T", b"later", properties="TIMER_DELAY_MS\x012000\x02UNIQ_KEY\x01v\x02")
    assert (await arriving(peer)).body == b"later"


async def test_recalls_are_refused_with_the_original_s_codes(
    peer: RemotingPeer, broker: Broker
) -> None:
    soon = now_ms() + 60_000
    good = RecallHandle("T", broker.config.broker_name, soon, "unknown")
    assert (await recall(peer, str(good))).ext["msgId"] == "unknown"
    for handle, remark in (
        (replace(good, topic="U"), "recall failed, topic not match"),
        (replace(good, broker_name="b"), "recall failed, broker service not available"),
        (replace(good, deliver_ms=5), "recall failed, timestamp invalid"),
        (replace(good, deliver_ms=soon + THREE_DAYS_MS), "recall failed, timestamp invalid"),
        ("?", "recall handle is no Base64 of UTF-8"),
    ):
        answer = await recall(peer, str(handle))
        assert (answer.code, answer.remark) == (604, remark)
    answer = await recall(peer, str(good), topic="nowhere")
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    change(broker, recall_enabled=False)
    answer = await recall(peer, str(good))
    assert (answer.code, answer.remark) == (16, "recall failed, operation is forbidden")


async def test_timer_keeps_a_shard_from_being_drained(peer: RemotingPeer, broker: Broker) -> None:
    await peer.put("T", b"x", properties="TIMER_DELAY_MS\x01400\x02UNIQ_KEY\x01u\x02")
    assert (await measure(broker.admin_services(), "")).delayed == 1
    await arriving(peer)
    assert (await measure(broker.admin_services(), "")).delayed == 0


async def test_recall_finds_what_the_other_members_do_not_have_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = ShardBrokers(tmp_path, "acknowledgement.level=leader", replicas=2)
    try:
        await shard.start(0, 1)
        await shard.all_in_sync(0, 1)
        leader = shard.brokers[await shard.led()]
        peer = await RemotingPeer.connect(leader.rocketmq_port)
        await peer.put("T", b"first", queue_id=1)
        with monkeypatch.context() as behind:
            for each in shard.brokers.values():
                behind.setattr(each.store, "set_high_watermark", lambda *_: None)
            properties = "TIMER_DELAY_SEC\x01600\x02UNIQ_KEY\x01u\x02"
            handle = (await peer.put("T", b"x", properties=properties)).ext["recallHandle"]
            number = peer.send(RequestCode.RECALL_MESSAGE, {"topic": "T", "recallHandle": handle})
            await peer.call(RequestCode.GET_BROKER_CONFIG)
            assert not peer.unread
        await peer.put("T", b"next", queue_id=1)
        assert (await peer.answer(number)).code == ResponseCode.SUCCESS
        await peer.put("T", b"behind it", queue_id=1)
        queue_id = bucket_of(parse_recall_handle(handle).deliver_ms)
        await until(lambda: leader.store.queue_range(PARKED, queue_id) == (0, 2))
        await peer.close()
    finally:
        await shard.close()


async def test_recall_that_the_other_members_keep_waiting_fails(
    peer: RemotingPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = await peer.put("T", b"x", properties="TIMER_DELAY_SEC\x01600\x02UNIQ_KEY\x01u\x02")
    monkeypatch.setattr(recalling, "VISIBLE_MS_MAX", 10)
    monkeypatch.setattr(MessageStore, "high_watermark", 0)
    answer = await recall(peer, sent.ext["recallHandle"])
    assert (answer.code, answer.remark) == (1, "recall failed, execute error")


@pytest.mark.parametrize("more", ["", "DELAY\x010\x02"])
async def test_half_message_waits_for_its_time_once_it_is_committed(
    peer: RemotingPeer, more: str
) -> None:
    one = await half(peer, b"later", more=f"{more}TIMER_DELAY_MS\x01700\x02")
    assert (await end(peer, one, COMMIT)).code == ResponseCode.SUCCESS
    assert (await peer.pull("T")).code == ResponseCode.PULL_NOT_FOUND
    assert (await arriving(peer)).body == b"later"


async def test_timers_go_on_after_a_restart_of_the_service(
    peer: RemotingPeer, broker: Broker
) -> None:
    broker.rocketmq.delays.timers.stop()
    for n in range(3):
        properties = f"TIMER_DELAY_MS\x01{100 + n}\x02UNIQ_KEY\x01u\x02"
        await peer.put("T", b"%d" % n, properties=properties)
    broker.rocketmq.delays.timers.start()
    assert [(await arriving(peer, n)).body for n in range(3)] == [b"0", b"1", b"2"]
    broker.rocketmq.delays.timers.stop()
    broker.rocketmq.delays.timers.start()
    await peer.put("T", b"3", properties="TIMER_DELAY_MS\x01100\x02UNIQ_KEY\x01u\x02")
    assert (await arriving(peer, 3)).body == b"3"
