"""Original RocketMQ producers: messages at a time of their own, recalls; requests and replies."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from imago_testing.interop.rocketmq import Outgoing, RocketmqClient
from imago_testing.java.driver import DriverError

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.interop]
CHECK_INTERVAL_MS = 1000
"""The original broker may be early by its precision."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.mark.shows("timer", clients=("rocketmq5",))
def test_message_arrives_at_its_time(
    rocketmq5: RocketmqClient, topic: str, unique: Callable[[str], str]
) -> None:
    with rocketmq5.producer() as producer, rocketmq5.push(topic, unique("g")) as consumer:
        due_ms = now_ms() + 3000
        [sent] = producer.send(topic, [Outgoing(body=b"timed", tags="T", deliver_ms=due_ms)])
        [arrived] = consumer.take(1, seconds_max=60)
    assert sent.status == "SEND_OK"
    assert (arrived.body, arrived.tags, arrived.id) == (b"timed", "T", sent.id)
    assert arrived.stored_ms >= due_ms - CHECK_INTERVAL_MS


@pytest.mark.shows("timer", clients=("rocketmq5",))
def test_message_beyond_the_longest_delay_is_refused(rocketmq5: RocketmqClient, topic: str) -> None:
    message = Outgoing(body=b"x", deliver_ms=now_ms() + 4 * 24 * 3_600_000)
    with (
        rocketmq5.producer(retries=0) as producer,
        pytest.raises(DriverError, match="timer message illegal"),
    ):
        producer.send(topic, [message])


@pytest.mark.shows("timer", clients=("rocketmq5",))
def test_recalled_message_does_not_arrive(
    rocketmq5: RocketmqClient, topic: str, unique: Callable[[str], str]
) -> None:
    with rocketmq5.producer() as producer, rocketmq5.push(topic, unique("g")) as consumer:
        # Whatever clients have to find out first is done before the time counts.
        producer.send(topic, [Outgoing(body=b"first")])
        [_] = consumer.take(1, seconds_max=60)
        due_ms = now_ms() + 8000
        messages = [Outgoing(body=name, deliver_ms=due_ms) for name in (b"taken back", b"kept")]
        taken_back, _ = producer.send(topic, messages)
        assert taken_back.recall_handle
        assert producer.recall(topic, taken_back.recall_handle) == taken_back.id
        [arrived] = consumer.take(1, seconds_max=60)
        assert arrived.body == b"kept"
        with pytest.raises(DriverError):
            producer.recall(topic, taken_back.recall_handle)


@pytest.mark.shows("request")
@pytest.mark.both_clients
def test_request_gets_its_reply(
    rocketmq: RocketmqClient, topic: str, unique: Callable[[str], str]
) -> None:
    with (
        rocketmq.producer(unique("p")) as asking,
        rocketmq.producer(unique("p")) as replying,
        rocketmq.push(topic, unique("g")) as consumer,
    ):
        reply = asking.request(topic, Outgoing(body=b"what is it?"), seconds_max=90)
        [request] = consumer.take(1, seconds_max=60)
        sent = replying.reply(request, b"a reply")
        answer = reply()
    assert request.body == b"what is it?"
    assert (sent.status, answer.body) == ("SEND_OK", b"a reply")
    assert answer.properties["CORRELATION_ID"] == request.properties["CORRELATION_ID"]


@pytest.mark.shows("request")
@pytest.mark.both_clients
def test_reply_to_a_requester_that_has_gone_fails(
    rocketmq: RocketmqClient, topic: str, unique: Callable[[str], str]
) -> None:
    with (
        rocketmq.producer(unique("p")) as replying,
        rocketmq.push(topic, unique("g")) as consumer,
    ):
        with rocketmq.producer(unique("p")) as asking:
            reply = asking.request(topic, Outgoing(body=b"anyone?"), seconds_max=5)
            [request] = consumer.take(1, seconds_max=60)
            with pytest.raises(DriverError):
                reply()
        rocketmq.settle()
        with pytest.raises(DriverError, match=r"channel of .* not found"):
            replying.reply(request, b"too late")
