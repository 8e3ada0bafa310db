"""What clients see while the mastership of their shard moves."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from imago_broker.service.serving_rules import NO_LEASE, Asks
from imago_client import Client, Message
from imago_client.config import ClientConfig, ConsumerConfig, ProducerConfig, StartFrom
from imago_testing.clusters.shard_brokers import TOPIC, ShardBrokers, until
from imago_testing.peers.metaq import metaq_peer, put_frame, put_place
from imago_testing.peers.remoting import RemotingPeer, pull_ext, send_ext
from imago_wire.remoting.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from imago_client.received import ReceivedMessage

PUTS = 60
LINGER_MS = 60_000


@pytest.fixture
async def three(tmp_path: Path) -> AsyncIterator[ShardBrokers]:
    """Three members in sync that serve reads; member 0 leads. Each answers the name service."""
    made = ShardBrokers(
        tmp_path,
        "namesrv.enabled=true",
        "replication.slave_reads=true",
        f"replication.handover_linger_ms={LINGER_MS}",
    )
    try:
        await made.start(0, 1, 2)
        await made.all_in_sync(0, 1, 2)
        await made.put(0, b"first")
        views = [broker.coordinator.view for broker in made.brokers.values()]
        await until(lambda: all(TOPIC in view().topics for view in views))
        yield made
    finally:
        for broker in made.brokers.values():
            broker.client_ports.release()  # nobody waits for the relays' end
        await made.close()


def bootstrap(shard: ShardBrokers) -> str:
    return ",".join(f"127.0.0.1:{broker.ports.namesrv_port}" for broker in shard.brokers.values())


async def hand_over(shard: ShardBrokers, leader: int, target: int) -> None:
    done, reason = await shard.shell(leader).hand_over(shard.brokers[target].uuid, "test")
    assert done, reason
    assert await shard.led(but=leader) == target


async def test_open_connections_of_both_protocols_see_no_error_over_a_handover(
    three: ShardBrokers,
) -> None:
    peer = await RemotingPeer.connect(three.brokers[0].rocketmq_port)
    stop = asyncio.Event()
    codes: list[int] = []
    frames: list[bytes] = []

    async def send_rocketmq() -> None:
        while not stop.is_set():
            body = b"rocketmq %d" % len(codes)
            answer = await peer.call(RequestCode.SEND_MESSAGE_V2, send_ext(TOPIC), body)
            codes.append(answer.code)

    async def send_metaq() -> None:
        async with metaq_peer(three.brokers[0].metaq_port) as client:
            while not stop.is_set():
                frames.append(await client.ask(put_frame(TOPIC, 0, b"metaq %d" % len(frames))))

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(send_rocketmq())
        tasks.create_task(send_metaq())
        await until(lambda: min(len(codes), len(frames)) > PUTS)
        await hand_over(three, 0, 2)
        before = len(codes), len(frames)
        await until(lambda: len(codes) > before[0] + PUTS and len(frames) > before[1] + PUTS)
        stop.set()
    assert set(codes) == {ResponseCode.SUCCESS}
    for frame in frames:
        put_place(frame)
    found = three.bodies(2)
    for kind, count in ((b"rocketmq", len(codes)), (b"metaq", len(frames))):
        stored = [body for body in found if body.startswith(kind)]
        assert stored == [b"%b %d" % (kind, index) for index in range(count)]
    await peer.close()


async def test_our_clients_send_and_read_through_handover_and_death(three: ShardBrokers) -> None:
    config = ClientConfig(bootstrap=tuple(bootstrap(three).split(",")), failover_timeout_s=20.0)
    got: list[bytes] = []

    async def handle(messages: Sequence[ReceivedMessage]) -> None:
        got.extend(message.body for message in messages)

    sent: list[bytes] = []
    async with Client(config) as client:
        producer = client.producer(ProducerConfig(send_timeout_s=20.0))
        settings = ConsumerConfig(
            group="readers", start_from=StartFrom.EARLIEST, rebalance_s=0.5, error_pause_s=0.1
        )

        async def send(count: int) -> None:
            for _ in range(count):
                sent.append(b"%d" % len(sent))
                await producer.send(Message(TOPIC, sent[-1]))

        async with client.push_consumer(settings, {TOPIC: "*"}, handle):
            await send(PUTS)
            await hand_over(three, 0, 1)
            await send(PUTS)
            await three.kill(1)
            await send(PUTS)
            await until(lambda: set(sent) <= set(got))
    assert await three.led() in (0, 2)


async def test_deposed_master_sends_consumers_to_the_next_one(three: ShardBrokers) -> None:
    peer = await RemotingPeer.connect(three.brokers[0].rocketmq_port)
    await peer.put(TOPIC, b"m")
    held = peer.send(RequestCode.PULL_MESSAGE, pull_ext(TOPIC, 2, sysFlag=6))
    three.trees[0].expire()
    leader = await three.led(but=0)
    answer = await peer.answer(held)
    assert (answer.code, answer.ext["nextBeginOffset"]) == (
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        "2",
    )
    await until(lambda: three.brokers[0].role.current.leader is not None)
    known = three.brokers[leader].coordinator.registered
    assert known is not None
    told = {(await peer.pull(TOPIC, 2)).ext["suggestWhichBrokerId"] for _ in range(64)}
    assert told == {"0", str(known.replica + 1)}
    assert (await peer.put(TOPIC, b"x")).code == ResponseCode.SERVICE_NOT_AVAILABLE
    await peer.close()


async def test_slaves_serve_what_all_members_have(three: ShardBrokers) -> None:
    await three.same_logs()
    for number in (1, 2):
        broker = three.brokers[number]
        await until(lambda broker=broker: broker.store.queue_range(TOPIC, 0)[1] == 1)  # type: ignore[misc]  # bound now
        peer = await RemotingPeer.connect(broker.rocketmq_port)
        assert [one.body for one in await peer.messages(TOPIC)] == [b"first"]
        await peer.close()


async def test_offsets_and_locks_outlive_their_master(three: ShardBrokers) -> None:
    peer = await RemotingPeer.connect(three.brokers[0].rocketmq_port)
    asked = {"consumerGroup": "g", "topic": TOPIC, "queueId": 0}
    commit = await peer.call(RequestCode.UPDATE_CONSUMER_OFFSET, {**asked, "commitOffset": 1})
    assert commit.code == ResponseCode.SUCCESS
    assert await locked(peer, "one") == 1
    await three.kill(0)
    await peer.close()
    leader = await three.led()
    peer = await RemotingPeer.connect(three.brokers[leader].rocketmq_port)
    while True:
        told = await peer.call(RequestCode.QUERY_CONSUMER_OFFSET, asked)
        if told.code != ResponseCode.SERVICE_NOT_AVAILABLE:
            break
    assert (told.code, told.ext) == (ResponseCode.SUCCESS, {"offset": "1"})
    assert await locked(peer, "two") == 0
    assert await locked(peer, "one") == 1
    await peer.close()


async def locked(peer: RemotingPeer, client: str) -> int:
    """Ask for queue 0; return how many locks the client has got."""
    queue = {"brokerName": "shard-0", "topic": TOPIC, "queueId": 0}
    body = {"consumerGroup": "g", "clientId": client, "mqSet": [queue]}
    answer = await peer.call(RequestCode.LOCK_BATCH_MQ, body=json.dumps(body).encode())
    return len(json.loads(answer.body)["lockOKMQSet"])


async def test_the_lease_is_what_a_master_reads_by(three: ShardBrokers) -> None:
    broker = three.brokers[0]
    assert broker.serving_rules.refusal(Asks.STATE) is None
    three.gate(0).lease_end_ms = 0
    assert broker.serving_rules.refusal(Asks.STATE) == NO_LEASE
    assert broker.serving_rules.refusal(Asks.MESSAGES) == NO_LEASE
