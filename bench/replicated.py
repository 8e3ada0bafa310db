"""What copies cost: puts to a shard of one, two and three members, at each acknowledgement level.

    python -m bench.replicated [--seconds N]

All members share this machine's cores with the generator, which on machines of their own they would
not: the rates are a lower bound, the master's CPU time a message is what travels. Writes
bench/results/replicated.json.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

import psutil
from rich.console import Console
from rich.table import Table

from bench import clusters, harness

if TYPE_CHECKING:
    from collections.abc import Sequence

LOADS = {"64 × 1": {"conns": 64, "depth": 1}, "16 × 64": {"conns": 16, "depth": 64}}
LEVELS = {
    1: ["leader", "leader-fsync"],
    2: ["leader", "replicated", "replicated-fsync"],
    3: ["leader", "replicated", "replicated-fsync"],
}
"""Of one member the levels that mean the same as the others' on a shard without copies."""
ALONE = {"leader": "leader", "replicated": "leader", "replicated-fsync": "leader-fsync"}


def measure(members: int, level: str, seconds: int) -> list[dict[str, Any]]:
    """Return one row a load."""
    rows = []
    with clusters.shard(members, level) as shard:
        for name, keys in LOADS.items():
            harness.wait_for_calm()
            copies = [psutil.Process(member.pid) for member in shard.followers]
            before = [sum(process.cpu_times()[:2]) for process in copies]
            found = shard.load(seconds=seconds, warmup=1, **keys)
            used = [sum(p.cpu_times()[:2]) - b for p, b in zip(copies, before, strict=True)]
            taken = found["rate"] * (seconds + 1)
            copying = sum(used) / (seconds + 1) / (os.cpu_count() or 1)
            rows.append(
                {"name": f"{name}, {members} member{'s' * (members > 1)}, {level}"}
                | {"load": name, "members": members, "level": level}
                | {key: found[key] for key in ("rate", "p50_us", "p99_us", "server_cpu_us")}
                | {"follower_cpu_us": [round(each / taken * 1e6, 2) for each in used]}
                | {"others": round(max(0.0, found["others"] - copying), 3)}
                | {"load_average": round(os.getloadavg()[0], 1)}
            )
    return rows


def compare(rows: list[dict[str, Any]]) -> None:
    """Add to each row its rate as a share of one member's, and that which the CPU time allows."""
    alone = {(r["load"], r["level"]): r for r in rows if r["members"] == 1}
    for row in rows:
        level = row["level"] if row["members"] == 1 else ALONE[row["level"]]
        one = alone[row["load"], level]
        row["share"] = round(row["rate"] / one["rate"], 2)
        row["cpu_share"] = round(one["server_cpu_us"] / row["server_cpu_us"], 2)


def table(rows: Sequence[dict[str, Any]]) -> Table:
    """Return the figures for people."""
    names = ["puts", "k msg/s", "share", "CPU share", "p50 ms", "p99 ms", "master µs"]
    shown = Table(*names, "followers µs", "others")
    for row in rows:
        shown.add_row(
            row["name"],
            f"{row['rate'] / 1000:.1f}",
            f"{row['share']:.2f}",
            f"{row['cpu_share']:.2f}",
            f"{row['p50_us'] / 1000:.2f}",
            f"{row['p99_us'] / 1000:.2f}",
            f"{row['server_cpu_us']:.1f}",
            " ".join(map(str, row["follower_cpu_us"])),
            f"{row['others']:.2f}",
        )
    return shown


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.replicated", description=__doc__)
    parser.add_argument("--seconds", type=int, default=4)
    options = parser.parse_args(sys.argv[1:] if arguments is None else arguments)
    console, rows = Console(), list[dict[str, Any]]()
    try:
        harness.build_native()
        for members, levels in LEVELS.items():
            for level in levels:
                console.print(f"[dim]{members} × {level} …")
                rows += measure(members, level, options.seconds)
    except harness.BenchError as error:
        console.print(f"[red]{error}")
        return 2
    compare(rows)
    console.print(table(rows))
    console.print(f"written to {harness.write_results('replicated', rows)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
