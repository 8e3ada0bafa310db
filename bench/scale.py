"""What grows: partitions, topics, connections, and the log that a start finds.

    python -m bench.scale [--only TEXT] [--port-base N]

`make bench` runs it after the workloads. Writes bench/results/scale.json: one row a subject, its
figures by name.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from rich.console import Console

from bench import harness
from imago_broker.model.topics.topics import TopicConfig
from imago_log.config import StoreConfig
from imago_log.store import MessageStore
from imago_wire.records.record import host_bytes, make_entry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

GIB = 1 << 30
HOST = host_bytes("127.0.0.1", 10911)
SECONDS = 5


def partitions(port_base: int) -> dict[str, Any]:
    """W4: one topic, 64 producers, more and more partitions."""
    found: dict[str, Any] = {}
    for count, warmup in [(1, 2), (100, 3), (1000, 8), (10_000, 40)]:
        with harness.broker(port_base) as server:
            server.create_topic("bench", count)
            row = harness.load(
                "put", server.metaq, pids=[server.pid], queues=count, seconds=SECONDS, warmup=warmup
            )
            process = psutil.Process(server.pid)
            found[f"{count} partitions"] = {
                "rate": row["rate"],
                "server_cpu_us": row["server_cpu_us"],
                "p99_us": row["p99_us"],
                "open_files": process.num_fds(),
                "rss_bytes": server.rss_bytes(),
            }
    return found


def store(folder: Path) -> MessageStore:
    """A store as the broker would open it, filled without a socket."""
    config = StoreConfig(data_dir=folder, metaq_broker_id=0, store_host=HOST)
    return MessageStore.open(config, clock=lambda: time.time_ns() // 1_000_000)


def topics(port_base: int, count: int = 10_000, queues: int = 4) -> dict[str, Any]:
    """W5: many topics; what a start with them takes, what they weigh, and how routes are found."""
    with tempfile.TemporaryDirectory(prefix="imago-bench-") as folder:
        empty, full = Path(folder) / "empty", Path(folder) / "full"
        with harness.lone_broker(empty, port_base) as server:
            none = server.rss_bytes()
        filled = store(full)
        for number in range(count):
            topic = TopicConfig(name=f"bench-{number}", read_queues=queues, write_queues=queues)
            filled.create_topic(topic.name, topic.to_json())
        filled.close()
        with harness.lone_broker(full, port_base) as server:
            weight = server.rss_bytes() - none
            harness.pin(server.pid, harness.BROKER_CORE)
            server.wait_until_ready()
            keys = {"topics": count, "conns": 16, "seconds": SECONDS, "warmup": 1}
            routes = harness.load("route", server.names, pids=[server.pid], **keys)
            open_loop = keys | {"depth": 256, "rate": 2000}
            steady = harness.load("route", server.names, pids=[server.pid], **open_loop)
            return {
                "topics": count,
                "start_seconds": round(server.first_ack_seconds, 2),
                "bytes_a_topic": weight // count,
                "routes_per_second": routes["rate"],
                "route_cpu_us": routes["server_cpu_us"],
                "route_p99_us_at_2000_a_second": steady["p99_us"],
            }


def connections(port_base: int, idle: int = 10_000, storm: int = 4000) -> dict[str, Any]:
    """W6: what idle connections weigh and cost the active ones; how fast many come at once."""
    with harness.broker(port_base, "limits.connections_per_address_max=20000") as server:
        server.create_topic("bench", 4)
        pids, keys = [server.pid], {"seconds": SECONDS, "warmup": 2}
        alone = harness.load("put", server.metaq, pids=pids, **keys)
        before = server.rss_bytes()
        weighed: list[int] = []
        scales = threading.Timer(4.0, lambda: weighed.append(server.rss_bytes()))
        scales.start()
        crowded = harness.load("put", server.metaq, pids=pids, idle=idle, **keys)
        scales.join()
        opened = harness.load("storm", server.metaq, pids=pids, conns=storm)
        return {
            "idle": idle,
            "bytes_a_connection": (weighed[0] - before) // idle,
            "rate_alone": alone["rate"],
            "rate_beside_idle": crowded["rate"],
            "server_cpu_us_alone": alone["server_cpu_us"],
            "server_cpu_us_beside_idle": crowded["server_cpu_us"],
            "storm": storm,
            "connects_per_second": opened["rate"],
            "server_cpu_us_a_connect": opened["server_cpu_us"],
        }


def starts(port_base: int, log_bytes: int = 10 * GIB) -> dict[str, Any]:
    """Clean starts: of a new folder, and with a large log, which is written in full before."""
    with tempfile.TemporaryDirectory(prefix="imago-bench-") as folder:
        path = Path(folder) / "data"
        seconds = []
        for _ in range(3):
            with harness.lone_broker(path, port_base) as server:
                seconds.append(server.first_ack_seconds)
        fill(path, log_bytes)
        with harness.lone_broker(path, port_base) as server:
            large = server.first_ack_seconds
    return {
        "start_seconds": round(min(seconds[1:]), 2),
        "log_bytes": log_bytes,
        "start_seconds_with_log": round(large, 2),
    }


def fill(folder: Path, log_bytes: int) -> None:
    """Append messages of 1 MiB until the log is large enough; stop in order."""
    filled = store(folder)
    filled.create_topic("bench", {"name": "bench"})
    tail, body = filled.tail("bench", 0), bytes(range(256)) * 4096
    while filled.log_end < log_bytes:
        entry = make_entry(tail, body, born_ms=1, born_host=HOST)
        filled.append([entry] * 4)
        filled.tick()
    filled.close()


SUBJECTS: dict[str, Callable[[int], dict[str, Any]]] = {
    "partitions": partitions,
    "topics": topics,
    "connections": connections,
    "starts": starts,
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument("--only", default="", help="subjects whose name holds this text")
    parser.add_argument("--port-base", type=int, default=27100)
    options = parser.parse_args(sys.argv[1:] if arguments is None else arguments)
    console = Console()
    rows = []
    try:
        harness.build_native()
        for name, measure in SUBJECTS.items():
            if options.only in name:
                console.print(f"[dim]{name} …")
                rows.append({"name": name} | measure(options.port_base))
                console.print(rows[-1])
    except harness.BenchError as error:
        console.print(f"[red]{error}")
        return 2
    console.print(f"written to {harness.write_results('scale', rows)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
