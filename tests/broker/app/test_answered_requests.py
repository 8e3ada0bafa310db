"""What answered requests leave: nothing that only the garbage collector could free.

A busy broker answers thousands a second: what they left would be collected while others wait.
"""

from __future__ import annotations

import gc
import random
from collections import Counter
from typing import TYPE_CHECKING

import aiohttp
import pytest

from imago_testing.clusters.brokers import running_broker
from imago_testing.clusters.shard_brokers import until
from imago_testing.peers.features import pop_of
from imago_testing.peers.generated import storm
from imago_testing.peers.metaq import metaq_peer
from imago_testing.peers.popping import acknowledge, bodies, pop, pop_ext, receipts
from imago_testing.peers.remoting import RemotingPeer, heartbeat, pull_ext
from imago_testing.peers.transactions import COMMIT, be_producer, end, half
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.command import FLAG_RESPONSE, RemotingCommand
from imago_wire.remoting.frame import encode_frame
from imago_wire.remoting.messages import encode_batch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from imago_broker.app import Broker

    Requests = Callable[[Broker, RemotingPeer], Awaitable[None]]

QUICK_CHECKS = ("rocketmq.transaction_timeout_ms=0", "rocketmq.transaction_check_interval_ms=20")
TIMES = 3
STAGED = {"producerGroup": "g", "queueId": 0, "sysFlag": 0, "bornTimestamp": 1, "flag": 0}
OF_DELETED_TOPICS = {"ConsumeQueue", "UnitFiles", "UnitLookup"}
"""They know each other, and topics are deleted rarely."""
OURS = ("imago_broker", "imago_log", "imago_wire")


async def waits(broker: Broker, count: int) -> None:
    await until(lambda: len(pop_of(broker).waiting) == count)


async def sends_and_pulls(broker: Broker, peer: RemotingPeer) -> None:
    await peer.put("T", b"a", properties="TAGS\x01a\x02KEYS\x01k\x02")
    await peer.messages("T")
    offset = int((await peer.call(RequestCode.GET_MAX_OFFSET, pull_ext("T"))).ext["offset"])
    waiting = peer.send(RequestCode.PULL_MESSAGE, pull_ext("T", offset, sysFlag=6))
    await until(lambda: len(broker.rocketmq.delivery.hold) == 1)
    other = await RemotingPeer.connect(broker.rocketmq_port)
    await other.put("T", b"b")
    assert (await peer.answer(waiting)).code == ResponseCode.SUCCESS
    await other.close()


async def pops(broker: Broker, peer: RemotingPeer) -> None:
    """Wait for an arrival, for one of the messages to come back, and in vain."""
    while (found := await pop(peer, -1)).code == ResponseCode.SUCCESS:
        for receipt in receipts(found):
            await acknowledge(peer, receipt)
    waiting = peer.send(RequestCode.POP_MESSAGE, pop_ext(-1, pollTime=30_000, invisibleTime=50))
    await waits(broker, 1)
    other = await RemotingPeer.connect(broker.rocketmq_port)
    await other.put("T", b"late")
    assert bodies(await peer.answer(waiting)) == [b"late"]
    again = await peer.call(RequestCode.POP_MESSAGE, pop_ext(-1, pollTime=30_000))
    assert bodies(again) == [b"late"]
    await acknowledge(peer, receipts(again)[0])
    in_vain = await peer.call(RequestCode.POP_MESSAGE, pop_ext(-1, pollTime=20))
    assert in_vain.code == ResponseCode.POLLING_TIMEOUT
    ext = {"consumerGroup": "g", "topic": "T", "queueId": -1, "pollTime": 30_000, "bornTime": 0}
    noticing = peer.send(RequestCode.NOTIFICATION, ext)
    await waits(broker, 1)
    await other.put("T", b"noticed")
    assert (await peer.answer(noticing)).ext["hasMsg"] == "true"
    await other.close()


async def transactions(_: Broker, peer: RemotingPeer) -> None:
    one = await half(peer, b"ends at once")
    assert (await end(peer, one, COMMIT)).code == ResponseCode.SUCCESS
    await be_producer(peer)
    one = await half(peer, b"is asked about")
    await peer.request(RequestCode.CHECK_TRANSACTION_STATE)
    assert (await end(peer, one, COMMIT)).code == ResponseCode.SUCCESS


async def sinks(broker: Broker, peer: RemotingPeer) -> None:
    """Publish a micro-batch, nothing, and again; forget one."""
    batch = int(broker.clock.monotonic_ms())
    for number, commit in ((batch, "true"), (batch, "true"), (batch + 1, "false")):
        ext = {"topic": "T", "imagoSink": "s", "imagoBatch": number}
        staged = {"imagoAttempt": "a", "imagoPart": 0, "batch": "true"}
        body = encode_batch([(b"row", b"UNIQ_KEY\x01%d\x02" % number, 0)])
        await peer.call(RequestCode.IMAGO_STAGE_BATCH, {**STAGED, **ext, **staged}, body)
        asked = b'{"parts": {"a": 1}, "said": "x"}'
        answer = await peer.call(
            RequestCode.IMAGO_PUBLISH_STAGED, {**ext, "imagoCommit": commit}, asked
        )
        assert answer.code == ResponseCode.SUCCESS, answer.remark


async def relays(broker: Broker, peer: RemotingPeer) -> None:
    consumer = await RemotingPeer.connect(broker.rocketmq_port)
    await consumer.call(RequestCode.HEART_BEAT, {}, heartbeat("G"))
    ask = {"consumerGroup": "G", "clientId": "client", "jstackEnable": "false"}
    relayed = peer.send(RequestCode.GET_CONSUMER_RUNNING_INFO, ask)
    asked = await consumer.request(RequestCode.GET_CONSUMER_RUNNING_INFO)
    answer = RemotingCommand(code=0, flag=FLAG_RESPONSE, opaque=asked.opaque, body=b"{}")
    consumer.write(encode_frame(answer))
    assert (await peer.answer(relayed)).body == b"{}"
    await consumer.close()


async def metaq_requests(broker: Broker, _: RemotingPeer) -> None:
    async with metaq_peer(broker.metaq_port) as metaq:
        assert (await metaq.put("T", 0, b"body")).startswith(b"result 200")
        assert (await metaq.get("T", 0, 0)).startswith(b"value")
        assert (await metaq.get("T", 0, 1 << 40)).startswith(b"result 404")
        for kind in (b"BEGIN", b"COMMIT_ONE_PHASE"):
            answer = await metaq.ask(b"transaction TX:h-1:1 h-1 %b 9\r\n" % kind)
            assert answer.startswith(b"result 200")
        assert b"STATS" in await metaq.ask(b"stats 7\r\n")


async def admin_requests(broker: Broker, _: RemotingPeer) -> None:
    address = f"http://127.0.0.1:{broker.ports.admin_port}"
    async with aiohttp.ClientSession() as session:
        for path in ("/admin/v1/topics", "/admin/v1/status", "/metrics", "/healthz", "/none"):
            async with session.get(address + path) as answer:
                await answer.read()


async def any_requests(broker: Broker, _: RemotingPeer) -> None:
    """Requests of all codes, right and wrong."""
    for port in (broker.rocketmq_port, broker.ports.namesrv_port):
        await storm(port, random.Random(7), 300)


def uncollected() -> Counter[str]:
    """Return what of ours is in the collector's list, by its type."""
    types = [type(each) for each in gc.garbage]
    names = [each.__qualname__ for each in types if each.__module__.startswith(OURS)]
    return Counter(name for name in names if name not in OF_DELETED_TOPICS)


@pytest.mark.parametrize(
    "requests",
    [
        sends_and_pulls,
        pops,
        transactions,
        sinks,
        relays,
        metaq_requests,
        admin_requests,
        any_requests,
    ],
)
@pytest.mark.full
async def test_an_answered_request_leaves_nothing_to_collect(
    tmp_path: Path, requests: Requests
) -> None:
    async with running_broker(tmp_path, *QUICK_CHECKS) as broker:
        peer = await RemotingPeer.connect(broker.rocketmq_port)
        try:
            await peer.put("T", b"first")
            await requests(broker, peer)  # what is made once is made now
            gc.collect()
            gc.disable()
            gc.set_debug(gc.DEBUG_SAVEALL)
            for _ in range(TIMES):
                await requests(broker, peer)
            gc.collect()
            left = uncollected()
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
            await peer.close()
    assert not left
