"""What members of a group keep count of, and what brokers ask of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imago_client import Client, ConsumerConfig, Message, MessageQueue, StartFrom
from imago_client.core.administration.administration import body_of
from imago_client.core.consuming import process_queue
from imago_client.core.consuming.membership import lock, start_offset
from imago_client.core.consuming.process_queue import ProcessQueue
from imago_client.received import ReceivedMessage
from imago_testing.peers.client_scripts import ScriptedServers, response
from imago_wire.records.record import StoredMessage
from imago_wire.remoting.bodies.client import ConsumerRunningInfo
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.headers.client import (
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
)
from imago_wire.remoting.headers.pull import GetMaxOffsetResponseHeader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_client.core.effects import Request
    from imago_wire.remoting.command import RemotingCommand

QUEUE = MessageQueue("orders", "a", 0)


def message(offset: int) -> ReceivedMessage:
    stored = StoredMessage(
        size=100, topic="orders", queue_id=0, queue_offset=offset, physical_offset=0, flag=0,
        sys_flag=0, born_ms=0, born_host=bytes(8), store_ms=0, store_host=bytes(8),
        reconsume_times=0, prepared_offset=0, body=b"12345", body_crc=0, properties={},
    )  # fmt: skip
    return ReceivedMessage(QUEUE, "orders", stored)


def test_commit_stops_before_the_first_unfinished_message() -> None:
    process = ProcessQueue(10)
    assert process.commit_offset == 10
    process.add([message(10), message(12), message(13)], 15)
    first, second = process.take(2), process.take(2)
    process.finish(second)
    assert process.commit_offset == 10
    process.finish(first)
    assert (process.commit_offset, process.cached_count, process.cached_bytes) == (15, 0, 0)


@pytest.mark.parametrize("kept_max", [0, 1024])
@given(steps=st.lists(st.integers(1, 5), max_size=20), rng=st.randoms(use_true_random=False))
def test_nothing_is_committed_before_it_is_finished(
    steps: list[int], rng: object, kept_max: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process_queue, "_FINISHED_MAX", kept_max)
        check_commits(steps, rng)


def check_commits(steps: list[int], rng: object) -> None:
    process, unfinished, at = ProcessQueue(0), [], 0
    for count in steps:
        process.add([message(at + index) for index in range(count)], at + count)
        at += count
        unfinished += process.take(rng.randint(0, 6))  # type: ignore[attr-defined]  # a Random
        if unfinished:
            done = unfinished.pop(rng.randrange(len(unfinished)))  # type: ignore[attr-defined]
            process.finish([done])
        held = [one.offset for one in unfinished]
        assert process.commit_offset <= min(held, default=at)
        assert process.cached_bytes == 5 * process.cached_count


@pytest.mark.parametrize(
    ("start", "code"),
    [
        (StartFrom.EARLIEST, RequestCode.GET_MIN_OFFSET),
        (StartFrom.LATEST, RequestCode.GET_MAX_OFFSET),
        (StartFrom.TIMESTAMP, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP),
    ],
)
def test_group_without_an_offset_begins_where_its_settings_say(
    start: StartFrom, code: RequestCode
) -> None:
    def brokers(request: Request) -> RemotingCommand:
        if request.code == RequestCode.QUERY_CONSUMER_OFFSET:
            return response(ResponseCode.QUERY_NOT_FOUND)
        if request.code == RequestCode.UPDATE_CONSUMER_OFFSET:
            return response()
        assert request.code == code
        return response(header=GetMaxOffsetResponseHeader(offset=7))

    world = ScriptedServers(brokers=brokers)
    config = ConsumerConfig(group="g", start_from=start, start_timestamp_ms=5)
    assert world.run(start_offset(world.state, config, QUEUE)) == 7
    committed = [
        one.header.to_ext()["commitOffset"]
        for one in world.asked(RequestCode.UPDATE_CONSUMER_OFFSET)
        if one.header
    ]
    assert committed == ([] if start is StartFrom.EARLIEST else ["7"]), "it would move with time"


def test_retries_are_read_from_their_beginning_whatever_the_settings() -> None:
    def brokers(request: Request) -> RemotingCommand:
        if request.code == RequestCode.QUERY_CONSUMER_OFFSET:
            return response(ResponseCode.QUERY_NOT_FOUND)
        assert request.code == RequestCode.GET_MIN_OFFSET
        return response(header=GetMaxOffsetResponseHeader(offset=0))

    world = ScriptedServers(topics={"%RETRY%g"}, brokers=brokers)
    retries = MessageQueue("%RETRY%g", "a", 0)
    config = ConsumerConfig(group="g", start_from=StartFrom.LATEST)
    assert world.run(start_offset(world.state, config, retries)) == 0


def test_who_gets_no_locks_says_why(caplog: pytest.LogCaptureFixture) -> None:
    def brokers(request: Request) -> RemotingCommand:
        assert request.code == RequestCode.LOCK_BATCH_MQ
        remark = "service not available now: the broker's disk is full"
        return response(ResponseCode.SERVICE_NOT_AVAILABLE, remark=remark)

    world = ScriptedServers(brokers=brokers, shards={"a": "a:1"})
    for _ in range(3):
        assert world.run(lock(world.state, "g", [QUEUE])) == set()
    (said,) = caplog.messages
    assert said.startswith("lock_failed group=g times=1 error=a:1 answered code 14: ")
    assert said.endswith("the broker's disk is full")
    masterless = MessageQueue("orders", "gone", 0)
    assert world.run(lock(world.state, "g", [masterless])) == set()
    assert "gone" in caplog.messages[-1]
    assert len(caplog.messages) == 2


async def test_broker_may_ask_a_member_how_it_is(client: Client) -> None:
    await client.admin.create_topic("orders", queues=1)
    await client.producer().send(Message("orders", b"x"))

    async def handler(messages: Sequence[ReceivedMessage]) -> None:
        assert messages

    config = ConsumerConfig(group="g", start_from=StartFrom.EARLIEST)
    async with client.push_consumer(config, ["orders"], handler):
        (member,) = (await client.admin.describe_group("g")).members
        (shard,) = await client.admin.shards()
        asked = GetConsumerRunningInfoRequestHeader(
            consumer_group="g", client_id=member.client_id, jstack_enable=False
        )
        state, driver = client._state, client._driver
        body = await driver.run(
            body_of(state, shard.addresses[0], RequestCode.GET_CONSUMER_RUNNING_INFO, asked)
        )
        info = ConsumerRunningInfo.decode(body)
        assert info.properties["PROP_CONSUMEORDERLY"] == "false"
        assert {one.topic for one in info.subscription_set} == {"orders", "%RETRY%g"}
        status = GetConsumerStatusRequestHeader(topic="orders", group="g", client_addr="")
        body = await driver.run(
            body_of(
                state,
                shard.addresses[0],
                RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
                status,
            )
        )
        assert member.client_id.encode() in body
