"""What each request code is answered with by a member of a shard that is not its master."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from imago_broker.model.registry.cluster import Role
from imago_broker.processors.rocketmq.table import build_processors
from imago_broker.service.serving_rules import Asks
from imago_testing.clusters.roles import LEADER_PORT, OTHER_ROLES, lead_again, step_down
from imago_testing.peers.remoting import RemotingPeer, heartbeat, pull_ext, send_ext
from imago_wire.remoting.codes import RequestCode as Code
from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from imago_broker.app import Broker

    Connect = Callable[..., Awaitable[RemotingPeer]]

POPS = {
    Code.POP_MESSAGE,
    Code.PEEK_MESSAGE,
    Code.POP_LITE_MESSAGE,
    Code.LITE_SUBSCRIPTION_CTL,
    Code.NOTIFICATION,
    Code.POLLING_INFO,
    Code.ACK_MESSAGE,
    Code.BATCH_ACK_MESSAGE,
    Code.CHANGE_MESSAGE_INVISIBLETIME,
}
USERS = {
    Code.UPDATE_AND_CREATE_ACL_CONFIG,
    Code.DELETE_ACL_CONFIG,
    Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
    Code.AUTH_CREATE_USER,
    Code.AUTH_UPDATE_USER,
    Code.AUTH_DELETE_USER,
    Code.AUTH_CREATE_ACL,
    Code.AUTH_UPDATE_ACL,
    Code.AUTH_DELETE_ACL,
}
CHANGES = (
    POPS
    | USERS
    | {
        Code.SET_MESSAGE_REQUEST_MODE,
        Code.SEND_MESSAGE,
        Code.SEND_MESSAGE_V2,
        Code.SEND_BATCH_MESSAGE,
        Code.SEND_REPLY_MESSAGE,
        Code.SEND_REPLY_MESSAGE_V2,
        Code.RECALL_MESSAGE,
        Code.CONSUMER_SEND_MSG_BACK,
        Code.END_TRANSACTION,
        Code.RESUME_CHECK_HALF_MESSAGE,
        Code.IMAGO_STAGE_BATCH,
        Code.IMAGO_PUBLISH_STAGED,
        Code.UPDATE_CONSUMER_OFFSET,
        Code.LOCK_BATCH_MQ,
        Code.UNLOCK_BATCH_MQ,
        Code.UPDATE_AND_CREATE_TOPIC,
        Code.UPDATE_AND_CREATE_STATIC_TOPIC,
        Code.UPDATE_AND_CREATE_TOPIC_LIST,
        Code.DELETE_TOPIC_IN_BROKER,
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        Code.DELETE_SUBSCRIPTIONGROUP,
        Code.UPDATE_AND_GET_GROUP_FORBIDDEN,
        Code.CLONE_GROUP_OFFSET,
        Code.INVOKE_BROKER_TO_RESET_OFFSET,
    }
)
STATE = {
    Code.QUERY_CONSUMER_OFFSET,
    Code.GET_MAX_OFFSET,
    Code.GET_ALL_MESSAGE_REQUEST_MODE,
}
ENDS = {Code.END_TRANSACTION}
"""Has an answer of its own elsewhere."""
RECALLS = {Code.RECALL_MESSAGE}
"""Refused elsewhere with a code of their own."""
PULLS = {Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE}
MESSAGES = PULLS | {
    Code.GET_MIN_OFFSET,
    Code.SEARCH_OFFSET_BY_TIMESTAMP,
    Code.GET_EARLIEST_MSG_STORETIME,
}
MEMBER = {
    Code.HEART_BEAT,
    Code.UNREGISTER_CLIENT,
    Code.GET_CONSUMER_LIST_BY_GROUP,
    Code.CHECK_CLIENT_CONFIG,
    Code.QUERY_ASSIGNMENT,
    Code.VIEW_MESSAGE_BY_ID,
    Code.QUERY_MESSAGE,
    Code.GET_ALL_TOPIC_CONFIG,
    Code.GET_TOPIC_CONFIG,
    Code.GET_TOPIC_STATS_INFO,
    Code.QUERY_TOPIC_CONSUME_BY_WHO,
    Code.QUERY_CONSUME_TIME_SPAN,
    Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    Code.GET_SUBSCRIPTIONGROUP_CONFIG,
    Code.GET_CONSUMER_CONNECTION_LIST,
    Code.GET_PRODUCER_CONNECTION_LIST,
    Code.GET_ALL_PRODUCER_INFO,
    Code.QUERY_TOPICS_BY_CONSUMER,
    Code.QUERY_SUBSCRIPTION_BY_CONSUMER,
    Code.GET_CONSUME_STATS,
    Code.GET_BROKER_CONSUME_STATS,
    Code.GET_ALL_CONSUMER_OFFSET,
    Code.GET_ALL_DELAY_OFFSET,
    Code.QUERY_CORRECTION_OFFSET,
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
    Code.GET_CONSUMER_RUNNING_INFO,
    Code.CONSUME_MESSAGE_DIRECTLY,
    Code.GET_BROKER_CONFIG,
    Code.UPDATE_BROKER_CONFIG,
    Code.GET_BROKER_RUNTIME_INFO,
    Code.VIEW_BROKER_STATS_DATA,
    Code.QUERY_CONSUME_QUEUE,
    Code.CLEAN_EXPIRED_CONSUMEQUEUE,
    Code.CLEAN_UNUSED_TOPIC,
    Code.DELETE_EXPIRED_COMMITLOG,
    Code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
    Code.REMOVE_COLD_DATA_FLOW_CTR_CONFIG,
    Code.GET_COLD_DATA_FLOW_CTR_INFO,
    Code.SET_COMMITLOG_READ_MODE,
    Code.GET_BROKER_HA_STATUS,
    Code.EXCHANGE_BROKER_HA_INFO,
    Code.RESET_MASTER_FLUSH_OFFSET,
    Code.NOTIFY_MIN_BROKER_ID_CHANGE,
    Code.GET_TIMER_CHECK_POINT,
    Code.GET_TIMER_METRICS,
    Code.GET_BROKER_CLUSTER_ACL_INFO,
    Code.AUTH_GET_USER,
    Code.AUTH_LIST_USER,
    Code.AUTH_GET_ACL,
    Code.AUTH_LIST_ACL,
}
ELSEWHERE = (CHANGES | STATE | MESSAGES) - PULLS - ENDS - RECALLS - USERS
"""Changes of users are passed on to the master: see `tests/broker/access`."""
COLUMN = {
    Asks.CHANGE: CHANGES,
    Asks.STATE: STATE,
    Asks.MESSAGES: MESSAGES,
    Asks.MEMBER: MEMBER,
}


async def test_every_code_says_what_it_asks_of_a_member(broker: Broker) -> None:
    rows = build_processors(broker.rocketmq, asyncio.get_running_loop()).main.rows
    assert {code: row.asks for code, row in rows.items()} == {
        int(code): asks for asks, codes in COLUMN.items() for code in codes
    }


@pytest.mark.parametrize("role", OTHER_ROLES)
async def test_recalls_are_refused_elsewhere_in_the_original_s_words(
    broker: Broker, peer: RemotingPeer, role: Role
) -> None:
    step_down(broker, role)
    answer = await peer.call(Code.RECALL_MESSAGE, {"topic": "T", "recallHandle": "x"})
    assert answer.code == ResponseCode.SLAVE_NOT_AVAILABLE
    assert answer.remark == "recall failed, broker service not available"


async def test_what_is_promised_to_clients_waits_for_the_other_members(broker: Broker) -> None:
    rows = build_processors(broker.rocketmq, asyncio.get_running_loop()).main.rows
    sends = {
        Code.SEND_MESSAGE,
        Code.SEND_MESSAGE_V2,
        Code.SEND_BATCH_MESSAGE,
        Code.SEND_REPLY_MESSAGE,
        Code.SEND_REPLY_MESSAGE_V2,
        Code.RECALL_MESSAGE,
        Code.CONSUMER_SEND_MSG_BACK,
        Code.END_TRANSACTION,
        Code.RESUME_CHECK_HALF_MESSAGE,
        Code.IMAGO_STAGE_BATCH,
        Code.IMAGO_PUBLISH_STAGED,
    }  # wait as messages do, at the level of their topic
    unlock = {Code.UNLOCK_BATCH_MQ}  # a lock that comes back ends by itself
    # what is out by POP waits as well: see `PopService`
    wait = {code for code, row in rows.items() if row.replicated}
    told = {Code.QUERY_CONSUMER_OFFSET, Code.GET_ALL_MESSAGE_REQUEST_MODE}
    assert wait == (CHANGES - sends - unlock - POPS) | told


@pytest.mark.parametrize("role", OTHER_ROLES)
@pytest.mark.parametrize("code", sorted(ELSEWHERE))
async def test_master_s_business_is_not_available_elsewhere(
    broker: Broker, peer: RemotingPeer, role: Role, code: Code
) -> None:
    step_down(broker, role)
    end = broker.store.log_end
    ext = send_ext("T") if code in CHANGES else {}
    answer = await peer.call(code, ext, b"x")
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "not the master" in (answer.remark or "")
    assert (str(LEADER_PORT) in (answer.remark or "")) == (role is Role.SLAVE)
    assert broker.store.log_end == end


@pytest.mark.parametrize("role", OTHER_ROLES)
async def test_end_of_a_transaction_is_told_so_by_who_does_not_lead(
    broker: Broker, peer: RemotingPeer, role: Role
) -> None:
    step_down(broker, role)
    end = broker.store.log_end
    header = {"producerGroup": "P", "tranStateTableOffset": 0, "commitLogOffset": 0, "msgId": "u"}
    answer = await peer.call(Code.END_TRANSACTION, {**header, "commitOrRollback": 8})
    assert answer.code == ResponseCode.SLAVE_NOT_AVAILABLE
    assert answer.remark == "Message store is slave mode, so end transaction is forbidden"
    assert broker.store.log_end == end


@pytest.mark.parametrize("role", OTHER_ROLES)
@pytest.mark.parametrize("code", sorted(MEMBER))
async def test_every_member_shows_what_it_knows_and_changes_nothing(
    broker: Broker, peer: RemotingPeer, role: Role, code: Code
) -> None:
    step_down(broker, role)
    end = broker.store.log_end
    answer = await peer.call(code, {"topic": "T", "consumerGroup": "g", "group": "g"}, b"{}")
    assert answer.code != ResponseCode.SERVICE_NOT_AVAILABLE
    assert broker.store.log_end == end


async def test_heartbeats_are_taken_and_members_listed_without_making_groups(
    broker: Broker, peer: RemotingPeer
) -> None:
    step_down(broker)
    end = broker.store.log_end
    assert (await peer.call(Code.HEART_BEAT, body=heartbeat("new"))).code == ResponseCode.SUCCESS
    listed = await peer.call(Code.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "new"})
    assert b'"client"' in listed.body
    assert broker.store.log_end == end
    assert broker.groups.get("new") is None


@pytest.mark.parametrize("role", OTHER_ROLES)
@pytest.mark.parametrize("code", sorted(PULLS))
async def test_pull_is_sent_to_the_master_at_its_own_place(
    broker: Broker, peer: RemotingPeer, role: Role, code: Code
) -> None:
    await peer.put("T", b"m")
    step_down(broker, role)
    answer = await peer.call(code, pull_ext("T", 0, sysFlag=6, suspendTimeoutMillis=5000))
    assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert answer.ext["nextBeginOffset"] == "0"
    assert answer.ext["imagoNotMaster"] == "true"
    assert answer.ext["suggestWhichBrokerId"] in ({"0", "5"} if role is Role.SLAVE else {"0"})


async def test_clients_with_old_and_with_new_routes_reach_the_master(
    broker: Broker, peer: RemotingPeer
) -> None:
    step_down(broker)
    answers = [await peer.pull("T") for _ in range(64)]
    assert {answer.ext["suggestWhichBrokerId"] for answer in answers} == {"0", "5"}


async def test_held_pulls_are_answered_when_the_broker_steps_down(
    broker: Broker, peer: RemotingPeer
) -> None:
    await peer.put("T", b"m")
    held = peer.send(Code.PULL_MESSAGE, pull_ext("T", 1, sysFlag=6))
    await peer.pull("T")  # a connection's requests are served in their order
    step_down(broker)
    answer = await peer.answer(held)
    assert answer.ext["imagoNotMaster"] == "true"
    assert answer.ext["nextBeginOffset"] == "1"


async def test_slave_that_serves_reads_never_sends_a_consumer_back(
    broker: Broker, peer: RemotingPeer
) -> None:
    await peer.put("T", b"m")
    broker.serving_rules.slave_reads = True
    step_down(broker)
    end = broker.store.log_end
    found = await peer.call(11, pull_ext("T", 0, sysFlag=5, commitOffset=7))
    assert found.code == ResponseCode.SUCCESS
    assert broker.offsets.query("consumers", "T", 0) is None
    for beyond in (1, 500):
        answer = await peer.pull("T", beyond)
        assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert answer.ext["nextBeginOffset"] == str(beyond)
    assert broker.store.log_end == end
    assert (await peer.call(Code.GET_MIN_OFFSET, {"topic": "T", "queueId": 0})).code == 0


async def test_master_sends_those_who_read_old_records_to_a_slave(
    broker: Broker, peer: RemotingPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        await peer.put("T", bytes(1000))
    assert (await peer.pull("T")).ext["suggestWhichBrokerId"] == "0"
    broker.serving_rules.slave_reads = True
    broker.rocketmq.delivery.memory.bytes_max = 1
    assert (await peer.pull("T")).ext["suggestWhichBrokerId"] == "0", "there is no slave"
    slave = replace(broker.record(), uuid="other", replica=6, role=Role.SLAVE)
    view = broker.coordinator.view()
    changed = replace(view, brokers=(*view.brokers, slave))
    monkeypatch.setattr(broker.coordinator, "view", lambda: changed)
    assert (await peer.pull("T")).ext["suggestWhichBrokerId"] == "7"
    broker.rocketmq.delivery.memory.bytes_max = 1 << 30
    assert (await peer.pull("T")).ext["suggestWhichBrokerId"] == "0"


async def test_new_master_answers_reads_once_it_knows_what_readers_were_told(
    broker: Broker, peer: RemotingPeer
) -> None:
    await peer.put("T", b"m")
    broker.serving_rules.role.settled_at = broker.store.log_end + 1
    assert (await peer.pull("T", 500)).code == ResponseCode.PULL_RETRY_IMMEDIATELY
    asked = {"consumerGroup": "g", "topic": "T", "queueId": 0}
    answer = await peer.call(Code.QUERY_CONSUMER_OFFSET, asked)
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert (await peer.put("T", b"fills")).code == ResponseCode.SUCCESS
    assert (await peer.pull("T", 500)).code == ResponseCode.PULL_OFFSET_MOVED
    assert (await peer.call(Code.QUERY_CONSUMER_OFFSET, asked)).code == ResponseCode.SUCCESS


async def test_topic_and_offsets_are_confirmed_once_the_other_members_have_them(
    broker: Broker, peer: RemotingPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await peer.put("T", b"m")
    mark = broker.store.log_end
    monkeypatch.setattr(type(broker.store), "high_watermark", property(lambda _: mark))
    topic = {
        "topic": "New", "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1,
        "perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
    }  # fmt: skip
    waiting = peer.send(Code.UPDATE_AND_CREATE_TOPIC, topic)
    await peer.call(Code.GET_MAX_OFFSET, {"topic": "T", "queueId": 0})
    assert broker.topics.get("New") is not None
    assert not peer.unread
    mark = broker.store.log_end
    broker.messages.acknowledgements.progressed()
    assert (await peer.answer(waiting)).code == ResponseCode.SUCCESS


async def test_master_without_a_lease_tells_nothing_that_another_may_know_better(
    broker: Broker, peer: RemotingPeer
) -> None:
    await peer.put("T", b"m")
    broker.serving_rules.lease_holds = lambda: False
    asked = {"consumerGroup": "g", "topic": "T", "queueId": 0}
    answer = await peer.call(Code.QUERY_CONSUMER_OFFSET, asked)
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert (await peer.pull("T")).code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert (await peer.call(Code.HEART_BEAT, body=heartbeat("g"))).code == ResponseCode.SUCCESS


async def test_locks_are_kept_by_whoever_leads(broker: Broker, peer: RemotingPeer) -> None:
    await peer.put("T", b"m")

    async def lock(client: str, *queues: int, shard: str = "shard-0") -> set[int]:
        queue_list = [{"brokerName": shard, "topic": "T", "queueId": queue} for queue in queues]
        body = {"consumerGroup": "g", "clientId": client, "mqSet": queue_list}
        answer = await peer.call(Code.LOCK_BATCH_MQ, body=json.dumps(body).encode())
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return {one["queueId"] for one in json.loads(answer.body)["lockOKMQSet"]}

    assert await lock("one", 0, 1, 99) == {0, 1}, "there is no queue 99"
    assert await lock("one", 0, shard="shard-7") == set()
    end = broker.store.log_end
    assert await lock("one", 0, 1) == {0, 1}
    assert broker.store.log_end == end, "renewals are not written"
    step_down(broker)
    assert broker.rocketmq.clients.locks.lock("g", "two", [("shard-0", "T", 0)], now_ms=0)
    lead_again(broker)
    assert await lock("two", 0, 1, 2) == {2}
    assert await lock("one", 0, 1, 2) == {0, 1}
