"""Heartbeats, groups, notifications, locks and offsets over real sockets."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from imago_wire.remoting.bodies.client import ConsumeFromWhere, ConsumeType, MessageModel
from imago_wire.remoting.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from imago_broker.app import Broker
    from imago_testing.peers.remoting import RemotingPeer

    Connect = Callable[..., Awaitable[RemotingPeer]]


def heartbeat(
    client_id: str, group: str = "G", *, version: int = 1, sub: str = "*", topic: str = "T"
) -> bytes:
    consumer = {
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "consumeType": "CONSUME_PASSIVELY",
        "groupName": group,
        "messageModel": "CLUSTERING",
        "subscriptionDataSet": [
            {
                "classFilterMode": False,
                "codeSet": [],
                "expressionType": "TAG",
                "subString": sub,
                "subVersion": version,
                "tagsSet": [],
                "topic": topic,
            }
        ],
        "unitMode": False,
    }
    return json.dumps(
        {
            "clientID": client_id,
            "consumerDataSet": [consumer],
            "producerDataSet": [{"groupName": "P"}],
        }
    ).encode()


async def ids(peer: RemotingPeer, group: str = "G") -> list[str]:
    answer = await peer.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
    found: list[str] = json.loads(answer.body)["consumerIdList"]
    return found


async def test_members_are_listed_until_they_leave(connect: Connect) -> None:
    one, two = await connect(), await connect()
    await one.call(34, {}, heartbeat("one"))
    await two.call(34, {}, heartbeat("two"))
    assert await ids(one) == await ids(two) == ["one", "two"]
    await one.call(RequestCode.UNREGISTER_CLIENT, {"clientID": "one", "consumerGroup": "G"})
    assert await ids(two) == ["two"]
    nobody = await two.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "H"})
    assert nobody.code == ResponseCode.SYSTEM_ERROR
    assert nobody.remark == "no consumer for this group, H"


async def test_every_member_is_told_when_the_group_changes(connect: Connect) -> None:
    one, two = await connect(), await connect()
    await one.call(34, {}, heartbeat("one"))
    await one.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)
    await two.call(34, {}, heartbeat("two"))
    told = await one.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)
    assert told.is_oneway
    assert told.ext == {"consumerGroup": "G"}
    await two.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)
    # The same heartbeat again changes nothing and tells nobody.
    await two.call(34, {}, heartbeat("two"))
    assert two.unread == []
    await two.call(34, {}, heartbeat("two", version=2, sub="a"))
    await one.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)


async def test_closed_connection_leaves_its_groups_and_the_others_hear_of_it(
    connect: Connect, broker: Broker
) -> None:
    one, two = await connect(), await connect()
    await one.call(34, {}, heartbeat("one"))
    await two.call(34, {}, heartbeat("two"))
    for _ in range(2):
        await one.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)
    await two.close()
    await one.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)
    assert await ids(one) == ["one"]
    assert len(broker.rocketmq.clients.registry.producers("P")) == 1


async def test_heartbeat_makes_the_group_and_its_retry_topic(
    peer: RemotingPeer, broker: Broker
) -> None:
    await peer.call(34, {}, heartbeat("one", "G"))
    assert broker.groups.get("G") is not None
    retry = broker.topics.get("%RETRY%G")
    assert retry is not None
    assert (retry.read_queues, retry.write_queues, retry.perm) == (1, 1, 6)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'"x"',
        b"null",
        b'{"clientID":1e400}',
        b'{"consumerDataSet":{}}',
        b"\xff\xfe",
        b"[" * 5000,
        heartbeat("c", "../../x"),
        heartbeat("c", "a@b"),
        heartbeat("c", "g" * 300),
        heartbeat("c", ""),
    ],
)
async def test_heartbeat_that_makes_no_sense_is_an_error_and_the_connection_stays(
    peer: RemotingPeer, broker: Broker, body: bytes
) -> None:
    answer = await peer.call(34, {}, body)
    assert answer.code in (ResponseCode.SYSTEM_ERROR, ResponseCode.INVALID_PARAMETER)
    assert "Traceback" not in (answer.remark or "")
    assert broker.groups.all() == []
    assert (await peer.call(34, {}, heartbeat("c"))).code == ResponseCode.SUCCESS


async def test_heartbeats_of_the_c_client_with_numbers_for_words_are_understood(
    peer: RemotingPeer, broker: Broker
) -> None:
    body = (
        b'{"clientID":"c++","consumerDataSet":[{"consumeFromWhere":4,"consumeType":1,'
        b'"groupName":"G","messageModel":1,"subscriptionDataSet":[{"codeSet":["98"],'
        b'"subString":"b","subVersion":"17","tagsSet":["b"],"topic":"T"}]}]}\n'
    )
    assert (await peer.call(34, {}, body)).code == ResponseCode.SUCCESS
    group = broker.rocketmq.clients.registry.consumers("G")
    assert group is not None
    assert group.subscriptions["T"].code_set == {98}
    assert group.subscriptions["T"].sub_version == 17


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("consumeType", "PUSH"),
        ("messageModel", "Clustering"),
        ("consumeFromWhere", "CONSUME_FROM_NOON"),
        ("consumeType", 7),
        ("messageModel", -1),
        ("consumeFromWhere", None),
    ],
)
async def test_word_that_is_unknown_counts_as_not_said(
    peer: RemotingPeer, broker: Broker, name: str, word: object
) -> None:
    told = json.loads(heartbeat("c"))
    told["consumerDataSet"][0][name] = word
    assert (await peer.call(34, {}, json.dumps(told).encode())).code == ResponseCode.SUCCESS
    group = broker.rocketmq.clients.registry.consumers("G")
    assert group is not None
    assert (group.consume_type, group.message_model, group.consume_from_where) == (
        ConsumeType.CONSUME_PASSIVELY,
        MessageModel.CLUSTERING,
        ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
    )
    assert set(group.subscriptions) == {"T"}
    assert await ids(peer) == ["c"]


async def test_filters_are_checked_at_the_start_of_a_consumer(
    peer: RemotingPeer, broker: Broker
) -> None:
    def body(kind: str, text: str) -> bytes:
        subscription = {"topic": "T", "subString": text, "expressionType": kind}
        return json.dumps(
            {"clientId": "c", "group": "G", "subscriptionData": subscription}
        ).encode()

    check = RequestCode.CHECK_CLIENT_CONFIG
    assert (await peer.call(check, {}, body("TAG", "a || b"))).code == ResponseCode.SUCCESS
    assert (await peer.call(check, {}, body("SQL92", "a > 1"))).code == ResponseCode.SUCCESS
    parse = await peer.call(check, {}, body("SQL92", "a >> 1"))
    assert parse.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert (parse.remark or "").startswith('Encountered ">" at line 1, column 4')
    unknown = await peer.call(check, {}, body("XPATH", "a > 1"))
    assert unknown.code == ResponseCode.SYSTEM_ERROR
    settings = broker.rocketmq.settings
    settings.change(replace(settings.current, property_filter=False))
    off = await peer.call(check, {}, body("SQL92", "a > 1"))
    assert off.code == ResponseCode.SYSTEM_ERROR
    assert off.remark == "The broker does not support consumer to filter message by SQL92"


def queues(client: str, *queue_ids: int) -> bytes:
    mq_set = [{"brokerName": "shard-0", "queueId": q, "topic": "T"} for q in queue_ids]
    return json.dumps({"clientId": client, "consumerGroup": "G", "mqSet": mq_set}).encode()


async def locked(peer: RemotingPeer, client: str, *queue_ids: int) -> set[int]:
    answer = await peer.call(RequestCode.LOCK_BATCH_MQ, {}, queues(client, *queue_ids))
    return {queue["queueId"] for queue in json.loads(answer.body)["lockOKMQSet"]}


async def test_queue_lock_belongs_to_one_client(peer: RemotingPeer, broker: Broker) -> None:
    assert await locked(peer, "one", 0) == set(), "there is no such queue"
    await peer.put("T", b"x")
    assert await locked(peer, "one", 0, 1) == {0, 1}
    assert broker.groups.get("G") is None, "as at the originals, locks need no group"
    assert await locked(peer, "two", 0, 1, 2) == {2}
    assert await locked(peer, "one", 0) == {0}
    peer.send(RequestCode.UNLOCK_BATCH_MQ, {}, queues("two", 0), oneway=True)
    assert await locked(peer, "two", 0) == set()
    await peer.call(RequestCode.UNLOCK_BATCH_MQ, {}, queues("one", 0))
    assert await locked(peer, "two", 0) == {0}


async def test_offsets_are_committed_and_told(peer: RemotingPeer) -> None:
    await peer.call(34, {}, heartbeat("c"))
    await peer.put("T", b"x")
    where = {"consumerGroup": "G", "topic": "T", "queueId": 0}
    peer.send(RequestCode.UPDATE_CONSUMER_OFFSET, {**where, "commitOffset": 1}, oneway=True)
    told = await peer.call(RequestCode.QUERY_CONSUMER_OFFSET, where)
    assert (told.code, told.ext) == (ResponseCode.SUCCESS, {"offset": "1"})
    assert peer.unread == [] or all(not one.is_response for one in peer.unread)


async def test_commit_before_the_first_heartbeat_counts(peer: RemotingPeer) -> None:
    await peer.put("T", b"x")
    where = {"consumerGroup": "Early", "topic": "T", "queueId": 0}
    committed = await peer.call(RequestCode.UPDATE_CONSUMER_OFFSET, {**where, "commitOffset": 1})
    assert committed.code == ResponseCode.SUCCESS
    assert (await peer.call(RequestCode.QUERY_CONSUMER_OFFSET, where)).ext == {"offset": "1"}


async def test_answered_commit_is_in_the_log(peer: RemotingPeer, broker: Broker) -> None:
    await peer.put("T", b"x")
    where = {"consumerGroup": "G", "topic": "T", "queueId": 0, "commitOffset": 1}
    await peer.call(RequestCode.UPDATE_CONSUMER_OFFSET, where)
    assert broker.store.meta("offset") == {"G@T@0": 1}


async def test_group_that_was_never_here_starts_at_zero_of_a_young_queue(
    peer: RemotingPeer,
) -> None:
    await peer.put("T", b"x")
    where = {"consumerGroup": "New", "topic": "T", "queueId": 0}
    assert (await peer.call(14, where)).ext == {"offset": "0"}
    unknown = await peer.call(14, {**where, "setZeroIfNotFound": "false"})
    assert unknown.code == ResponseCode.QUERY_NOT_FOUND


async def test_group_that_was_never_here_is_unknown_to_an_old_queue(
    peer: RemotingPeer, broker: Broker
) -> None:
    await peer.put("T", b"x" * 1000)
    broker.rocketmq.delivery.memory.bytes_max = 100
    where = {"consumerGroup": "New", "topic": "T", "queueId": 0}
    answer = await peer.call(14, where)
    assert answer.code == ResponseCode.QUERY_NOT_FOUND
    assert answer.remark == "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"consumerGroup": "a@b"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"topic": "None"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queueId": 99}, ResponseCode.INVALID_PARAMETER),
        ({"queueId": -1}, ResponseCode.INVALID_PARAMETER),
        ({"commitOffset": -5}, ResponseCode.INVALID_PARAMETER),
        ({"commitOffset": 1 << 70}, ResponseCode.SYSTEM_ERROR),
        ({"commitOffset": "NaN"}, ResponseCode.SYSTEM_ERROR),
    ],
)
async def test_commit_that_cannot_be_is_refused(
    peer: RemotingPeer, change: dict[str, object], code: ResponseCode
) -> None:
    await peer.call(34, {}, heartbeat("c"))
    await peer.put("T", b"x")
    where = {"consumerGroup": "G", "topic": "T", "queueId": 0, "commitOffset": 1}
    assert (await peer.call(15, {**where, **change})).code == code


async def test_bounds_and_times_of_a_queue(peer: RemotingPeer) -> None:
    for body in (b"1", b"2", b"3"):
        await peer.put("T", body)
    queue = {"topic": "T", "queueId": 0}
    stored = [m.store_ms for m in await peer.messages("T")]
    assert (await peer.call(RequestCode.GET_MAX_OFFSET, queue)).ext == {"offset": "3"}
    assert (await peer.call(RequestCode.GET_MIN_OFFSET, queue)).ext == {"offset": "0"}
    earliest = await peer.call(RequestCode.GET_EARLIEST_MSG_STORETIME, queue)
    assert earliest.ext == {"timestamp": str(stored[0])}
    empty = await peer.call(RequestCode.GET_EARLIEST_MSG_STORETIME, {**queue, "queueId": 1})
    assert empty.ext == {"timestamp": "-1"}

    async def by_time(ms: int, **more: str) -> str:
        ext = {**queue, "timestamp": ms, **more}
        return (await peer.call(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, ext)).ext["offset"]

    assert await by_time(0) == "0"
    assert await by_time(stored[2] + 1000) == "3"
    assert await by_time(stored[0]) == "0"
    for upper in ("UPPER", "upper", "Upper"):
        assert await by_time(stored[2] + 1000, boundaryType=upper) == "2"
    for lower in ("LOWER", "lower", "middle", "", "ÜPPER"):
        assert await by_time(stored[2] + 1000, boundaryType=lower) == "3"


async def test_many_who_join_together_are_told_a_few_times(
    connect: Connect, broker: Broker
) -> None:
    first = await connect()
    await first.call(34, {}, heartbeat("0"))
    for number in range(1, 30):
        await (await connect()).call(34, {}, heartbeat(str(number)))
    group = broker.rocketmq.clients.registry.consumers("G")
    assert group is not None
    assert len(group.members) == 30
    await first.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)  # the one at once
    await first.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)  # and one for all the others
    assert len(first.unread) <= 8  # at most one a second, however slow the machine is
