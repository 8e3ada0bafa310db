"""A blocking member polls on while a shard has no master: its queues wait, nobody else does."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from imago_client import Client, MessageQueue, UsageError
from imago_client.blocking.rocketmq.group import GroupConsumer
from imago_client.config import ConsumerConfig
from imago_testing.peers.client_scripts import ScriptedServers, response
from imago_wire.remoting.bodies.client import GetConsumerListByGroupResponseBody
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.headers.pull import (
    PullMessageResponseHeader,
    QueryConsumerOffsetResponseHeader,
)

if TYPE_CHECKING:
    from imago_client.core.effects import Request
    from imago_wire.remoting.command import RemotingCommand


def empty(request: Request) -> RemotingCommand:
    header = PullMessageResponseHeader(
        suggest_which_broker_id=0, next_begin_offset=5, min_offset=0, max_offset=5
    )
    answer = response(ResponseCode.PULL_NOT_FOUND, header)
    if request.address == "b:2":
        answer.ext["imagoNotMaster"] = "true"
    return answer


def member(
    world: ScriptedServers, *, on_assigned: Any = None, on_revoked: Any = None, **settings: Any
) -> GroupConsumer:
    def brokers(request: Request) -> RemotingCommand:
        match request.code:
            case RequestCode.GET_CONSUMER_LIST_BY_GROUP:
                members = GetConsumerListByGroupResponseBody(
                    consumer_id_list=(world.state.client_id,)
                )
                return response(body=members.encode())
            case RequestCode.QUERY_CONSUMER_OFFSET:
                return response(header=QueryConsumerOffsetResponseHeader(offset=5))
            case RequestCode.PULL_MESSAGE:
                return empty(request)
            case _:
                return response()

    world.brokers = brokers
    config = ConsumerConfig(group="g", **settings)
    driver = cast("Any", world)
    return GroupConsumer(
        world.state,
        driver,
        config,
        {"orders": "*"},
        lambda _: None,
        on_assigned=on_assigned,
        on_revoked=on_revoked,
    )


def test_member_tells_its_listeners_and_pauses_and_seeks() -> None:
    told: list[tuple[str, tuple[MessageQueue, ...]]] = []
    world = ScriptedServers(shards={"a": "a:1"})
    consumer = member(
        world,
        on_assigned=lambda queues: told.append(("came", queues)),
        on_revoked=lambda queues: told.append(("went", queues)),
    )
    consumer.poll(0)
    queues = tuple(queue for queue in consumer.queues if queue.topic == "orders")
    assert told == [("came", queues)]
    assert consumer.positions() == dict.fromkeys(consumer.queues, 5)
    first, second = queues
    consumer.pause(first)
    assert list(consumer.paused) == [first]
    assert pulled_offsets(world, consumer).keys() == {second.queue_id}
    consumer.resume(first)
    consumer.seek(first, 3)
    assert consumer.positions()[first] == 3
    [commit] = world.asked(RequestCode.UPDATE_CONSUMER_OFFSET)
    assert cast("Any", commit.header).commit_offset == 3
    assert pulled_offsets(world, consumer)[first.queue_id] == 3
    with pytest.raises(UsageError, match="not one that this member reads"):
        consumer.pause(first, MessageQueue("orders", "a", 99))
    assert list(consumer.paused) == []
    with pytest.raises(UsageError, match="offset: -1"):
        consumer.seek(first, -1)
    consumer.close()
    assert told[1:] == [("went", queues)]


def pulled_offsets(world: ScriptedServers, consumer: GroupConsumer) -> dict[int, int]:
    """Poll once; return where it has read which queue."""
    world.seen.clear()
    consumer.poll(0)
    headers = [cast("Any", request.header) for request in world.asked(RequestCode.PULL_MESSAGE)]
    return {one.queue_id: one.queue_offset for one in headers if one.topic == "orders"}


def test_listeners_that_fail_are_told_of_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: object) -> None:
        raise ValueError("mine")

    consumer = member(ScriptedServers(shards={"a": "a:1"}), on_assigned=fail)
    assert consumer.poll(0) == []
    assert consumer.queues
    assert "listener_failed group=g" in caplog.text

    async def nobody_awaits(_: object) -> None: ...

    with pytest.raises(UsageError, match=r"on_assigned: .* is no plain function"):
        member(ScriptedServers(), on_assigned=nobody_awaits)


def asked_by_queue(world: ScriptedServers, code: int) -> list[str]:
    return [request.address for request in world.asked(code)]


@pytest.mark.parametrize("due", [{}, {"commit_s": 0.001}, {"rebalance_s": 0.001}])
def test_poll_does_not_wait_for_a_shard_that_elects(due: dict[str, float]) -> None:
    world = ScriptedServers(slaves={"b": {2: "b:2"}}, placed={"a", "b"})
    consumer = member(world, **due)
    assert consumer.poll(0) == []
    assert len(consumer.queues) == 4
    assert asked_by_queue(world, RequestCode.PULL_MESSAGE) == ["a:1", "b:1", "b:1", "a:1"]
    del world.shards["b"]
    world.state.drop_route("orders")
    world.seen.clear()
    world.now_s += 5.0
    assert consumer.poll(0) == []
    assert world.pauses == []
    asked = asked_by_queue(world, RequestCode.PULL_MESSAGE)
    assert asked.count("a:1") == 2, "its queues are read"
    assert asked.count("b:2") <= 2, "one queue tells for its shard, by two routes"
    world.shards["b"] = "b:9"
    world.seen.clear()
    world.now_s += consumer.config.error_pause_s + 0.1
    consumer.poll(0)
    assert asked_by_queue(world, RequestCode.PULL_MESSAGE).count("b:9") == 2


def test_member_joins_what_there_is_and_the_rest_when_it_comes() -> None:
    world = ScriptedServers(shards={"a": "a:1"}, slaves={"b": {2: "b:2"}}, placed={"a", "b"})
    consumer = member(world)
    consumer.poll(0)
    assert world.pauses == []
    assert [queue.shard for queue in consumer.queues] == ["a", "a"]
    world.shards["b"] = "b:9"
    world.now_s += consumer.config.error_pause_s + 0.1
    consumer.poll(0)
    assert [queue.shard for queue in consumer.queues] == ["a", "a", "b", "b"]


def test_commit_by_hand_waits_for_a_shard_once() -> None:
    world = ScriptedServers(slaves={"b": {2: "b:2"}}, placed={"a", "b"})
    consumer = member(world)
    consumer.poll(0)
    del world.shards["b"]
    world.state.drop_route("orders")
    world.seen.clear()
    consumer.commit()
    timeout_s = world.state.config.failover_timeout_s
    assert timeout_s <= sum(world.pauses) < 1.5 * timeout_s
    assert asked_by_queue(world, RequestCode.UPDATE_CONSUMER_OFFSET) == ["a:1", "a:1"]


async def test_commits_to_one_shard_hold_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async def handle(messages: object) -> None:
        del messages

    asked: list[str] = []
    elected = asyncio.Event()

    async def commit_one(queue: MessageQueue, offset: int) -> bool:
        assert offset == 7
        asked.append(str(queue))
        if queue.shard == "b":
            await elected.wait()
            return False
        return True

    async with Client("127.0.0.1:1") as client:
        consumer = client.push_consumer("g", ["orders"], handle)
        for shard in "abc":
            for number in range(2):
                reader: Any = SimpleNamespace(commit_offset=7)
                consumer._assigned._readers[MessageQueue("orders", shard, number)] = reader
        monkeypatch.setattr(consumer._assigned, "_commit_one", commit_one)
        committing = asyncio.create_task(consumer._assigned.commit())
        async with asyncio.timeout(50):
            while len(asked) < 5:  # noqa: ASYNC110 - nobody sets an event for it
                await asyncio.sleep(0)
        elected.set()
        await committing
    others = {f"orders/{shard}/{number}" for shard in "ac" for number in range(2)}
    assert set(asked) == {"orders/b/0"} | others, "the second of the shard waits for the next time"
