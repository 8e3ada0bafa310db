"""RocketMQ's light queues (LMQ) over real sockets."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from imago_testing.peers.light import A, B, end_half, naming, offsets, put, records
from imago_testing.peers.popping import acknowledge, bodies, pop, receipts
from imago_testing.peers.remoting import RemotingPeer, pull_ext, send_ext
from imago_testing.peers.transactions import COMMIT, ROLLBACK
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.messages import BatchEntry, decode_messages, encode_batch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from imago_broker.app import Broker
    from imago_broker.config import BrokerConfig

    Connect = Callable[..., Awaitable[RemotingPeer]]


@pytest.fixture
def config(config: BrokerConfig) -> BrokerConfig:
    return replace(config, rocketmq=replace(config.rocketmq, light_queues=True))


async def test_message_is_in_its_topic_and_in_the_light_queues_it_names(peer: RemotingPeer) -> None:
    await peer.put("T", b"plain")
    sent = [await put(peer, b"both"), await put(peer, b"one", B), await put(peer, b"again")]
    assert [each.code for each in sent] == [ResponseCode.SUCCESS] * 3
    assert [each.ext["queueOffset"] for each in sent] == ["1", "2", "3"]
    stored = await peer.pull("T")
    messages = decode_messages(stored.body)
    assert [message.body for message in messages] == [b"plain", b"both", b"one", b"again"]
    assert offsets(messages[1:]) == ["0,0", "1", "1,2"]
    assert [each.ext["msgId"] for each in sent] == [m.offset_message_id for m in messages[1:]]
    in_a, in_b = await peer.pull(A), await peer.pull(B)
    _, first, second, third = records(stored)
    assert (records(in_a), records(in_b)) == ([first, third], [first, second, third])
    places = [in_b.ext[name] for name in ("nextBeginOffset", "minOffset", "maxOffset")]
    assert places == ["3", "0", "3"]
    assert records(await peer.pull(B, 1, maxMsgNums=1)) == [second]


async def test_messages_of_one_read_go_together_in_their_order(peer: RemotingPeer) -> None:
    opaques = []
    for number in range(40):
        properties = naming(f"{A},{B}") if number % 3 else ""
        opaques.append(peer.send(310, send_ext("T", properties=properties), b"%d" % number))
    answers = [await peer.answer(opaque) for opaque in opaques]
    assert [int(answer.ext["queueOffset"]) for answer in answers] == list(range(40))
    light = [b"%d" % number for number in range(40) if number % 3]
    found = await peer.messages(A, maxMsgNums=100)
    assert [message.body for message in found] == light
    assert offsets(found) == [f"{at},{at}" for at in range(len(light))]
    assert [message.queue_offset for message in found] == [n for n in range(40) if n % 3]


async def test_names_are_split_and_offsets_joined_as_java_does(peer: RemotingPeer) -> None:
    await put(peer, b"x", f"{A},other,,{A},{B},")
    (message,) = await peer.messages(A)
    assert offsets([message]) == ["0,,,0,0"]
    assert (await peer.pull(A)).ext["maxOffset"] == "1"
    assert (await peer.pull("other")).code == ResponseCode.TOPIC_NOT_EXIST


@pytest.mark.parametrize("names", ["", " ", ","])
async def test_message_that_names_nothing_is_a_plain_one(peer: RemotingPeer, names: str) -> None:
    assert (await put(peer, b"x", names)).code == ResponseCode.SUCCESS
    (message,) = await peer.messages("T")
    assert "INNER_MULTI_QUEUE_OFFSET" not in message.properties


async def test_offsets_of_a_client_are_made_anew(peer: RemotingPeer) -> None:
    await put(peer, b"x", A, extra="INNER_MULTI_QUEUE_OFFSET\x0177\x02")
    (message,) = await peer.messages(A)
    assert offsets([message]) == ["0"]


async def test_batch_is_not_dispatched(peer: RemotingPeer) -> None:
    part = BatchEntry(b"x", naming(A).encode(), 0)
    sent = await peer.call(320, send_ext("T", m="true"), encode_batch([part, part]))
    assert sent.code == ResponseCode.SUCCESS
    assert len(await peer.messages("T")) == 2
    assert (await peer.pull(A)).code == ResponseCode.PULL_NOT_FOUND


async def test_light_queue_that_nobody_has_sent_to_can_be_waited_for(
    peer: RemotingPeer, connect: Connect
) -> None:
    assert (await peer.pull(A)).code == ResponseCode.PULL_NOT_FOUND
    assert (await peer.pull(A, 5)).code == ResponseCode.PULL_OFFSET_MOVED
    opaque = peer.send(11, pull_ext(A, sysFlag=6))
    other = await connect()
    await put(other, b"first")
    answer = await peer.answer(opaque)
    assert bodies(answer) == [b"first"]
    opaque = peer.send(11, pull_ext(A, 1, sysFlag=6))
    await other.put("T", b"not for it")
    await put(other, b"second", A)
    assert bodies(await peer.answer(opaque)) == [b"second"]


async def test_light_queues_show_nowhere(peer: RemotingPeer, broker: Broker) -> None:
    await put(peer, b"x")
    assert not [config for config in broker.topics.all() if config.name.startswith("%LMQ%")]
    assert len(broker.core.messages.light) == 2
    listed = await peer.call(RequestCode.GET_ALL_TOPIC_CONFIG)
    assert b"LMQ" not in bytes(listed.body)
    assert not [name for name in broker.coordinator.view().topics if "LMQ" in name]
    made = {"topic": A, "defaultTopic": "TBW102", "readQueueNums": 4, "writeQueueNums": 4}
    more = {"perm": 6, "topicFilterType": "SINGLE_TAG", "order": "false"}
    changed = await peer.call(RequestCode.UPDATE_AND_CREATE_TOPIC, {**made, **more})
    assert changed.code == ResponseCode.SUCCESS
    config = broker.topics.get(A)
    assert config is not None
    assert config.queues == 1


async def test_light_queue_that_is_deleted_begins_anew(peer: RemotingPeer) -> None:
    await put(peer, b"old")
    gone = await peer.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": A})
    assert gone.code == ResponseCode.SUCCESS
    await put(peer, b"new")
    assert [message.body for message in await peer.messages(A)] == [b"new"]
    assert [message.body for message in await peer.messages(B)] == [b"old", b"new"]


async def test_messages_of_a_deleted_topic_are_passed_over(peer: RemotingPeer) -> None:
    for body in (b"1", b"2"):
        await put(peer, body)
    await peer.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
    answer = await peer.pull(A)
    assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert answer.ext["nextBeginOffset"] == "2"
    await peer.put("T", b"another", properties=naming("", "").replace("MULTI", "NO"))
    await put(peer, b"3")
    assert [message.body for message in await peer.messages(A)] == [b"3"]


async def test_filters_by_tag_and_by_property(peer: RemotingPeer) -> None:
    for number, tag in enumerate(("red", "blue", "red")):
        await put(peer, tag.encode(), A, extra=f"TAGS\x01{tag}\x02n\x01{number}\x02")
    red = await peer.messages(A, subscription="red")
    assert [message.body for message in red] == [b"red", b"red"]
    sql = "n = 1 OR TAGS = 'none'"
    answer = await peer.pull(A, expressionType="SQL92", subscription=sql)
    assert (bodies(answer), answer.ext["nextBeginOffset"]) == ([b"blue"], "3")


async def test_offsets_by_time_and_progress_of_a_group(peer: RemotingPeer) -> None:
    await put(peer, b"x")
    (stored,) = await peer.messages("T")
    queue = {"topic": A, "queueId": 0}
    found = await peer.call(
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {**queue, "timestamp": stored.store_ms + 1}
    )
    assert found.ext["offset"] == "1"
    earliest = await peer.call(RequestCode.GET_EARLIEST_MSG_STORETIME, queue)
    assert earliest.ext["timestamp"] == str(stored.store_ms)
    group = {"consumerGroup": "%LMQ%group", **queue}
    assert (await peer.call(RequestCode.QUERY_CONSUMER_OFFSET, group)).ext["offset"] == "0"
    await peer.call(RequestCode.UPDATE_CONSUMER_OFFSET, {**group, "commitOffset": 1})
    assert (await peer.call(RequestCode.QUERY_CONSUMER_OFFSET, group)).ext["offset"] == "1"
    stats = await peer.call(RequestCode.GET_TOPIC_STATS_INFO, {"topic": A})
    assert b'"maxOffset":1' in bytes(stats.body).replace(b" ", b"")
    progress = await peer.call(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "%LMQ%group"})
    assert b"%LMQ%a" in bytes(progress.body)
    assert (await peer.pull(A, consumerGroup="%LMQ%other")).code == ResponseCode.SUCCESS


async def test_pop_names_offsets_of_the_light_queue_also_the_second_time(
    peer: RemotingPeer,
) -> None:
    await peer.put("T", b"plain", queue_id=1)
    await put(peer, b"x", queue_id=1)
    await put(peer, b"y", queue_id=1)
    first = await pop(peer, topic=A, maxMsgNums=1, invisibleTime=0)
    assert bodies(first) == [b"x"]
    assert (first.ext["startOffsetInfo"], first.ext["msgOffsetInfo"]) == ("0 0 0", "0 0 0")
    assert records(first) == records(await peer.pull("T", 1, queueId=1, maxMsgNums=1))
    again = await pop(peer, topic=A, maxMsgNums=2)
    assert again.ext["msgOffsetInfo"] == "0 0 0,1"
    old, new = decode_messages(again.body)
    assert (old.body, old.reconsume_times, old.queue_id, old.queue_offset) == (b"x", 1, 0, 0)
    assert (new.body, new.reconsume_times, new.queue_id, new.queue_offset) == (b"y", 0, 1, 2)
    for receipt in receipts(again):
        gone = await acknowledge(peer, receipt, topic=A)
        assert gone.code == ResponseCode.SUCCESS
    assert (await pop(peer, topic=A)).code == ResponseCode.POLLING_TIMEOUT


@pytest.mark.parametrize("wait", ["DELAY\x011\x02", "TIMER_DELAY_MS\x01300\x02"])
async def test_message_that_waits_is_dispatched_when_it_is_due(
    peer: RemotingPeer, wait: str
) -> None:
    await peer.put("T", b"plain")
    opaques = [peer.send(310, send_ext("T", properties=wait), b"%d" % n) for n in range(3)]
    assert (await put(peer, b"late", A, extra=wait)).code == ResponseCode.SUCCESS
    opaques += [peer.send(310, send_ext("T", properties=wait), b"%d" % n) for n in range(3)]
    for opaque in opaques:
        assert (await peer.answer(opaque)).code == ResponseCode.SUCCESS
    await put(peer, b"soon", A)
    answer = await peer.call(11, pull_ext(A, 1, sysFlag=6, suspendTimeoutMillis=20_000))
    assert bodies(answer) == [b"late"]
    (late,) = decode_messages(answer.body)
    assert offsets([late]) == ["1"]
    assert not [name for name in late.properties if name == "__IMAGO_LIGHT"]
    assert [message.body for message in await peer.messages(A)] == [b"soon", b"late"]


@pytest.mark.parametrize("outcome", [COMMIT, ROLLBACK])
async def test_message_of_a_transaction_is_dispatched_with_its_commit(
    peer: RemotingPeer, outcome: int
) -> None:
    await peer.put("T", b"plain")
    half = await put(peer, b"half", A, extra="TRAN_MSG\x01true\x02PGROUP\x01producers\x02")
    assert (await peer.pull(A)).code == ResponseCode.PULL_NOT_FOUND
    await end_half(peer, half, outcome)
    found = await peer.messages(A)
    assert [message.body for message in found] == ([b"half"] if outcome == COMMIT else [])
    assert offsets(found) == ["0"] * len(found)


async def test_send_to_a_light_queue_itself_is_an_ordinary_record_there(
    peer: RemotingPeer,
) -> None:
    await put(peer, b"1", A)
    assert (await peer.put(A, b"2")).code == ResponseCode.SUCCESS
    await put(peer, b"3", A)
    found = await peer.messages(A)
    assert [(m.topic, m.body) for m in found] == [("T", b"1"), (A, b"2"), ("T", b"3")]


async def test_numbered_message_is_dispatched_once(peer: RemotingPeer, broker: Broker) -> None:
    numbers = "__IMAGO_PID\x010123456789abcdef\x02__IMAGO_EPOCH\x010\x02__IMAGO_SEQ\x010\x02"
    sent = [await put(peer, b"x", A, extra=numbers) for _ in range(2)]
    assert [each.code for each in sent] == [ResponseCode.SUCCESS] * 2
    assert sent[0].ext["queueOffset"] == sent[1].ext["queueOffset"]
    assert (await put(peer, b"x", A, extra=numbers.replace("SEQ\x010", "SEQ\x017"))).code == 9101
    assert broker.core.messages.light.pending == 0
    assert [message.body for message in await peer.messages(A)] == [b"x"]


async def test_message_given_back_waits_in_its_groups_retry_topic_alone(peer: RemotingPeer) -> None:
    await put(peer, b"x", A)
    (message,) = await peer.messages(A)
    ext = {"offset": message.physical_offset, "group": "consumers", "delayLevel": 1}
    given = await peer.call(RequestCode.CONSUMER_SEND_MSG_BACK, {**ext, "originTopic": "T"})
    assert given.code == ResponseCode.SUCCESS
    retry = pull_ext("%RETRY%consumers", sysFlag=6, suspendTimeoutMillis=20_000)
    assert bodies(await peer.call(11, retry)) == [b"x"]
    assert (await peer.pull(A)).ext["maxOffset"] == "1"


async def test_many_at_once_from_many_connections(connect: Connect) -> None:
    peers = [await connect() for _ in range(5)]

    async def send(number: int, peer: RemotingPeer) -> None:
        for each in range(20):
            await put(peer, b"%d-%d" % (number, each), queue_id=number % 4)

    await asyncio.gather(*(send(number, peer) for number, peer in enumerate(peers)))
    found = await peers[0].messages(B, maxMsgNums=200)
    while len(found) < 100:
        found += await peers[0].messages(B, len(found), maxMsgNums=200)
    assert offsets(found) == [f"{at},{at}" for at in range(100)]
