"""Lists of the whole cluster, asked of one broker."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from imago_broker.admin import message_ids
from imago_broker.admin.resources.cluster_lists import together
from imago_broker.cluster.coordinator import TreeCoordinator
from imago_broker.cluster.tree import Create
from imago_broker.model.groups import GroupConfig
from imago_testing.clusters.shard_pair import Pair, eventually, make, put
from imago_testing.kubernetes.scalers import at, triggers
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
        "missing": [],
    }
    assert (await listed(pair.one, "topics", "?limit=1"))["next"] == "other"
    names = {t["name"] for t in (await listed(pair.two, "topics", "?system=true"))["items"]}
    assert {"orders", "other", "TBW102"} <= names
    own = {t["name"] for t in (await listed(pair.two, "topics", "?system=only"))["items"]}
    assert own == names - {"orders", "other"}


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


async def test_an_autoscaler_finds_the_lag_where_the_page_says(pair: Pair) -> None:
    """KEDA reads one number, of a group that is known; of another there is none, and no 0."""
    trigger = triggers()["metrics-api"]
    asked = urlsplit(trigger["url"])
    for admin in (pair.one, pair.two):
        make(admin, "orders")
        await put(admin, "orders")
        admin.broker.offsets.commit("billing", "orders", 0, 0)
    status, body = await pair.one.call("GET", f"{asked.path}?{asked.query}")
    assert (status, at(body, trigger["valueLocation"])) == (200, 2)
    _, body = await pair.one.call("GET", f"{asked.path}?group=nobody")
    with pytest.raises(IndexError):
        at(body, trigger["valueLocation"])


async def test_a_shard_that_does_not_answer_is_named(pair: Pair) -> None:
    pair.one.broker.offsets.commit("billing", "orders", 0, 0)
    await pair.two.broker.ports.admin.stop()
    body = await listed(pair.one, "groups")
    (missing,) = body["missing"]
    assert (missing["shard"], missing["since"]) == ("shard-1", None)
    assert "does not answer: ClientConnectorError" in missing["why"]
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
    assert (status, answer["error"]) == (404, "group_not_found")
    pair.two.broker.groups.update(GroupConfig(name="billing"))
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


async def test_a_shard_that_there_is_not_is_said_to_be_none(pair: Pair) -> None:
    make(pair.one, "orders", 2)
    calls = [
        ("POST", "/admin/v1/shards/9/cordon", {}),
        ("POST", "/admin/v1/shards/9/uncordon", {}),
        ("POST", "/admin/v1/shards/9/drain", {}),
        ("POST", "/admin/v1/shards/9/undrain", {}),
        ("GET", "/admin/v1/shards/9/remaining", None),
        ("POST", "/admin/v1/shards/9/drained", {}),
        ("POST", "/admin/v1/topics/orders/seal", {"from": "shard-9"}),
        ("POST", "/admin/v1/topics/orders/move", {"from": 9, "to": "any"}),
    ]
    for method, path, body in calls:
        status, answer = await pair.one.call(method, path, body)
        assert (status, answer["error"]) == (404, "shard_not_found"), (path, answer)
        assert answer["message"] == "There is no shard 9."
        assert answer["cure"] == "One of shard-0, shard-1."


async def test_queues_that_nobody_reads_are_refused_before_any_shard_is_asked(pair: Pair) -> None:
    make(pair.two, "theirs", 4)
    await eventually(lambda: "theirs" in pair.one.broker.coordinator.view().topics)
    wrong: dict[str, object] = {"writeQueues": 8, "readQueues": 2}
    for name, said in (("new", wrong | {"shards": ["shard-1"]}), ("theirs", wrong)):
        status, answer = await pair.one.call("PUT", f"/admin/v1/topics/{name}", said)
        assert (status, "read by nobody" in answer["message"]) == (400, True), answer
    theirs = pair.two.broker.topics.get("theirs")
    assert theirs is not None
    assert theirs.read_queues == 4
    assert pair.two.broker.topics.get("new") is None


async def test_a_shard_without_a_master_is_missing_until_it_is_drained(pair: Pair) -> None:
    make(pair.one, "orders", 1)
    await pair.two.broker.stop()
    await eventually(lambda: pair.one.broker.coordinator.view().away() == (1,))
    since = set()
    for what in ("topics", "groups"):
        (missing,) = (await listed(pair.one, what))["missing"]
        since.add(missing["since"])
        assert missing["shard"] == "shard-1"
        assert missing["why"].startswith("shard-1 has no live member; it waits for one of its")
    (first_seen,) = since
    assert 0 < first_seen <= pair.one.broker.clock.epoch_ms()
    view = pair.one.broker.coordinator.view()
    assert replace(view, drained=frozenset({1})).away() == ()


async def test_a_message_is_found_by_each_of_its_ids_at_any_broker(pair: Pair) -> None:
    unique = "7F000001" + "0A" * 12
    for admin in (pair.one, pair.two):
        make(admin, "orders", 1)
        await put(admin, "orders")
    await put(pair.two, "orders", f"UNIQ_KEY\x01{unique}\x02KEYS\x01k\x02")
    _, found = await pair.two.call("GET", "/admin/v1/messages?topic=orders&queue=0&offset=1")
    (wanted,) = found["items"]
    assert (wanted["uniqueId"], wanted["shard"]) == (unique, "shard-1")
    ways = [f"id={wanted['id']}", f"id={unique}", f"id={unique.lower()}", "topic=orders&key=k"]
    for admin in (pair.one, pair.two):
        for way in ways:
            status, answer = await admin.call("GET", f"/admin/v1/messages?{way}")
            assert (status, answer) == (200, {"items": [wanted], "next": None, "missing": []}), way
        path = "/admin/v1/messages?topic=orders&shard=1&queue=0&offset=1"
        assert (await admin.call("GET", path))[1]["items"] == [wanted]
    other = f"{wanted['id'][:-1]}{'1' if wanted['id'][-1] == '0' else '0'}"
    status, answer = await pair.one.call("GET", f"/admin/v1/messages?id={other}")
    assert (status, answer["items"]) == (200, [])


async def test_an_id_is_the_message_of_the_shard_that_stored_it(pair: Pair) -> None:
    for admin in (pair.one, pair.two):
        make(admin, "orders", 1)
        await put(admin, "orders")
    ids = []
    for admin in (pair.one, pair.two):
        _, found = await admin.call("GET", "/admin/v1/messages?topic=orders&queue=0")
        ids.append(found["items"][0]["id"])
    for number, each in enumerate(ids):
        _, found = await pair.one.call("GET", f"/admin/v1/messages?id={each}")
        assert [item["shard"] for item in found["items"]] == [f"shard-{number}"]


async def test_a_group_with_members_is_not_deleted(pair: Pair) -> None:
    make(pair.two, "orders")
    pair.two.broker.groups.update(GroupConfig(name="billing"))
    peer = await RemotingPeer.connect(pair.two.broker.rocketmq_port)
    await peer.call(RequestCode.HEART_BEAT, {}, body=heartbeat("billing"))
    status, error = await pair.one.call("DELETE", "/admin/v1/groups/billing")
    assert (status, error["error"]) == (409, "group_active")
    assert "client" in error["message"]
    assert pair.two.broker.groups.get("billing") is not None
    status, _ = await pair.one.call("DELETE", "/admin/v1/groups/billing?force=true")
    assert status == 200
    assert pair.two.broker.groups.get("billing") is None
    await peer.close()


async def test_a_reset_that_makes_a_group_makes_it_for_every_list(pair: Pair) -> None:
    for admin in (pair.one, pair.two):
        make(admin, "orders", 1)
    await eventually(lambda: "orders" in pair.one.broker.coordinator.view().topics)
    await eventually(lambda: len(pair.one.broker.coordinator.view().topics["orders"].shards) == 2)
    body = {"topic": "orders", "to": "latest", "create": True}
    assert (await pair.one.call("POST", "/admin/v1/groups/later/reset", body))[0] == 200
    for admin in (pair.one, pair.two):
        assert admin.broker.groups.get("later") is not None
    (later,) = (await listed(pair.one, "groups"))["items"]
    assert later["settings"]["name"] == "later"


async def test_of_a_send_that_was_repeated_the_newest_copies_are_found(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(pair.one, "orders", 1)
    unique = "7F000001" + "0B" * 12
    for _ in range(3):
        await put(pair.one, "orders", f"UNIQ_KEY\x01{unique}\x02")
    path = f"/admin/v1/messages?id={unique}"
    assert len((await pair.two.call("GET", path))[1]["items"]) == 3
    monkeypatch.setattr(message_ids, "COPIES_MAX", 2)
    found = (await pair.two.call("GET", path))[1]["items"]
    assert [item["offset"] for item in found] == [1, 2]
