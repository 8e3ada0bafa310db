"""How long a member that is far behind takes to be in sync again, and what that costs the master.

    python -m bench.catch_up [--bytes N]

A follower of three is stopped (SIGSTOP) until the log has grown so far, then goes on (SIGCONT),
finds that its session has ended, and catches up while the master takes puts as before. Writes
bench/results/catch_up.json.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from rich.console import Console

from bench import clusters, harness
from imago_testing.processes.servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.clusters import Shard

MEMBERS, LEVEL, SESSION_MS = 3, "replicated", 2000
PUTS = {"conns": 64, "depth": 1}
FILL = {"conns": 16, "depth": 16, "size": 16 << 10}
SECONDS = 5
SECONDS_MAX = 300


def measure(size: int) -> dict[str, Any]:
    """Return the figures of one catch-up."""
    with clusters.shard(MEMBERS, LEVEL, f"zookeeper.session_timeout_ms={SESSION_MS}") as shard:
        late = shard.followers[0]
        late.signal(signal.SIGSTOP)
        try:
            wait_until(
                lambda: in_sync(shard) == MEMBERS - 1, seconds_max=60, what="it is out of sync"
            )
            begin = log_end(shard)
            while log_end(shard) < begin + size:
                shard.load(seconds=2, warmup=0, **FILL)
            behind = log_end(shard) - begin
            alone = shard.load(seconds=SECONDS, warmup=1, **PUTS)
        finally:
            late.signal(signal.SIGCONT)
        return {"behind_bytes": behind} | together(shard, alone)


def together(shard: Shard, alone: dict[str, Any]) -> dict[str, Any]:
    """Let it catch up under load; compare with the load alone."""
    began, loads = time.monotonic(), list[dict[str, Any]]()

    def work() -> None:
        loads.append(shard.load(seconds=SECONDS, warmup=0, **PUTS))

    working = threading.Thread(target=work)
    working.start()
    wait_until(
        lambda: in_sync(shard) == MEMBERS, seconds_max=SECONDS_MAX, what="it is in sync", poll=0.1
    )
    took = time.monotonic() - began
    working.join()
    return {
        "seconds_to_sync": round(took, 1),
        "rate_before": alone["rate"],
        "rate_during": loads[0]["rate"],
        "share": round(loads[0]["rate"] / alone["rate"], 2),
        "p99_us_before": alone["p99_us"],
        "p99_us_during": loads[0]["p99_us"],
        "load_average": os.getloadavg()[0],
    }


def in_sync(shard: Shard) -> int:
    """How many members are in sync."""
    return len(status(shard)["inSync"])


def log_end(shard: Shard) -> int:
    """Where the master's log ends."""
    return int(status(shard)["logEnd"])


def status(shard: Shard) -> dict[str, Any]:
    """What the master says of itself."""
    told: dict[str, Any] | None = shard.master.ask("/admin/v1/status")
    if told is None:
        raise harness.BenchError("the master does not answer")
    return told


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.catch_up", description=__doc__)
    parser.add_argument("--bytes", type=int, default=1 << 30, help="how far behind")
    options = parser.parse_args(sys.argv[1:] if arguments is None else arguments)
    console = Console()
    try:
        harness.build_native()
        row = {"name": "catch-up of one member of three"} | measure(options.bytes)
    except harness.BenchError as error:
        console.print(f"[red]{error}")
        return 2
    console.print(row)
    console.print(f"written to {harness.write_results('catch_up', [row])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
