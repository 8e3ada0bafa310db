"""`make bench-peers`: the same generator against the original brokers and ours, in one run.

    python -m bench.peers [--seconds N] [--warmup N] [--port-base N]

Broker on one core, generator on the other. The ratio is the original's CPU time a message over
ours: above 1, ours needs less.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from bench import harness, originals

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Comparison:
    """A load that both brokers get."""

    name: str
    work: str
    keys: dict[str, int]
    fill: bool = False

    @property
    def metaq(self) -> bool:
        return self.work in {"put", "get"}


COMPARISONS = [
    Comparison("MetaQ put, 64 × 1", "put", {"conns": 64}),
    Comparison("MetaQ put, 16 × 64", "put", {"conns": 16, "depth": 64}),
    Comparison("MetaQ get, catch-up", "get", {"conns": 4}, fill=True),
    Comparison("RocketMQ send, 64 × 1", "send", {"conns": 64}),
    Comparison("RocketMQ send, 16 × 64", "send", {"conns": 16, "depth": 64}),
    Comparison("RocketMQ batches of 16, 64 × 1", "batch", {"conns": 64}),
    Comparison("RocketMQ pull, catch-up", "pull", {"conns": 4, "fetch": 4 << 20}, fill=True),
    Comparison("MetaQ put, open loop 5 k/s", "put", {"conns": 16, "depth": 1024, "rate": 5000}),
    Comparison(
        "RocketMQ send, open loop 5 k/s", "send", {"conns": 16, "depth": 1024, "rate": 5000}
    ),
]


def measure(comparison: Comparison, server: harness.Server, options: argparse.Namespace) -> Any:
    port = server.metaq if comparison.metaq else server.rocketmq
    if comparison.fill:
        work = "put" if comparison.metaq else "batch"
        harness.load(work, port, pids=[], conns=16, depth=16, seconds=4, warmup=0)
    keys: dict[str, int | str] = {"seconds": options.seconds, "warmup": options.warmup}
    return harness.load(comparison.work, port, pids=[server.pid], **keys, **comparison.keys)


def compare(
    chosen: list[Comparison], options: argparse.Namespace, console: Console
) -> list[dict[str, Any]]:
    """Measure each load on the original, then on ours."""
    rows = {c.name: {"name": c.name} for c in chosen}
    base = options.port_base
    for protocol, original in [(True, originals.metaq), (False, originals.rocketmq)]:
        mine = [c for c in chosen if c.metaq is protocol]
        if not mine:
            continue
        with original() as server:
            for comparison in mine:
                console.print(f"[dim]{comparison.name}: the original …")
                rows[comparison.name]["original"] = measure(comparison, server, options)
        with harness.broker(base + 100) as server:
            server.create_topic("bench", 4)
            for comparison in mine:
                console.print(f"[dim]{comparison.name}: Imago …")
                rows[comparison.name]["imago"] = measure(comparison, server, options)
    return list(rows.values())


def table(rows: Sequence[dict[str, Any]]) -> Table:
    shown = Table(title="The originals and Imago, one core each, 1 KiB")
    for column in [
        "workload",
        "orig k/s",
        "ours k/s",
        "orig µs",
        "ours µs",
        "ratio",
        "orig p99 ms",
    ]:
        shown.add_column(column, justify="left" if column == "workload" else "right")
    shown.add_column("ours p99 ms", justify="right")
    for row in rows:
        theirs, ours = row["original"], row["imago"]
        row["ratio"] = round(theirs["server_cpu_us"] / max(1e-9, ours["server_cpu_us"]), 2)
        shown.add_row(
            row["name"],
            f"{theirs['rate'] / 1e3:,.1f}",
            f"{ours['rate'] / 1e3:,.1f}",
            f"{theirs['server_cpu_us']:.2f}",
            f"{ours['server_cpu_us']:.2f}",
            f"{row['ratio']:.1f}×",
            f"{theirs['p99_us'] / 1e3:.2f}",
            f"{ours['p99_us'] / 1e3:.2f}",
        )
    shown.caption = "µs: CPU time of the broker a message, all threads. MetaQ 1.4.6.2, RocketMQ 5"
    return shown


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--warmup", type=int, default=10, help="the JVM compiles while it runs")
    parser.add_argument("--port-base", type=int, default=27200)
    parser.add_argument("--only", default="", help="loads whose name holds this text")
    options = parser.parse_args(sys.argv[1:] if arguments is None else arguments)
    console = Console()
    try:
        harness.build_native()
        rows = compare(harness.named(COMPARISONS, options.only), options, console)
    except harness.BenchError as error:
        console.print(f"[red]{error}")
        return 1
    console.print(table(rows))
    known = [c.name for c in COMPARISONS]
    console.print(f"written to {harness.merge_results('peers', rows, known)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
