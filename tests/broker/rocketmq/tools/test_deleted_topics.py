"""What was delivered in one append with a message whose topic is deleted: it is not put again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from imago_broker.app import Broker
from imago_testing.clusters.brokers import loopback_config
from imago_testing.peers.remoting import RemotingPeer, pull_ext, send_ext
from imago_testing.peers.transactions import COMMIT, Half, half_properties
from imago_wire.remoting.codes import RequestCode as Code
from imago_wire.remoting.codes import ResponseCode
from imago_wire.remoting.messages import decode_messages

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

TOPICS = ("T", "U")


async def commit_both(peer: RemotingPeer) -> None:
    halves = []
    for topic in TOPICS:
        properties = half_properties(topic)
        answer = await peer.put(topic, b"later", properties=properties, f=4, a="P")
        halves.append(Half(answer, topic))
    numbers = [peer.send(Code.END_TRANSACTION, half.header(COMMIT)) for half in halves]
    for number in numbers:
        assert (await peer.answer(number)).code == ResponseCode.SUCCESS


def send_both(waits: str) -> Callable[[RemotingPeer], Coroutine[None, None, None]]:
    async def send(peer: RemotingPeer) -> None:
        due_ms = time.time_ns() // 1_000_000 + 700
        for topic in TOPICS:
            properties = f"UNIQ_KEY\x01{topic}\x02{waits.format(due_ms)}\x02"
            peer.send(310, send_ext(topic, 0, properties), b"later")

    return send


async def bodies(peer: RemotingPeer, topic: str) -> list[bytes]:
    answer = await peer.call(11, pull_ext(topic))
    return [each.body for each in decode_messages(answer.body)]


@pytest.mark.parametrize(
    "deliver",
    [commit_both, send_both("DELAY\x011"), send_both("TIMER_DELIVER_MS\x01{}")],
    ids=["transactions", "levels", "timers"],
)
async def test_delivered_once_over_a_kill(
    tmp_path: Path, deliver: Callable[[RemotingPeer], Coroutine[None, None, None]]
) -> None:
    config = loopback_config(tmp_path)
    broker = Broker(config)
    await broker.start()
    peer = await RemotingPeer.connect(broker.rocketmq_port)
    for topic in TOPICS:
        await peer.put(topic, b"first", queue_id=1)
    await deliver(peer)
    await peer.call(11, pull_ext("U", sysFlag=6))
    await peer.call(11, pull_ext("T", sysFlag=6))
    assert await bodies(peer, "T") == await bodies(peer, "U") == [b"later"]
    await peer.call(Code.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
    await peer.put("T", b"first", queue_id=1)
    await peer.close()
    await broker.stop(clean=False)
    broker = Broker(config)
    await broker.start()
    peer = await RemotingPeer.connect(broker.rocketmq_port)
    await peer.put(
        "U", b"last", queue_id=0, properties="UNIQ_KEY\x01l\x02TIMER_DELAY_MS\x01400\x02"
    )
    while (found := await bodies(peer, "U"))[-1] != b"last":
        await peer.call(11, pull_ext("U", len(found), sysFlag=6))
    assert found == [b"later", b"last"]
    assert await bodies(peer, "T") == []
    await peer.close()
    await broker.stop()
