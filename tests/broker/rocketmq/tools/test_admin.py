"""Topics, groups and the broker itself, as RocketMQ's tools ask for them over real sockets."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.metrics import registry
from imago_broker.processors.rocketmq.tools.original_settings import FIXED, original_settings
from imago_broker.service.puts.put_status import PutStatus
from imago_testing.peers.remoting import RemotingPeer, heartbeat, send_ext
from imago_wire.remoting.bodies.client import MessageQueue
from imago_wire.remoting.bodies.stats import ConsumeStats, TopicStatsTable
from imago_wire.remoting.codes import RequestCode as Code
from imago_wire.remoting.codes import ResponseCode
from imago_wire.remoting.texts.properties_text import decode_properties_text, encode_properties_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from imago_broker.app import Broker

    Connect = Callable[..., Awaitable[RemotingPeer]]

QUEUE = MessageQueue("T", "shard-0", 0)


def topic(name: str, **more: object) -> dict[str, object]:
    fields: dict[str, object] = {
        "topic": name,
        "defaultTopic": "TBW102",
        "readQueueNums": 3,
        "writeQueueNums": 2,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": "false",
    }
    return {**fields, **more}


async def body_of(peer: RemotingPeer, code: int, **ext: object) -> Any:
    answer = await peer.call(code, ext)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return json.loads(answer.body)


async def test_topic_is_made_shown_changed_and_deleted(peer: RemotingPeer) -> None:
    made = await peer.call(Code.UPDATE_AND_CREATE_TOPIC, topic("T", attributes="+a=1,+b=2"))
    assert made.code == ResponseCode.SUCCESS
    shown = await body_of(peer, Code.GET_TOPIC_CONFIG, topic="T")
    assert (shown["readQueueNums"], shown["writeQueueNums"], shown["perm"]) == (3, 2, 6)
    assert shown["attributes"] == {"a": "1", "b": "2"}
    changed = topic("T", perm=4, writeQueueNums=3, attributes="-a,+b=3")
    assert (await peer.call(Code.UPDATE_AND_CREATE_TOPIC, changed)).code == ResponseCode.SUCCESS
    shown = await body_of(peer, Code.GET_TOPIC_CONFIG, topic="T")
    assert (shown["perm"], shown["attributes"]) == (4, {"b": "3"})
    for _ in range(2):
        deleted = await peer.call(Code.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
        assert deleted.code == ResponseCode.SUCCESS
    gone = await peer.call(Code.GET_TOPIC_CONFIG, {"topic": "T"})
    assert gone.code == ResponseCode.TOPIC_NOT_EXIST
    assert gone.remark == "No topic in this broker. topic: T"


@pytest.mark.parametrize(
    ("ext", "part"),
    [
        (topic("a b"), "illegal characters"),
        (topic("../x"), "illegal characters"),
        (topic("TBW102"), "conflict with system topic"),
        (topic("SCHEDULE_TOPIC_XXXX"), "conflict with system topic"),
        (topic("N", topicFilterType="OTHER"), "filter_type"),
        (topic("N", attributes="x=1"), "attribute change"),
        (topic("N", attributes="+message.type=MIXED"), "MIXED message type is not supported."),
        (topic("N", perm=99), "perm"),
    ],
)
async def test_topic_that_cannot_be_is_refused(
    peer: RemotingPeer, ext: dict[str, object], part: str
) -> None:
    answer = await peer.call(Code.UPDATE_AND_CREATE_TOPIC, ext)
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert part in (answer.remark or "")


async def test_tool_that_names_fewer_queues_gets_them_with_a_warning(
    peer: RemotingPeer, caplog: pytest.LogCaptureFixture
) -> None:
    await peer.call(Code.UPDATE_AND_CREATE_TOPIC, topic("T"))
    await peer.put("T", b"x", queue_id=1)
    changed = topic("T", writeQueueNums=1, readQueueNums=1)
    assert (await peer.call(Code.UPDATE_AND_CREATE_TOPIC, changed)).code == ResponseCode.SUCCESS
    shown = await body_of(peer, Code.GET_TOPIC_CONFIG, topic="T")
    assert shown["readQueueNums"] == 1
    assert "topic_hides_messages topic=T messages=1 queues=1/" in caplog.text


@pytest.mark.parametrize(
    ("change", "named", "code", "said"),
    [
        ("create", "", ResponseCode.IMAGO_TOPIC_EXISTS, "the topic T exists already"),
        ("ensure", "queues", ResponseCode.IMAGO_TOPIC_EXISTS, "already, with"),
        ("ensure", "perm", ResponseCode.SUCCESS, ""),
        ("alter", "queues", ResponseCode.IMAGO_HIDES_MESSAGES, "1 message would be hidden"),
        ("alter", "perm", ResponseCode.SUCCESS, ""),
        ("replace", "", ResponseCode.INVALID_PARAMETER, "'replace' is unknown"),
    ],
)
async def test_our_clients_say_what_they_mean(
    peer: RemotingPeer, change: str, named: str, code: int, said: str
) -> None:
    await peer.call(Code.UPDATE_AND_CREATE_TOPIC, topic("T"))
    await peer.put("T", b"x", queue_id=1)
    before = await body_of(peer, Code.GET_TOPIC_CONFIG, topic="T")
    asked = topic("T", writeQueueNums=1, readQueueNums=1, imagoChange=change, imagoNamed=named)
    answer = await peer.call(Code.UPDATE_AND_CREATE_TOPIC, asked)
    assert answer.code == code
    assert said in (answer.remark or "")
    assert await body_of(peer, Code.GET_TOPIC_CONFIG, topic="T") == before


async def test_a_cordoned_shard_gets_topics_of_tools_alone_and_a_drained_one_of_nobody(
    peer: RemotingPeer, broker: Broker
) -> None:
    broker.topics.intake.cordoned = True
    for change in ("create", "ensure"):
        asked = topic("T", imagoChange=change, imagoNamed="")
        answer = await peer.call(Code.UPDATE_AND_CREATE_TOPIC, asked)
        assert answer.code == ResponseCode.IMAGO_CORDONED
    # A tool has named this broker.
    assert (await peer.call(Code.UPDATE_AND_CREATE_TOPIC, topic("T"))).code == ResponseCode.SUCCESS
    asked = topic("T", imagoChange="ensure", imagoNamed="")
    assert (await peer.call(Code.UPDATE_AND_CREATE_TOPIC, asked)).code == ResponseCode.SUCCESS
    intake = broker.topics.intake
    with intake.shut():
        with intake.shut():
            assert intake.closed
        refused = await peer.call(Code.UPDATE_AND_CREATE_TOPIC, topic("U"))
        assert refused.code != ResponseCode.SUCCESS
        assert "this shard is drained and takes no topics" in (refused.remark or "")
        altered = await peer.call(Code.UPDATE_AND_CREATE_TOPIC, topic("T"))
        assert altered.code == ResponseCode.SUCCESS
    assert (await peer.call(Code.UPDATE_AND_CREATE_TOPIC, topic("U"))).code == ResponseCode.SUCCESS


async def test_list_of_topics_is_made_as_a_whole_or_not_at_all(
    peer: RemotingPeer, broker: Broker
) -> None:
    def body(*names: str) -> bytes:
        return json.dumps({"topicConfigList": [{"topicName": name} for name in names]}).encode()

    code = Code.UPDATE_AND_CREATE_TOPIC_LIST
    assert (await peer.call(code, {}, body("A", "b c"))).code == ResponseCode.INVALID_PARAMETER
    assert broker.topics.get("A") is None
    assert (await peer.call(code, {}, body("A", "B"))).code == ResponseCode.SUCCESS
    assert broker.topics.get("B") is not None


async def test_all_topics_whole_for_old_tools_and_in_slices_for_new_ones(
    peer: RemotingPeer,
) -> None:
    whole = await peer.call(Code.GET_ALL_TOPIC_CONFIG, version=409)
    table = json.loads(whole.body)["topicConfigTable"]
    assert {"TBW102", "SCHEDULE_TOPIC_XXXX"} <= set(table)
    assert "attributes" not in table["TBW102"]
    assert table["TBW102"]["perm"] == 7
    names: set[str] = set()
    total = int(whole.ext["totalTopicNum"])
    for seq in range(total):
        ext = {"topicSeq": seq, "maxTopicNum": 1}
        part = await peer.call(Code.GET_ALL_TOPIC_CONFIG, ext)
        names |= set(json.loads(part.body)["topicConfigTable"])
    assert names == set(table)


async def test_stats_of_a_topic(peer: RemotingPeer) -> None:
    await peer.put("T", b"1")
    await peer.put("T", b"2")
    answer = await peer.call(Code.GET_TOPIC_STATS_INFO, {"topic": "T"})
    table = TopicStatsTable.decode(answer.body).offset_table
    assert len(table) == 4
    assert (table[QUEUE].min_offset, table[QUEUE].max_offset) == (0, 2)
    assert table[QUEUE].last_update_timestamp > 0
    assert table[MessageQueue("T", "shard-0", 1)].last_update_timestamp == 0
    none = await peer.call(Code.GET_TOPIC_STATS_INFO, {"topic": "None"})
    assert (none.code, none.remark) == (ResponseCode.TOPIC_NOT_EXIST, "topic[None] not exist")


async def test_group_is_made_shown_and_deleted(peer: RemotingPeer, broker: Broker) -> None:
    config = json.dumps({"groupName": "G", "retryMaxTimes": 3, "consumeEnable": False}).encode()
    code = Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    assert (await peer.call(code, {}, config)).code == ResponseCode.SUCCESS
    shown = await body_of(peer, Code.GET_SUBSCRIPTIONGROUP_CONFIG, group="G")
    assert (shown["retryMaxTimes"], shown["consumeEnable"]) == (3, False)
    table = await body_of(peer, Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    assert set(table["subscriptionGroupTable"]) == {"G"}
    broker.offsets.commit("G", "T", 0, 5)
    delete = Code.DELETE_SUBSCRIPTIONGROUP
    await peer.call(delete, {"groupName": "G", "removeOffset": "true"})
    gone = await peer.call(Code.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "G"})
    assert gone.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert broker.offsets.query("G", "T", 0) is None


async def test_connections_are_shown(peer: RemotingPeer) -> None:
    await peer.call(Code.HEART_BEAT, {}, heartbeat("G"), version=409)
    consumers = await body_of(peer, Code.GET_CONSUMER_CONNECTION_LIST, consumerGroup="G")
    (connection,) = consumers["connectionSet"]
    assert connection["clientId"] == "client"
    assert connection["clientAddr"].startswith("127.0.0.1:")
    assert (connection["language"], connection["version"]) == ("JAVA", 409)
    assert consumers["consumeType"] == "CONSUME_PASSIVELY"
    assert set(consumers["subscriptionTable"]) == {"T"}
    producers = await body_of(peer, Code.GET_PRODUCER_CONNECTION_LIST, producerGroup="P")
    assert len(producers["connectionSet"]) == 1
    everyone = await body_of(peer, Code.GET_ALL_PRODUCER_INFO)
    assert everyone["data"]["P"][0]["clientId"] == "client"
    offline = await peer.call(Code.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "H"})
    assert offline.code == ResponseCode.CONSUMER_NOT_ONLINE
    assert offline.remark == "the consumer group[H] not online"
    none = await peer.call(Code.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "H"})
    assert (none.code, none.remark) == (1, "the producer group[H] not exist")


async def test_progress_of_a_group_is_shown(peer: RemotingPeer, broker: Broker) -> None:
    for _ in range(3):
        await peer.put("T", b"x")
    await peer.call(Code.HEART_BEAT, {}, heartbeat("G"))
    broker.offsets.commit("G", "T", 0, 1)
    answer = await peer.call(Code.GET_CONSUME_STATS, {"consumerGroup": "G"})
    table = ConsumeStats.decode(answer.body).offset_table
    assert (table[QUEUE].broker_offset, table[QUEUE].consumer_offset) == (3, 1)
    assert table[QUEUE].last_timestamp > 0
    assert (await body_of(peer, Code.QUERY_TOPIC_CONSUME_BY_WHO, topic="T")) == {"groupList": ["G"]}
    spans = await body_of(peer, Code.QUERY_CONSUME_TIME_SPAN, topic="T", group="G")
    assert len(spans["consumeTimeSpanSet"]) == 4
    all_stats = await peer.call(Code.GET_BROKER_CONSUME_STATS, {"isOrder": "false"})
    assert b'"totalDiff":2' in all_stats.body
    topics = await body_of(peer, Code.QUERY_TOPICS_BY_CONSUMER, group="G")
    assert topics == {"topicList": ["T"]}


async def test_delay_of_a_group_is_the_age_of_what_it_reads_next(
    peer: RemotingPeer, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        await peer.put("T", b"x")
    monkeypatch.setattr(
        broker.store, "store_time", lambda _topic, _queue, offset: 1000 * (offset + 1)
    )
    now_ms = broker.clock.epoch_ms()
    for offset, consumed, age in ((None, 1000, 1000), (1, 1000, 2000), (2, 2000, 3000)):
        if offset is not None:
            broker.offsets.commit("G", "T", 0, offset)
        spans = await body_of(peer, Code.QUERY_CONSUME_TIME_SPAN, topic="T", group="G")
        first = spans["consumeTimeSpanSet"][0]
        assert first["consumeTimeStamp"] == consumed
        assert now_ms - age <= first["delayTime"] <= broker.clock.epoch_ms() - age
    broker.offsets.commit("G", "T", 0, 3)
    spans = await body_of(peer, Code.QUERY_CONSUME_TIME_SPAN, topic="T", group="G")
    assert spans["consumeTimeSpanSet"][0]["delayTime"] == 0


async def test_offsets_are_copied_from_group_to_group(peer: RemotingPeer, broker: Broker) -> None:
    await peer.put("T", b"x")
    broker.groups.get_or_create("A")
    broker.groups.get_or_create("B")
    broker.offsets.commit("A", "T", 0, 1)
    ext = {"srcGroup": "A", "destGroup": "B", "topic": "T"}
    assert (await peer.call(Code.CLONE_GROUP_OFFSET, ext)).code == ResponseCode.SUCCESS
    assert broker.offsets.query("B", "T", 0) == 1


async def test_settings_of_the_broker(peer: RemotingPeer, broker: Broker) -> None:
    shown = await peer.call(Code.GET_BROKER_CONFIG)
    assert f"listenPort={broker.rocketmq_port}\n" in shown.body.decode()
    assert "counter" in shown.ext["version"]
    change = await peer.call(Code.UPDATE_BROKER_CONFIG, {}, b"maxMessageSize=1000\n")
    assert change.code == ResponseCode.SUCCESS
    assert (await peer.put("T", b"x" * 1001)).code == ResponseCode.MESSAGE_ILLEGAL
    fixed = await peer.call(Code.UPDATE_BROKER_CONFIG, {}, b"brokerName=x\n")
    assert fixed.code == ResponseCode.NO_PERMISSION
    wrong = (b"maxMessageSize=0", b"maxMessageSize=x", b"traceOn=x", b"defaultQueryMaxNum=1.5")
    for text in (b"", b"other=1", b"traceOn=true\nother=1", *wrong):
        refused = await peer.call(Code.UPDATE_BROKER_CONFIG, {}, text)
        assert refused.code == ResponseCode.SYSTEM_ERROR


async def test_settings_without_a_meaning_here_are_kept_shown_and_logged(
    peer: RemotingPeer, caplog: pytest.LogCaptureFixture
) -> None:
    async def shown() -> dict[str, str]:
        return decode_properties_text((await peer.call(Code.GET_BROKER_CONFIG)).body)

    before = await shown()
    assert before["defaultQueryMaxNum"] == "32"
    assert before["enablePropertyFilter"] == "true"
    text = b"defaultQueryMaxNum=64\nenablePropertyFilter=false\nflushDiskType=SYNC_FLUSH\n"
    for _ in range(2):
        assert (await peer.call(Code.UPDATE_BROKER_CONFIG, {}, text)).code == ResponseCode.SUCCESS
    told = {"defaultQueryMaxNum": "64", "flushDiskType": "SYNC_FLUSH"}
    assert await shown() == before | told | {"enablePropertyFilter": "false"}
    notes = [one for one in caplog.messages if one.startswith("setting_without_effect")]
    assert sorted(notes) == [
        f"setting_without_effect name={name} value={value!r}" for name, value in told.items()
    ]
    assert (await peer.call(Code.UPDATE_BROKER_CONFIG, {}, b"traceOn=x")).code != 0
    assert (await shown())["traceOn"] == before["traceOn"]


async def test_every_setting_of_the_originals_is_taken_but_what_the_broker_is(
    peer: RemotingPeer,
) -> None:
    settings = original_settings()
    assert len(settings) > 400
    assert settings.keys() >= FIXED
    for name in (
        "defaultQueryMaxNum",
        "brokerFastFailureEnable",
        "timerWheelEnable",
        "haListenPort",
    ):
        assert name in settings
    entries = {
        name: "1000" if name == "maxMessageSize" else setting.default
        for name, setting in settings.items()
        if name not in FIXED and (setting.default or setting.kind == "text")
    }
    body = encode_properties_text(entries)
    assert (await peer.call(Code.UPDATE_BROKER_CONFIG, {}, body)).code == ResponseCode.SUCCESS
    for name in sorted(FIXED):
        refused = await peer.call(Code.UPDATE_BROKER_CONFIG, {}, f"{name}=1".encode())
        assert refused.code == ResponseCode.NO_PERMISSION
        assert refused.remark == "Can not update config in black list."


async def test_figures_that_the_tools_parse_are_there_and_can_be_parsed(
    peer: RemotingPeer,
) -> None:
    await peer.put("T", b"x")
    table = (await body_of(peer, Code.GET_BROKER_RUNTIME_INFO))["table"]
    for integer in ("msgPutTotalTodayNow", "msgGetTotalTodayNow", "earliestMessageTimeStamp"):
        int(table[integer])
    float(table["commitLogDiskRatio"])
    for rates in ("putTps", "getTransferedTps", "getTransferredTps"):
        assert len([float(word) for word in table[rates].split()]) == 3
    assert table["msgPutTotalTodayNow"] == "1"


async def test_figures_of_the_tools_are_those_of_this_broker(
    peer: RemotingPeer, broker: Broker
) -> None:
    for number in range(5):
        await peer.put("T", b"%d" % number)
    refused = await peer.call(310, send_ext("T", 0), b"x" * (5 << 20))
    assert refused.code == ResponseCode.MESSAGE_ILLEGAL
    await peer.pull("T")
    assert (await peer.pull("T", 5)).code == ResponseCode.PULL_NOT_FOUND
    broker.messages.refuse(PutStatus.BUSY)
    assert (await peer.put("T", b"no")).code != ResponseCode.SUCCESS
    broker.messages.refuse(None)
    broker.messages.append_times.note(1_500_000_000, 1)
    broker.rocketmq.delivery.traffic.read_ns_max = 30_000_000_000
    broker.rocketmq.delivery.history.sample()
    table = (await body_of(peer, Code.GET_BROKER_RUNTIME_INFO))["table"]
    assert (table["putMessageTimesTotal"], table["putMessageFailedTimes"]) == ("5", "1")
    size, average = int(table["putMessageSizeTotal"]), float(table["putMessageAverageSize"])
    assert 5 * 91 < size == round(5 * average)
    assert (table["putMessageEntireTimeMax"], table["getMessageEntireTimeMax"]) == ("1500", "30000")
    assert "[1~2s]:1" in table["putMessageDistributeTime"]
    assert table["putLatency999"] == "1500.0"
    assert float(table["putTps"].split()[0]) > 0
    assert float(table["getMissTps"].split()[0]) > 0
    assert 0 < float(table["commitLogDiskRatio"]) < 1
    assert 0 < int(table["earliestMessageTimeStamp"]) <= broker.clock.epoch_ms()
    read = registry(broker.collector).get_sample_value
    assert read("imago_puts_failed_total") == 1
    assert read("imago_appended_bytes_total") == size
    assert read("imago_append_ms_max") == 1500
    assert read("imago_rocketmq_reads_missed_total") == 1


async def test_entries_of_a_queue_are_shown(peer: RemotingPeer) -> None:
    await peer.put("T", b"x", properties="TAGS\x01TagA\x02")
    ext = {"topic": "T", "queueId": 0, "index": 0, "count": 10}
    shown = await body_of(peer, Code.QUERY_CONSUME_QUEUE, **ext)
    assert (shown["minQueueIndex"], shown["maxQueueIndex"]) == (0, 1)
    assert shown["queueData"][0]["tagsCode"] == 2598919
    beyond = await peer.call(Code.QUERY_CONSUME_QUEUE, {**ext, "index": 7})
    assert (beyond.code, beyond.remark) == (0, "Index 7 of 0@T is not exist!")


@pytest.mark.parametrize("code", [306, 316, 329])
async def test_clean_up_is_always_done(peer: RemotingPeer, code: int) -> None:
    assert (await peer.call(code)).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("code", [13, 22, 54, 902])
async def test_codes_that_are_not_served_are_said_so(peer: RemotingPeer, code: int) -> None:
    answer = await peer.call(code)
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert answer.remark == f" request type {code} not supported"
