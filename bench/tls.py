"""What TLS costs: the broker's processor time beside the same work without it, and a storm.

    python -m bench.tls [--seconds N] [--repeats N] [--port-base N]

Both run against the same broker, one after the other. The storm: connections that begin a
handshake and never end it, beside clients that are served. Writes bench/results/tls.json.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console

from bench import harness

if TYPE_CHECKING:
    from collections.abc import Iterator

STORM_A_SECOND = 2000
STORM_OPEN_MAX = 600
"""Connections of the storm that are open at once."""
SERVED_A_SECOND = 5000
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


def certificate(folder: Path) -> tuple[str, ...]:
    """Make a certificate (ECDSA); return the settings with it."""
    pem, key = folder / "tls.pem", folder / "tls.key"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", "2", "-subj", "/CN=bench", "-keyout", str(key), "-out", str(pem)]
    command += ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(command, check=True, capture_output=True)
    return f"tls.certificate_file={pem}", f"tls.key_file={key}"


@contextlib.contextmanager
def broker(port_base: int, *more: str) -> Iterator[tuple[harness.Server, int]]:
    """Run a broker with TLS and more settings; give it, and its port for MetaQ with TLS."""
    metaq = port_base + METAQ_TLS_OFFSET
    with tempfile.TemporaryDirectory(prefix="imago-bench-tls-") as name:
        settings = (*certificate(Path(name)), f"tls.metaq_port={metaq}", *more)
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


def storm(port_base: int, seconds: int) -> dict[str, Any]:
    """Return what clients that are served see, alone and beside a storm of handshakes.

    The storm comes twice: to a broker that limits handshakes, and to one that does not.
    """
    alone, beside, begun = _beside_storm(port_base, seconds)
    _, unlimited, _ = _beside_storm(port_base, seconds, "tls.handshakes_per_second_max=0")
    sides = {"alone": alone, "beside": beside, "unlimited": unlimited}
    return {"name": "storm", "handshakes_per_second": round(begun), **sides}


def _beside_storm(
    port_base: int, seconds: int, *settings: str
) -> tuple[dict[str, Any], dict[str, Any], float]:
    """Return the figures of served clients before and in a storm, and that one's rate."""
    keys = {"conns": 16, "depth": 64, "rate": SERVED_A_SECOND, "seconds": seconds, "warmup": 1}
    with broker(port_base, *settings) as (server, metaq_tls):
        server.create_topic("bench", 4)
        alone = harness.load("send", server.rocketmq, pids=[server.pid], **keys)
        ends = threading.Event()
        begun = [0]
        thread = threading.Thread(target=_begin_handshakes, args=(metaq_tls, ends, begun))
        began = time.monotonic()
        thread.start()
        try:
            beside = harness.load("send", server.rocketmq, pids=[server.pid], **keys)
        finally:
            ends.set()
            thread.join()
        return alone, beside, begun[0] / (time.monotonic() - began)


def _begin_handshakes(port: int, ends: threading.Event, begun: list[int]) -> None:
    """Begin handshakes at the rate of the storm, each over a connection of its own."""
    hello = _client_hello()
    opened: deque[socket.socket] = deque()
    began = time.monotonic()
    while not ends.is_set():
        if begun[0] >= (time.monotonic() - began) * STORM_A_SECOND:
            time.sleep(0.001)
            continue
        begun[0] += 1
        one = socket.socket()
        opened.append(one)
        with contextlib.suppress(OSError):  # the broker may refuse more of one address
            one.connect(("127.0.0.1", port))
            one.sendall(hello)
        if len(opened) > STORM_OPEN_MAX:
            opened.popleft().close()
    for each in opened:
        each.close()


def _client_hello() -> bytes:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing).do_handshake()
    return outgoing.read()


def main() -> int:
    """Measure all of it, print it, write it down."""
    parser = argparse.ArgumentParser(prog="bench.tls", description=__doc__)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--port-base", type=int, default=31_000)
    chosen = parser.parse_args()
    console = Console(stderr=True)
    try:
        harness.build_native()
        harness.build_with_tls()
        rows = []
        for work in WORKS:
            row = beside_plain(work, chosen.port_base, chosen.seconds, chosen.repeats)
            rows.append(row)
            console.print(
                f"{row['name']:28} {row['server_cpu_us']:.2f} µs with TLS,"
                f" {row['plain']['server_cpu_us']:.2f} without, {row['times_plain']} ×"
            )
        rows.append(storm(chosen.port_base, chosen.seconds))
        console.print(f"{rows[-1]['handshakes_per_second']} handshakes begun a second:")
        for side in ("alone", "beside", "unlimited"):
            seen = rows[-1][side]
            console.print(f"  {side}: {seen['rate']:,.0f} sends/s, p99 {seen['p99_us']:.0f} µs")
    except harness.BenchError as error:
        console.print(f"[red]{error}[/red]")
        return 1
    console.print(f"written: {harness.write_results('tls', rows)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
