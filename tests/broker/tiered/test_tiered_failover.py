"""Masters that follow each other, and members that begin again, have one bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_broker.app import ticking
from imago_broker.features.tiered import tier
from imago_testing.clusters.shard_brokers import ShardBrokers, until
from imago_testing.peers.features import tier_of
from imago_testing.peers.remoting import RemotingPeer, pull_ext
from imago_wire.remoting.codes import ResponseCode
from imago_wire.remoting.messages import decode_messages

if TYPE_CHECKING:
    from pathlib import Path

    from imago_broker.app import Broker
    from imago_broker.features.tiered.tier import Tier
    from imago_log.store import MessageStore

MESSAGES = 60


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ticking, "TICK_SECONDS", 0.05)
    monkeypatch.setattr(tier, "LOOK_S", 0.05)
    monkeypatch.setattr(tier, "RETRY_S", 0.05)


def body_of(number: int) -> bytes:
    return b"%06d" % number + b"." * 9000


def tier_in(broker: Broker) -> Tier:
    found = tier_of(broker)
    assert found is not None
    return found


async def put_all(broker: Broker, first: int) -> None:
    peer = await RemotingPeer.connect(broker.rocketmq_port)
    for number in range(first, first + MESSAGES):
        answer = await peer.put("T", body_of(number))
        assert answer.code == ResponseCode.SUCCESS, answer.remark
    await peer.close()


async def read_all(broker: Broker, count: int) -> list[bytes]:
    peer = await RemotingPeer.connect(broker.rocketmq_port)
    at, found = 0, list[bytes]()
    while at < count:
        answer = await peer.call(11, pull_ext("T", at, sysFlag=4 | 2))
        assert answer.code == ResponseCode.SUCCESS, (answer.code, answer.remark)
        found += [each.body for each in decode_messages(answer.body)]
        at = int(answer.ext["nextBeginOffset"])
    await peer.close()
    return found


async def test_a_member_without_the_old_files_leads_and_serves_them(tmp_path: Path) -> None:
    shard = ShardBrokers(
        tmp_path,
        "store.segment_bytes_max=65536",
        "rocketmq.message_bytes_max=20000",
        "metaq.message_bytes_max=20000",
        f"tier.url=file://{tmp_path}/bucket",
        "tier.local_retention_bytes_max=196608",
        replicas=2,
    )
    try:
        await fail_over(shard)
    finally:
        await shard.close()


async def fail_over(shard: ShardBrokers) -> None:
    await shard.start(0, 1)
    leader = await shard.led()
    await shard.all_in_sync(0, 1)
    await put_all(shard.brokers[leader], 0)
    other = 1 - leader
    for store in (shard.store(0), shard.store(1)):  # both let go of what the bucket has

        def few(store: MessageStore = store) -> bool:
            return store.log_end - store.log_start < 5 << 16

        await until(few)
    await shard.stop(other)
    shard.wipe(other)
    await shard.start(other)
    await shard.all_in_sync(0, 1)
    assert shard.store(other).log_start > 100_000
    former = tier_in(shard.brokers[leader]).reader.manifest
    await shard.kill(leader)
    assert await shard.led() == other
    broker = shard.brokers[other]
    await until(lambda: tier_in(broker).reader.known)
    manifest = tier_in(broker).reader.manifest
    assert manifest.segments[: len(former.segments)] == former.segments
    assert manifest.epoch > former.epoch
    expected = [body_of(number) for number in range(MESSAGES)]
    assert await read_all(broker, MESSAGES) == expected
    await shard.start(leader)
    await shard.all_in_sync(0, 1)
    await put_all(broker, MESSAGES)
    await until(lambda: not tier_in(broker).waiting_bytes)
    expected += [body_of(number) for number in range(MESSAGES, 2 * MESSAGES)]
    assert await read_all(broker, 2 * MESSAGES) == expected
