"""How long clients get no acknowledgement when the master of their shard dies or hands over.

    python -m bench.failover [--events N] [--only TEXT]

A shard of three members under `imago up`, which starts again what is killed. Two producers send one
message after the other with replicated acknowledgement: this repository's, idempotent, which looks
for the master again after an error, and MetaQ's original one, which goes by ZooKeeper; it shares
its session factory with a consumer. After each event everything is in sync before the next.
Writes bench/results/failover.json.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from bench import harness
from imago_client import ProducerConfig
from imago_client.blocking import Client
from imago_testing.interop import streams
from imago_testing.interop.drivers import METAQ, running_drivers
from imago_testing.interop.members import Members
from imago_testing.interop.metaq import MetaqClient
from imago_testing.interop.streams import Reader, Stream, until_acknowledged
from imago_testing.interop.targets import METAQ_TOPICS, imago_up

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from imago_testing.interop.members import Member

SHARD, MEMBERS = "shard-0", 3
BETWEEN = 40
"""Acknowledgements of each producer between two events."""
REST_SECONDS = 3.0
"""Between two events: until MetaQ's clients have been told of the last."""


def die(master: Member) -> None:
    """The process ends at once."""
    master.signal(signal.SIGKILL)


def hand_over(master: Member) -> None:
    """The master gives its place to another member."""
    assert master.ask("/admin/v1/handover", "POST", {}) is not None


SUBJECTS: dict[str, tuple[int, Callable[[Member], None]]] = {
    "kill -9, session 2 s": (2000, die),
    "kill -9, session 6 s": (6000, die),
    "handover": (6000, hand_over),
}
"""Name to the session time-out in ms and the event."""


def measure(session_ms: int, event: Callable[[Member], None], events: int) -> dict[str, Any]:
    """Run one subject; return each producer's gaps."""
    settings = ["acknowledgement.level=replicated", f"zookeeper.session_timeout_ms={session_ms}"]
    options = [word for setting in settings for word in ("--set", setting)]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="imago-bench-")))
        drivers = stack.enter_context(running_drivers([METAQ], lambda name: folder / name))
        ready = stack.enter_context(
            imago_up(folder, shards=1, replicas=MEMBERS, options=options, small=())
        )
        members = Members(ready)
        members.settled(MEMBERS)
        client = MetaqClient(drivers[METAQ].wait_ready(), str(ready["zookeeper"]), [])
        producers = load(stack, client, str(ready["namesrv"]))
        loads, gaps = [], [list[float]() for _ in producers]
        for _ in range(events):
            until_acknowledged(producers, BETWEEN)
            time.sleep(REST_SECONDS)
            loads.append(os.getloadavg()[0])
            for producer, found in zip(producers, gap_of(members, producers, event), strict=True):
                gaps[producers.index(producer)].append(found)
        for producer in producers:
            producer.stop()
        return {"events": events, "load": round(statistics.mean(loads), 1)} | {
            producer.name: figures(found, len(producer.errors))
            for producer, found in zip(producers, gaps, strict=True)
        }


def load(stack: ExitStack, client: MetaqClient, namesrv: str) -> list[Stream]:
    """Start both producers."""
    ours, theirs = METAQ_TOPICS[:2]
    factory = stack.enter_context(client.factory())
    producer = stack.enter_context(factory.producer([theirs]))
    consumer = stack.enter_context(factory.consumer([theirs], "bench"))
    stack.enter_context(Reader("consumer", streams.taking(consumer)))
    own = stack.enter_context(Client(namesrv)).producer(ProducerConfig(idempotent=True))
    return [
        stack.enter_context(Stream("imago", streams.our_sends(own, ours))),
        stack.enter_context(Stream("metaq", streams.metaq_puts(producer, theirs))),
    ]


def gap_of(
    members: Members, producers: Sequence[Stream], event: Callable[[Member], None]
) -> list[float]:
    """Let it happen; return each producer's longest wait from then until all is well, in ms."""
    master = members.master(SHARD)
    assert master is not None
    before = master.pid
    for producer in producers:
        producer.gap_seconds = 0.0
    event(master)
    if event is die:
        members.until_restarted(master, before)
    until_acknowledged(producers, BETWEEN)
    members.settled(MEMBERS)
    return [round(producer.gap_seconds * 1000, 1) for producer in producers]


def figures(gaps_ms: Sequence[float], errors: int) -> dict[str, Any]:
    """Order the gaps; the 99th percentile of fewer than 100 is the largest."""
    ordered = sorted(gaps_ms)
    return {
        "p50_ms": ordered[len(ordered) // 2],
        "p99_ms": ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)],
        "max_ms": ordered[-1],
        "errors": errors,
        "gaps_ms": ordered,
    }


def table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return the figures for people."""
    shown = Table("event", "number", "load", "client", "p50 ms", "p99 ms", "max ms", "errors")
    for row in rows:
        for client in ("imago", "metaq"):
            found = row[client]
            words = [found[name] for name in ("p50_ms", "p99_ms", "max_ms", "errors")]
            shown.add_row(
                row["name"], str(row["events"]), str(row["load"]), client, *map(str, words)
            )
    return shown


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.failover", description=__doc__)
    parser.add_argument("--events", type=int, default=50, help="of each kind")
    parser.add_argument("--only", default="", help="subjects whose name holds this text")
    options = parser.parse_args(sys.argv[1:] if arguments is None else arguments)
    console, rows = Console(), []
    for name, (session_ms, event) in SUBJECTS.items():
        if options.only in name:
            console.print(f"[dim]{name} …")
            rows.append({"name": name} | measure(session_ms, event, options.events))
    console.print(table(rows))
    console.print(f"written to {harness.write_results('failover', rows)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
