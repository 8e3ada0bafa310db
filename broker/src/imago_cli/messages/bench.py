"""`imago bench`: what a cluster does for Python clients, measured from outside."""

from __future__ import annotations

import asyncio
import itertools
import time
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, NamedTuple

from imago_cli.connect import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    MetaqServers,
    Protocol,
    client_errors,
    connected,
    metaq_servers,
)
from imago_cli.line.declared import CommandGroup, Option
from imago_cli.messages.side_by_side import side_by_side
from imago_cli.output import print_json, print_table, say

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

QUEUES = 8
GROUP = "IMAGO_BENCH"
REST_S = 10.0
"""How long readers may take for the rest once all is sent."""
SHARES = {"p50": 0.50, "p99": 0.99, "p99.9": 0.999}


class BenchLoad(NamedTuple):
    """How much is sent: `in_flight` at once, or so many a second; and how many members read it."""

    seconds: float
    in_flight: int
    rate: float | None = None
    consumers: int = 0


@dataclass(slots=True)
class Measured:
    """Latencies in seconds: of a protocol's sends, from call to acknowledgement, or of what was
    read, from its birth until a handler had it."""

    name: str
    latencies: list[float] = field(default_factory=list)
    seconds: float = 0.0

    def summary(self, size: int) -> dict[str, object]:
        ordered = sorted(self.latencies) or [0.0]
        rate = len(self.latencies) / max(1e-9, self.seconds)
        shown = {
            name: round(ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1000, 3)
            for name, share in SHARES.items()
        }
        return {
            "protocol": self.name,
            "messages": len(self.latencies),
            "perSecond": round(rate),
            "megabytesPerSecond": round(rate * size / 1e6, 1),
            "milliseconds": shown,
        }


def attach(root: CommandGroup) -> None:
    """Add the command."""
    root.add("bench", bench)


def bench(
    topic: Annotated[
        str, Option(help="Topic to send to; created if missing. Its messages stay.")
    ] = "bench",
    protocol: Annotated[
        Protocol | None, Option(help="Protocol to measure; unless given, both in turn.")
    ] = None,
    seconds: Annotated[
        float, Option(least=0.5, most=3600, help="Seconds for each protocol.")
    ] = 5.0,
    size: Annotated[int, Option(least=1, most=4 << 20, help="Message size in bytes.")] = 1024,
    in_flight: Annotated[int, Option(least=1, most=4096, help="Concurrent sends.")] = 64,
    rate: Annotated[
        float | None,
        Option(
            least=1,
            most=1_000_000,
            help="Messages a second, whatever the answers take: each one's time counts from when"
            " it was due.",
            show_default="each send begins as another ends",
        ),
    ] = None,
    consumers: Annotated[
        int,
        Option(
            least=0,
            most=64,
            help=f"Members of the group {GROUP} that read meanwhile what RocketMQ's sends store.",
        ),
    ] = 0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    metaq: MetaqServers = None,
    as_json: AsJson = False,
) -> None:
    """Send messages through a running cluster for a while; show rates and latencies.

    The sender is one Python process and limits the rate. To find a broker's own limit, run the
    benchmarks of the source tree, whose generator is in C.
    """
    with connected(bootstrap) as client:
        if topic not in client.admin.topics():
            client.admin.create_topic(topic, queues=QUEUES)
    chosen = [protocol] if protocol else list(Protocol)
    results = []
    with client_errors():
        for each in chosen:
            pace = f"{rate:,.0f} messages a second" if rate else f"{in_flight} sends at once"
            say(f"{each.value}: {pace} for {seconds:g} s …")
            body = bytes(ord("a") + i % 23 for i in range(size))
            address = bootstrap
            if each is Protocol.metaq:
                address = metaq_servers(bootstrap, metaq)
            load = BenchLoad(seconds, in_flight, rate, consumers)
            measured = asyncio.run(_run(each, address, topic, body, load))
            results += [one.summary(size) for one in measured]
    _show(results, as_json=as_json)


async def _run(
    protocol: Protocol, address: str, topic: str, body: bytes, load: BenchLoad
) -> list[Measured]:
    if protocol is Protocol.metaq:
        from imago_client.metaq import MetaqClient

        async with MetaqClient(address) as metaq_client:
            metaq_producer = metaq_client.producer()
            return [await _measure(protocol, lambda: metaq_producer.send(topic, body), load)]
    from imago_client import Client, Message

    async with AsyncExitStack() as parts:
        client = await parts.enter_async_context(Client(address))
        read, seen = Measured("rocketmq, read"), set[str]()
        for _ in range(load.consumers):
            await parts.enter_async_context(_reading(address, topic, read, seen))
        producer = client.producer()
        sent = await _measure(protocol, lambda: producer.send(Message(topic, body)), load)
        if not load.consumers:
            return [sent]
        for _ in range(round(REST_S / 0.01)):
            if len(read.latencies) >= len(sent.latencies):
                break
            await asyncio.sleep(0.01)
        read.seconds = sent.seconds
        return [sent, read]


@asynccontextmanager
async def _reading(address: str, topic: str, read: Measured, seen: set[str]) -> AsyncIterator[None]:
    """Have one more member of the group read, and note when it got what was sent from now on.

    What changes hands as members join is read again: the first time counts.
    """
    from imago_client import Client, ConsumerConfig, ReceivedMessage

    began_ms = time.time() * 1000

    async def handle(messages: list[ReceivedMessage]) -> None:
        now_ms = time.time() * 1000
        births = [one.stored.born_ms for one in messages if one.message_id not in seen]
        seen.update(one.message_id for one in messages)
        read.latencies += [(now_ms - born) / 1000 for born in births if born >= began_ms]

    config = ConsumerConfig(group=GROUP, batch_messages_max=32)
    async with Client(address) as client, client.push_consumer(config, [topic], handle):
        yield


async def _measure(
    protocol: Protocol, send: Callable[[], Awaitable[object]], load: BenchLoad
) -> Measured:
    """Send as the load says until the time is up; the first error ends it."""
    measured = Measured(protocol.value)
    await send()  # routes and connections are not what is measured
    began = time.perf_counter()
    end = began + load.seconds
    turns = itertools.count()

    async def work() -> None:
        at = time.perf_counter()
        while at < end:
            await send()
            now = time.perf_counter()
            measured.latencies.append(now - at)
            at = now

    async def work_when_due(rate: float) -> None:
        while (due := began + next(turns) / rate) < end:
            await asyncio.sleep(due - time.perf_counter())
            await send()
            measured.latencies.append(time.perf_counter() - due)

    rate = load.rate
    await side_by_side(work if rate is None else lambda: work_when_due(rate), load.in_flight)
    measured.seconds = time.perf_counter() - began
    return measured


def _show(results: list[dict[str, object]], *, as_json: bool) -> None:
    if as_json:
        print_json(results)
        return
    columns = ["protocol", "messages", "per second", "MB/s", *(f"{name} ms" for name in SHARES)]
    rows = []
    for result in results:
        milliseconds = result["milliseconds"]
        assert isinstance(milliseconds, dict)
        rows.append(
            [
                result["protocol"],
                result["messages"],
                result["perSecond"],
                result["megabytesPerSecond"],
                *milliseconds.values(),
            ]
        )
    print_table("", columns, rows)
