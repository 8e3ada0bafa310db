"""CPU of the Python client a message, against one broker: `python -m bench.client`.

    python -m bench.client [--rounds 5] [--count 20000] [--port-base 42000] [--beside] [NAME]

Rates say little on a machine that others use too, and the broker has its own rows: what is told is
the processor time (user and system, all threads) of the client's process a message of 1 KiB, its
`Message` made and its result seen. Each round does all rows, and the best of the rounds counts.
With `--beside` aiokafka does its rows in each round too, against the original Kafka broker.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from bench import client_beside, harness
from imago_client import (
    Client,
    ClientConfig,
    ConsumerConfig,
    Message,
    ProducerConfig,
    StartFrom,
    batches,
    blocking,
)
from imago_testing.java.kafka import kafka_original

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from imago_client import ReceivedMessage

BODY = bytes(1024)
QUEUES = 8
SENDERS = 1000
BATCH = 100
HANDED = 32
TOPIC = "bench"


@dataclass(frozen=True, slots=True)
class Case:
    """One way to use the client; `aim` is µs of CPU a message, at most."""

    name: str
    run: Callable[[str, int, str], Awaitable[float]]
    """Handle so many messages at a name service, under a name of its own; return CPU seconds."""
    aim: float = 0
    share: float = 1.0
    """Of `--count`."""


async def _send(names: str, count: int, tasks: int, settings: ProducerConfig) -> float:
    async with Client(names) as client:
        producer = client.producer(settings)
        await producer.send(Message(TOPIC, BODY))
        left = count

        async def work() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                await producer.send(Message(TOPIC, BODY))

        began = time.process_time()
        await asyncio.gather(*(work() for _ in range(tasks)))
        return time.process_time() - began


async def send_alone(names: str, count: int, _: str) -> float:
    return await _send(names, count, 1, ProducerConfig())


async def send_by_few(names: str, count: int, _: str) -> float:
    return await _send(names, count, 20, ProducerConfig())


async def send_in_crowd(names: str, count: int, _: str) -> float:
    return await _send(names, count, SENDERS, ProducerConfig())


async def send_idempotent(names: str, count: int, _: str) -> float:
    return await _send(names, count, SENDERS, ProducerConfig(idempotent=True))


async def send_batches(names: str, count: int, _: str) -> float:
    async with Client(names) as client:
        producer = client.producer()
        await producer.send(Message(TOPIC, BODY))
        began = time.process_time()
        for _batch in range(count // BATCH):
            await producer.send_batch([Message(TOPIC, BODY) for _message in range(BATCH)])
        return time.process_time() - began


async def _consume(names: str, count: int, settings: ConsumerConfig) -> float:
    done = asyncio.Event()
    seen = 0

    async def handle(messages: Sequence[ReceivedMessage]) -> None:
        nonlocal seen
        for message in messages:
            assert len(message.body) == len(BODY)
        seen += len(messages)
        if seen >= count:
            done.set()

    async with Client(names) as client:
        began = time.process_time()
        async with client.push_consumer(settings, [TOPIC], handle):
            await done.wait()
            return (time.process_time() - began) / seen * count


async def consume_one_by_one(names: str, count: int, group: str) -> float:
    return await _consume(names, count, ConsumerConfig(group=group, start_from=StartFrom.EARLIEST))


async def consume_in_batches(names: str, count: int, group: str) -> float:
    settings = ConsumerConfig(group=group, start_from=StartFrom.EARLIEST, batch_messages_max=HANDED)
    return await _consume(names, count, settings)


async def poll_blocking(names: str, count: int, group: str) -> float:
    settings = ConsumerConfig(group=group, start_from=StartFrom.EARLIEST)
    with (
        blocking.Client(ClientConfig.of(names)) as client,
        client.group_consumer(settings, [TOPIC]) as consumer,
    ):
        began = time.process_time()
        seen = 0
        while seen < count:
            for message in consumer.poll(5.0):
                assert len(message.body) == len(BODY)
                seen += 1
        return (time.process_time() - began) / seen * count


CASES = [
    Case("send, one task", send_alone, share=0.1),
    Case("send, 20 tasks", send_by_few, share=0.3),
    Case("send, 1,000 tasks", send_in_crowd, aim=15),
    Case("idempotent send, 1,000 tasks", send_idempotent, share=0.5),
    Case("batches of 100", send_batches),
    Case("group, one a handler", consume_one_by_one, aim=5),
    Case("group, 32 a handler", consume_in_batches, aim=3),
    Case("blocking poll", poll_blocking, aim=5),
]


BESIDE = [
    Case("aiokafka: send, one task", client_beside.send_alone, share=0.1),
    Case("aiokafka: send, 1,000 tasks, as shipped", client_beside.send_in_crowd),
    Case("aiokafka: send, 1,000 tasks, batches of 128 KiB", client_beside.send_in_large_batches),
    Case("aiokafka: group, one by one", client_beside.consume_one_by_one, share=0.5),
    Case("aiokafka: group, 32 at once", client_beside.consume_many, share=0.5),
]


async def fill(names: str, count: int) -> None:
    """Write what the consumers read."""
    async with Client(names) as client:
        producer = client.producer()
        for batch in batches([Message(TOPIC, BODY)] * count, bytes_max=128 << 10):
            await producer.send_batch(batch)


def measure(case: Case, names: str, count: int, turn: int) -> float:
    """Return µs of CPU a message."""
    wanted = max(1, int(count * case.share))
    group = f"g{turn}-{case.run.__name__}"
    return asyncio.run(case.run(names, wanted, group)) / wanted * 1e6  # type: ignore[arg-type]


def table(rows: Sequence[dict[str, Any]]) -> Table:
    """Show the rows."""
    shown = Table("client", "CPU µs a message", "aim", "all rounds")
    for row in rows:
        rounds = " ".join(f"{one:.1f}" for one in row["rounds"])
        aim = f"≤ {row['aim']:g}" if row["aim"] else ""
        shown.add_row(row["name"], f"{row['cpu_us']:.1f}", aim, rounds)
    return shown


@contextlib.contextmanager
def _kafka() -> Iterator[str]:
    with (
        tempfile.TemporaryDirectory() as folder,
        kafka_original(Path(folder), partitions=QUEUES) as address,
    ):
        yield address


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("bench.client")
    parser.add_argument("name", nargs="?", default="", help="only rows whose name holds this")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=20_000, help="messages a row and round")
    parser.add_argument("--port-base", type=int, default=42_000)
    parser.add_argument("--beside", action="store_true", help="aiokafka, too")
    options = parser.parse_args(arguments)
    cases = harness.named([*CASES, *(BESIDE if options.beside else ())], options.name)
    found: dict[str, list[float]] = {case.name: [] for case in cases}
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(harness.broker(options.port_base))
        kafka = stack.enter_context(_kafka()) if options.beside else ""
        server.create_topic(TOPIC, QUEUES)
        server.wait_until_ready()
        names = f"127.0.0.1:{server.names}"
        asyncio.run(fill(names, options.count))
        for turn in range(options.rounds):
            for case in cases:
                where = kafka if case in BESIDE else names
                found[case.name].append(measure(case, where, options.count, turn))
    rows = [
        {
            "name": case.name,
            "cpu_us": round(min(found[case.name]), 2),
            "aim": case.aim,
            "rounds": [round(one, 2) for one in found[case.name]],
        }
        for case in cases
    ]
    Console().print(table(rows))
    path = harness.merge_results("client", rows, [case.name for case in [*CASES, *BESIDE]])
    print(f"written: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
