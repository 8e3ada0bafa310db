"""aiokafka against the original Kafka broker: the same work as in `bench.client`, in the same run.

aiokafka is no package of ours: `uv pip install --target FOLDER aiokafka`, and FOLDER in PYTHONPATH.
"""

from __future__ import annotations

import asyncio
import importlib
import time
from typing import Any, Final

BODY: Final = bytes(1024)
TOPIC: Final = "bench"
LARGE: Final = 128 << 10
"""Bytes of a batch; as it is shipped, 16 KiB."""


def _aiokafka() -> Any:
    return importlib.import_module("aiokafka")


async def _send(address: str, count: int, tasks: int, batch_bytes: int) -> float:
    producer = _aiokafka().AIOKafkaProducer(
        bootstrap_servers=address, max_batch_size=batch_bytes, acks="all"
    )
    await producer.start()
    try:
        await producer.send_and_wait(TOPIC, BODY)
        left = count

        async def work() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                await producer.send_and_wait(TOPIC, BODY)

        began = time.process_time()
        await asyncio.gather(*(work() for _ in range(tasks)))
        return time.process_time() - began
    finally:
        await producer.stop()


async def send_alone(address: str, count: int, _: str) -> float:
    return await _send(address, count, 1, 16 << 10)


async def send_in_crowd(address: str, count: int, _: str) -> float:
    return await _send(address, count, 1000, 16 << 10)


async def send_in_large_batches(address: str, count: int, _: str) -> float:
    return await _send(address, count, 1000, LARGE)


async def _consumer(address: str, group: str) -> Any:
    consumer = _aiokafka().AIOKafkaConsumer(
        TOPIC, bootstrap_servers=address, group_id=group, auto_offset_reset="earliest"
    )
    await consumer.start()
    return consumer


async def consume_one_by_one(address: str, count: int, group: str) -> float:
    consumer = await _consumer(address, group)
    try:
        seen, began = 0, time.process_time()
        async for message in consumer:
            assert len(message.value) == len(BODY)
            seen += 1
            if seen == count:
                break
        return time.process_time() - began
    finally:
        await consumer.stop()


async def consume_many(address: str, count: int, group: str) -> float:
    consumer = await _consumer(address, group)
    try:
        seen, began = 0, time.process_time()
        while seen < count:
            found = await consumer.getmany(timeout_ms=5000, max_records=32)
            for messages in found.values():
                for message in messages:
                    assert len(message.value) == len(BODY)
                seen += len(messages)
        return (time.process_time() - began) / seen * count
    finally:
        await consumer.stop()
