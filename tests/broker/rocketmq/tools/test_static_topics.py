"""Static topics on two shards: made, used, and moved from one to the other with their messages."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.app import Broker
from imago_broker.model.topics import static_topics as model
from imago_broker.server import broker_calls
from imago_broker.service.topics.static_topics import KIND
from imago_testing.clusters.shard_pair import running_pair
from imago_testing.peers.remoting import RemotingPeer, pull_ext, send_ext
from imago_testing.peers.static_topics import HERE, Runs, mapping, told
from imago_wire.remoting.codes import RequestCode as Code
from imago_wire.remoting.codes import ResponseCode
from imago_wire.remoting.messages import decode_messages

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from imago_broker.config import BrokerConfig


class Shards:
    """Both shards and a name service."""

    def __init__(self, peers: list[RemotingPeer], names: RemotingPeer) -> None:
        self.zero, self.one = peers
        self.names = names

    async def tell(self, hosted: tuple[Mapping[int, Runs], Mapping[int, Runs]], epoch: int) -> None:
        """Tell each shard what it has, as the tool does."""
        for number, (peer, runs) in enumerate(zip((self.zero, self.one), hosted, strict=True)):
            answer = await told(peer, mapping(f"shard-{number}", runs, epoch=epoch))
            assert answer.code == ResponseCode.SUCCESS, answer.remark

    async def route(self) -> dict[str, Any]:
        answer = await self.names.call(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "S"})
        found: dict[str, Any] = json.loads(answer.body) if answer.body else {}
        return found.get("topicQueueMappingByBroker") or {}


@pytest.fixture
async def shards(tmp_path: Path) -> AsyncIterator[Shards]:
    async with running_pair(tmp_path) as pair:
        brokers = [pair.one.broker, pair.two.broker]
        peers = [await RemotingPeer.connect(broker.rocketmq_port) for broker in brokers]
        names = await RemotingPeer.connect(brokers[0].ports.names.port)
        yield Shards(peers, names)
        for peer in (*peers, names):
            await peer.close()


async def sent(peer: RemotingPeer, body: bytes, queue: int = 0) -> tuple[int, int]:
    """Send to a global queue; return the queue and offset of the answer."""
    answer = await peer.call(310, send_ext("S", queue), body)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return int(answer.ext["queueId"]), int(answer.ext["queueOffset"])


async def offset(peer: RemotingPeer, code: Code, **more: object) -> int:
    answer = await peer.call(code, {"topic": "S", "queueId": 0, **more})
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return int(answer.ext["offset"])


async def read(peer: RemotingPeer, begin: int = 0, queue: int = 0) -> list[tuple[int, bytes]]:
    """Read a global queue as clients do, to its end."""
    found: list[tuple[int, bytes]] = []
    while True:
        answer = await peer.call(11, pull_ext("S", begin, queueId=queue))
        if answer.code == ResponseCode.PULL_NOT_FOUND:
            return found
        delta = int(answer.ext["offsetDelta"])
        assert int(answer.ext["minOffset"]) <= int(answer.ext["nextBeginOffset"])
        if answer.code == ResponseCode.SUCCESS:
            messages = decode_messages(answer.body)
            found += [(message.queue_offset + delta, message.body) for message in messages]
        begin = int(answer.ext["nextBeginOffset"])


async def test_global_queues_are_used_whatever_queue_the_broker_has(shards: Shards) -> None:
    await shards.tell(({0: HERE}, {1: ((0, "shard-1", 0, 0),)}), epoch=1)
    assert await sent(shards.zero, b"a") == (0, 0)
    assert await sent(shards.zero, b"b") == (0, 1)
    assert await sent(shards.one, b"c", queue=1) == (1, 0)
    assert await read(shards.zero) == [(0, b"a"), (1, b"b")]
    assert await read(shards.one, queue=1) == [(0, b"c")]
    physical = await shards.zero.messages("S", queueId=1, lo="false")
    assert [message.body for message in physical] == [b"a", b"b"]
    assert await sent(shards.zero, b"any", queue=-1) == (0, 2)
    batch = await shards.zero.call(10, send_v1("S", 0), b"old")
    assert (batch.ext["queueId"], batch.ext["queueOffset"]) == ("0", "3")


def send_v1(topic: str, queue: int) -> dict[str, object]:
    return {
        "producerGroup": "producers",
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 4,
        "queueId": queue,
        "sysFlag": 0,
        "bornTimestamp": 1,
        "flag": 0,
        "properties": "",
    }


async def test_whoever_has_not_the_queue_says_so(shards: Shards) -> None:
    await shards.tell(({0: HERE}, {1: ((0, "shard-1", 0, 0),)}), epoch=1)
    for code, ext in (
        (310, send_ext("S", 1)),
        (11, pull_ext("S", queueId=1)),
        (Code.GET_MAX_OFFSET, {"topic": "S", "queueId": 1}),
        (Code.QUERY_CONSUMER_OFFSET, {"topic": "S", "queueId": 1, "consumerGroup": "g"}),
    ):
        answer = await shards.zero.call(code, ext, b"x")
        assert answer.code == ResponseCode.NOT_LEADER_FOR_QUEUE
        wanted = "S-1 does not exit in request process of current broker shard-0"
        assert answer.remark == wanted


async def test_tools_and_routes_show_the_mapping(shards: Shards) -> None:
    await shards.tell(({0: HERE}, {1: ((0, "shard-1", 0, 0),)}), epoch=7)
    config = json.loads((await shards.zero.call(Code.GET_TOPIC_CONFIG, {"topic": "S"})).body)
    detail = config["mappingDetail"]
    assert (detail["bname"], detail["epoch"], detail["totalQueues"]) == ("shard-0", 7, 2)
    assert detail["hostedQueues"]["0"][0]["queueId"] == 1
    table = json.loads((await shards.one.call(Code.GET_ALL_TOPIC_CONFIG)).body)
    assert table["topicQueueMappingDetailMap"]["S"]["currIdMap"] == {"1": 0}
    async with asyncio.timeout(50):
        while (await shards.route()).keys() != {"shard-0", "shard-1"}:  # noqa: ASYNC110  the registry
            await asyncio.sleep(0.05)
    assert (await shards.route())["shard-0"]["currIdMap"] == {"0": 1}
    await shards.zero.call(Code.DELETE_TOPIC_IN_BROKER, {"topic": "S"})
    async with asyncio.timeout(50):
        while "shard-0" in await shards.route():  # noqa: ASYNC110  the registry
            await asyncio.sleep(0.05)
    gone = await shards.zero.call(Code.GET_TOPIC_CONFIG, {"topic": "S"})
    assert gone.code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_queue_moves_with_its_messages_and_offsets(shards: Shards) -> None:
    """As remappingStaticTopic does it, step by step."""
    await shards.tell(({0: HERE}, {}), epoch=1)
    for body in (b"a", b"b", b"c"):
        await sent(shards.zero, body)
    group = {"consumerGroup": "g", "commitOffset": 2}
    committed = await shards.zero.call(
        Code.UPDATE_CONSUMER_OFFSET, {"topic": "S", "queueId": 0, **group}
    )
    assert committed.code == ResponseCode.SUCCESS
    moving = (*HERE, (1, "shard-1", 0, -1))
    await told(shards.one, mapping("shard-1", {0: moving}, epoch=2))
    await told(shards.zero, mapping("shard-0", {0: moving}, epoch=2))
    refused = await shards.zero.call(310, send_ext("S"), b"no")
    assert refused.code == ResponseCode.NOT_LEADER_FOR_QUEUE
    assert await sent(shards.one, b"d") == (0, -1)  # it is not decided where it begins
    undecided = await shards.one.call(Code.GET_MAX_OFFSET, {"topic": "S", "queueId": 0})
    assert "being moved" in (undecided.remark or "")
    moved = (*HERE, (1, "shard-1", 0, 1000))
    await told(shards.one, mapping("shard-1", {0: moved}, epoch=2))
    await told(shards.zero, mapping("shard-0", {0: moved}, epoch=2))
    assert await sent(shards.one, b"e") == (0, 1001)
    everything = [(0, b"a"), (1, b"b"), (2, b"c"), (1000, b"d"), (1001, b"e")]
    assert await read(shards.one) == everything
    assert await read(shards.one, 2) == everything[2:]
    assert await read(shards.one, 500) == everything[3:]
    assert await offset(shards.one, Code.GET_MAX_OFFSET) == 1002
    every = {"topic": "S", "queueId": 0, "imagoBounds": "true"}
    assert not (await shards.one.call(Code.GET_MAX_OFFSET, every)).body, "no bounds of its own"
    assert await offset(shards.one, Code.GET_MIN_OFFSET) == 0
    assert await offset(shards.one, Code.SEARCH_OFFSET_BY_TIMESTAMP, timestamp=0) == 0
    assert await offset(shards.one, Code.SEARCH_OFFSET_BY_TIMESTAMP, timestamp=1 << 41) == 1002
    earliest = await shards.one.call(Code.GET_EARLIEST_MSG_STORETIME, {"topic": "S", "queueId": 0})
    assert int(earliest.ext["timestamp"]) > 0


async def test_groups_go_on_where_they_were(shards: Shards) -> None:
    await shards.tell(({0: HERE}, {}), epoch=1)
    for body in (b"a", b"b", b"c"):
        await sent(shards.zero, body)
    moved = (*HERE, (1, "shard-1", 0, 1000))
    await shards.tell(({0: moved}, {0: moved}), epoch=2)
    await sent(shards.one, b"d")

    async def commit(to: int) -> None:
        ext = {"topic": "S", "queueId": 0, "consumerGroup": "g", "commitOffset": to}
        answer = await shards.one.call(Code.UPDATE_CONSUMER_OFFSET, ext)
        assert answer.code == ResponseCode.SUCCESS, answer.remark

    group = {"consumerGroup": "g"}
    ask = {"topic": "S", "queueId": 0, **group}
    new = await shards.one.call(Code.QUERY_CONSUMER_OFFSET, ask)
    assert new.code == ResponseCode.QUERY_NOT_FOUND
    await commit(2)
    assert await offset(shards.one, Code.QUERY_CONSUMER_OFFSET, **group) == 2
    assert (
        await offset(shards.zero, Code.QUERY_CONSUMER_OFFSET, **group, queueId=1, lo="false") == 2
    )
    await commit(1001)
    assert await offset(shards.one, Code.QUERY_CONSUMER_OFFSET, **group) == 1001
    pulled = {"sysFlag": 4 | 1, "commitOffset": 1000, "consumerGroup": "h"}
    await shards.one.call(11, pull_ext("S", 1000, **pulled))
    assert await offset(shards.one, Code.QUERY_CONSUMER_OFFSET, consumerGroup="h") == 1000


async def test_a_pull_waits_for_what_comes(shards: Shards) -> None:
    await shards.tell(({0: HERE}, {}), epoch=1)
    held = shards.zero.send(11, pull_ext("S", sysFlag=4 | 2, suspendTimeoutMillis=15_000))
    await shards.zero.call(Code.GET_TOPIC_CONFIG, {"topic": "S"})
    await sent(shards.zero, b"later")
    answer = await shards.zero.answer(held)
    assert [message.body for message in decode_messages(answer.body)] == [b"later"]
    assert answer.ext["nextBeginOffset"] == "1"


async def test_a_held_pull_whose_client_goes_leaves_nothing_behind(
    peer: RemotingPeer, broker: Broker
) -> None:
    await told(peer, mapping("shard-0", {0: HERE}))
    other = await RemotingPeer.connect(broker.rocketmq_port)
    other.send(11, pull_ext("S", sysFlag=4 | 2, suspendTimeoutMillis=15_000))
    lane = broker.rocketmq.lanes.pull
    async with asyncio.timeout(50):
        while not lane.running:  # noqa: ASYNC110  nothing tells when it happens
            await asyncio.sleep(0.01)
        await other.close()
        while lane.running:  # noqa: ASYNC110  the same
            await asyncio.sleep(0.01)


async def test_a_broker_that_does_not_answer_is_named(
    shards: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_calls, "CALL_SECONDS_MAX", 0.0)
    moved = (*HERE, (1, "shard-1", 0, 1000))
    await shards.tell(({0: moved}, {0: moved}), epoch=2)
    answer = await shards.one.call(11, pull_ext("S"))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == "broker shard-0 did not answer: no answer in time"
    lost = await shards.one.call(Code.GET_MIN_OFFSET, {"topic": "S", "queueId": 0})
    assert lost.code == ResponseCode.SYSTEM_ERROR
    gone = ((0, "shard-9", 1, 0), (1, "shard-1", 0, 1000))
    await told(shards.one, mapping("shard-1", {0: gone}, epoch=3), force="true")
    answer = await shards.one.call(11, pull_ext("S"))
    assert answer.remark == "broker shard-9 has no master at the moment"


async def test_calls_of_another_broker_take_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_calls, "CALLS_MAX", 1)
    async with running_pair(tmp_path) as pair:
        one = await RemotingPeer.connect(pair.two.broker.rocketmq_port)
        zero = await RemotingPeer.connect(pair.one.broker.rocketmq_port)
        moved = (*HERE, (1, "shard-1", 0, 1000))
        for peer, name in ((one, "shard-1"), (zero, "shard-0")):
            await told(peer, mapping(name, {0: moved}))
        await zero.put("S", b"a", queue_id=1, lo="false")
        asked = [one.send(11, pull_ext("S")) for _ in range(5)]
        for each in asked:
            assert [m.body for m in decode_messages((await one.answer(each)).body)] == [b"a"]
        for peer in (one, zero):
            await peer.close()


async def test_a_queue_has_only_so_many_parts(
    peer: RemotingPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "RUNS_MAX", 1)
    assert (await told(peer, mapping("shard-0", {0: HERE}))).code == ResponseCode.SUCCESS
    moved = (*HERE, (1, "shard-1", 0, 1000))
    answer = await told(peer, mapping("shard-0", {0: moved}, epoch=2))
    assert answer.remark == "hostedQueues: a queue has a list of at most 1 parts"


@pytest.mark.parametrize(
    ("body", "remark"),
    [
        (b"{}", "the mapping is one of topic ''"),
        (b"[]", "the body is no mapping of queues"),
        (b"{", ""),
        (mapping("shard-1", {}), "the mapping is one of broker 'shard-1', this is shard-0"),
        (mapping("shard-0", {0: ((-1, "shard-0", 1, 0),)}), "should not be negative"),
        (mapping("shard-0", {7: HERE}), "'7' is no queue of 2"),
        (mapping("shard-0", {}, total=99_999), "totalQueues"),
        (mapping("shard-0", {0: (*HERE, (0, "shard-1", 0, 9))}), "gen does not increase"),
        (mapping("shard-0", {0: (*HERE, (1, "shard-1", 0, 0))}), "base logic offset"),
    ],
)
async def test_mappings_that_cannot_be_are_refused(
    peer: RemotingPeer, body: bytes, remark: str
) -> None:
    answer = await told(peer, body)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert remark in (answer.remark or "")
    assert (await peer.call(Code.GET_TOPIC_CONFIG, {"topic": "S"})).code != ResponseCode.SUCCESS


async def test_what_a_queue_was_is_not_changed_behind_its_back(peer: RemotingPeer) -> None:
    assert (await told(peer, mapping("shard-0", {0: HERE}, epoch=5))).code == ResponseCode.SUCCESS
    for body, remark in (
        (mapping("shard-0", {0: HERE}, epoch=4), "Can't accept data with small epoch 4 < 5"),
        (mapping("shard-0", {}, epoch=5), "Cannot accept equal epoch with null data"),
        (
            mapping("shard-0", {0: ((0, "shard-0", 0, 0),)}, epoch=6),
            "generation 0 of a queue is another one than before",
        ),
        (
            mapping("shard-0", {0: (*HERE, (1, "shard-1", 0, 9))}, epoch=5),
            "The new leader is different but epoch equal",
        ),
    ):
        answer = await told(peer, body)
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)
    kept = await told(peer, mapping("shard-0", {}, epoch=6))
    assert kept.code == ResponseCode.SUCCESS
    assert await sent(peer, b"still there") == (0, 0)


@pytest.mark.parametrize("force", ["false", "true"])
async def test_no_fewer_queues_than_are_kept(peer: RemotingPeer, force: str) -> None:
    """Such a mapping could not be read again, by this broker or the shard's next master."""
    assert (await told(peer, mapping("shard-0", {1: HERE}))).code == ResponseCode.SUCCESS
    fewer = mapping("shard-0", {0: ((0, "shard-0", 0, 0),)}, epoch=2, total=1)
    answer = await told(peer, fewer, force=force)
    assert (answer.code, answer.remark) == (
        ResponseCode.SYSTEM_ERROR,
        "totalQueues: 1, but this broker keeps global queue 1",
    )
    assert await sent(peer, b"still there", queue=1) == (1, 0)


async def test_a_broker_that_has_nothing_of_a_topic_keeps_nothing(peer: RemotingPeer) -> None:
    answer = await told(peer, mapping("shard-0", {}), queues=0)
    assert answer.code == ResponseCode.SUCCESS
    unknown = await peer.call(Code.GET_TOPIC_CONFIG, {"topic": "S"})
    assert unknown.code == ResponseCode.TOPIC_NOT_EXIST
    system = await told(peer, mapping("shard-0", {}), topic="SCHEDULE_TOPIC_XXXX")
    assert system.code == ResponseCode.INVALID_PARAMETER


async def test_mappings_survive_a_restart(config: BrokerConfig) -> None:
    for life in range(2):
        broker = Broker(config)
        await broker.start()
        peer = await RemotingPeer.connect(broker.rocketmq_port)
        if not life:
            await told(peer, mapping("shard-0", {0: HERE}))
        assert await sent(peer, b"%d" % life) == (0, life)
        await peer.close()
        await broker.stop()


async def test_a_mapping_that_cannot_be_read_keeps_no_broker_from_starting(
    config: BrokerConfig, caplog: pytest.LogCaptureFixture
) -> None:
    """Its queues are what they seem to be, until it is told again or its topic is deleted."""
    for life in range(2):
        broker = Broker(config)
        await broker.start()
        peer = await RemotingPeer.connect(broker.rocketmq_port)
        if life == 0:
            await told(peer, mapping("shard-0", {0: HERE}))
            text = mapping("shard-0", {1: HERE}, total=1).decode().replace("{1:", '{"1":')
            broker.store.put_meta([(KIND, "S", text), (KIND, "T", "no mapping")])
        if life == 1:
            assert (await peer.call(310, send_ext("S", 1), b"own")).code == ResponseCode.SUCCESS
            assert "static_topic_unreadable topic='S'" in caplog.text
            deleted = await peer.call(Code.DELETE_TOPIC_IN_BROKER, {"topic": "S"})
            assert deleted.code == ResponseCode.SUCCESS, deleted.remark
            assert "S" not in broker.store.meta(KIND)
            await told(peer, mapping("shard-0", {0: HERE}))
            assert await sent(peer, b"mapped") == (0, 0)
        await peer.close()
        await broker.stop()
