"""Routes and lists of topics as pure functions of one snapshot."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from imago_broker.model.registry.cluster import (
    BrokerRecord,
    ClusterView,
    ForeignBroker,
    Role,
    ShardQueues,
    TopicPlacement,
)
from imago_broker.model.registry.shard import Member, ShardState
from imago_broker.namesrv import routes


def broker(shard: int, replica: int, role: Role = Role.MASTER) -> BrokerRecord:
    return BrokerRecord(
        shard=shard,
        uuid=f"{shard}-{replica}",
        host=f"10.0.{shard}.{replica}",
        metaq=8123,
        rocketmq=10911,
        fast=10909,
        replication=10912,
        admin=8080,
        broker_name=f"shard-{shard}",
        role=role,
        replica=replica,
    )


def topic(name: str, *shards: int, perm: int = 6, sys_flag: int = 0) -> TopicPlacement:
    return TopicPlacement(
        name=name, shards={k: ShardQueues(4, 8, perm) for k in shards}, sys_flag=sys_flag
    )


FOREIGN = ForeignBroker(
    cluster="Other",
    broker_name="broker-a",
    broker_id=0,
    address="10.9.9.9:10911",
    topics={"F": {"perm": 6, "readQueueNums": 3, "writeQueueNums": 2, "topicSysFlag": 2}},
)
VIEW = ClusterView(
    cluster="C",
    brokers=(broker(0, 0, Role.SLAVE), broker(0, 1), broker(1, 0)),
    topics={
        "both": topic("both", 0, 1),
        "one": topic("one", 1),
        "gone": topic("gone", 7),
        "unit": topic("unit", 0, sys_flag=1),
    },
    kv={"ORDER_TOPIC_CONFIG": {"both": "shard-0:4;shard-1:4"}},
    foreign=(FOREIGN,),
)


def route(name: str, view: ClusterView = VIEW, *, with_order: bool = False) -> Any:
    found = routes.route(view, name, with_order=with_order, acting_master=False)
    return None if found is None else json.loads(found.encode(standard=True))


def test_route_names_every_live_member_and_the_master_is_zero() -> None:
    found = route("both")
    assert [data["brokerName"] for data in found["brokerDatas"]] == ["shard-0", "shard-1"]
    assert found["brokerDatas"][0] == {
        "brokerAddrs": {"0": "10.0.0.1:10911", "1": "10.0.0.0:10911"},
        "brokerName": "shard-0",
        "cluster": "C",
    }
    assert found["queueDatas"][1] == {
        "brokerName": "shard-1",
        "perm": 6,
        "readQueueNums": 8,
        "topicSysFlag": 0,
        "writeQueueNums": 4,
    }
    assert found["filterServerTable"] == {}
    assert "orderTopicConf" not in found


def test_route_tells_clients_what_they_can_reach() -> None:
    told = replace(broker(0, 0), client_host="198.51.100.7", client_rocketmq=30011)
    view = replace(VIEW, brokers=(told,))
    assert route("both", view)["brokerDatas"][0]["brokerAddrs"] == {"0": "198.51.100.7:30011"}


def answer(answers: routes.Answers, view: ClusterView, name: str, **wanted: bool) -> bytes | None:
    flags = {"with_order": False, "acting_master": False, "standard": True, "placed": False}
    return answers.route(view, name, **(flags | wanted))


FLAGS = ("with_order", "acting_master", "standard", "placed")


def test_kept_answers_are_what_would_be_computed() -> None:
    answers = routes.Answers()
    for _ in range(2):
        for name in ("both", "one", "F", "gone"):
            for values in product([False, True], repeat=4):
                flags = dict(zip(FLAGS, values, strict=True))
                standard = flags["standard"]
                asked = {key: value for key, value in flags.items() if key != "standard"}
                found = routes.route(VIEW, name, **asked)
                expected = found and found.encode(standard=standard)
                assert answer(answers, VIEW, name, **flags) == expected


def test_kept_answers_go_with_the_view() -> None:
    answers, wiped = routes.Answers(), replace(VIEW, wiped=frozenset({"shard-0"}))
    before = answer(answers, VIEW, "both")
    after = answer(answers, wiped, "both")
    assert before != after == answer(routes.Answers(), wiped, "both")
    assert answer(answers, replace(VIEW, topics={}), "both") is None
    assert answer(answers, VIEW, "both") == before


def test_kept_answers_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "ANSWERS_MAX", 3)
    answers = routes.Answers()
    view = replace(VIEW, topics={name: topic(name, 0) for name in "abcdefgh"})
    for name in "abcdefgh" * 2:
        assert answer(answers, view, name) == answer(routes.Answers(), view, name)
        assert len(answers) <= 3
    assert answer(answers, view, "unknown") is None


def test_route_has_only_brokers_that_have_the_topic() -> None:
    assert [data["brokerName"] for data in route("one")["brokerDatas"]] == ["shard-1"]


@pytest.mark.parametrize("name", ["gone", "never", ""])
def test_topic_without_a_live_broker_has_no_route(name: str) -> None:
    assert route(name) is None


def test_wiped_broker_loses_its_write_permission_only() -> None:
    view = replace(VIEW, wiped=frozenset({"shard-0", "broker-a"}))
    assert [queue["perm"] for queue in route("both", view)["queueDatas"]] == [4, 6]
    assert [queue["perm"] for queue in route("F", view)["queueDatas"]] == [4]


def test_order_configuration_is_told_where_it_is_wanted() -> None:
    assert route("both", with_order=True)["orderTopicConf"] == "shard-0:4;shard-1:4"
    assert "orderTopicConf" not in route("one", with_order=True)


def test_foreign_broker_is_routed_like_our_own() -> None:
    found = route("F")
    assert found["brokerDatas"][0]["brokerAddrs"] == {"0": "10.9.9.9:10911"}
    assert found["brokerDatas"][0]["cluster"] == "Other"
    assert found["queueDatas"][0]["readQueueNums"] == 3


def test_shard_without_a_master_offers_its_slaves_only() -> None:
    view = replace(VIEW, brokers=(broker(0, 0, Role.SLAVE), broker(0, 1, Role.ELECTING)))
    assert route("both", view)["brokerDatas"][0]["brokerAddrs"] == {
        "1": "10.0.0.0:10911",
        "2": "10.0.0.1:10911",
    }


def test_lists_of_topics() -> None:
    assert set(routes.all_topics(VIEW).topic_list) == {"both", "one", "unit", "F"}
    assert set(routes.topics_of_cluster(VIEW, "C").topic_list) == {"both", "one", "unit"}
    assert routes.topics_of_cluster(VIEW, "Other").topic_list == ("F",)
    assert routes.topics_of_cluster(VIEW, "None").topic_list == ()
    assert routes.topics_by_flag(VIEW, routes.UNIT).topic_list == ("unit",)
    assert routes.topics_by_flag(VIEW, routes.UNIT_SUBSCRIPTION).topic_list == ("F",)
    system = routes.system_topics(VIEW)
    assert system.topic_list == ("C", "shard-0", "shard-1", "Other", "broker-a")
    assert system.broker_addr in ("10.0.0.0:10911", "10.0.0.1:10911")


def test_cluster_info_is_written_with_bare_broker_ids() -> None:
    encoded = routes.cluster_info(VIEW).encode().decode()
    assert '"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.0:10911"}' in encoded
    assert '"clusterAddrTable":{"C":["shard-0","shard-1"],"Other":["broker-a"]}' in encoded


def led_by(replica: int, *, incarnation: int = 0) -> ClusterView:
    """Three members of a shard whose registrations say nothing true of their roles."""
    leader = Member(f"0-{replica}", incarnation)
    state = ShardState(leader=leader, epoch=4, in_sync=(leader,))
    brokers = tuple(broker(0, number) for number in range(3))
    return replace(VIEW, brokers=brokers, states={0: state}, foreign=())


ADDRESSES = {
    0: {"0": "10.0.0.0:10911", "2": "10.0.0.1:10911", "3": "10.0.0.2:10911"},
    2: {"0": "10.0.0.2:10911", "1": "10.0.0.0:10911", "2": "10.0.0.1:10911"},
}


@pytest.mark.parametrize("leader", [0, 2])
def test_the_state_of_the_shard_says_who_is_zero_in_every_body(leader: int) -> None:
    view = led_by(leader)
    found = routes.route(view, "both", with_order=False, acting_master=False)
    members = routes.members(view, "shard-0")
    assert found
    assert members
    info = routes.cluster_info(view)
    standard = [json.loads(body.encode(standard=True)) for body in (found, info, members)]
    assert standard[0]["brokerDatas"][0]["brokerAddrs"] == ADDRESSES[leader]
    assert standard[1]["brokerAddrTable"]["shard-0"]["brokerAddrs"] == ADDRESSES[leader]
    assert standard[2]["brokerAddrs"] == ADDRESSES[leader]
    bare = ",".join(f'{number}:"{address}"' for number, address in ADDRESSES[leader].items())
    for body in (found, info, members):
        assert f'"brokerAddrs":{{{bare}}}' in body.encode().decode()


def test_a_leader_of_a_former_life_is_no_master() -> None:
    view = led_by(0, incarnation=7)
    assert view.master(0) is None
    assert set(routes.cluster_info(view).broker_addr_table["shard-0"].broker_addrs) == {1, 2, 3}


def test_our_clients_are_told_of_placed_queues_whose_shard_has_nobody() -> None:
    view = replace(VIEW, brokers=(replace(broker(0, 1), broker_name="eu-shard-0"),))
    assert [one["brokerName"] for one in route("both", view)["queueDatas"]] == ["eu-shard-0"]
    found = routes.route(view, "both", with_order=False, acting_master=False, placed=True)
    assert found is not None
    assert [one.broker_name for one in found.queue_datas] == ["eu-shard-0", "eu-shard-1"]
    assert [one.broker_name for one in found.broker_datas] == ["eu-shard-0"]
    gone = routes.route(VIEW, "gone", with_order=False, acting_master=False, placed=True)
    assert gone is not None
    assert (gone.broker_datas, [one.broker_name for one in gone.queue_datas]) == ((), ["shard-7"])
    answers = routes.Answers()
    assert answer(answers, view, "both") != answer(answers, view, "both", placed=True)
