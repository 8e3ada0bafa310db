"""Who waits by POP gets at once what a reset gives, and what an acknowledgement makes room for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_broker.features.pop import room as pop_room
from imago_broker.features.pop import service as popping
from imago_testing.clusters.shard_brokers import until
from imago_testing.peers.features import pop_of
from imago_testing.peers.popping import acknowledge, bodies, committed, pop, pop_ext, receipts
from imago_wire.remoting.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from imago_broker.app import Broker
    from imago_testing.peers.remoting import RemotingPeer


@pytest.fixture(autouse=True)
async def topic(peer: RemotingPeer) -> None:
    for body in (b"a", b"b", b"c"):
        await peer.put("T", body)


@pytest.mark.parametrize("queue_id", [0, -1])
@pytest.mark.parametrize("how", ["reset", "commit"])
async def test_reset_wakes_who_waits(
    peer: RemotingPeer, broker: Broker, queue_id: int, how: str
) -> None:
    await pop(peer)
    await acknowledge(peer, (0, 0, ""), extraInfo="0 0 0 0 0 broker 0 0")  # void
    broker.offsets.reset("g", "T", {0: 3})
    waiting = peer.send(RequestCode.POP_MESSAGE, pop_ext(queue_id, pollTime=600_000))
    await until(lambda: len(pop_of(broker).waiting) == 1)
    if how == "reset":
        broker.offsets.reset("g", "T", {0: 1})
    else:
        ext = {"consumerGroup": "g", "topic": "T", "queueId": 0, "commitOffset": 1}
        await peer.call(RequestCode.UPDATE_CONSUMER_OFFSET, ext)
    assert bodies(await peer.answer(waiting)) == [b"b", b"c"]


@pytest.mark.parametrize("place", [0, 1, 3])
async def test_reset_among_acknowledgements_counts(
    peer: RemotingPeer, broker: Broker, place: int
) -> None:
    """What comes in one turn is written as one change: of the group's state nothing is left."""
    taken = receipts(await pop(peer))
    reset = {"group": "g", "topic": "T", "timestamp": -1, "isForce": "true", "offset": place}
    asked = []
    for _, offset, text in taken:
        ext = {"consumerGroup": "g", "topic": "T", "queueId": 0, "offset": offset}
        asked.append(peer.send(RequestCode.ACK_MESSAGE, {**ext, "extraInfo": text}))
        if not offset:
            ext = {**reset, "queueId": 0}
            asked.append(peer.send(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext))
    for each in asked:
        assert (await peer.answer(each)).code == ResponseCode.SUCCESS
    assert await committed(peer) == place
    assert pop_of(broker).service.out == 0
    left = await pop(peer)
    if place == 3:
        assert left.code == ResponseCode.POLLING_TIMEOUT
    else:
        assert bodies(left) == [b"a", b"b", b"c"][place:]


async def test_commit_of_who_pulls_counts_beside_acknowledgements(
    peer: RemotingPeer, broker: Broker
) -> None:
    first, second, _ = receipts(await pop(peer))
    asked = []
    for _, offset, text in (first, second):
        ext = {"consumerGroup": "g", "topic": "T", "queueId": 0}
        receipt = {**ext, "offset": offset, "extraInfo": text}
        asked.append(peer.send(RequestCode.ACK_MESSAGE, receipt))
        commit = {**ext, "commitOffset": 3}
        asked.append(peer.send(RequestCode.UPDATE_CONSUMER_OFFSET, commit))
    for each in asked:
        assert (await peer.answer(each)).code == ResponseCode.SUCCESS
    assert await committed(peer) == 3
    assert (await pop(peer)).code == ResponseCode.POLLING_TIMEOUT
    assert pop_of(broker).service.out == 0


@pytest.mark.parametrize("limit", ["OUT_MAX", "OUT_ALL_MAX"])
async def test_room_that_an_acknowledgement_makes_wakes_who_waits(
    peer: RemotingPeer, broker: Broker, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(popping, limit, 2)
    monkeypatch.setattr(pop_room, "SEEN_MAX", 1)
    taken = await pop(peer)
    assert bodies(taken) == [b"a", b"b"]
    waits = pop_of(broker).waiting
    groups = ["g"] if limit == "OUT_MAX" else ["g", "h"]
    waiting = [
        peer.send(RequestCode.POP_MESSAGE, pop_ext(-1, consumerGroup=group, pollTime=600_000))
        for group in groups
    ]
    notified = peer.send(
        RequestCode.NOTIFICATION,
        {"consumerGroup": "g", "topic": "T", "queueId": 0, "pollTime": 600_000, "bornTime": 0},
    )
    await until(lambda: len(waits) == len(waiting) + 1)
    for receipt in receipts(taken):
        await acknowledge(peer, receipt)
    given = [bodies(await peer.answer(each)) for each in waiting]
    assert given == [[b"c"], [b"a"]][: len(given)]
    if limit == "OUT_MAX":
        assert (await peer.answer(notified)).ext["hasMsg"] == "true"


@pytest.mark.parametrize("queue_id", [0, -1])
@pytest.mark.parametrize("how", ["deleted", "closed"])
async def test_who_waits_hears_that_its_group_is_gone(
    peer: RemotingPeer,
    broker: Broker,
    connect: Callable[..., Awaitable[RemotingPeer]],
    queue_id: int,
    how: str,
) -> None:
    assert bodies(await pop(peer, -1)) == [b"a", b"b", b"c"]
    await pop(peer, -1, consumerGroup="other")
    other, waits = await connect(), pop_of(broker).waiting
    polling = {"pollTime": 600_000}
    notification = {"consumerGroup": "g", "topic": "T", "queueId": queue_id, "bornTime": 0}
    asked = [
        peer.send(RequestCode.POP_MESSAGE, pop_ext(queue_id, **polling)),
        peer.send(RequestCode.NOTIFICATION, {**notification, **polling}),
    ]
    left = peer.send(RequestCode.POP_MESSAGE, pop_ext(-1, consumerGroup="other", **polling))
    await until(lambda: len(waits) == 3)
    if how == "deleted":
        code, ext = RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "g", "cleanOffset": "true"}
        assert (await other.call(code, ext)).code == ResponseCode.SUCCESS
        refusal = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    else:
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        body = b'{"groupName":"g","consumeEnable":false}'
        assert (await other.call(code, {}, body)).code == ResponseCode.SUCCESS
        refusal = ResponseCode.NO_PERMISSION
    assert [(await peer.answer(each)).code for each in asked] == [refusal, refusal]
    assert (broker.groups.get("g") is None) == (how == "deleted")
    # Who waits for another group goes on.
    await other.put("T", b"new")
    assert bodies(await peer.answer(left)) == [b"new"]


async def test_who_waits_hears_of_fewer_and_of_more_queues(
    peer: RemotingPeer, broker: Broker, connect: Callable[..., Awaitable[RemotingPeer]]
) -> None:
    pull = {"consumerGroup": "g", "topic": "T", "queueId": 3, "queueOffset": 0, "maxMsgNums": 32}
    pull |= {"sysFlag": 6, "commitOffset": 0, "suspendTimeoutMillis": 600_000, "subVersion": 0}
    assert bodies(await pop(peer, -1)) == [b"a", b"b", b"c"]
    polling = {"pollTime": 600_000}
    waits, other = pop_of(broker).waiting, await connect()

    async def set_queues(count: int) -> None:
        ext = {"topic": "T", "defaultTopic": "TBW102", "perm": 6, "topicFilterType": "SINGLE_TAG"}
        ext |= {"readQueueNums": count, "writeQueueNums": count, "order": "false"}
        code = RequestCode.UPDATE_AND_CREATE_TOPIC
        assert (await other.call(code, ext)).code == ResponseCode.SUCCESS

    await set_queues(4)
    asked = [
        peer.send(RequestCode.POP_MESSAGE, pop_ext(-1, **polling)),
        peer.send(RequestCode.POP_MESSAGE, pop_ext(3, **polling)),
        peer.send(RequestCode.PULL_MESSAGE, {**pull, "subscription": "*"}),
    ]
    hold = broker.rocketmq.delivery.hold
    await until(lambda: (len(waits), len(hold)) == (2, 1))
    await set_queues(2)
    told = [await peer.answer(each) for each in asked]
    illegal = ResponseCode.INVALID_PARAMETER
    assert [each.code for each in told] == [ResponseCode.POLLING_TIMEOUT, illegal, illegal]
    for each in told[1:]:
        assert "topicConfig.readQueueNums:[2]" in (each.remark or "")
    waiting = peer.send(RequestCode.POP_MESSAGE, pop_ext(-1, **polling))
    await until(lambda: len(waits) == 1)
    await set_queues(4)
    assert (await peer.answer(waiting)).code == ResponseCode.POLLING_TIMEOUT
    waiting = peer.send(RequestCode.POP_MESSAGE, pop_ext(-1, **polling))
    await other.put("T", b"new", queue_id=3)
    assert bodies(await peer.answer(waiting)) == [b"new"]
