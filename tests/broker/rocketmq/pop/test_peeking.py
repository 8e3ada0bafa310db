"""PEEK and NOTIFICATION, which take nothing; groups to which a topic is forbidden."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from imago_testing.clusters.shard_brokers import until
from imago_testing.peers.features import pop_of
from imago_testing.peers.popping import acknowledge, bodies, pop, pop_ext, receipts
from imago_wire.remoting.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from imago_broker.app import Broker
    from imago_testing.peers.remoting import RemotingPeer
    from imago_wire.remoting.command import RemotingCommand


@pytest.fixture(autouse=True)
async def topic(peer: RemotingPeer) -> None:
    for body in (b"a", b"b", b"c"):
        await peer.put("T", body)


async def peek(peer: RemotingPeer, *queue: int, **more: object) -> RemotingCommand:
    queue_id = queue[0] if queue else 0
    fields = {"topic": "T", "queueId": queue_id, "maxMsgNums": 32, "consumerGroup": "g", **more}
    return await peer.call(RequestCode.PEEK_MESSAGE, fields)


async def test_nobody_begins_by_looking(peer: RemotingPeer, broker: Broker) -> None:
    assert bodies(await peek(peer, consumerGroup="new")) == [b"a", b"b", b"c"]
    asked = {"topic": "T", "queueId": 0, "consumerGroup": "new", "order": False}
    notified = await peer.call(RequestCode.NOTIFICATION, {**asked, "bornTime": 0, "pollTime": 0})
    assert notified.ext["hasMsg"] == "true"
    for queue_id in (0, -1):
        assert (await peek(peer, queue_id, consumerGroup="new")).code == ResponseCode.SUCCESS
    assert pop_of(broker).service.known(("new", "T", 0)) is None
    assert broker.offsets.query("new", "T", 0) is None
    assert bodies(await pop(peer, consumerGroup="new")) == [b"a", b"b", b"c"]


async def test_a_group_gets_nothing_of_a_topic_that_is_forbidden_to_it(
    peer: RemotingPeer, broker: Broker
) -> None:
    assert bodies(await pop(peer, maxMsgNums=3)) == [b"a", b"b", b"c"]
    waiting = peer.send(RequestCode.POP_MESSAGE, pop_ext(pollTime=60_000))
    await until(lambda: len(pop_of(broker).waiting) == 1)
    forbid = {"group": "g", "topic": "T", "readable": "false"}
    assert (await peer.call(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, forbid)).code == 0
    await peer.put("T", b"d")
    assert (await peer.answer(waiting)).code == ResponseCode.NO_PERMISSION
    asked = {"topic": "T", "queueId": 0, "consumerGroup": "g", "order": False}
    for answer in (
        await pop(peer),
        await peek(peer),
        await peer.call(RequestCode.NOTIFICATION, {**asked, "bornTime": 0, "pollTime": 0}),
    ):
        assert answer.code == ResponseCode.NO_PERMISSION
        assert "[g] is forbidden for topic[T]" in (answer.remark or "")
    assert bodies(await pop(peer, consumerGroup="other")) == [b"a", b"b", b"c", b"d"]


async def test_peeking_shows_what_a_pop_would_give_and_takes_nothing(
    peer: RemotingPeer, broker: Broker
) -> None:
    for _ in range(2):
        seen = await peek(peer)
        assert bodies(seen) == [b"a", b"b", b"c"]
        assert seen.ext["msgOffsetInfo"] == "0 0 0,1,2"
        assert seen.ext["restNum"] == "3"
    assert bodies(await peek(peer, -1, maxMsgNums=2)) == [b"a", b"b"]
    taken = await pop(peer, maxMsgNums=2, invisibleTime=0)
    assert bodies(await peek(peer)) == [b"a", b"b", b"c"], "the time of two is up"
    taken = await pop(peer, maxMsgNums=2)
    assert bodies(await peek(peer)) == [b"c"]
    await acknowledge(peer, receipts(taken)[0])
    assert bodies(await pop(peer)) == [b"c"]
    nothing = await peek(peer)
    assert (nothing.code, nothing.body) == (ResponseCode.PULL_NOT_FOUND, b"")
    assert pop_of(broker).service.counts.handed_out == 5


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "nowhere"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queueId": 4}, ResponseCode.INVALID_PARAMETER),
        ({"queueId": -2}, ResponseCode.INVALID_PARAMETER),
        ({"consumerGroup": "a b"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
    ],
)
async def test_peeking_that_cannot_be_is_refused(
    peer: RemotingPeer, fields: dict[str, Any], code: int
) -> None:
    assert (await peek(peer, **fields)).code == code
