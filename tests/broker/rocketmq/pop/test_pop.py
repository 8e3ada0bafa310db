"""POP over real sockets: invisible times, receipts, waiting, order, restarts; queues dealt out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.app import Broker
from imago_broker.features.pop import service as popping
from imago_broker.features.pop import waiting as pop_waiting
from imago_testing.clusters.shard_brokers import until
from imago_testing.peers.features import pop_of
from imago_testing.peers.popping import (
    LONG_MS,
    acknowledge,
    bodies,
    committed,
    pop,
    pop_ext,
    postpone,
    receipts,
)
from imago_testing.peers.remoting import RemotingPeer, heartbeat
from imago_wire.remoting.bodies.pop import ack_bits
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.messages import decode_messages

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from imago_broker.config import BrokerConfig


@pytest.fixture(autouse=True)
async def topic(peer: RemotingPeer) -> None:
    for body in (b"a", b"b", b"c"):
        await peer.put("T", body)


async def test_popped_messages_are_out_until_they_are_acknowledged(peer: RemotingPeer) -> None:
    answer = await pop(peer, maxMsgNums=2)
    assert (answer.remark, answer.ext["restNum"]) == ("FOUND", "1")
    assert answer.ext["startOffsetInfo"] == "0 0 0"
    assert answer.ext["msgOffsetInfo"] == "0 0 0,1"
    assert bodies(answer) == [b"a", b"b"]
    assert bodies(await pop(peer)) == [b"c"]
    assert (await pop(peer)).code == ResponseCode.POLLING_TIMEOUT
    first, second = receipts(answer)
    assert (await acknowledge(peer, second)).code == ResponseCode.SUCCESS
    assert await committed(peer) == 0
    assert (await acknowledge(peer, first)).code == ResponseCode.SUCCESS
    assert await committed(peer) == 2


async def test_as_many_are_given_as_are_asked_for(peer: RemotingPeer) -> None:
    asked = {"consumerGroup": "g", "topic": "T", "queueId": 0}
    none = await pop(peer, maxMsgNums=0)
    assert (none.code, none.body) == (ResponseCode.POLLING_TIMEOUT, b"")
    peeked = await peer.call(RequestCode.PEEK_MESSAGE, {**asked, "maxMsgNums": 0})
    assert (peeked.code, peeked.body) == (ResponseCode.PULL_NOT_FOUND, b"")
    assert (await pop(peer, maxMsgNums=-1)).code == ResponseCode.INVALID_PARAMETER
    peeked = await peer.call(RequestCode.PEEK_MESSAGE, {**asked, "maxMsgNums": -1})
    assert peeked.code == ResponseCode.INVALID_PARAMETER
    assert bodies(await pop(peer, maxMsgNums=3)) == [b"a", b"b", b"c"]


async def test_pop_of_none_waits_in_vain(peer: RemotingPeer, broker: Broker) -> None:
    waiting = peer.send(RequestCode.POP_MESSAGE, pop_ext(maxMsgNums=0, pollTime=1500))
    await until(lambda: len(pop_of(broker).waiting) == 1)
    await peer.put("T", b"d")
    answer = await peer.answer(waiting)
    assert (answer.code, answer.body) == (ResponseCode.POLLING_TIMEOUT, b"")


async def test_message_comes_back_with_its_count(peer: RemotingPeer, broker: Broker) -> None:
    first = await pop(peer, maxMsgNums=1, invisibleTime=0)
    assert decode_messages(first.body)[0].reconsume_times == 0
    again = await pop(peer, maxMsgNums=1, invisibleTime=0)
    assert bodies(again) == [b"a"]
    assert decode_messages(again.body)[0].reconsume_times == 1
    await acknowledge(peer, receipts(first)[0])
    assert pop_of(broker).service.counts.void == 1, "given again, so the first receipt is void"
    third = await pop(peer, maxMsgNums=1)
    assert (bodies(third), decode_messages(third.body)[0].reconsume_times) == ([b"a"], 2)


async def test_pop_waits_for_a_message_that_comes_back(peer: RemotingPeer) -> None:
    assert len(bodies(await pop(peer, invisibleTime=700))) == 3
    waiting = peer.send(RequestCode.POP_MESSAGE, pop_ext(-1, pollTime=30_000))
    assert bodies(await peer.answer(waiting)) == [b"a", b"b", b"c"]


async def test_pop_waits_for_an_arrival_in_any_queue(
    peer: RemotingPeer, broker: Broker, connect: Callable[..., Awaitable[RemotingPeer]]
) -> None:
    assert len(bodies(await pop(peer, -1))) == 3
    waiting = peer.send(RequestCode.POP_MESSAGE, pop_ext(-1, pollTime=30_000))
    other = await connect()
    ext = {"consumerGroup": "g", "topic": "T", "queueId": -1}
    await until(lambda: len(pop_of(broker).waiting) == 1)
    assert (await other.call(RequestCode.POLLING_INFO, ext)).ext["pollingNum"] == "1"
    await other.put("T", b"late", queue_id=3)
    assert bodies(await peer.answer(waiting)) == [b"late"]
    assert (await other.call(RequestCode.POLLING_INFO, ext)).ext["pollingNum"] == "0"


async def test_message_whose_time_is_shortened_wakes_who_waits(peer: RemotingPeer) -> None:
    taken = await pop(peer)
    waiting = peer.send(RequestCode.POP_MESSAGE, pop_ext(pollTime=30_000))
    changed = await postpone(peer, receipts(taken)[1], 300)
    assert changed.code == ResponseCode.SUCCESS
    assert bodies(await peer.answer(waiting)) == [b"b"]


async def test_changed_time_gives_a_new_receipt(peer: RemotingPeer) -> None:
    taken = await pop(peer, maxMsgNums=1)
    (old,) = receipts(taken)
    changed = await postpone(peer, old, 0)
    assert changed.ext["invisibleTime"] == "0"
    assert int(changed.ext["popTime"]) > int(taken.ext["popTime"])
    refused = await postpone(peer, old, 0)
    assert refused.code == ResponseCode.NO_MESSAGE
    parts = old[2].split(" ")
    parts[1:4] = [changed.ext[name] for name in ("popTime", "invisibleTime", "reviveQid")]
    assert (await acknowledge(peer, (0, 0, " ".join(parts)))).code == ResponseCode.SUCCESS
    assert await committed(peer) == 1


async def test_batch_acknowledges_several(peer: RemotingPeer) -> None:
    taken = await pop(peer)
    ack = {"c": "g", "t": "T", "q": 0, "r": "0", "rq": 0, "so": 0, "it": LONG_MS}
    ack |= {"pt": int(taken.ext["popTime"]), "b": ack_bits(0, [0, 2])}
    body = json.dumps({"brokerName": "b", "acks": [ack]}).encode()
    assert (await peer.call(RequestCode.BATCH_ACK_MESSAGE, {}, body)).code == ResponseCode.SUCCESS
    assert await committed(peer) == 1
    empty = await peer.call(RequestCode.BATCH_ACK_MESSAGE, {}, b'{"brokerName":"b","acks":[]}')
    assert empty.code == ResponseCode.NO_MESSAGE


async def test_restart_keeps_what_is_out_and_what_is_done(
    peer: RemotingPeer, broker: Broker, config: BrokerConfig
) -> None:
    taken = await pop(peer, maxMsgNums=2, invisibleTime=4000)
    await acknowledge(peer, receipts(taken)[0])
    await peer.close()
    await broker.stop()
    again = Broker(config)
    await again.start()
    try:
        after = await RemotingPeer.connect(again.rocketmq_port)
        assert pop_of(again).service.out == 1
        assert await committed(after) == 1
        assert bodies(await pop(after)) == [b"c"], "the other two are out, or done"
        back = await pop(after, pollTime=30_000)
        assert bodies(back) == [b"b"]
        assert decode_messages(back.body)[0].reconsume_times == 1
        assert (await acknowledge(after, receipts(back)[0])).code == ResponseCode.SUCCESS
        assert await committed(after) == 2
        await after.close()
    finally:
        await again.stop()


async def test_reset_begins_the_group_anew(peer: RemotingPeer, broker: Broker) -> None:
    taken = await pop(peer)
    await acknowledge(peer, receipts(taken)[0])
    broker.offsets.reset("g", "T", {0: 0})
    assert bodies(await pop(peer)) == [b"a", b"b", b"c"]
    broker.offsets.reset("g", "T", {0: 3})
    assert (await pop(peer)).code == ResponseCode.POLLING_TIMEOUT
    assert pop_of(broker).service.out == 0


async def test_deleted_topic_and_group_leave_nothing(peer: RemotingPeer, broker: Broker) -> None:
    await pop(peer)
    assert broker.store.meta(popping.KIND)
    broker.offsets.forget_group("g")
    assert not broker.store.meta(popping.KIND)
    assert bodies(await pop(peer)) == [b"a", b"b", b"c"]
    waiting = peer.send(RequestCode.POP_MESSAGE, pop_ext(pollTime=30_000))
    await peer.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
    assert (await peer.answer(waiting)).code == ResponseCode.TOPIC_NOT_EXIST
    assert not broker.store.meta(popping.KIND)


async def test_group_has_no_more_out_than_the_limit(
    peer: RemotingPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(popping, "OUT_MAX", 2)
    taken = await pop(peer, invisibleTime=0)
    assert bodies(taken) == [b"a", b"b"]
    again = await pop(peer)
    assert bodies(again) == [b"a", b"b"], "what comes back is given all the same"
    assert (await pop(peer)).code == ResponseCode.POLLING_TIMEOUT
    await acknowledge(peer, receipts(again)[0])
    assert bodies(await pop(peer)) == [b"c"]


async def test_order_gives_nothing_while_something_is_out(peer: RemotingPeer) -> None:
    taken = await pop(peer, maxMsgNums=2, order="true")
    assert (bodies(taken), taken.ext["reviveQid"]) == ([b"a", b"b"], "999")
    assert (await pop(peer, order="true")).code == ResponseCode.POLLING_TIMEOUT
    first, second = receipts(taken)
    waiting = peer.send(RequestCode.POP_MESSAGE, pop_ext(order="true", pollTime=30_000))
    await acknowledge(peer, first)
    await acknowledge(peer, second)
    assert bodies(await peer.answer(waiting)) == [b"c"]


async def test_order_goes_on_when_all_that_is_left_has_come_back(
    peer: RemotingPeer, broker: Broker
) -> None:
    """The last one whose time was not up is acknowledged: the others' time was up before."""
    taken = await pop(peer, order="true", invisibleTime=300)
    first = receipts(taken)[0]
    later = await postpone(peer, first, LONG_MS)
    assert bodies(taken) == [b"a", b"b", b"c"]
    waiting = peer.send(RequestCode.POP_MESSAGE, pop_ext(order="true", pollTime=600_000))
    popped = pop_of(broker).service.known(("g", "T", 0))
    assert popped is not None
    state, clock = popped.state, broker.clock
    await until(lambda: set(state.expired(clock.epoch_ms(), 9)) == {1, 2})
    await until(lambda: bool(len(pop_of(broker).waiting)))
    queue_id, offset, text = first
    start, _, _, *rest = text.split(" ")
    receipt = " ".join((start, later.ext["popTime"], later.ext["invisibleTime"], *rest))
    await acknowledge(peer, (queue_id, offset, receipt))
    await until(lambda: not len(pop_of(broker).waiting))
    assert bodies(await peer.answer(waiting)) == [b"b", b"c"]


async def test_tags_and_sql_select(peer: RemotingPeer) -> None:
    await peer.put("T", b"tagged", properties="TAGS\x01x\x02price\x017\x02")
    assert bodies(await pop(peer, exp="x")) == [b"tagged"]
    assert await committed(peer) == 3
    other = await pop(peer, consumerGroup="other", exp="price > 5", expType="SQL92")
    assert bodies(other) == [b"tagged"]
    wrong = await pop(peer, exp="price >", expType="SQL92")
    assert wrong.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


async def test_new_group_at_the_end_misses_nothing_of_a_young_queue(peer: RemotingPeer) -> None:
    assert bodies(await pop(peer, initMode=1)) == [b"a", b"b", b"c"]


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"maxMsgNums": 33}, ResponseCode.INVALID_PARAMETER),
        ({"invisibleTime": -1}, ResponseCode.INVALID_PARAMETER),
        ({"queueId": 4000}, ResponseCode.INVALID_PARAMETER),
        ({"queueId": -2}, ResponseCode.INVALID_PARAMETER),
        ({"topic": "nowhere"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"bornTime": 1000}, ResponseCode.POLLING_TIMEOUT),
        ({"consumerGroup": "a b"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"invisibleTime": "x"}, ResponseCode.SYSTEM_ERROR),
    ],
)
async def test_pop_that_cannot_be_is_refused(
    peer: RemotingPeer, more: dict[str, Any], code: int
) -> None:
    assert (await pop(peer, **more)).code == code


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"topic": "nowhere"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queueId": 99}, ResponseCode.MESSAGE_ILLEGAL),
        ({"offset": 77}, ResponseCode.NO_MESSAGE),
        ({"extraInfo": "0 1"}, ResponseCode.SYSTEM_ERROR),
        ({"consumerGroup": "nobody"}, ResponseCode.SUCCESS),
    ],
)
async def test_acknowledgement_that_cannot_be_is_refused(
    peer: RemotingPeer, more: dict[str, Any], code: int
) -> None:
    taken = await pop(peer, maxMsgNums=1)
    assert (await acknowledge(peer, receipts(taken)[0], **more)).code == code
    assert await committed(peer) == 0


async def test_too_many_that_wait_are_told_so(
    peer: RemotingPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pop_waiting, "WAITING_PER_GROUP_MAX", 1)
    await pop(peer)
    waiting = peer.send(RequestCode.POP_MESSAGE, pop_ext(pollTime=30_000))
    assert (await pop(peer, pollTime=30_000)).code == ResponseCode.POLLING_FULL
    ext = {"consumerGroup": "g", "topic": "T", "queueId": 0, "pollTime": 30_000, "bornTime": 0}
    full = await peer.call(RequestCode.NOTIFICATION, ext)
    assert (full.ext["hasMsg"], full.ext["pollingFull"]) == ("false", "true")
    await peer.put("T", b"d")
    assert bodies(await peer.answer(waiting)) == [b"d"]


async def test_connection_that_ends_leaves_no_one_waiting(
    peer: RemotingPeer, broker: Broker, connect: Callable[..., Awaitable[RemotingPeer]]
) -> None:
    await pop(peer)
    other = await connect()
    other.send(RequestCode.POP_MESSAGE, pop_ext(pollTime=30_000))
    await until(lambda: len(pop_of(broker).waiting) == 1)
    await other.close()
    await until(lambda: not len(pop_of(broker).waiting))
    assert pop_of(broker).waiting.count("g", "T", 0) == 0


async def test_notification_says_whether_there_is_something(peer: RemotingPeer) -> None:
    ext = {"consumerGroup": "g", "topic": "T", "queueId": -1, "pollTime": 0, "bornTime": 0}
    assert (await peer.call(RequestCode.NOTIFICATION, ext)).ext["hasMsg"] == "true"
    await pop(peer)
    assert (await peer.call(RequestCode.NOTIFICATION, ext)).ext["hasMsg"] == "false"
    waiting = peer.send(RequestCode.NOTIFICATION, {**ext, "pollTime": 30_000})
    await peer.put("T", b"d")
    assert (await peer.answer(waiting)).ext["hasMsg"] == "true"


async def assigned(peer: RemotingPeer, **more: object) -> Any:
    body: dict[str, object] = {
        "clientId": "client",
        "consumerGroup": "g",
        "topic": "T",
        "strategyName": "AVG",
    }
    body |= {"messageModel": "CLUSTERING", **more}
    answer = await peer.call(RequestCode.QUERY_ASSIGNMENT, {}, json.dumps(body).encode())
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return json.loads(answer.body).get("messageQueueAssignments")


async def set_mode(peer: RemotingPeer, mode: str, topic: str = "T", group: str = "g") -> int:
    body = {"consumerGroup": group, "topic": topic, "mode": mode, "popShareQueueNum": 0}
    answer = await peer.call(RequestCode.SET_MESSAGE_REQUEST_MODE, {}, json.dumps(body).encode())
    return answer.code


async def test_administrator_switches_a_group_between_pull_and_pop(peer: RemotingPeer) -> None:
    assert await assigned(peer) is None
    await peer.call(34, {}, heartbeat("g"))
    pulls = await assigned(peer)
    assert {each["mode"] for each in pulls} == {"PULL"}
    assert sorted(each["messageQueue"]["queueId"] for each in pulls) == [0, 1, 2, 3]
    assert await set_mode(peer, "POP") == ResponseCode.SUCCESS
    (shared,) = await assigned(peer)
    assert (shared["mode"], shared["messageQueue"]["queueId"]) == ("POP", -1)
    assert await set_mode(peer, "PULL") == ResponseCode.SUCCESS
    assert {each["mode"] for each in await assigned(peer)} == {"PULL"}
    assert await set_mode(peer, "POP", topic="%RETRY%g") == ResponseCode.NO_PERMISSION
    assert await set_mode(peer, "POP", topic="nowhere") == ResponseCode.TOPIC_NOT_EXIST
    assert await set_mode(peer, "POP", group="nobody") == 26
    assert await set_mode(peer, "PUSH") == ResponseCode.INVALID_PARAMETER


async def test_mode_ends_with_its_topic(peer: RemotingPeer, broker: Broker) -> None:
    broker.groups.get_or_create("g")
    assert await set_mode(peer, "POP") == ResponseCode.SUCCESS
    assert broker.offsets.query("g", "T", 0) is None, "the group has read nothing yet"
    await peer.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
    assert list(pop_of(broker).modes.all()) == []


async def test_modes_of_all_groups_are_told(peer: RemotingPeer) -> None:
    ask = RequestCode.GET_ALL_MESSAGE_REQUEST_MODE
    assert json.loads((await peer.call(ask)).body) == {"messageRequestModeMap": {}}
    await peer.call(34, {}, heartbeat("g"))
    assert await set_mode(peer, "POP") == ResponseCode.SUCCESS
    told = json.loads((await peer.call(ask)).body)["messageRequestModeMap"]
    mode = {"consumerGroup": "g", "mode": "POP", "popShareQueueNum": 0, "topic": "T"}
    assert told == {"T": {"g": mode}}
