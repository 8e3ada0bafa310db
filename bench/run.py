"""`make bench`: every workload against a broker pinned to one core; a table, and JSON beside it.

python -m bench.run [--only TEXT] [--seconds N] [--repeats N] [--port-base N]
                    [--backlog-mb N] [--json]

Rows that were not asked for, or could not be measured, stay in bench/results/broker.json as they
are; when one could not be measured, it ends with 1.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson
from rich.console import Console
from rich.table import Table

from bench import backlog, harness
from bench.workloads import WORKLOADS, Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

CALM_SHARE = 0.05
"""A run of which others took no more of the machine is not made again."""


def create_topics(server: harness.Server, workload: Workload) -> None:
    """Make what the generator writes to: `bench`, or `bench-0` … one after another."""
    topics, queues = int(workload.keys.get("topics", 1)), int(workload.keys.get("queues", 4))
    names = ["bench"] if topics == 1 else [f"bench-{n}" for n in range(topics)]
    for name in names:
        server.create_topic(name, queues)


def one_run(
    workload: Workload, server: harness.Server, seconds: int, work: str = ""
) -> dict[str, Any]:
    """Run a workload once, or other work of its shape."""
    keys = {"seconds": seconds, "warmup": 1} | workload.keys
    harness.wait_for_calm()
    port = server.metaq if workload.protocol == "metaq" else server.rocketmq
    if not server.admin:
        keys.pop("along", None)  # the floor has no readers
    return harness.load(work or workload.work, port, pids=[server.pid], **keys)


def beside_plain(workload: Workload, server: harness.Server, seconds: int) -> dict[str, Any]:
    """Run the plain work, then the workload; return the latter, beside the former."""
    plain = one_run(workload, server, seconds, workload.beside) if workload.beside else None
    row = one_run(workload, server, seconds)
    if plain is not None:
        row["plain"] = plain
        row["times_plain"] = round(row["server_cpu_us"] / plain["server_cpu_us"], 2)
        row["others"] = max(row["others"], plain["others"])
    return row


def fill(workload: Workload, server: harness.Server) -> None:
    """Write the backlog that a catch-up workload reads."""
    seconds = max(2, workload.fill_bytes // (256 << 20))
    work, port = ("put", server.metaq) if workload.work == "get" else ("batch", server.rocketmq)
    numbered = int(workload.work == "filter")
    keys = {"conns": 16, "depth": 16, "seconds": seconds, "warmup": 0, "numbered": numbered}
    harness.load(work, port, pids=[], **keys)


def calmest_run(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The run during which others took the least of the machine."""
    return min(runs, key=lambda run: run["others"])


def backlog_runs(
    workload: Workload, repeats: int, port_base: int, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Fill and read until a run was calm: a fill takes longer than all that it is for."""
    runs: list[dict[str, Any]] = []
    while len(runs) < repeats and not any(run["others"] < CALM_SHARE for run in runs):
        runs.append(backlog.measure(workload, port_base, say))
    return runs


def measure(
    workload: Workload,
    *,
    seconds: int,
    repeats: int,
    port_base: int,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Run one workload; return its calmest run, beside the floor server's."""
    if workload.reader in {"first", "later"}:
        runs = backlog_runs(workload, repeats, port_base, say)
        shown = {"name": workload.name, "aim": workload.aim, "aim_of": workload.aim_of}
        return shown | calmest_run(runs)
    with harness.broker(port_base, *workload.settings) as server:
        idle = server.rss_bytes()
        create_topics(server, workload)
        if workload.fill_bytes:
            fill(workload, server)
        runs = [beside_plain(workload, server, seconds) for _ in range(repeats)]
        row = calmest_run(runs) | {"idle_rss_bytes": idle}
        row["start_seconds"] = round(server.first_ack_seconds, 2)
    if workload.floor:
        for name, stores in [("floor", False), ("storing_floor", True)]:
            with harness.floor(workload.protocol, port_base, stores=stores) as floor:
                row[name] = one_run(workload, floor, seconds)
    return {"name": workload.name, "aim": workload.aim, "aim_of": workload.aim_of} | row


def table(rows: Sequence[dict[str, Any]]) -> Table:
    shown = Table(title="Imago, one broker on one core (1 KiB unless named)")
    for column in [
        "workload",
        "k msg/s",
        "MB/s",
        "CPU µs/msg",
        "plain (times)",
        "floors",
        "p50 ms",
        "p99",
        "p99.9",
        "others",
    ]:
        shown.add_column(column, justify="left" if column == "workload" else "right")
    for row in rows:
        shown.add_row(
            row["name"],
            f"{row['rate'] / 1e3:,.1f}",
            f"{row['bytes_per_second'] / 1e6:,.0f}",
            f"{row['server_cpu_us']:.2f}",
            plain(row),
            floors(row),
            f"{row['p50_us'] / 1e3:.2f}",
            f"{row['p99_us'] / 1e3:.2f}",
            f"{row['p999_us'] / 1e3:.2f}",
            f"{row['others']:.0%}",
        )
    shown.caption = (
        "plain: µs of CPU a message of a plain send, or of a pull without filter, just before on "
        "the same broker; floors: a C server that answers and stores nothing / one that appends "
        "the request to a file, µs of CPU a message, and their p99 (p99.9) in ms, in the same run; "
        "others: share of the machine that went elsewhere during the calmest run, which is shown"
    )
    return shown


def plain(row: dict[str, Any]) -> str:
    """What the plain work took, and how many times that the workload takes."""
    if "plain" not in row:
        return ""
    return f"{row['plain']['server_cpu_us']:.2f} ({row['times_plain']:.1f} ×)"


def floors(row: dict[str, Any]) -> str:
    """What the machine allows: without storing, with storing, and the tail."""
    if "floor" not in row:
        return ""
    bare, storing = row["floor"], row["storing_floor"]
    tails = (storing["p99_us"] / 1e3, storing["p999_us"] / 1e3)
    return (
        f"{bare['server_cpu_us']:.2f} / {storing['server_cpu_us']:.2f}, "
        f"{bare['p99_us'] / 1e3:.2f} / {tails[0]:.2f} ({tails[1]:.2f})"
    )


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.run", description=__doc__)
    parser.add_argument("--only", default="", help="workloads whose name holds this text")
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--port-base", type=int, default=27000)
    parser.add_argument(
        "--backlog-mb", type=int, default=0, help="of the rows of a backlog; 0: what they name"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    return parser.parse_args(arguments)


def chosen(options: argparse.Namespace) -> list[Workload]:
    """Return the workloads that are asked for, with a backlog as large as is asked for."""
    return [
        replace(each, fill_bytes=options.backlog_mb << 20)
        if each.reader in {"first", "later"} and options.backlog_mb
        else each
        for each in harness.named(WORKLOADS, options.only)
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(sys.argv[1:] if arguments is None else arguments)
    console = Console(stderr=options.json)
    try:
        workloads = chosen(options)
        harness.build_native()
    except harness.BenchError as error:
        console.print(f"[red]{error}")
        return 1
    rows, failed = [], []
    for workload in workloads:
        console.print(f"[dim]{workload.name} …")
        try:
            rows.append(measured(workload, options, console))
        except (harness.BenchError, OSError) as error:
            console.print(f"[red]{workload.name}: {error}")
            failed.append(workload.name)
    if options.json:
        print(orjson.dumps(rows).decode())
    elif rows:
        console.print(table(rows))
    if rows:
        known = [each.name for each in WORKLOADS]
        console.print(f"written to {harness.merge_results('broker', rows, known)}")
    for name in failed:
        console.print(f"[red]{name}: not measured, see above; what was measured before stays")
    return 1 if failed else 0


def measured(workload: Workload, options: argparse.Namespace, console: Console) -> dict[str, Any]:
    return measure(
        workload,
        seconds=options.seconds,
        repeats=options.repeats,
        port_base=options.port_base,
        say=lambda text: console.print(f"[dim]  {text}"),
    )


if __name__ == "__main__":
    sys.exit(main())
