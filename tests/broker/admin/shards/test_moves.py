"""Topics that move between two shards, over HTTP: whole brokers, one registry in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_broker.errors import ShardDrainedError
from imago_broker.model.groups import GroupConfig
from imago_broker.model.topics.sealing import MOVE, seal_of
from imago_testing.clusters.shard_pair import eventually, make, put, there

if TYPE_CHECKING:
    from imago_testing.clusters.shard_pair import Pair


async def test_topics_go_on_elsewhere_as_they_were(pair: Pair) -> None:
    make(pair.one, "orders", 3, order=True, attributes={"acknowledgement": "leader-fsync"})
    pair.one.broker.groups.update(GroupConfig(name="g", retry_max_times=3))
    pair.one.broker.offsets.commit("g", "orders", 0, 0)
    make(pair.one, "%RETRY%g", 1)
    make(pair.two, "here-too", 5)
    make(pair.one, "here-too", 2)
    await pair.drain(pair.one, requestId="r")
    shown = await pair.until(0, lambda shard: shard["drained"])
    assert (shown["draining"], shown["cordoned"]) == (True, True)
    assert shown["drain"]["topicsToMove"] == 0
    orders = there(pair.two, "orders")
    assert (orders.write_queues, orders.order, seal_of(orders)) == (3, True, None)
    assert orders.acknowledgement == "leader-fsync"
    assert there(pair.two, "here-too").write_queues == 5, "it stays as it is there"
    assert there(pair.two, "%RETRY%g").write_queues == 1
    group = pair.two.broker.groups.get("g")
    assert group is not None
    assert group.retry_max_times == 3
    # Consumers that start at the end in queues that they do not know must not pass messages over.
    assert pair.two.broker.offsets.of_topic("orders") == {"g": {0: 0, 1: 0, 2: 0}}
    for name in ("orders", "here-too", "%RETRY%g"):
        assert seal_of(there(pair.one, name)) is not None
    assert there(pair.one, "SELF_TEST_TOPIC").write_queues == 1, "the broker's own stay"


async def test_what_somebody_has_to_read_keeps_the_shard(pair: Pair) -> None:
    make(pair.one, "orders")
    await put(pair.one, "orders")
    await pair.drain(pair.one)
    shown = await pair.until(0, lambda shard: shard["drain"] and not shard["drain"]["topicsToMove"])
    left = shown["drain"]
    assert (left["messages"], left["unclaimedMessages"], left["groups"]) == (1, 1, {})
    assert left["bytes"] > 0
    assert left["lastExpiresAt"] > pair.one.broker.clock.epoch_ms()
    pair.one.broker.offsets.commit("g", "orders", 0, 0)
    await pair.until(0, lambda shard: shard["drain"]["groups"] == {"g": 1})
    assert not (await pair.shard(0))["drained"]
    pair.one.broker.offsets.commit("g", "orders", 0, 1)
    await pair.until(0, lambda shard: shard["drained"])
    pair.one.broker.offsets.commit("late", "orders", 0, 0)
    await pair.until(0, lambda shard: not shard["drained"])


async def test_the_retention_of_a_topic_does_not_let_its_messages_expire(pair: Pair) -> None:
    """It removes the topic's MetaQ files; the log keeps the messages as long as all others."""
    make(pair.one, "orders", attributes={"retention.ms": "60000"})
    await put(pair.one, "orders")
    put_ms = pair.one.broker.store.store_time("orders", 0, 0)
    assert put_ms is not None
    await pair.drain(pair.one)
    shown = await pair.until(0, lambda shard: shard["drain"] and not shard["drain"]["topicsToMove"])
    retention_ms = pair.one.broker.config.store.retention_ms
    assert shown["drain"]["lastExpiresAt"] == put_ms + retention_ms


async def test_messages_that_wait_for_their_time_keep_the_shard(pair: Pair) -> None:
    make(pair.one, "orders")
    pair.one.broker.offsets.commit("g", "orders", 0, 0)
    await put(pair.one, "orders", "DELAY\x012\x02")
    await pair.drain(pair.one)
    await pair.until(0, lambda shard: shard["drain"] and shard["drain"]["delayedMessages"] == 1)
    # It comes to the sealed queue, where the group reads it.
    await pair.until(0, lambda shard: shard["drain"]["groups"] == {"g": 1})
    pair.one.broker.offsets.commit("g", "orders", 0, 1)
    await pair.until(0, lambda shard: shard["drained"])


async def test_a_drain_waits_for_the_other_shard_and_then_goes_on(pair: Pair) -> None:
    make(pair.one, "orders")
    await pair.two.broker.ports.admin.stop()
    await pair.drain(pair.one)
    shown = await pair.until(0, lambda shard: (shard["drain"] or {}).get("blocked"))
    assert shown["drain"]["blocked"].startswith("orders: shard-1: ")
    assert seal_of(there(pair.one, "orders")) is None, "it takes messages until it has a place"
    await put(pair.one, "orders")
    pair.one.broker.offsets.commit("g", "orders", 0, 1)
    # As a drain finds it that ended between the opening there and the seal here.
    make(pair.two, "orders", 2)
    await eventually(lambda: seal_of(there(pair.one, "orders")) is not None)
    assert not (await pair.shard(0))["drained"], "the other one may know who has to read it"


async def test_a_topic_that_is_made_meanwhile_leaves_too(pair: Pair) -> None:
    make(pair.one, "orders")
    await put(pair.one, "orders")
    await pair.drain(pair.one)
    await pair.until(0, lambda shard: shard["drain"] and not shard["drain"]["topicsToMove"])
    make(pair.one, "late", 1)
    await eventually(lambda: seal_of(there(pair.one, "late")))
    assert there(pair.two, "late").write_queues == 1
    assert pair.one.broker.topics.intake.cordoned
    assert not pair.two.broker.topics.intake.cordoned


async def test_a_drained_shard_is_given_no_topics(pair: Pair) -> None:
    """It may be stopped and removed at any moment, with all that it holds."""
    await pair.drain(pair.one)
    await pair.until(0, lambda shard: shard["drained"])
    for name in ("late", "%RETRY%late"):
        with pytest.raises(ShardDrainedError, match="is drained and takes no topics"):
            make(pair.one, name, 1)
    make(pair.two, "late", 1)
    await pair.one.call("POST", "/admin/v1/undrain", {})
    await pair.until(0, lambda shard: not shard["drained"])
    await eventually(lambda: not pair.one.broker.topics.intake.closed)
    make(pair.one, "late", 1)


async def test_a_shard_that_is_marked_drained_by_hand_is_given_no_topics(pair: Pair) -> None:
    await pair.one.call("POST", "/admin/v1/cordon", {})
    await pair.until(0, lambda shard: shard["cordoned"])
    make(pair.one, "early", 1)
    status, _ = await pair.one.call("POST", "/admin/v1/shards/0/drained", {})
    assert status == 409
    make(pair.one, "still", 1)
    for name in ("early", "still"):
        pair.one.broker.topics.seal(name, until_ms=0, cause=MOVE)
    status, _ = await pair.one.call("POST", "/admin/v1/shards/0/drained", {})
    assert status == 200
    with pytest.raises(ShardDrainedError):
        make(pair.one, "late", 1)


@pytest.mark.parametrize("path", ["undrain", "uncordon"])
async def test_a_drain_is_taken_back(pair: Pair, path: str) -> None:
    make(pair.one, "orders", 3)
    await pair.drain(pair.one, requestId="r")
    await pair.until(0, lambda shard: shard["drained"])
    status, _ = await pair.one.call("POST", f"/admin/v1/{path}", {})
    assert status == 200
    shown = await pair.until(0, lambda shard: not shard["draining"])
    assert (shown["cordoned"], shown["drained"], shown["drain"]) == (False, False, None)
    await eventually(lambda: there(pair.one, "orders").write_queues == 3)
    await put(pair.one, "orders")
    status, error = await pair.one.call("POST", "/admin/v1/drain", {"requestId": "r"})
    assert (status, error["error"]) == (409, "taken_back")


async def test_the_last_shard_that_takes_topics_cannot_be_drained(pair: Pair) -> None:
    make(pair.one, "orders")
    await pair.drain(pair.two)
    await pair.until(1, lambda shard: shard["drained"])
    status, error = await pair.one.call("POST", "/admin/v1/drain", {})
    assert (status, error["error"]) == (409, "too_few_shards")
    assert "shard-1 is cordoned" in error["message"]
    assert seal_of(there(pair.one, "orders")) is None
    await pair.drain(pair.two)


async def test_a_topic_is_moved_and_spread_by_name(pair: Pair) -> None:
    make(pair.one, "orders", 3)
    path = "/admin/v1/topics/orders"
    _, answer = await pair.one.call("POST", f"{path}/move", {"to": ["shard-1"]})
    assert (answer["from"], answer["to"]) == ("shard-0", ["shard-1"])
    assert there(pair.one, "orders").write_queues == 0
    assert there(pair.two, "orders").write_queues == 3
    _, shown = await pair.one.call("GET", path)
    assert shown["sealed"] is True
    await pair.one.call("PUT", path, {"queues": 4})
    assert there(pair.one, "orders").write_queues == 0, "settings open nothing"
    _, answer = await pair.two.call("POST", f"{path}/spread", {})
    assert answer["shards"] == ["shard-0", "shard-1"]
    assert there(pair.one, "orders").write_queues == 4
    _, answer = await pair.one.call("POST", f"{path}/spread", {"to": [1]})
    assert answer["shards"] == ["shard-1"]


@pytest.mark.parametrize(
    ("topic", "body", "status", "error"),
    [
        ("orders", {}, 400, "bad_request"),
        ("orders", {"to": "shard-1"}, 400, "bad_request"),
        ("orders", {"to": [True]}, 400, "bad_request"),
        ("orders", {"to": ["shard-0"]}, 400, "bad_request"),
        ("orders", {"to": ["shard-7"]}, 409, "no_room"),
        ("orders", {"to": [1], "epoch": 9}, 409, "stale_epoch"),
        ("unknown", {"to": [1]}, 404, "topic_not_found"),
        ("SELF_TEST_TOPIC", {"to": [1]}, 403, "system_topic"),
        ("%25RETRY%25g", {"to": [1]}, 403, "system_topic"),
    ],
)
async def test_a_move_that_cannot_be_is_refused_and_changes_nothing(
    pair: Pair, topic: str, body: dict[str, object], status: int, error: str
) -> None:
    make(pair.one, "orders")
    got, answer = await pair.one.call("POST", f"/admin/v1/topics/{topic}/move", body)
    assert (got, answer["error"]) == (status, error)
    assert there(pair.one, "orders").write_queues == 2
    assert pair.two.broker.topics.get("orders") is None


async def test_an_operator_of_an_older_epoch_moves_and_drains_nothing(pair: Pair) -> None:
    make(pair.one, "orders")
    await pair.one.call("POST", "/admin/v1/operator-epoch", {"epoch": 5})
    old = {"Imago-Operator-Epoch": "4"}
    for path in ("drain", "undrain", "topics/orders/move", "shards/1/remove"):
        status, error = await pair.one.call("POST", f"/admin/v1/{path}", {}, **old)
        assert (status, error["error"]) == (409, "stale_operator")


async def test_a_shard_that_runs_is_not_removed(pair: Pair) -> None:
    await pair.drain(pair.two)
    await pair.until(1, lambda shard: shard["drained"])
    status, error = await pair.one.call("POST", "/admin/v1/shards/1/remove", {})
    assert (status, error["error"]) == (409, "in_use")
    assert "live brokers" in error["message"]
    for shard, expected in (("x", 400), ("7", 404)):
        status, _ = await pair.one.call("POST", f"/admin/v1/shards/{shard}/remove", {})
        assert status == expected


async def test_messages_of_another_shard_keep_their_queue_before_any_shard_is_changed(
    pair: Pair,
) -> None:
    path = "/admin/v1/topics/orders"
    status, _ = await pair.one.call("PUT", path, {"queues": 2})
    assert status == 201
    await put(pair.two, "orders")
    status, error = await pair.one.call("PUT", path, {"queues": 0})
    assert (status, error["error"]) == (409, "hides_messages")
    assert "With 0 queues left to read, 1 message of other shards would" in error["message"]
    assert [there(admin, "orders").read_queues for admin in (pair.one, pair.two)] == [2, 2]
    status, changed = await pair.one.call("PUT", path, {"queues": 0, "hideMessages": True})
    assert (status, changed["hiddenMessages"]) == (200, 1)
    assert [there(admin, "orders").read_queues for admin in (pair.one, pair.two)] == [0, 0]
