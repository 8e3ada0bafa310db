"""What TLS costs: the broker's processor time beside the same work without it, and in storms.

    python -m bench.tls [--seconds N] [--repeats N] [--port-base N] [--only works|storms]

Both run against the same broker, one after the other. A storm: 2,000 handshakes a second, beside
clients with TLS and without that are served before, in it and after. Writes
bench/results/tls.json; with `--only` the other rows stay, with the commit of their run.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson
from rich.console import Console

from bench import harness

if TYPE_CHECKING:
    from collections.abc import Iterator

STORM_A_SECOND = 2000
SERVED_A_SECOND = 2500
"""Without TLS, and as many with it."""
LEAD_S = 1
"""The storm begins so long before what is measured in it, and ends so long after."""
METAQ_TLS_OFFSET = 90


class Work(NamedTuple):
    """One row: what is done, without TLS and with it."""

    name: str
    work: str
    keys: dict[str, int]
    fill: str = ""
    """What writes the backlog that is read."""

    @property
    def is_metaq(self) -> bool:
        return self.work in {"put", "get"}


WORKS = (
    Work("MetaQ put, 64 × 1", "put", {"conns": 64}),
    Work("MetaQ put, 16 × 64", "put", {"conns": 16, "depth": 64}),
    Work("RocketMQ send, 64 × 1", "send", {"conns": 64}),
    Work("RocketMQ send, 16 × 64", "send", {"conns": 16, "depth": 64}),
    Work("MetaQ get, catch-up", "get", {"conns": 4, "fetch": 1 << 20}, "put"),
    Work(
        "RocketMQ pull, catch-up", "pull", {"conns": 4, "fetch": 1 << 22, "messages": 32}, "batch"
    ),
)


class Storm(NamedTuple):
    """One storm."""

    name: str
    kind: str
    addresses: int
    settings: tuple[str, ...] = ()


NO_LIMIT = ("tls.handshakes_per_second_max=0",)
STORMS = (
    Storm("never ended, one address", "endless", 1),
    Storm("never ended, 64 addresses", "endless", 64),
    Storm("ended, one address", "whole", 1),
    Storm("ended, 64 addresses", "whole", 64),
    Storm("ended, 64 addresses, no limit", "whole", 64, NO_LIMIT),
)


KEYS = {
    "ec": ("ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
    "rsa:2048": ("rsa:2048",),
    "rsa:4096": ("rsa:4096",),
}
"""Kinds of keys, as openssl names them."""


def certificate(folder: Path, kind: str = "ec") -> tuple[str, str]:
    """Make a certificate; return its file and its key's."""
    pem, key = folder / "tls.pem", folder / "tls.key"
    command = ["openssl", "req", "-x509", "-newkey", *KEYS[kind]]
    command += ["-nodes", "-days", "2", "-subj", "/CN=bench", "-keyout", str(key), "-out", str(pem)]
    command += ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(command, check=True, capture_output=True)
    return str(pem), str(key)


@contextlib.contextmanager
def broker(port_base: int, *more: str) -> Iterator[tuple[harness.Server, int]]:
    """Run a broker with TLS and more settings; give it, and its port for MetaQ with TLS."""
    metaq = port_base + METAQ_TLS_OFFSET
    with tempfile.TemporaryDirectory(prefix="imago-bench-tls-") as name:
        pem, key = certificate(Path(name))
        settings = (f"tls.certificate_file={pem}", f"tls.key_file={key}", *more)
        settings += (f"tls.metaq_port={metaq}",)
        with harness.broker(port_base, *settings) as server:
            yield server, metaq


def beside_plain(work: Work, port_base: int, seconds: int, repeats: int) -> dict[str, Any]:
    """Return the work with TLS, and beside it the same without, each of its calmest run."""
    with broker(port_base) as (server, metaq_tls):
        server.create_topic("bench", 4)
        plain_port = server.metaq if work.is_metaq else server.rocketmq
        tls_port = metaq_tls if work.is_metaq else server.rocketmq
        if work.fill:
            keys = {"conns": 16, "depth": 16, "seconds": 3, "warmup": 0}
            harness.load(work.fill, plain_port, pids=[], **keys)
        found: dict[int, list[dict[str, Any]]] = {0: [], 1: []}
        for _ in range(repeats):
            for tls, port in ((0, plain_port), (1, tls_port)):
                harness.wait_for_calm()
                keys = {"seconds": seconds, "warmup": 1, "tls": tls} | work.keys
                found[tls].append(harness.load(work.work, port, pids=[server.pid], **keys))
    plain, row = (min(runs, key=lambda run: run["server_cpu_us"]) for runs in found.values())
    times = round(row["server_cpu_us"] / plain["server_cpu_us"], 2)
    return {"name": work.name, **row, "plain": plain, "times_plain": times}


def storm_beside(kind: Storm, port_base: int, seconds: int) -> dict[str, Any]:
    """Return what clients that are served see before a storm of handshakes, in it and after."""
    with broker(port_base, *kind.settings) as (server, metaq_tls):
        server.create_topic("bench", 4)
        harness.wait_for_calm()
        before = _served(server, seconds)
        words = ["--kind", kind.kind, "--addresses", str(kind.addresses)]
        words += ["--rate", str(STORM_A_SECOND), "--seconds", str(seconds + 2 * LEAD_S)]
        command = [sys.executable, "-m", "bench.storm", str(metaq_tls), *words]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        harness.pin(process.pid, harness.LOAD_CORE)
        time.sleep(LEAD_S)
        during = _served(server, seconds)
        told, _ = process.communicate()
        figures = orjson.loads(told)
        after = _served(server, seconds)
    sides = {"before": before, "during": during, "after": after}
    return {"name": f"storm: {kind.name}", **figures, **sides}


def _served(server: harness.Server, seconds: int) -> dict[str, Any]:
    """Return what clients without TLS and with it see, both at the same time."""
    keys = {"conns": 16, "depth": 1024, "rate": SERVED_A_SECOND, "seconds": seconds, "warmup": 0}
    with ThreadPoolExecutor(2) as pool:
        runs = [
            pool.submit(harness.load, "send", server.rocketmq, pids=[server.pid], **keys, **more)
            for more in ({"naps": 1, "tls": 0}, {"naps": 1, "tls": 1})
        ]
        plain, tls = (run.result() for run in runs)
    return {"plain": plain, "tls": tls}


def kept(name: str, measured: str) -> list[dict[str, Any]]:
    """Return the rows of an earlier run that this one leaves: all but those that it measures."""
    path = harness.RESULTS / f"{name}.json"
    if measured == "all" or not path.exists():
        return []
    document = orjson.loads(path.read_bytes())
    rows = [
        row for row in document["rows"] if row["name"].startswith("storm") != (measured == "storms")
    ]
    return [{"commit": document["machine"]["commit"]} | row for row in rows]


def measured_works(console: Console, chosen: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    for work in WORKS:
        row = beside_plain(work, chosen.port_base, chosen.seconds, chosen.repeats)
        rows.append(row)
        console.print(
            f"{row['name']:28} {row['server_cpu_us']:.2f} µs with TLS,"
            f" {row['plain']['server_cpu_us']:.2f} without, {row['times_plain']} ×"
        )
    return rows


def measured_storms(console: Console, chosen: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    for kind in STORMS:
        row = storm_beside(kind, chosen.port_base, chosen.seconds)
        rows.append(row)
        console.print(f"{row['name']}: {row['begun']} begun, {row['ended']} ended a second")
        for side in ("before", "during", "after"):
            for way, seen in row[side].items():
                latency = f"p50 {seen['p50_us']:.0f}, p99 {seen['p99_us']:.0f} µs"
                console.print(f"  {side:7} {way:6} {seen['rate']:,.0f} sends/s, {latency}")
    return rows


def main() -> int:
    """Measure all of it, print it, write it down."""
    parser = argparse.ArgumentParser(prog="bench.tls", description=__doc__)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--port-base", type=int, default=31_000)
    parser.add_argument("--only", choices=("all", "works", "storms"), default="all")
    chosen = parser.parse_args()
    console = Console(stderr=True)
    earlier = kept("tls", chosen.only)
    try:
        harness.build_native()
        harness.build_with_tls()
        works = [] if chosen.only == "storms" else measured_works(console, chosen)
        storms = [] if chosen.only == "works" else measured_storms(console, chosen)
    except harness.BenchError as error:
        console.print(f"[red]{error}[/red]")
        return 1
    rows = works + storms if chosen.only != "storms" else earlier + storms
    rows += earlier if chosen.only == "works" else []
    console.print(f"written: {harness.write_results('tls', rows)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
