"""Which light queues (LMQ) there may be, over real sockets: names, limits, the switch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from imago_broker.service.puts import light_queues
from imago_testing.peers.light import A, B, put, told
from imago_wire.remoting.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from imago_broker.app import Broker
    from imago_broker.config import BrokerConfig
    from imago_testing.peers.remoting import RemotingPeer

    Connect = Callable[..., Awaitable[RemotingPeer]]


@pytest.fixture
def config(config: BrokerConfig) -> BrokerConfig:
    return replace(config, rocketmq=replace(config.rocketmq, light_queues=True))


@pytest.mark.parametrize(
    ("names", "word"),
    [
        ("%LMQ%a/b", "consists of letters"),
        ("%LMQ%" + "x" * 200, "characters, at most"),
        (",".join(f"%LMQ%{n}" for n in range(1001)), "names 1001 queues"),
        (",".join(f"%LMQ%{n:0100d}" for n in range(309)), "too long"),
    ],
)
async def test_names_that_cannot_be_are_refused(
    peer: RemotingPeer, broker: Broker, names: str, word: str
) -> None:
    sent = await put(peer, b"x", names)
    assert sent.code == ResponseCode.MESSAGE_ILLEGAL
    assert word in (sent.remark or "")
    assert (await peer.pull("T")).code in (
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.TOPIC_NOT_EXIST,
    )
    assert len(broker.core.messages.light) == 0


async def test_most_names_that_may_be_are_served(
    peer: RemotingPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(light_queues, "NAMES_MAX", 2)
    assert (await put(peer, b"x")).code == ResponseCode.SUCCESS
    refused = await put(peer, b"x", f"{A},{B},%LMQ%c")
    assert refused.code == ResponseCode.MESSAGE_ILLEGAL


async def test_no_more_light_queues_than_allowed(peer: RemotingPeer) -> None:
    changed = await told(peer, "maxLmqConsumeQueueNum=2")
    assert changed.code == ResponseCode.SUCCESS
    assert (await put(peer, b"x")).code == ResponseCode.SUCCESS
    refused = await put(peer, b"y", f"{A},%LMQ%c")
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert (refused.remark or "").startswith("[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]broker config enable")
    direct = await peer.put("%LMQ%c", b"z")
    assert direct.code == ResponseCode.SYSTEM_ERROR
    assert [message.body for message in await peer.messages("T")] == [b"x"]
    assert [message.body for message in await peer.messages(A)] == [b"x"]
    assert (await put(peer, b"again")).code == ResponseCode.SUCCESS


async def test_switched_off_again_they_are_left_alone(peer: RemotingPeer) -> None:
    await put(peer, b"x")
    assert (await told(peer, "enableLmq=false")).code == ResponseCode.SUCCESS
    assert (await peer.pull(A)).code == ResponseCode.TOPIC_NOT_EXIST
    assert (await peer.put(A, b"y")).code == ResponseCode.SYSTEM_ERROR
    await put(peer, b"alone")
    assert (await told(peer, "enableMultiDispatch=true")).code == ResponseCode.SUCCESS
    await put(peer, b"z")
    assert [message.body for message in await peer.messages(A)] == [b"x", b"z"]
    shown = await peer.call(RequestCode.GET_BROKER_CONFIG)
    assert b"enableLmq=true" in bytes(shown.body)


async def test_ordinary_topic_of_such_a_name_is_no_light_queue(peer: RemotingPeer) -> None:
    await told(peer, "enableLmq=false")
    await peer.put(A, b"ordinary")
    await told(peer, "enableLmq=true")
    refused = await put(peer, b"x")
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert "is no light queue" in (refused.remark or "")
    assert [message.body for message in await peer.messages(A)] == [b"ordinary"]
