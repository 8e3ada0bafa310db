"""`imago bench`: what a cluster does for Python clients, measured from outside."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

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
    from collections.abc import Awaitable, Callable

QUEUES = 8
SHARES = {"p50": 0.50, "p99": 0.99, "p99.9": 0.999}


@dataclass(slots=True)
class Measured:
    """Latencies of one protocol's sends, in seconds, from call to acknowledgement."""

    protocol: Protocol
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
            "protocol": self.protocol.value,
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
            say(f"{each.value}: {in_flight} sends at once for {seconds:g} s …")
            body = bytes(ord("a") + i % 23 for i in range(size))
            address = bootstrap
            if each is Protocol.metaq:
                address = metaq_servers(bootstrap, metaq)
            measured = asyncio.run(_run(each, address, topic, body, seconds, in_flight))
            results.append(measured.summary(size))
    _show(results, as_json=as_json)


async def _run(
    protocol: Protocol, address: str, topic: str, body: bytes, seconds: float, in_flight: int
) -> Measured:
    if protocol is Protocol.metaq:
        from imago_client.metaq import MetaqClient

        async with MetaqClient(address) as metaq_client:
            metaq_producer = metaq_client.producer()
            return await _measure(
                protocol, lambda: metaq_producer.send(topic, body), seconds, in_flight
            )
    from imago_client import Client, Message

    async with Client(address) as client:
        producer = client.producer()
        return await _measure(
            protocol, lambda: producer.send(Message(topic, body)), seconds, in_flight
        )


async def _measure(
    protocol: Protocol, send: Callable[[], Awaitable[object]], seconds: float, in_flight: int
) -> Measured:
    """Keep `in_flight` sends under way until the time is up; the first error ends it."""
    measured = Measured(protocol)
    await send()  # routes and connections are not what is measured
    began = time.perf_counter()
    end = began + seconds

    async def work() -> None:
        at = time.perf_counter()
        while at < end:
            await send()
            now = time.perf_counter()
            measured.latencies.append(now - at)
            at = now

    await side_by_side(work, in_flight)
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
