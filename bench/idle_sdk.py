"""What a client of RocketMQ 5's SDKs that does nothing costs a broker: memory, and time.

    python -m bench.idle_sdk [CLIENTS …]

Each client has a connection with one telemetry stream, on which it has said what it consumes; the
broker's resident memory is read before they come and once all have been answered. For more clients
than the machine has ports, connections leave from several loopback addresses.
"""

from __future__ import annotations

import gc
import resource
import socket
import sys
import time
from typing import TYPE_CHECKING

from rich.console import Console

from bench import harness
from bench.sdk_load import SdkConnection, cpu_seconds
from imago_wire.grpc.messages import encoded, make

if TYPE_CHECKING:
    from collections.abc import Sequence

PORT_BASE = 27700
SETTLE_SECONDS, IDLE_SECONDS = 3, 20
OWN_FILES = 200


def introduction() -> bytes:
    """Return the settings of a simple consumer."""
    command = make("TelemetryCommand")
    command.settings.client_type = 3
    command.settings.subscription.group.name = "idle"
    entry = command.settings.subscription.subscriptions.add()
    entry.topic.name, entry.expression.expression = "bench", "*"
    return encoded(command)


def connect(port: int, count: int) -> list[SdkConnection]:
    """Return clients whose settings were answered."""
    told, clients = introduction(), []
    for number in range(count):
        client = SdkConnection(port, number)
        client.send(client.begin("Telemetry", told, last=False))
        clients.append(client)
        while number % 100 == 0 and not client.answers[1]:
            client.receive()
    for client in clients:
        while not client.answers[1]:
            client.receive()
    return clients


def measure(server: harness.Server, count: int, console: Console) -> None:
    """Have clients come, wait, and go; say what one costs."""
    time.sleep(SETTLE_SECONDS)
    before = server.rss_bytes()
    began = cpu_seconds(server.pid)
    clients = connect(server.grpc, count)
    came = cpu_seconds(server.pid) - began
    time.sleep(SETTLE_SECONDS)
    each = (server.rss_bytes() - before) / count / 1024
    began = cpu_seconds(server.pid)
    time.sleep(IDLE_SECONDS)
    idle = (cpu_seconds(server.pid) - began) / IDLE_SECONDS
    console.print(
        f"{count:>6,} clients: {each:5.1f} KiB each; {came / count * 1e6:,.0f} µs to come;"
        f" {idle:.1%} of a processor while they do nothing"
    )
    for client in clients:
        client.close()


def main(arguments: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if arguments is None else arguments
    counts = [int(word) for word in words] or [2_000, 10_000]
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    if max(counts) > limit - OWN_FILES:
        raise harness.BenchError(f"{max(counts)} clients need more open files than {limit}")
    socket.setdefaulttimeout(60)
    gc.disable()
    for count in counts:
        with harness.broker(PORT_BASE) as server:
            server.create_topic("bench", 4)
            measure(server, count, Console())
    return 0


if __name__ == "__main__":
    sys.exit(main())
