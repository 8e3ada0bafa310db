"""Our own clients send messages at a time of their own, and take them back."""

from __future__ import annotations

import asyncio
import time

import pytest

from imago_client import BrokerError, Client, Message, PullStatus, UsageError
from imago_client.blocking import Client as BlockingClient


async def first_message(client: Client) -> bytes:
    consumer = client.pull_consumer("g")
    (queue,) = await consumer.queues("orders")
    while True:
        pulled = await consumer.pull(queue, 0)
        if pulled.status is PullStatus.FOUND:
            return next(pulled.messages()).body


async def test_message_is_delivered_at_its_time(client: Client) -> None:
    await client.admin.create_topic("orders", queues=1)
    producer = client.producer()
    due_ms = time.time_ns() // 1_000_000 + 700
    sent = await producer.send(Message("orders", b"x", deliver_at_ms=due_ms))
    assert sent.recall_handle
    assert await first_message(client) == b"x"
    assert time.time_ns() // 1_000_000 >= due_ms


async def test_message_is_taken_back_until_it_is_due(client: Client) -> None:
    await client.admin.create_topic("orders", queues=1)
    producer = client.producer()
    taken_back = await producer.send(Message("orders", b"never", delay_ms=1500))
    kept = await producer.send(Message("orders", b"kept", delay_ms=1500))
    assert taken_back.recall_handle
    assert await producer.recall(taken_back.recall_handle) == taken_back.message_id
    assert await first_message(client) == b"kept"
    with pytest.raises(BrokerError, match="timestamp invalid"):
        await producer.recall(kept.recall_handle or "")
    with pytest.raises(UsageError, match="recall_handle"):
        await producer.recall("nonsense")
    at_once = await producer.send(Message("orders", b"at once"))
    with pytest.raises(UsageError, match="does not wait"):
        await producer.recall(at_once.recall_handle)  # type: ignore[arg-type]  # as untyped callers


async def test_time_beyond_the_longest_delay_is_refused(client: Client) -> None:
    await client.admin.create_topic("orders", queues=1)
    with pytest.raises(BrokerError, match="timer message illegal"):
        await client.producer().send(Message("orders", b"x", delay_ms=4 * 24 * 3_600_000))
    assert (await client.producer().send(Message("orders", b"x"))).recall_handle is None


async def test_blocking_client_takes_a_message_back(bootstrap: str) -> None:
    def work() -> None:
        with BlockingClient(bootstrap) as client:
            client.admin.create_topic("orders", queues=1)
            producer = client.producer()
            sent = producer.send(Message("orders", b"x", delay_ms=60_000))
            assert producer.recall(sent.recall_handle or "") == sent.message_id

    await asyncio.to_thread(work)
