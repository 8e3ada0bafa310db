"""Who reads a shard that is drained: kept in mind, and told to the other shards."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.app import Broker
from imago_broker.cluster.memory import memory_coordinator
from imago_broker.cluster.settings import CoordinatorConfig
from imago_broker.service import known_readers
from imago_broker.shard_work import readers
from imago_testing.clusters.shard_pair import eventually, make, put, there
from imago_testing.peers.admin import Admin
from imago_testing.peers.remoting import RemotingPeer
from imago_wire.remoting.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_testing.clusters.shard_pair import Pair
    from imago_testing.peers.metaq import MetaqPeer

XA = "XID:100:676c:6271:uq/%a"
LOOKALIKES = ("orders_REPLY_TOPIC", "rmq_sys_mine", "BenchmarkTest", "RMQ_SYS_TRACE_TOPIC")
"""Topics of clients, whose names look like those of the broker's own."""
REPLIES = "imago_REPLY_TOPIC"
HOST = bytes(8)


async def left(pair: Pair, shard: int = 0) -> dict[str, Any]:
    status, told = await pair.one.call("GET", f"/admin/v1/shards/{shard}/remaining")
    assert status == 200, told
    return dict(told)


async def until_left(pair: Pair, holds: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """Return what is left on shard 0 once its topics have left, and this holds."""
    shown = await pair.until(
        0, lambda shard: (d := shard["drain"]) and not d["topicsToMove"] and holds(d)
    )
    return dict(shown["drain"])


async def beat(peer: RemotingPeer, group: str, *topics: str, model: str = "CLUSTERING") -> None:
    consumer = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": model,
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": [{"topic": t, "subString": "*", "subVersion": 1} for t in topics],
    }
    told = {"clientID": "client", "consumerDataSet": [consumer]}
    answer = await peer.call(RequestCode.HEART_BEAT, body=json.dumps(told).encode())
    assert answer.code == ResponseCode.SUCCESS


async def read_by(admin: Admin, group: str, topic: str, to: int = 1) -> None:
    """A group that is through with queue 0 of a topic."""
    admin.broker.offsets.commit(group, topic, 0, to)


async def ask(peer: MetaqPeer, kind: str) -> bytes:
    return await peer.ask(f"transaction {XA} s1 {kind} 9\r\n".encode())


async def begin(peer: MetaqPeer) -> None:
    await ask(peer, "BEGIN")
    answer = await peer.ask(b"put orders 0 3 0 -1 %b 9\r\none" % XA.encode())
    assert answer.startswith(b"result 200"), answer


# MetaQ's transactions


async def test_a_shard_that_does_not_say_who_reads_keeps_the_other(pair: Pair) -> None:
    make(pair.one, "orders", 1)
    make(pair.two, "orders", 1)
    view = pair.one.broker.coordinator.view
    await eventually(lambda: "orders" in view().topics and len(view().topics["orders"].shards) == 2)
    await pair.two.broker.ports.admin.stop()
    await pair.drain(pair.one)
    shown = await until_left(pair, lambda d: d["blocked"])
    assert shown["blocked"].startswith("shard-1 does not say which groups read what: ")
    assert not shown["done"]
    assert not (await pair.shard(0))["drained"]


async def test_who_was_connected_counts_when_the_master_has_restarted(pair: Pair) -> None:
    make(pair.one, "orders", 1)
    await put(pair.one, "orders")
    await read_by(pair.one, "g", "orders")
    peer = await RemotingPeer.connect(pair.one.broker.rocketmq_port)
    await beat(peer, "new", "orders")
    await pair.drain(pair.one)
    await until_left(pair, lambda d: d["groups"] == {"new": 1})
    await peer.close()
    await pair.one.broker.stop()
    settings = CoordinatorConfig(session_timeout_ms=60_000)
    coordinator = memory_coordinator(settings, pair.ensemble)
    again = Admin(pair.one.session, Broker(pair.one.broker.config, coordinator=coordinator))
    await again.broker.start()
    try:
        restarted = replace(pair, one=again)
        await until_left(restarted, lambda d: d["groups"] == {"new": 1})
        assert not (await restarted.shard(0))["drained"]
        await again.call("POST", "/admin/v1/undrain", {})
        await eventually(lambda: not again.broker.offsets.readers.by_topic())
    finally:
        await again.broker.stop()


async def test_a_master_that_has_just_restarted_does_not_know_yet_who_reads(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    for admin in (pair.one, pair.two):
        make(admin, "orders", 1)
        await put(admin, "orders")
        await read_by(admin, "g", "orders")
    peer = await RemotingPeer.connect(pair.two.broker.rocketmq_port)
    await beat(peer, "elsewhere", "orders")
    await peer.close()
    await pair.two.broker.stop()
    settings = CoordinatorConfig(session_timeout_ms=60_000)
    coordinator = memory_coordinator(settings, pair.ensemble)
    again = Admin(pair.two.session, Broker(pair.two.broker.config, coordinator=coordinator))
    await again.broker.start()
    try:
        await pair.drain(pair.one)
        shown = await until_left(pair, lambda d: d["blocked"] and "new master" in d["blocked"])
        assert "shard-1 has a new master: for " in shown["blocked"]
        status, told = await again.call("GET", "/admin/v1/readers")
        assert (status, told["error"]) == (503, "readers_unknown")
        assert not (await pair.shard(0))["drained"]
        peer = await RemotingPeer.connect(again.broker.rocketmq_port)
        await beat(peer, "elsewhere", "orders")
        monkeypatch.setattr("imago_broker.service.readers.RETURN_MS", 0)
        await until_left(pair, lambda d: d["groups"] == {"elsewhere": 1} and not d["blocked"])
        await peer.close()
    finally:
        await again.broker.stop()


async def test_a_shard_that_goes_tells_the_others_who_reads(pair: Pair) -> None:
    for admin in (pair.one, pair.two):
        make(admin, "orders", 1)
        await put(admin, "orders")
    await read_by(pair.one, "g", "orders")
    for group in ("g", "nightly"):
        await read_by(pair.two, group, "orders")
    await pair.drain(pair.two)
    await pair.until(1, lambda shard: shard["drained"])
    await pair.two.broker.stop()
    view = pair.one.broker.coordinator.view
    await eventually(lambda: view().shards() == (0,))
    assert (await pair.one.call("POST", "/admin/v1/shards/1/remove", {}))[0] == 200
    status, told = await pair.one.call("POST", "/admin/v1/shards/1/remove", {})
    assert (status, told["error"]) == (404, "shard_not_found"), "nothing is left to do"
    assert (await left(pair))["groups"] == {"nightly": 1}
    await pair.one.call("POST", "/admin/v1/undrain", {})
    assert (await left(pair))["groups"] == {"nightly": 1}
    assert (await pair.one.call("DELETE", "/admin/v1/groups/nightly"))[0] == 200
    assert (await left(pair))["groups"] == {}


async def test_a_shard_that_does_not_keep_readers_keeps_the_other(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    for admin in (pair.one, pair.two):
        make(admin, "orders", 1)
    for group in ("g", "h"):
        await read_by(pair.one, group, "orders", 0)
    monkeypatch.setattr(readers, "PAIRS_AT_ONCE", 1)
    with monkeypatch.context() as patch:
        patch.setattr(known_readers, "GROUPS_MAX", 1)
        await pair.drain(pair.one)
        shown = await until_left(pair, lambda d: d["blocked"])
        said = "shard-1 does not keep which groups read what: it answers 409"
        assert shown["blocked"].startswith(said)
        assert not (await pair.shard(0))["drained"]
        status, error = await pair.one.call("POST", "/admin/v1/shards/0/drained")
        assert (status, error["message"].startswith(said)) == (502, True)
    await pair.until(0, lambda shard: shard["drained"])
    assert pair.two.broker.offsets.readers.by_topic() == {"orders": {"g", "h"}}


async def test_more_readers_than_are_kept_in_mind_keep_the_shard(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(pair.one, "orders", 1)
    monkeypatch.setattr(known_readers, "GROUPS_MAX", 1)
    peer = await RemotingPeer.connect(pair.one.broker.rocketmq_port)
    await beat(peer, "a", "orders")
    await beat(peer, "b", "orders")
    await pair.drain(pair.one)
    await until_left(pair, lambda d: d["blocked"] == "more than 1 groups read topic orders.")
    await peer.close()


@pytest.mark.parametrize("items", [1, [1], [{"topic": "orders"}], [{"topic": "t", "groups": 1}]])
async def test_what_is_no_list_of_readers_is_refused(pair: Pair, items: object) -> None:
    status, error = await pair.one.call("POST", "/admin/v1/readers", {"items": items})
    assert (status, error["error"]) == (400, "bad_request")


async def test_readers_are_told_page_by_page(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "c"):
        make(pair.one, name, 1)
        await read_by(pair.two, "there", name, 0)
    await put(pair.one, "c")
    monkeypatch.setattr(readers, "TOPICS_AT_ONCE", 2)
    assert (await left(pair))["groups"] == {"there": 1}
    status, told = await pair.two.call("GET", "/admin/v1/readers?limit=2")
    assert (status, told["next"]) == (200, "c")
    assert told["items"] == [{"topic": name, "groups": ["there"]} for name in ("a", "b")]


# Queues


async def test_messages_in_queues_that_a_topic_has_no_more_are_counted(pair: Pair) -> None:
    """Whoever hid them may want them back, which nobody can once the shard is gone."""
    make(pair.one, "orders", 2)
    peer = await RemotingPeer.connect(pair.one.broker.rocketmq_port)
    for queue in range(2):
        sent = await peer.put("orders", b"x", queue_id=queue)
        assert sent.code == ResponseCode.SUCCESS
    await peer.close()
    await read_by(pair.one, "g", "orders")
    fewer = replace(there(pair.one, "orders"), write_queues=1, read_queues=1)
    pair.one.broker.topics.create_or_update(fewer, hide_messages=True)
    await pair.drain(pair.one)
    shown = await until_left(pair, lambda d: d["messages"])
    assert (shown["done"], shown["unread"], shown["groups"]) == (False, ["orders"], {"g": 1})
    again = replace(there(pair.one, "orders"), read_queues=2)
    pair.one.broker.topics.create_or_update(again)
    pair.one.broker.offsets.commit("g", "orders", 1, 1)
    await pair.until(0, lambda shard: shard["drained"])
