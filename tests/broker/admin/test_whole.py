"""Lists of the whole cluster, asked of one broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.admin.whole import together
from imago_broker.cluster.coordinator import TreeCoordinator
from imago_broker.cluster.tree import Create
from imago_broker.model.groups import GroupConfig
from imago_testing.clusters.shard_pair import Pair, eventually, make, put
from imago_testing.peers.remoting import RemotingPeer, heartbeat
from imago_wire.remoting.codes import RequestCode

if TYPE_CHECKING:
    from imago_testing.peers.admin import Admin


async def listed(admin: Admin, what: str, query: str = "") -> dict[str, Any]:
    status, body = await admin.call("GET", f"/admin/v1/cluster/{what}{query}")
    assert status == 200, body
    return dict(body)


async def test_topics_of_all_shards_are_in_one_list(pair: Pair) -> None:
    make(pair.one, "orders", 3, attributes={"acknowledgement": "leader-fsync"})
    make(pair.two, "orders", 4, attributes={"acknowledgement": "leader-fsync"})
    make(pair.two, "other", order=True, attributes={"dialects": "rocketmq"})
    await eventually(lambda: "other" in pair.one.broker.coordinator.view().topics)
    await eventually(lambda: len(pair.one.broker.coordinator.view().topics["orders"].shards) == 2)
    body = await listed(pair.one, "topics")
    assert body == {
        "items": [
            {
                "name": "orders",
                "order": False,
                "dialects": "metaq,rocketmq",
                "attributes": {"acknowledgement": "leader-fsync"},
                "shards": [shard(0, 3), shard(1, 4)],
            },
            {
                "name": "other",
                "order": True,
                "dialects": "rocketmq",
                "attributes": {"dialects": "rocketmq"},
                "shards": [shard(1, 2)],
            },
        ],
        "next": None,
        "zooKeeperConnected": True,
    }
    assert (await listed(pair.one, "topics", "?limit=1"))["next"] == "other"
    names = {t["name"] for t in (await listed(pair.two, "topics", "?system=true"))["items"]}
    assert {"orders", "other", "TBW102"} <= names


def shard(number: int, queues: int) -> dict[str, object]:
    both = {"writeQueues": queues, "readQueues": queues}
    return {"id": number, **both, "perm": 6, "online": True}


async def test_a_group_is_the_sum_of_what_all_shards_know(pair: Pair) -> None:
    make(pair.one, "orders")
    make(pair.two, "orders")
    pair.two.broker.groups.update(GroupConfig(name="billing", retry_max_times=3))
    for admin in (pair.one, pair.two):
        await put(admin, "orders")
        admin.broker.offsets.commit("billing", "orders", 0, 0)
    pair.one.broker.offsets.commit("done", "orders", 0, 1)
    body = await listed(pair.one, "groups")
    assert (body["missing"], body["next"]) == ([], None)
    billing, done = body["items"]
    assert (billing["name"], billing["members"]) == ("billing", [])
    assert billing["settings"]["retry_max_times"] == 3
    assert billing["topics"]["orders"]["lag"] == 2
    now_ms = pair.one.broker.clock.epoch_ms()
    assert now_ms - 60_000 < billing["topics"]["orders"]["oldest"] <= now_ms
    assert done == {
        "name": "done",
        "settings": None,
        "members": [],
        "topics": {"orders": {"lag": 0, "oldest": None}},
    }
    assert (await listed(pair.one, "groups", "?limit=1"))["next"] == "done"
    named = await listed(pair.one, "groups", "?group=done&group=nobody")
    assert [item["name"] for item in named["items"]] == ["done"]


async def test_a_shard_that_does_not_answer_is_named(pair: Pair) -> None:
    pair.one.broker.offsets.commit("billing", "orders", 0, 0)
    await pair.two.broker.ports.admin.stop()
    body = await listed(pair.one, "groups")
    assert body["missing"] == ["shard-1"]
    assert [item["name"] for item in body["items"]] == ["billing"]


async def consume_by_metaq(pair: Pair, group: str, **positions: int) -> None:
    """Have MetaQ's tree say how far a group is in `orders`: `b0_0` is partition 0 of shard 0."""
    coordinator = pair.one.broker.coordinator
    assert isinstance(coordinator, TreeCoordinator)
    tree, root = coordinator._tree, f"/meta/consumers/{group}"
    parents = ("/meta/consumers", root, f"{root}/ids", f"{root}/offsets", f"{root}/offsets/orders")
    for path in parents:
        if await tree.get(path) is None:
            await tree.commit([Create(path)])
    for name, position in positions.items():
        node = name.removeprefix("b").replace("_", "-")
        await tree.commit([Create(f"{root}/offsets/orders/{node}", f"-77-{position}".encode())])


async def test_what_metaqs_consumers_have_not_read_is_told_of_groups_that_are_named(
    pair: Pair,
) -> None:
    for admin in (pair.one, pair.two):
        make(admin, "orders")
        await put(admin, "orders")
        await put(admin, "orders")
    _, topic = await pair.two.call("GET", "/admin/v1/topics/orders")
    end = topic["queues"][0]["maxPosition"]
    await consume_by_metaq(pair, "old", b0_0=0, b1_0=end, b1_1=0)
    pair.one.broker.groups.update(GroupConfig(name="old"))
    body = await listed(pair.one, "groups", "?group=old&group=nobody&metaq=true")
    (old,) = body["items"]
    assert old["topics"] == {}
    assert old["metaq"]["members"] == []
    assert old["metaq"]["topics"]["orders"]["lag"] == 2
    assert old["metaq"]["topics"]["orders"]["oldest"] > 0
    assert "metaq" not in (await listed(pair.one, "groups", "?group=old"))["items"][0]


async def test_a_group_of_metaqs_consumers_alone_is_told_by_any_broker(pair: Pair) -> None:
    make(pair.one, "orders")
    await consume_by_metaq(pair, "old", b0_0=0)
    coordinator = pair.one.broker.coordinator
    assert isinstance(coordinator, TreeCoordinator)
    await coordinator._tree.commit([Create("/meta/consumers/old/ids/host-1", b"orders")])
    for admin in (pair.one, pair.two):
        (old,) = (await listed(admin, "groups", "?group=old&metaq=true"))["items"]
        assert old == {
            "name": "old",
            "settings": None,
            "members": [],
            "topics": {},
            "metaq": {"members": ["host-1"], "topics": {"orders": lag(0, None)}},
        }


async def test_groups_that_only_metaqs_consumers_have_are_listed_with_the_others(
    pair: Pair,
) -> None:
    make(pair.one, "orders")
    await put(pair.one, "orders")
    await consume_by_metaq(pair, "old", b0_0=0)
    await consume_by_metaq(pair, "billing", b0_0=0)
    pair.two.broker.groups.update(GroupConfig(name="billing"))
    pair.two.broker.groups.update(GroupConfig(name="young"))
    for admin in (pair.one, pair.two):
        items = (await listed(admin, "groups", "?metaq=true"))["items"]
        assert [item["name"] for item in items] == ["billing", "old", "young"]
        unread = [item["metaq"]["topics"]["orders"]["lag"] for item in items[:2]]
        assert unread == [1, 1]
        page = await listed(admin, "groups", "?metaq=true&limit=1&next=c")
        assert ([item["name"] for item in page["items"]], page["next"]) == (["old"], "young")
        assert [item["name"] for item in (await listed(admin, "groups"))["items"]] == [
            "billing",
            "young",
        ]


async def test_names_that_no_group_has_are_not_looked_for(pair: Pair) -> None:
    body = await listed(pair.one, "groups", "?group=a/../b&group=/meta&metaq=true")
    assert (body["items"], body["missing"]) == ([], [])


def test_members_and_lags_of_two_shards_are_put_together() -> None:
    one = {"name": "g", "settings": None, "members": ["a"], "topics": {"t": lag(1, 50)}}
    two = {
        "name": "g",
        "settings": {"name": "g"},
        "members": ["a", "b"],
        "topics": {"t": lag(2, 40), "u": lag(0, None)},
    }
    both = together(one, two)
    assert sorted(both["members"]) == ["a", "b"]
    assert both["settings"] == {"name": "g"}
    assert both["topics"] == {"t": lag(3, 40), "u": lag(0, None)}


def lag(messages: int, oldest: int | None) -> dict[str, object]:
    return {"lag": messages, "oldest": oldest}


async def test_offsets_are_set_on_the_shards_that_have_the_topic(pair: Pair) -> None:
    make(pair.two, "orders", 2)
    await put(pair.two, "orders")
    await eventually(lambda: "orders" in pair.one.broker.coordinator.view().topics)
    path = "/admin/v1/groups/billing/reset"
    body = {"topic": "orders", "to": "latest", "whenEmpty": True}
    status, answer = await pair.one.call("POST", path, body)
    assert (status, answer["offsets"], answer["shards"]) == (200, {}, {"shard-1": "ok"}), answer
    assert pair.two.broker.offsets.of_group("billing") == {"orders": {0: 1, 1: 0}}
    status, answer = await pair.one.call("POST", path, body | {"topic": "unknown"})
    assert (status, answer["error"]) == (404, "topic_not_found")
    status, answer = await pair.one.call("POST", path, body | {"to": {"0": 0}})
    assert (status, answer["error"]) == (404, "topic_not_found"), "single queues are ours alone"


@pytest.mark.parametrize("asked", [0, 1])
async def test_offsets_stay_while_somebody_consumes(pair: Pair, asked: int) -> None:
    admin = (pair.one, pair.two)[asked]
    make(pair.one, "orders")
    make(pair.two, "orders")
    peer = await RemotingPeer.connect(admin.broker.rocketmq_port)
    beat = await peer.call(RequestCode.HEART_BEAT, {}, heartbeat("billing"))
    assert beat.code == 0
    path = "/admin/v1/groups/billing/reset"
    body = {"topic": "orders", "to": "latest", "whenEmpty": True}
    status, answer = await admin.call("POST", path, body)
    assert (status, answer["error"]) == (409, "group_active")
    assert "has members here (1)" in answer["message"]
    assert admin.broker.offsets.of_group("billing") == {}
    await peer.close()
    await eventually(lambda: not admin.broker.rocketmq.clients.registry.consumers("billing"))
    status, answer = await admin.call("POST", path, body)
    assert status == 200, answer
