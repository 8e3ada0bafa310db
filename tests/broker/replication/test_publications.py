"""Micro-batches of sinks on members that copy in pieces: no high watermark ever stands in one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from imago_broker.model import names
from imago_broker.model.topics.topics import TopicConfig
from imago_broker.replication.follower import follower_session
from imago_broker.replication.leader import sending
from imago_broker.service.metaq_transactions.transaction_log import read_mark
from imago_broker.service.puts.copies import read_copy
from imago_broker.service.puts.put_status import PutStatus
from imago_log.commitlog.watermark import HighWatermark
from imago_testing.clusters.shard_brokers import TOPIC, ShardBrokers, until
from imago_testing.peers.metaq import metaq_peer, value_body
from imago_testing.peers.popping import bodies, pop
from imago_testing.peers.remoting import RemotingPeer, pull_ext
from imago_wire.records.record import PLACED_PHYSICAL_OFFSET
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.headers.imago import PublishStagedRequestHeader, StageBatchRequestHeader
from imago_wire.remoting.messages import encode_batch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from imago_broker.app import Broker
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


class Halved:
    """A member that takes about 3000 bytes of what comes next, and the rest when it is told to."""

    def __init__(self, shard: ShardBrokers, number: int) -> None:
        following = shard.shell(number).executor.following
        assert following is not None
        assert following.session is not None
        self._store, self._session = shard.store(number), following.session
        self._end = self._store.log_end + 3000
        self._received, self._waiting = self._session.received, list[bytes]()
        self._session.received = self._take  # type: ignore[method-assign]

    def _take(self, data: bytes) -> None:
        if self.stands():
            self._waiting.append(data)
        else:
            self._received(data)

    def stands(self) -> bool:
        return self._store.log_end > self._end

    def go_on(self) -> None:
        self._end = 1 << 60
        for data in self._waiting:
            self._received(data)


@pytest.fixture
def marks(monkeypatch: pytest.MonkeyPatch) -> Marks:
    """Members that copy a few records at a time, and what becomes visible of it."""
    for name, size in (("FAR", 600), ("FRAME", 300), ("TURN", 600), ("WINDOW", 900)):
        monkeypatch.setattr(sending, f"{name}_BYTES", size)
    monkeypatch.setattr(follower_session, "SILENCE_MS", 600_000)  # one that stands does not hear
    return Marks(monkeypatch)


@pytest.fixture
async def shard(tmp_path: Path, marks: Marks) -> AsyncIterator[ShardBrokers]:
    del marks
    made = ShardBrokers(tmp_path, "replication.lag_ms_max=600000", replicas=2)
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


async def pulled(broker: Broker, peer: RemotingPeer, at: int) -> list[bytes]:
    del broker
    answer = await peer.call(RequestCode.PULL_MESSAGE, pull_ext(TOPIC, at, sysFlag=4))
    return bodies(answer) if answer.code == ResponseCode.SUCCESS else []


async def popped(broker: Broker, peer: RemotingPeer, at: int) -> list[bytes]:
    del broker, at
    answer = await pop(peer, -1, topic=TOPIC)
    return bodies(answer) if answer.code == ResponseCode.SUCCESS else []


async def got(broker: Broker, peer: RemotingPeer, at: int) -> list[bytes]:
    del peer
    async with metaq_peer(broker.metaq_port) as metaq:
        answer = await metaq.get(TOPIC, 0, 0)
    block = value_body(answer) if answer.startswith(b"value ") else b""
    found = list[bytes]()
    while block:
        size = int.from_bytes(block[:4], "big")
        found.append(block[20 : 20 + size])
        block = block[20 + size :]
    return found[at:]


@pytest.mark.parametrize("read", [pulled, popped, got])
async def test_no_reader_sees_a_part(
    shard: ShardBrokers,
    read: Callable[[Broker, RemotingPeer, int], Awaitable[list[bytes]]],
) -> None:
    await shard.start(0, 1)
    await shard.all_in_sync(0, 1)
    assert await shard.put(0, b"before") == [PutStatus.OK]
    peer = await staged(shard, 0, 1)
    await shard.same_logs()
    copy = Halved(shard, 1)
    asked = publish(peer, 1)
    await until(copy.stands)
    other = await RemotingPeer.connect(shard.brokers[0].rocketmq_port)
    found = await read(shard.brokers[0], other, 0)
    assert set(found) <= {b"before"}, "a POP cannot note what it gives"
    copy.go_on()
    late = ResponseCode.FLUSH_SLAVE_TIMEOUT
    assert (await peer.answer(asked)).code in (ResponseCode.SUCCESS, late)
    rows = [b"%d" % row * 99 for row in range(ROWS)]
    while rows[-1] not in found:
        found += await read(shard.brokers[0], other, len(found))
    assert [body for body in found if body != b"before"] == rows
    await other.close()
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
    copy, begin = Halved(shard, 2), shard.store(2).log_end
    publish(peer, 1)
    await until(lambda: shard.store(1).log_end == shard.store(0).log_end > begin + 9000)
    await until(copy.stands)
    parts = publications(shard.store(1))
    await peer.close()
    marks.asked.clear()
    await shard.kill(0)
    copy.go_on()
    assert await shard.led() == 1, "its log is longer"
    await shard.same_logs()
    await until(lambda: len(shard.bodies(2)) == ROWS)
    assert within(marks.asked, parts), "members have acknowledged parts of it"
    assert not within(marks.stood, parts)
    await shard.close()
