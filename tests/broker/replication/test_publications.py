"""Micro-batches of sinks on members that copy in pieces: no high watermark ever stands in one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from imago_broker.model import names
from imago_broker.model.topics.topics import TopicConfig
from imago_broker.replication.leader import sending
from imago_broker.service.metaq_transactions.transaction_log import read_mark
from imago_broker.service.puts.copies import read_copy
from imago_log.commitlog.watermark import HighWatermark
from imago_testing.clusters.shard_brokers import TOPIC, ShardBrokers, until
from imago_testing.peers.remoting import RemotingPeer
from imago_wire.records.record import PLACED_PHYSICAL_OFFSET
from imago_wire.remoting.codes import RequestCode
from imago_wire.remoting.headers.imago import PublishStagedRequestHeader, StageBatchRequestHeader
from imago_wire.remoting.messages import encode_batch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from imago_log import MessageStore

ROWS = 40


class Marks:
    """Where all high watermarks have stood, and where readers of which store may read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stood: set[int] = set()
        self.asked: set[int] = set()
        raise_to = HighWatermark.raise_to

        def noted(mark: HighWatermark, offset: int) -> None:
            self.asked.add(offset)
            raise_to(mark, offset)
            self.stood.add(mark.visible)

        monkeypatch.setattr(HighWatermark, "raise_to", noted)


@pytest.fixture
def marks(monkeypatch: pytest.MonkeyPatch) -> Marks:
    """Members that copy a few records at a time, and what becomes visible of it."""
    for name, size in (("FAR", 600), ("FRAME", 300), ("TURN", 600), ("WINDOW", 900)):
        monkeypatch.setattr(sending, f"{name}_BYTES", size)
    return Marks(monkeypatch)


@pytest.fixture
async def shard(tmp_path: Path, marks: Marks) -> AsyncIterator[ShardBrokers]:
    del marks
    made = ShardBrokers(tmp_path, replicas=2)
    yield made
    await made.close()


async def staged(shard: ShardBrokers, number: int, batch: int) -> RemotingPeer:
    """Stage a micro-batch through a member."""
    topics = shard.brokers[number].topics
    if topics.get(TOPIC) is None:
        topics.create_or_update(TopicConfig(name=TOPIC, read_queues=1, write_queues=1))
    peer = await RemotingPeer.connect(shard.brokers[number].ports.rocketmq_port)
    header = StageBatchRequestHeader(
        producer_group="g",
        topic=TOPIC,
        queue_id=0,
        sys_flag=0,
        born_timestamp=1,
        flag=0,
        batch=True,
        imago_sink="sink",
        imago_batch=batch,
        imago_attempt="a",
        imago_part=0,
    )
    rows = [(b"%d" % row * 99, f"UNIQ_KEY\x01{batch}.{row}\x02".encode(), 0) for row in range(ROWS)]
    answer = await peer.call(RequestCode.IMAGO_STAGE_BATCH, header.to_ext(), encode_batch(rows))
    assert answer.code == 0, answer.remark
    return peer


def publish(peer: RemotingPeer, batch: int) -> int:
    """Ask for a publication; return the number of the request."""
    header = PublishStagedRequestHeader(topic=TOPIC, imago_sink="sink", imago_batch=batch)
    body = json.dumps({"parts": {"a": 1}, "said": "x"}).encode()
    return peer.send(RequestCode.IMAGO_PUBLISH_STAGED, header.to_ext(), body)


def publications(store: MessageStore) -> list[tuple[int, int]]:
    """Return where publications begin and end in a log."""
    found, count = [], store.tail(names.METAQ_OUTCOME_TOPIC, 0).next_offset
    for placed in store.placed(names.METAQ_OUTCOME_TOPIC, 0, 0, count):
        at = start = placed[PLACED_PHYSICAL_OFFSET]
        copy = read_copy(bytes(store.read_log(at, 1 << 20)))
        at += copy.size
        for _ in range(read_mark(copy.body).size):
            at += read_copy(bytes(store.read_log(at, 1 << 20))).size
        found.append((start, at))
    return found


def within(offsets: set[int], parts: list[tuple[int, int]]) -> list[int]:
    return sorted(each for each in offsets for start, end in parts if start < each < end)


async def test_a_member_that_acknowledges_in_the_middle_shows_no_part(
    shard: ShardBrokers, marks: Marks
) -> None:
    await shard.start(0, 1)
    await shard.all_in_sync(0, 1)
    peer = await staged(shard, 0, 1)
    answer = await peer.answer(publish(peer, 1))
    assert answer.code == 0, answer.remark
    await shard.same_logs()
    await until(lambda: len(shard.bodies(1)) == ROWS)
    parts = publications(shard.store(0))
    assert within(marks.asked, parts), "members have acknowledged parts of it"
    assert not within(marks.stood, parts)
    await peer.close()


async def test_a_member_that_catches_up_shows_no_part(shard: ShardBrokers, marks: Marks) -> None:
    await shard.start(0, 1)
    await shard.all_in_sync(0, 1)
    for batch in range(3):
        peer = await staged(shard, 0, batch)
        assert (await peer.answer(publish(peer, batch))).code == 0
        await peer.close()
    await shard.stop(1)
    shard.wipe(1)
    marks.stood.clear()
    await shard.start(1)
    await shard.all_in_sync(0, 1)
    await shard.same_logs()
    await until(lambda: len(shard.bodies(1)) == 3 * ROWS)
    parts = publications(shard.store(0))
    begun = {start for start, _ in parts}
    assert begun & marks.stood, "it has held back what it had in part"
    assert not within(marks.stood, parts)


async def test_a_leader_that_begins_with_what_others_have_in_part_shows_no_part(
    tmp_path: Path, marks: Marks
) -> None:
    shard = ShardBrokers(tmp_path, replicas=3)
    await shard.start(0, 1, 2)
    await shard.all_in_sync(0, 1, 2)
    peer = await staged(shard, 0, 1)
    await shard.same_logs()
    store, begin = shard.store(2), shard.store(2).log_end
    append = store.append_replica

    def half(offset: int, data: bytes | memoryview, *, epoch: int, epoch_start: int) -> int:
        if offset > begin + 3000:
            return offset
        return append(offset, data, epoch=epoch, epoch_start=epoch_start)

    store.append_replica = half
    publish(peer, 1)
    await until(lambda: shard.store(1).log_end == shard.store(0).log_end > begin + 9000)
    await until(lambda: store.log_end > begin + 3000)
    parts = publications(shard.store(1))
    await peer.close()
    marks.asked.clear()
    await shard.kill(0)
    store.append_replica = append
    assert await shard.led() == 1, "its log is longer"
    await shard.same_logs()
    await until(lambda: len(shard.bodies(2)) == ROWS)
    assert within(marks.asked, parts), "members have acknowledged parts of it"
    assert not within(marks.stood, parts)
    await shard.close()
