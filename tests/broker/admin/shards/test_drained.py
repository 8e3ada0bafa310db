"""What keeps a shard from being drained: all that a client was told is stored, and nobody has had.

Whole brokers of two shards, one registry in memory. What a drain leaves out goes with the shard.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from imago_broker.cluster.tree import Create
from imago_broker.model import names
from imago_broker.model.groups import GroupConfig
from imago_broker.model.topics.sealing import seal_of
from imago_broker.model.topics.topics import TopicConfig
from imago_testing.clusters.shard_pair import eventually, make, put, there
from imago_testing.peers.metaq import MetaqPeer, metaq_peer
from imago_testing.peers.remoting import RemotingPeer, send_ext
from imago_wire.records.record import make_entry
from imago_wire.remoting.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_broker.cluster.tree import NodeTree
    from imago_testing.clusters.shard_pair import Pair
    from imago_testing.peers.admin import Admin

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


async def test_a_prepared_xa_transaction_keeps_the_shard(pair: Pair) -> None:
    make(pair.one, "orders", 1)
    async with metaq_peer(pair.one.broker.metaq_port) as peer:
        await begin(peer)
        assert await ask(peer, "PREPARE") == b"result 200 1 9\r\n0"
        await pair.drain(pair.one)
        shown = await until_left(pair, lambda d: d["transactions"])
        assert (shown["done"], shown["transactions"]) == (False, 1)
        assert shown["delayedMessages"] == 1, "what the operator and old tools look at"
        assert not (await pair.shard(0))["drained"]
        assert (await ask(peer, "COMMIT_TWO_PHASE")).startswith(b"result 200")
        await until_left(pair, lambda d: d["messages"] == 1 and not d["transactions"])
        await read_by(pair.one, "g", "orders")
        await pair.until(0, lambda shard: shard["drained"])


async def test_an_open_transaction_that_has_messages_keeps_the_shard(pair: Pair) -> None:
    """It could be prepared after the shard is on record as drained."""
    make(pair.one, "orders", 1)
    async with metaq_peer(pair.one.broker.metaq_port) as peer:
        await begin(peer)
        await pair.drain(pair.one)
        await until_left(pair, lambda d: d["transactions"] == 1 and not d["done"])
        refused = await peer.ask(b"put orders 0 3 0 -1 %b 9\r\ntwo" % XA.encode())
        assert refused.startswith(b"result 500"), "the topic is sealed"
        assert await ask(peer, "PREPARE") == b"result 200 1 9\r\n0"
        await until_left(pair, lambda d: d["transactions"] == 1)
        await ask(peer, "ROLLBACK")
        await pair.until(0, lambda shard: shard["drained"])


async def test_a_decision_that_nobody_was_told_of_keeps_the_shard(pair: Pair) -> None:
    make(pair.one, "orders", 1)
    async with metaq_peer(pair.one.broker.metaq_port) as peer:
        await begin(peer)
        await ask(peer, "PREPARE")
        path = f"/admin/v1/metaq/transactions/{quote(XA, safe='')}"
        assert (await pair.one.call("POST", f"{path}/rollback"))[0] == 200
        await pair.drain(pair.one)
        await until_left(pair, lambda d: d["transactions"] == 1 and not d["done"])
        assert (await pair.one.call("POST", f"{path}/forget"))[0] == 200
        await pair.until(0, lambda shard: shard["drained"])


# Light queues


async def test_unread_messages_of_a_light_queue_keep_the_shard(pair: Pair) -> None:
    pair.one.broker.core.messages.light.enabled = True
    make(pair.one, "orders", 1)
    await put(pair.one, "orders", "UNIQ_KEY\x01u\x02INNER_MULTI_DISPATCH\x01%LMQ%a\x02")
    await read_by(pair.one, "g", "orders")
    await pair.drain(pair.one)
    shown = await until_left(pair, lambda d: d["messages"])
    assert (shown["unread"], shown["unclaimedMessages"]) == (["%LMQ%a"], 1)
    assert shown["lastExpiresAt"] > pair.one.broker.clock.epoch_ms()
    await read_by(pair.one, "%LMQ%a", "%LMQ%a", 0)
    await until_left(pair, lambda d: d["groups"] == {"%LMQ%a": 1})
    await read_by(pair.one, "%LMQ%a", "%LMQ%a")
    await pair.until(0, lambda shard: shard["drained"])


async def test_a_topic_that_is_read_by_lite_topics_is_read(pair: Pair) -> None:
    broker, lite, kind = pair.one.broker, "%LMQ%$chats$ann", {"message.type": "LITE"}
    config = TopicConfig(name="chats", read_queues=1, write_queues=1, attributes=kind)
    broker.topics.create_or_update(config)
    peer = await RemotingPeer.connect(broker.rocketmq_port)
    said = f"UNIQ_KEY\x01u\x02INNER_MULTI_DISPATCH\x01{lite}\x02__LITE_TOPIC\x01ann\x02"
    assert (await peer.put("chats", b"x", properties=said)).code == ResponseCode.SUCCESS
    await pair.drain(pair.one)
    await until_left(pair, lambda d: set(d["unread"]) == {"chats", lite})
    await read_by(pair.one, "g", lite)
    await pair.until(0, lambda shard: shard["drained"])
    await peer.close()


async def test_what_a_light_queue_has_of_a_deleted_topic_does_not_keep_the_shard(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("imago_log.reading.by_reference.REFERENCES_MAX", 2)
    pair.one.broker.core.messages.light.enabled = True
    for topic in ("gone", "gone", "gone", "gone", "gone", "orders"):
        if not pair.one.broker.topics.get(topic):
            make(pair.one, topic, 1)
        await put(pair.one, topic, "UNIQ_KEY\x01u\x02INNER_MULTI_DISPATCH\x01%LMQ%a\x02")
    await read_by(pair.one, "g", "orders")
    pair.one.broker.topics.delete("gone")
    await pair.drain(pair.one)
    await until_left(pair, lambda d: d["messages"] == d["unclaimedMessages"] == 1)
    pair.one.broker.topics.delete("orders")
    await pair.until(0, lambda shard: shard["drained"])


async def test_a_draining_shard_takes_nothing_for_light_queues(pair: Pair) -> None:
    pair.one.broker.core.messages.light.enabled = True
    peer = await RemotingPeer.connect(pair.one.broker.rocketmq_port)
    assert (await peer.put("%LMQ%a", b"before")).code == ResponseCode.SUCCESS
    await pair.drain(pair.one)
    await until_left(pair, lambda d: d["messages"] == 1)
    for name in ("%LMQ%a", "%LMQ%new"):
        answer = await peer.put(name, b"after")
        assert answer.code == ResponseCode.NO_PERMISSION, answer.remark
    status, _ = await pair.one.call("DELETE", "/admin/v1/topics/%25LMQ%25a")
    assert status == 200, "who does not want its messages can say so"
    await pair.until(0, lambda shard: shard["drained"])
    await pair.one.call("POST", "/admin/v1/undrain", {})
    await eventually(lambda: not pair.one.broker.topics.intake.leaving)
    assert (await peer.put("%LMQ%a", b"again")).code == ResponseCode.SUCCESS
    await peer.close()


# Groups


async def test_a_connected_group_that_has_committed_nothing_keeps_the_shard(pair: Pair) -> None:
    make(pair.one, "orders", 1)
    await put(pair.one, "orders")
    await read_by(pair.one, "g", "orders")
    peer = await RemotingPeer.connect(pair.one.broker.rocketmq_port)
    await beat(peer, "new", "orders")
    await beat(peer, "other", "payments")
    await pair.drain(pair.one)
    shown = await until_left(pair, lambda d: d["messages"])
    assert shown["groups"] == {"new": 1}
    # It restarts just when all others are through: that makes nobody forget it.
    await peer.close()
    await eventually(lambda: not pair.one.broker.admin_services().member_groups())
    await until_left(pair, lambda d: d["groups"] == {"new": 1})
    assert (await left(pair))["groups"] == {"new": 1}
    assert (await pair.one.call("DELETE", "/admin/v1/groups/new"))[0] == 200
    await pair.until(0, lambda shard: shard["drained"])


async def test_a_group_that_reads_by_broadcasting_is_not_waited_for(pair: Pair) -> None:
    """Its members keep their progress to themselves: nobody knows when they are through."""
    make(pair.one, "orders", 1)
    await put(pair.one, "orders")
    peer = await RemotingPeer.connect(pair.one.broker.rocketmq_port)
    await beat(peer, "all", "orders", model="BROADCASTING")
    await pair.drain(pair.one)
    shown = await until_left(pair, lambda d: d["messages"])
    assert (shown["unclaimedMessages"], shown["groups"]) == (1, {}), "read by no other they wait"
    await read_by(pair.one, "g", "orders")
    await pair.until(0, lambda shard: shard["drained"])
    await peer.close()


@pytest.mark.parametrize("known_by", ["offset", "heartbeat"])
async def test_a_group_that_another_shard_knows_keeps_the_shard(pair: Pair, known_by: str) -> None:
    for admin in (pair.one, pair.two):
        make(admin, "orders", 1)
    await put(pair.one, "orders")
    await read_by(pair.one, "g", "orders")
    peer = await RemotingPeer.connect(pair.two.broker.rocketmq_port)
    if known_by == "offset":
        await read_by(pair.two, "there", "orders", 0)
    else:
        await beat(peer, "there", "orders")
    await pair.drain(pair.one)
    await until_left(pair, lambda d: d["groups"] == {"there": 1})
    status, error = await pair.one.call("POST", "/admin/v1/shards/0/drained")
    assert (status, error["error"]) == (409, "not_drained")
    await read_by(pair.one, "there", "orders")
    await pair.until(0, lambda shard: shard["drained"])
    await peer.close()


async def metaq_nodes(pair: Pair, *nodes: tuple[str, bytes]) -> None:
    tree: NodeTree = pair.one.broker.coordinator._tree  # type: ignore[attr-defined]
    made: set[str] = set()
    for path, data in nodes:
        parts = path.strip("/").split("/")
        for depth in range(1, len(parts)):
            parent = "/" + "/".join(parts[:depth])
            if parent not in made and await tree.get(parent) is None:
                await tree.commit([Create(parent)])
            made.add(parent)
        await tree.commit([Create(path, data)])


async def position_end(pair: Pair) -> tuple[str, int]:
    """Return where a group of MetaQ's says how far it is in queue 0, and the queue's end."""
    end = pair.one.broker.store.position_range("orders", 0)[1]
    return "/meta/consumers/m/offsets/orders/0-0", end


@pytest.mark.parametrize("beyond", [0, 1])
async def test_a_position_behind_the_end_is_of_a_queue_that_is_gone(
    pair: Pair, beyond: int
) -> None:
    """A shard, or a topic, of the same name was there before: nothing of this one is read."""
    make(pair.one, "orders", 1)
    await put(pair.one, "orders")
    await read_by(pair.one, "g", "orders")
    path, end = await position_end(pair)
    await metaq_nodes(pair, (path, b"7-%d" % (end + beyond)))
    assert (await left(pair))["groups"] == ({"m (MetaQ)": 1} if beyond else {})


@pytest.mark.parametrize(
    "node",
    [("/meta/consumers/m/offsets/orders/1-0", b"7-9"), ("/meta/consumers/m/ids/h", b"a,orders")],
    ids=["progress elsewhere", "connected"],
)
async def test_metaqs_groups_that_have_committed_nothing_here_keep_the_shard(
    pair: Pair, node: tuple[str, bytes]
) -> None:
    make(pair.one, "orders", 1)
    await put(pair.one, "orders")
    await read_by(pair.one, "g", "orders")
    await metaq_nodes(pair, node)
    await pair.drain(pair.one)
    await until_left(pair, lambda d: d["groups"] == {"m (MetaQ)": 1})
    if "ids" in node[0]:
        path, end = await position_end(pair)
        await metaq_nodes(pair, (path, b"7-%d" % end))
    else:
        skip = "/admin/v1/metaq/topics/orders/groups/m/partitions/0/skip"
        status, told = await pair.one.call("POST", skip)
        assert status == 200, told
    await pair.until(0, lambda shard: shard["drained"])


# Names


@pytest.mark.parametrize("name", LOOKALIKES)
async def test_what_clients_may_write_leaves_and_is_counted(pair: Pair, name: str) -> None:
    make(pair.one, name, 1)
    await put(pair.one, name)
    await pair.drain(pair.one)
    shown = await until_left(pair, lambda d: d["messages"])
    assert (shown["unread"], shown["unclaimedMessages"]) == ([name], 1)
    assert seal_of(there(pair.one, name)) is not None
    assert there(pair.two, name).write_queues == 1
    peer = await RemotingPeer.connect(pair.one.broker.rocketmq_port)
    assert (await peer.put(name, b"late")).code == ResponseCode.NO_PERMISSION
    await peer.close()
    # Whom they are of no use says so: a group that stands behind them.
    told = {"topic": name, "to": "latest", "create": True}
    status, answer = await pair.one.call("POST", "/admin/v1/groups/nobody/reset", told)
    assert status == 200, answer
    await pair.until(0, lambda shard: shard["drained"])


async def test_a_message_that_was_put_into_the_template_is_counted(pair: Pair) -> None:
    peer = await RemotingPeer.connect(pair.one.broker.rocketmq_port)
    assert (await peer.put(names.DEFAULT_TOPIC, b"x")).code == ResponseCode.SUCCESS
    await pair.drain(pair.one)
    await until_left(pair, lambda d: d["unread"] == [names.DEFAULT_TOPIC])
    assert (await peer.put(names.DEFAULT_TOPIC, b"y")).code == ResponseCode.NO_PERMISSION
    await peer.close()
    pair.one.broker.topics.ensure_system_topics()  # as its next master does
    assert seal_of(there(pair.one, names.DEFAULT_TOPIC)) is not None
    await pair.one.call("POST", "/admin/v1/undrain", {})
    await eventually(lambda: seal_of(there(pair.one, names.DEFAULT_TOPIC)) is None)
    assert there(pair.one, names.DEFAULT_TOPIC) == there(pair.two, names.DEFAULT_TOPIC)


async def test_messages_of_transactions_that_were_given_up_are_counted(pair: Pair) -> None:
    make(pair.one, names.GIVEN_UP_TOPIC, 1)
    tail = pair.one.broker.store.tail(names.GIVEN_UP_TOPIC, 0)
    pair.one.broker.store.append([make_entry(tail, b"x", b"", born_ms=1, born_host=HOST)])
    await pair.drain(pair.one)
    await until_left(pair, lambda d: d["unread"] == [names.GIVEN_UP_TOPIC])
    await read_by(pair.one, "looks-after-them", names.GIVEN_UP_TOPIC)
    await pair.until(0, lambda shard: shard["drained"])


async def test_replies_that_nobody_reads_do_not_keep_the_shard(pair: Pair) -> None:
    """They are copies of what was given to whoever waited for it; but a group may read them."""
    peer = await RemotingPeer.connect(pair.one.broker.rocketmq_port)
    await peer.call(325, send_ext(REPLIES, 0, "MSG_TYPE\x01reply\x02"), b"the reply")
    assert pair.one.broker.store.queue_range(REPLIES, 0) == (0, 1)
    await read_by(pair.one, "g", REPLIES, 0)
    await pair.drain(pair.one)
    await until_left(pair, lambda d: d["groups"] == {"g": 1})
    assert (await pair.one.call("DELETE", "/admin/v1/groups/g"))[0] == 200
    await pair.until(0, lambda shard: shard["drained"])
    await peer.call(325, send_ext(REPLIES, 0, "MSG_TYPE\x01reply\x02"), b"the next")
    assert pair.one.broker.store.queue_range(REPLIES, 0) == (0, 1), "a sealed topic gets none"
    await peer.close()


async def test_a_group_is_not_taken_for_a_reader_of_its_own_dead_letters(pair: Pair) -> None:
    """It has its place on the shard to which they go; who looks after them is somebody else."""
    pair.one.broker.groups.update(GroupConfig(name="g"))
    make(pair.one, "%DLQ%g", 1)
    await put(pair.one, "%DLQ%g")
    await pair.drain(pair.one)
    await until_left(pair, lambda d: d["unclaimedMessages"] == 1 and d["groups"] == {})
    await read_by(pair.one, "looks-after-them", "%DLQ%g")
    await pair.until(0, lambda shard: shard["drained"])


# What moves meanwhile


async def test_a_shard_on_which_something_is_written_meanwhile_is_looked_at_again(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message that comes from where it waited while topics are counted is in neither sum."""
    make(pair.one, "orders", 1)
    pair.one.broker.topics.seal("orders", until_ms=0, cause="move")
    await pair.drain(pair.one)
    await pair.until(0, lambda shard: shard["drained"])
    assert (await left(pair))["done"]
    tail = pair.one.broker.store.tail("orders", 0)
    asked = pair.one.broker.store.meta

    def delivered(kind: str) -> Any:
        if kind == "delay":
            pair.one.broker.store.append([make_entry(tail, b"x", b"", born_ms=1, born_host=HOST)])
        return asked(kind)

    monkeypatch.setattr(pair.one.broker.store, "meta", delivered)
    assert not (await left(pair))["done"]


async def test_nothing_is_given_back_to_a_shard_that_is_on_record_as_drained(pair: Pair) -> None:
    """It may be stopped and removed at any moment."""
    make(pair.one, "orders", 1)
    await put(pair.one, "orders")
    peer = await RemotingPeer.connect(pair.one.broker.rocketmq_port)
    (message,) = await peer.messages("orders")
    back = {"offset": message.physical_offset, "group": "g", "delayLevel": 1}
    await read_by(pair.one, "g", "orders")
    pair.one.broker.topics.create_or_update(
        TopicConfig(name="%RETRY%g", write_queues=1, read_queues=1)
    )
    await pair.drain(pair.one)
    await pair.until(0, lambda shard: shard["drained"])
    await eventually(lambda: pair.one.broker.topics.intake.closed)
    answer = await peer.call(36, back)
    assert answer.code == ResponseCode.NO_PERMISSION
    assert "is drained" in (answer.remark or "")
    await peer.close()
