"""What RocketMQ 5's tools ask beside topics and groups: slaves, forbidden topics, cold data."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from imago_broker.model.groups import GroupConfig
from imago_broker.model.registry.cluster import Role
from imago_broker.model.registry.shard import Member, ShardState
from imago_broker.processors.rocketmq.tools import admin_cold_data, admin_groups
from imago_testing.clusters.roles import LEADER_PORT, step_down
from imago_wire.remoting.codes import RequestCode as Code
from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    import pytest

    from imago_broker.app import Broker
    from imago_testing.peers.remoting import RemotingPeer


async def body_of(peer: RemotingPeer, code: int, ext: Any = None, body: bytes = b"") -> Any:
    answer = await peer.call(code, ext or {}, body)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return json.loads(answer.body)


async def test_group_is_kept_from_a_topic_until_it_may_read_it_again(
    peer: RemotingPeer, broker: Broker
) -> None:
    await peer.put("T", b"m")
    await peer.put("Other", b"m")
    asked = {"group": "consumers", "topic": "T"}
    said = await body_of(peer, Code.UPDATE_AND_GET_GROUP_FORBIDDEN, asked)
    assert said == {"group": "consumers", "topic": "T", "readable": True}
    forbid = {**asked, "readable": "false"}
    assert not (await body_of(peer, Code.UPDATE_AND_GET_GROUP_FORBIDDEN, forbid))["readable"]
    refused = await peer.pull("T")
    assert refused.code == ResponseCode.NO_PERMISSION
    assert refused.remark == "the consumer group[consumers] is forbidden for topic[T]"
    assert (await peer.pull("Other")).code == ResponseCode.SUCCESS
    # Other settings of the group leave it, and it is in the log.
    config = json.dumps({"groupName": "consumers", "retryMaxTimes": 3}).encode()
    assert (await peer.call(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, config)).code == 0
    table = await body_of(peer, Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    assert table["forbiddenTable"] == {"consumers": {"T": 4}}
    assert not (await body_of(peer, Code.UPDATE_AND_GET_GROUP_FORBIDDEN, asked))["readable"]
    stored = GroupConfig.from_json(broker.store.meta("group")["consumers"])
    assert (stored.forbidden_topics, stored.retry_max_times) == (("T",), 3)
    allow = {**asked, "readable": "true"}
    assert (await body_of(peer, Code.UPDATE_AND_GET_GROUP_FORBIDDEN, allow))["readable"]
    assert (await peer.pull("T")).code == ResponseCode.SUCCESS
    assert "forbidden_topics" not in broker.store.meta("group")["consumers"]


async def test_master_tells_which_followers_have_how_much_of_the_log(
    peer: RemotingPeer, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await peer.put("T", b"m")
    alone = await body_of(peer, Code.GET_BROKER_HA_STATUS)
    end = broker.store.log_end
    assert (alone["master"], alone["masterCommitLogMaxOffset"]) == (True, end)
    assert (alone["inSyncSlaveNums"], alone["haConnectionInfo"]) == (0, [])
    own = broker.record()
    follower = replace(own, uuid="f", replica=1, role=Role.SLAVE, host="10.0.0.7", replication=9)
    behind = replace(follower, uuid="g", replica=2, log_end=40)
    members = (Member("f", 1),)
    changed = replace(
        broker.coordinator.view(),
        brokers=(own, follower, behind),
        states={own.shard: ShardState(in_sync=members)},
    )
    monkeypatch.setattr(broker.coordinator, "view", lambda: changed)
    shown = await body_of(peer, Code.GET_BROKER_HA_STATUS)
    assert shown["inSyncSlaveNums"] == 1
    first, second = shown["haConnectionInfo"]
    assert (first["addr"], first["inSync"], first["diff"]) == ("10.0.0.7:9", True, 0)
    assert (second["inSync"], second["slaveAckOffset"]) == (False, 40)
    assert second["diff"] == end - 40


async def test_slave_tells_whom_it_follows(peer: RemotingPeer, broker: Broker) -> None:
    step_down(broker)
    shown = await body_of(peer, Code.GET_BROKER_HA_STATUS)
    client = shown["haClientRuntimeInfo"]
    assert not shown["master"]
    assert client["masterAddr"].endswith(f":{LEADER_PORT}")
    assert (client["activated"], client["maxOffset"]) == (True, broker.store.log_end)
    assert (await peer.call(Code.EXCHANGE_BROKER_HA_INFO)).ext.get("masterAddress") is None


async def test_what_original_slaves_ask(peer: RemotingPeer, broker: Broker) -> None:
    told = await peer.call(Code.EXCHANGE_BROKER_HA_INFO)
    assert told.ext["masterFlushOffset"] == str(broker.store.durable_end)
    assert told.ext["masterAddress"] == f"127.0.0.1:{broker.rocketmq_port}"
    assert "masterHaAddress" not in told.ext
    reset = {"masterFlushOffset": 0}
    assert (await peer.call(Code.RESET_MASTER_FLUSH_OFFSET, reset)).code == ResponseCode.SUCCESS
    assert (await peer.call(Code.RESET_MASTER_FLUSH_OFFSET)).code == ResponseCode.SYSTEM_ERROR
    smallest = {"minBrokerId": 0, "minBrokerAddr": "10.0.0.1:10911"}
    told = await peer.call(Code.NOTIFY_MIN_BROKER_ID_CHANGE, smallest)
    assert told.code == ResponseCode.SUCCESS
    for code, remark in (
        (Code.GET_TIMER_CHECK_POINT, "The checkpoint is null"),
        (Code.GET_TIMER_METRICS, "The timer message store is null"),
    ):
        answer = await peer.call(code)
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)


async def test_thresholds_of_cold_data_are_kept_and_shown(peer: RemotingPeer) -> None:
    for text in (b"G=1024\nH=2\n", b"G=2048\n", b""):
        answer = await peer.call(Code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, {}, text)
        assert answer.code == ResponseCode.SUCCESS
    for wrong in (b"G=x\n", b"bad name=1\n", b"#\n"):
        answer = await peer.call(Code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, {}, wrong)
        assert answer.code != ResponseCode.SUCCESS
    shown = await body_of(peer, Code.GET_COLD_DATA_FLOW_CTR_INFO)
    assert shown["configTable"] == {"G": 2048, "H": 2}
    assert (shown["runtimeTable"], shown["cgColdReadThreshold"]) == ({}, 3145728)
    for group in (b"H", b"unknown"):
        answer = await peer.call(Code.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, {}, group)
        assert answer.code == ResponseCode.SUCCESS
    shown = await body_of(peer, Code.GET_COLD_DATA_FLOW_CTR_INFO)
    assert shown["configTable"] == {"G": 2048}


async def test_read_ahead_mode_is_a_setting(peer: RemotingPeer) -> None:
    for mode, shown in (("1", "false"), ("0", "true")):
        answer = await peer.call(Code.SET_COMMITLOG_READ_MODE, {"READ_AHEAD_MODE": mode})
        assert answer.code == ResponseCode.SUCCESS
        assert answer.remark == f"set commitlog readahead mode success, mode: {mode}"
        text = (await peer.call(Code.GET_BROKER_CONFIG)).body.decode()
        assert f"dataReadAheadEnable={shown}\n" in text
    for ext, what in (({}, "param error"), ({"READ_AHEAD_MODE": "2"}, "param value error")):
        refused = await peer.call(Code.SET_COMMITLOG_READ_MODE, ext)
        assert refused.code == ResponseCode.INVALID_PARAMETER
        assert refused.remark == f"set commitlog readahead mode {what}"


async def test_thresholds_and_forbidden_topics_have_limits(
    peer: RemotingPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert admin_cold_data.GROUPS_MAX > 2
    monkeypatch.setattr(admin_cold_data, "GROUPS_MAX", 2)
    update = Code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG
    assert (await peer.call(update, body=b"a=1\nb=2\n")).code == ResponseCode.SUCCESS
    refused = await peer.call(update, body=b"b=3\nc=1\n")
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert refused.remark == "there are thresholds of 2 groups already"
    shown = await body_of(peer, Code.GET_COLD_DATA_FLOW_CTR_INFO)
    assert shown["configTable"] == {"a": 1, "b": 2}, "nothing of a refused request is kept"
    await peer.call(Code.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, body=b"a")
    assert (await peer.call(update, body=b"c=1\n")).code == ResponseCode.SUCCESS

    assert admin_groups.FORBIDDEN_TOPICS_MAX > 2
    monkeypatch.setattr(admin_groups, "FORBIDDEN_TOPICS_MAX", 2)

    async def forbid(topic: str, readable: str = "false") -> int:
        asked = {"group": "g", "topic": topic, "readable": readable}
        return (await peer.call(Code.UPDATE_AND_GET_GROUP_FORBIDDEN, asked)).code

    assert [await forbid(topic) for topic in ("t1", "t2", "t2")] == [0, 0, 0]
    assert await forbid("t3") == ResponseCode.INVALID_PARAMETER
    assert await forbid("t1", "true") == 0
    assert await forbid("t3") == 0
