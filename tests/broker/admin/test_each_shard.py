"""One topic, one group and all members as every shard shows them, asked of one broker."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.admin.resources import each_shard
from imago_broker.model.groups import GroupConfig
from imago_broker.shard_work.calls import FORWARDED
from imago_log.lifecycle.forced import ForcedRange
from imago_testing.clusters.shard_pair import Pair, eventually, make, put
from imago_testing.peers.remoting import RemotingPeer, heartbeat
from imago_wire.remoting.bodies.client import ConsumerRunningInfo, MessageQueue
from imago_wire.remoting.codes import RequestCode
from imago_wire.remoting.command import RemotingCommand
from imago_wire.remoting.frame import encode_frame
from imago_wire.remoting.peer import version_name

if TYPE_CHECKING:
    from imago_testing.peers.admin import Admin


async def shown(admin: Admin, what: str) -> dict[str, Any]:
    status, body = await admin.call("GET", f"/admin/v1/cluster/{what}")
    assert status == 200, body
    return dict(body)


async def on_both(pair: Pair, topic: str) -> None:
    """Make a topic with a message on both shards, and wait until both know of both."""
    for admin in (pair.one, pair.two):
        make(admin, topic)
        await put(admin, topic)
    coordinators = [admin.broker.coordinator for admin in (pair.one, pair.two)]
    await eventually(lambda: all(len(c.view().topics[topic].shards) == 2 for c in coordinators))


async def test_a_topic_is_shown_as_each_shard_has_it_with_who_reads_it(pair: Pair) -> None:
    await on_both(pair, "orders")
    pair.one.broker.offsets.commit("billing", "orders", 0, 0)
    pair.two.broker.offsets.commit("audit", "orders", 0, 1)
    for admin in (pair.one, pair.two):
        body = await shown(admin, "topics/orders")
        assert body["missing"] == []
        one, two = body["items"]
        assert (one["shard"], one["groups"]) == ("shard-0", ["billing"])
        assert (two["shard"], two["groups"]) == ("shard-1", ["audit"])
        assert [queue["maxOffset"] for queue in two["queues"]] == [1, 0]


async def test_a_group_is_shown_as_each_shard_knows_it(pair: Pair) -> None:
    await on_both(pair, "orders")
    pair.one.broker.groups.update(GroupConfig(name="billing", retry_max_times=3))
    pair.two.broker.offsets.commit("billing", "orders", 0, 0)
    peer = await RemotingPeer.connect(pair.two.broker.rocketmq_port)
    await peer.call(RequestCode.HEART_BEAT, {}, heartbeat("billing"))
    one, two = (await shown(pair.one, "groups/billing"))["items"]
    assert (one["shard"], one["retry_max_times"], one["subscribed"]) == ("shard-0", 3, [])
    assert two["subscribed"] == ["T"]
    (member,) = two["members"]
    assert member["versionName"] == version_name(member["version"])
    assert two["topics"]["orders"] == [{"queue": 0, "offset": 0, "end": 1, "lag": 1, "gone": False}]
    await peer.close()


async def test_queues_that_a_topic_has_no_longer_are_marked(pair: Pair) -> None:
    make(pair.one, "orders")
    for topic, queue in (("orders", 0), ("orders", 7), ("deleted", 0), ("%LMQ%light", 0)):
        pair.one.broker.offsets.commit("billing", topic, queue, 0)
    (shard,) = (await shown(pair.two, "groups/billing"))["items"]
    gone = {t: [q["queue"] for q in of if q["gone"]] for t, of in shard["topics"].items()}
    assert gone == {"orders": [7], "deleted": [0], "%LMQ%light": []}


async def test_what_no_shard_has_is_not_found(pair: Pair) -> None:
    make(pair.two, "orders")
    await eventually(lambda: "orders" in pair.one.broker.coordinator.view().topics)
    status, body = await pair.one.call("GET", "/admin/v1/cluster/topics/order")
    assert (status, body["error"]) == (404, "topic_not_found")
    assert "on any shard" in body["message"]
    assert "orders" in body["cure"]
    status, body = await pair.one.call("GET", "/admin/v1/cluster/groups/nobody")
    assert (status, body["error"]) == (404, "group_not_found")


async def test_a_shard_that_does_not_answer_is_named_and_not_taken_for_empty(pair: Pair) -> None:
    await on_both(pair, "orders")
    make(pair.two, "there")
    await eventually(lambda: "there" in pair.one.broker.coordinator.view().topics)
    await pair.two.broker.ports.admin.stop()
    for what, items in (("topics/orders", 1), ("topics/there", 0), ("groups/nobody", 0)):
        body = await shown(pair.one, what)
        assert [each["shard"] for each in body["missing"]] == ["shard-1"], what
        assert len(body["items"]) == items, what
    body = await shown(pair.one, "topics?counts=true&contains=r&sort=-queues")
    assert {each["name"]: each["messages"] for each in body["items"]} == {"orders": 1, "there": 0}
    assert [each["shard"] for each in body["missing"]] == ["shard-1"]
    body = await shown(pair.one, "brokers")
    assert [each["shard"] for each in body["items"]] == ["shard-0"]
    (missing,) = body["missing"]
    assert "shard-1: its member at" in missing["why"]


async def test_what_went_for_want_of_room_is_shown_of_each_shard(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    await on_both(pair, "orders")
    went = ForcedRange(0, 4096, 7, 12)
    monkeypatch.setattr(pair.two.broker.store.forced, "newest", lambda: went)
    for admin in (pair.one, pair.two):
        _, body = await admin.call("GET", "/admin/v1/cluster")
        assert [shard["deletedForRoom"] for shard in body["shards"]] == [
            None,
            {"from": 0, "to": 4096, "messages": 12, "at": 7},
        ]


async def test_messages_of_topics_are_counted_on_all_shards(pair: Pair) -> None:
    await on_both(pair, "orders")
    make(pair.one, "other", 7)
    await eventually(lambda: "other" in pair.two.broker.coordinator.view().topics)
    body = await shown(pair.two, "topics?counts=true&sort=-queues&contains=O")
    assert [(each["name"], each["messages"]) for each in body["items"]] == [
        ("other", 0),
        ("orders", 2),
    ]
    assert body["total"] == 2
    assert "messages" not in (await shown(pair.two, "topics"))["items"][0]


async def test_topics_are_sorted_by_the_messages_of_all_shards(pair: Pair) -> None:
    await on_both(pair, "orders")
    make(pair.one, "empty")
    make(pair.two, "bills")
    await put(pair.two, "bills")
    await eventually(lambda: "bills" in pair.one.broker.coordinator.view().topics)
    for query, names in (
        ("sort=-messages", ["orders", "bills", "empty"]),
        ("sort=messages&limit=2", ["empty", "bills"]),
        ("sort=messages&next=2", ["orders"]),
        ("sort=-messages&contains=s", ["orders", "bills"]),
    ):
        body = await shown(pair.one, f"topics?{query}")
        assert [each["name"] for each in body["items"]] == names, query
        assert all("messages" in each for each in body["items"])


async def test_groups_are_sorted_by_what_all_shards_know(pair: Pair) -> None:
    await on_both(pair, "orders")
    for admin in (pair.one, pair.two):
        admin.broker.offsets.commit("behind", "orders", 0, 0)
    pair.one.broker.offsets.commit("late", "orders", 0, 0)
    pair.two.broker.offsets.commit("done", "orders", 0, 1)
    peer = await RemotingPeer.connect(pair.two.broker.rocketmq_port)
    await peer.call(RequestCode.HEART_BEAT, {}, heartbeat("done"))
    for query, names in (
        ("sort=-lag", ["behind", "late", "done"]),
        ("sort=-lag&limit=1&next=1", ["late"]),
        ("sort=-members&limit=1", ["done"]),
        ("sort=-name", ["late", "done", "behind"]),
        ("sort=name", ["behind", "done", "late"]),
    ):
        body = await shown(pair.one, f"groups?{query}")
        assert [each["name"] for each in body["items"]] == names, query
    assert (await shown(pair.one, "groups?sort=lag&limit=1"))["total"] == 3
    status, error = await pair.one.call("GET", "/admin/v1/cluster/groups?sort=size")
    assert (status, error["cure"]) == (
        400,
        "Send one of name, lag, members, retries, or - before it.",
    )
    await peer.close()


async def test_every_member_says_how_it_is(pair: Pair) -> None:
    body = await shown(pair.two, "brokers")
    assert [(each["shard"], each["role"]) for each in body["items"]] == [
        ("shard-0", "master"),
        ("shard-1", "master"),
    ]
    assert body["missing"] == []


async def test_groups_are_found_by_a_part_of_their_name(pair: Pair) -> None:
    pair.one.broker.groups.update(GroupConfig(name="billing"))
    pair.two.broker.groups.update(GroupConfig(name="BILLS"))
    pair.two.broker.groups.update(GroupConfig(name="other"))
    body = await shown(pair.one, "groups?contains=bill")
    assert [each["name"] for each in body["items"]] == ["BILLS", "billing"]


async def test_the_newest_messages_are_those_of_all_shards(pair: Pair) -> None:
    await on_both(pair, "orders")
    await put(pair.two, "orders")
    path = "/admin/v1/messages?topic=orders&newest=true"
    _, body = await pair.one.call("GET", path)
    assert [(each["shard"], each["offset"]) for each in body["items"]] == [
        ("shard-0", 0),
        ("shard-1", 0),
        ("shard-1", 1),
    ]
    _, body = await pair.one.call("GET", f"{path}&limit=1&body=base64")
    (last,) = body["items"]
    assert (last["shard"], last["offset"], last["body"]) == ("shard-1", 1, "eA==")
    status, error = await pair.one.call("GET", f"{path}&limit=2&body=base64")
    assert (status, error["cure"]) == (400, "Send limit=1 with it."), "each may inflate to 4 MiB"
    _, body = await pair.one.call("GET", f"{path}&shard=0")
    assert [each["shard"] for each in body["items"]] == ["shard-0"]


async def test_who_no_longer_leads_tells_the_asker_so(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty list would be taken for a shard that has neither this topic nor this group."""
    await on_both(pair, "orders")
    monkeypatch.setattr(each_shard, "leads", lambda _services: False)
    for what in ("topics/orders", "groups/billing"):
        path = f"/admin/v1/cluster/{what}"
        status, body = await pair.two.call("GET", path, **{FORWARDED: "shard-0"})
        assert (status, body["error"]) == (503, "no_master")


@pytest.mark.parametrize("tells", ["queue 0", "nothing", "another answer"])
async def test_a_group_that_is_behind_shows_which_member_reads_which_queue(
    pair: Pair, tells: str
) -> None:
    await on_both(pair, "T")
    broker = pair.one.broker
    for queue in (0, 1):
        broker.offsets.commit("billing", "T", queue, 0)
    assert not (await shown(pair.one, "groups/billing"))["items"][0].get("reader")
    peer = await RemotingPeer.connect(broker.rocketmq_port)
    await peer.call(RequestCode.HEART_BEAT, {}, heartbeat("billing"))
    looking = asyncio.create_task(shown(pair.two, "groups/billing"))
    if tells != "nothing":
        asked = await peer.request(RequestCode.GET_CONSUMER_RUNNING_INFO)
        own = MessageQueue("T", broker.config.broker_name, 0)
        other = MessageQueue("T", "another", 1)
        info = ConsumerRunningInfo(mq_table={own: {}, other: {}})
        body = info.encode() if tells == "queue 0" else b"{"
        peer.write(encode_frame(RemotingCommand(0, flag=1, opaque=asked.opaque, body=body)))
    item = (await looking)["items"][0]
    assert item["readers_told"] is (tells == "queue 0")
    readers = [queue.get("reader", "not told") for queue in item["topics"]["T"]]
    assert readers == (["client", None] if tells == "queue 0" else ["not told"] * 2)
    await peer.close()
