"""RocketMQ 5's SDKs: sends, receives and acknowledgements over sockets, beside the original proxy.

    python -m bench.sdk [--messages N] [--rounds N] [--only TEXT] [--port-base N]

Server on one core, generator on the other. A round sends so many messages of 1 KiB (16 calls in
flight on each of four connections), receives them (32 a call, four calls in flight on each) and
acknowledges each receive by a call; the second half of the rounds counts, for the JVM compiles
during the first. What is shown is the processor time of all threads of the server: the original
is the proxy with its broker in one process (mode `local`), ours is the broker.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
from rich.console import Console
from rich.table import Table

from bench import harness
from bench.originals import create_group, create_topic
from bench.sdk_load import GROUP, TOPIC, SdkLoad, ack_request, cpu_seconds
from imago_testing.java.originals import AS_SHIPPED, rocketmq_proxy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

CONNECTIONS = 4
SENDS_IN_FLIGHT, READS_IN_FLIGHT = 16, 4
"""Of each connection."""
ROWS = {
    "send": "SDK send, 4 × 16",
    "receive": "SDK receive of 32, 4 × 4, a message",
    "acknowledge": "SDK acknowledgement of 32, 4 × 4, a message",
}


@contextlib.contextmanager
def original() -> Iterator[tuple[int, int]]:
    """The proxy with its broker; yield its process and the port of SDKs."""
    with (
        tempfile.TemporaryDirectory(prefix="imago-bench-") as name,
        rocketmq_proxy(Path(name), AS_SHIPPED) as found,
    ):
        create_topic(_port(found["broker"]), TOPIC, queues=4)
        create_group(_port(found["broker"]), GROUP)
        harness.pin(int(found["pid"]), harness.BROKER_CORE)
        yield int(found["pid"]), _port(found["grpc"])


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])


@contextlib.contextmanager
def imago(port_base: int) -> Iterator[tuple[int, int]]:
    """A broker; yield its process and the port of SDKs."""
    with harness.broker(port_base) as server:
        server.create_topic(TOPIC, 4)
        yield server.pid, server.grpc


def measure(pid: int, port: int, options: argparse.Namespace) -> dict[str, Any]:
    """Run the rounds; return µs of the server's processors a message, and messages a second."""
    os.sched_setaffinity(0, {harness.LOAD_CORE % (os.cpu_count() or 1)})
    load = SdkLoad(port, CONNECTIONS)
    took: dict[str, list[float]] = {name: [] for name in ROWS}
    rates: dict[str, list[float]] = {name: [] for name in ROWS}
    answers: list[bytearray] = []
    acks: list[bytes] = []

    def receive() -> None:
        answers[:] = load.receive(options.messages, READS_IN_FLIGHT)

    works: dict[str, Callable[[], object]] = {
        "send": lambda: load.send(SENDS_IN_FLIGHT),
        "receive": receive,
        "acknowledge": lambda: load.acknowledge(acks, READS_IN_FLIGHT),
    }
    for _ in range(options.rounds):
        load.prepare(options.messages)
        for name, work in works.items():
            acks[:] = [ack_request(answer) for answer in answers]
            began, used = time.monotonic(), cpu_seconds(pid)
            work()
            took[name].append((cpu_seconds(pid) - used) / options.messages * 1e6)
            rates[name].append(options.messages / (time.monotonic() - began))
    load.close()
    half = options.rounds // 2
    return {
        name: {
            "server_cpu_us": round(statistics.median(took[name][half:]), 2),
            "best_us": round(min(took[name][half:]), 2),
            "rate": round(statistics.median(rates[name][half:])),
        }
        for name in ROWS
    }


def recorded() -> list[dict[str, Any]]:
    """Return the rows as they were measured last: a side that is left out now stays."""
    path = harness.RESULTS / "sdk.json"
    found = orjson.loads(path.read_bytes())["rows"] if path.exists() else []
    known = {row["name"]: row for row in found}
    return [{**known.get(name, {}), "name": name} for name in ROWS.values()]


def table(rows: Sequence[dict[str, Any]]) -> Table:
    """What is shown."""
    shown = Table(title="The original proxy and Imago, one core each, 1 KiB")
    for column in ("workload", "orig µs", "ours µs", "ratio", "orig k/s", "ours k/s"):
        shown.add_column(column, justify="left" if column == "workload" else "right")
    for row in rows:
        theirs, ours = row.get("original", {}), row.get("imago", {})
        figures = [row["name"], *(f"{side.get('server_cpu_us', 0):.2f}" for side in (theirs, ours))]
        ratio = theirs.get("server_cpu_us", 0) / max(1e-9, ours.get("server_cpu_us", 0))
        rates = [f"{side.get('rate', 0) / 1e3:,.1f}" for side in (theirs, ours)]
        shown.add_row(*figures, f"{ratio:.1f}×", *rates)
    shown.caption = "µs: CPU time of the server a message, all threads. RocketMQ proxy 5.5.0, local"
    return shown


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.sdk", description=__doc__)
    parser.add_argument("--messages", type=int, default=4_000, help="of a round")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--only", choices=["imago", "original"], help="one side alone")
    parser.add_argument("--port-base", type=int, default=27600)
    options = parser.parse_args(sys.argv[1:] if arguments is None else arguments)
    console = Console()
    sides: dict[str, Callable[[], AbstractContextManager[tuple[int, int]]]] = {
        "original": original,
        "imago": lambda: imago(options.port_base),
    }
    rows = recorded()
    for side, start in sides.items():
        if options.only in (None, side):
            console.print(f"[dim]{side} …")
            with start() as (pid, port):
                found = measure(pid, port, options)
            for row, figures in zip(rows, found.values(), strict=True):
                row[side] = figures
    console.print(table(rows))
    console.print(f"written to {harness.merge_results('sdk', rows, list(ROWS.values()))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
