"""What every measurement shares: the native tools, pinned processes, the state of the machine.

The broker runs on one core and the generator on the other, so that the broker is what is measured.
Rates on shared machines are noisy: each result carries the broker's CPU time a message (user and
system, all threads), and the floor server, which answers without storing, is measured beside it.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import orjson
import psutil

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HERE = Path(__file__).parent
BUILD = HERE / "build"
RESULTS = HERE / "results"
BROKER_CORE, LOAD_CORE = 0, 1
CALM_SECONDS, CALM_SHARE_MAX, CALM_TRIES = 0.25, 0.06, 20
WITH_TLS = "load-tls"
IMAGO = str(Path(sys.executable).with_name("imago"))


class BenchError(Exception):
    """A measurement that cannot be made, with the cause and the cure."""


def build_native() -> None:
    """Compile the load generator and the floor server where their sources are newer."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise BenchError("no C compiler: install gcc, the load generator is written in C")
    for name in ["load", "floor"]:
        _compile(compiler, name, name)


def build_with_tls() -> None:
    """Compile the load generator that speaks TLS, too; it needs OpenSSL's headers."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None or not Path("/usr/include/openssl/ssl.h").exists():
        raise BenchError("no C compiler with OpenSSL: apt-get install gcc libssl-dev")
    _compile(compiler, "load", WITH_TLS, "-DTLS", "-lssl", "-lcrypto")


def _compile(compiler: str, source_name: str, name: str, *options: str) -> None:
    BUILD.mkdir(exist_ok=True)
    source, target = HERE / f"native/{source_name}.c", BUILD / name
    newest = max(each.stat().st_mtime for each in [source, *source.parent.glob("*.h")])
    if not target.exists() or target.stat().st_mtime < newest:
        command = [compiler, "-O2", "-Wall", "-Wextra", "-o", str(target), str(source), *options]
        subprocess.run(command, check=True)


def pin(pid: int, core: int) -> None:
    """Keep every thread of a process on one core (where the machine has more than one)."""
    if (os.cpu_count() or 1) < 2:
        return
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread.name), {core})


def steal_share(before: list[int], after: list[int]) -> float:
    """Share of the processors' time that the host took away between two `cpu_ticks()`."""
    passed = [b - a for a, b in zip(before, after, strict=True)]
    return passed[7] / max(1, sum(passed))


def cpu_ticks() -> list[int]:
    return [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]


def busy_seconds(ticks: list[int]) -> float:
    """Processor time used by anybody, the host's other guests included."""
    user, nice, system, _idle, _waiting, irq, softirq, steal = ticks[:8]
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def own_seconds(pids: list[int]) -> float:
    """Processor time of servers, and of the generators that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    servers = [psutil.Process(pid).cpu_times() for pid in pids]
    used: float = sum(times.user + times.system for times in servers)
    return used + children.ru_utime + children.ru_stime


def wait_for_calm() -> None:
    """Wait a while for others to leave the machine alone: they cost rates and tails."""
    for _ in range(CALM_TRIES):
        before = busy_seconds(cpu_ticks())
        time.sleep(CALM_SECONDS)
        busy = busy_seconds(cpu_ticks()) - before
        if busy < CALM_SHARE_MAX * CALM_SECONDS * (os.cpu_count() or 1):
            return


def load(work: str, port: int, *, pids: list[int], **keys: int | str) -> dict[str, Any]:
    """Run the generator once; return its figures, and the share of the machine others took.

    `tls=1`: with TLS.
    """
    program = WITH_TLS if keys.pop("tls", 0) else "load"
    words = [f"{key}={value}" for key, value in keys.items()]
    command = [
        str(BUILD / program),
        work,
        f"port={port}",
        f"pid={','.join(map(str, pids))}",
        *words,
    ]
    began, busy, own = time.monotonic(), busy_seconds(cpu_ticks()), own_seconds(pids)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    pin(process.pid, LOAD_CORE)
    out, error = process.communicate()
    if not out:
        raise BenchError(f"{' '.join(command)}: {error.decode()[-300:]}")
    figures: dict[str, Any] = orjson.loads(out)
    if figures["errors"]:
        raise BenchError(f"{work}: {figures['errors']} errors, the first: {figures['first_error']}")
    others = busy_seconds(cpu_ticks()) - busy - (own_seconds(pids) - own)
    share = others / (time.monotonic() - began) / (os.cpu_count() or 1)
    return figures | {"others": round(max(0.0, share), 3)}


@dataclass(frozen=True, slots=True)
class Server:
    """A server under measurement."""

    pid: int
    metaq: int
    rocketmq: int
    admin: str = ""
    names: int = 0
    first_ack_seconds: float = 0.0
    grpc: int = 0

    def create_topic(self, name: str, queues: int) -> None:
        """Create a topic over the admin HTTP."""
        request = urllib.request.Request(
            f"{self.admin}/admin/v1/topics/{name}",
            method="PUT",
            data=orjson.dumps({"queues": queues}),
            headers={"Content-Type": "application/json"},
        )
        urllib.request.urlopen(request, timeout=10).close()

    def wait_until_ready(self) -> None:
        """Wait until the broker says that everything of it serves, routes included."""
        deadline = time.monotonic() + 60
        while not self._is_ready():
            if time.monotonic() > deadline:
                raise BenchError(f"{self.admin}/readyz: not ready for a minute")
            time.sleep(0.1)

    def _is_ready(self) -> bool:
        try:
            urllib.request.urlopen(f"{self.admin}/readyz", timeout=10).close()
        except OSError:
            return False
        return True

    def rss_bytes(self) -> int:
        return int(psutil.Process(self.pid).memory_info().rss)


@contextlib.contextmanager
def floor(protocol: str, port: int, *, stores: bool = False) -> Iterator[Server]:
    """The C server that answers one protocol; with `stores` it appends the requests to a file."""
    with tempfile.TemporaryDirectory(prefix="imago-bench-") as folder:
        command = [str(BUILD / "floor"), protocol, str(port)]
        command += [f"{folder}/log"] if stores else []
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        try:
            assert process.stdout
            process.stdout.readline()
            pin(process.pid, BROKER_CORE)
            yield Server(process.pid, port, port)
        finally:
            process.kill()
            process.communicate()


@contextlib.contextmanager
def canned(port: int, records: Path, queues: int, messages: int) -> Iterator[Server]:
    """Run the C server that pretends to have a topic of so many queues of so many messages."""
    words = [str(port), str(records), str(queues), str(messages)]
    process = subprocess.Popen([str(BUILD / "floor"), "pulls", *words], stdout=subprocess.PIPE)
    try:
        assert process.stdout
        process.stdout.readline()
        pin(process.pid, BROKER_CORE)
        yield Server(process.pid, 0, port, names=port)
    finally:
        process.kill()
        process.communicate()


@contextlib.contextmanager
def broker(port_base: int, *settings: str) -> Iterator[Server]:
    """One broker without ZooKeeper, started as a user would, pinned to its core."""
    with tempfile.TemporaryDirectory(prefix="imago-bench-") as folder:
        command = [IMAGO, "up", "--json", "--zookeeper", "none", "--no-restart"]
        command += ["--data", folder, "--port-base", str(port_base)]
        for setting in settings:
            command += ["--set", setting]
        began = time.monotonic()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            assert process.stdout
            line = process.stdout.readline()
            if not line:
                raise BenchError(f"`{' '.join(command)}` did not start (exit {process.wait()})")
            ready = orjson.loads(line)
            found = ready["brokers"][0]
            pin(found["pid"], BROKER_CORE)
            yield Server(
                found["pid"],
                int(found["metaq"].rsplit(":", 1)[1]),
                int(found["rocketmq"].rsplit(":", 1)[1]),
                found["admin"],
                names=int(ready["namesrv"].rsplit(":", 1)[1]),
                first_ack_seconds=time.monotonic() - began,
                grpc=int(found["grpc"].rsplit(":", 1)[1]),
            )
        finally:
            process.terminate()
            process.communicate(timeout=60)


@contextlib.contextmanager
def lone_broker(folder: Path, port_base: int, zookeeper: str = "none") -> Iterator[Server]:
    """One broker process over a data folder that stays; ready once it answers MetaQ clients.

    Without a supervisor, so that `first_ack_seconds` is what the broker itself takes.
    """
    config = folder.with_suffix(".toml")
    offsets = {"metaq": 0, "rocketmq": 10, "namesrv": 20, "admin": 5}
    ports = {section: port_base + offset for section, offset in offsets.items()}
    lines = [f"[{section}]\nport = {port}" for section, port in ports.items()]
    lines.append("loopback_trusted = true")
    lines.insert(2, "grpc_port = 0")
    own = f'[broker]\ndata_dir = "{folder}"\nhost = "127.0.0.1"\nbind = "127.0.0.1"'
    config.write_text("\n".join([own, f'[zookeeper]\nconnect = "{zookeeper}"', *lines]) + "\n")
    began = time.monotonic()
    process = subprocess.Popen(
        [IMAGO, "broker", "--config", str(config)], stderr=subprocess.DEVNULL
    )
    try:
        while not answers(port_base):
            if process.poll() is not None:
                raise BenchError(f"`imago broker --config {config}` ended ({process.returncode})")
            time.sleep(0.01)
        took = time.monotonic() - began
        admin = f"http://127.0.0.1:{ports['admin']}"
        names = ports["namesrv"]
        yield Server(process.pid, port_base, ports["rocketmq"], admin, names, took)
    finally:
        process.terminate()
        process.communicate(timeout=120)


def answers(port: int) -> bool:
    """Whether a MetaQ client gets an answer."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(b"version 1\r\n")
            return bool(connection.recv(64))
    except OSError:
        return False


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    models = [
        x for x in Path("/proc/cpuinfo").read_text().split("\n") if x.startswith("model name")
    ]
    head = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=HERE,
        capture_output=True,
        text=True,
        check=False,
    )
    return {
        "commit": head.stdout.strip(),
        "processor": models[0].split(":", 1)[1].strip() if models else "unknown",
        "cores": os.cpu_count(),
        "python": sys.version.split()[0],
        "kernel": os.uname().release,
    }


Row = TypeVar("Row", bound="Named")


class Named(Protocol):
    """A row of a table of measurements."""

    @property
    def name(self) -> str: ...


def named(rows: Sequence[Row], text: str) -> list[Row]:
    """Return the rows whose name holds a text; BenchError: none does."""
    found = [row for row in rows if text in row.name]
    if not found:
        names = "".join(f"\n  {row.name}" for row in rows)
        raise BenchError(f"no name holds {text!r}; there are{names}")
    return found


def write_results(name: str, rows: list[dict[str, Any]]) -> Path:
    """Write one measurement as JSON under bench/results."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    document = {"machine": machine(), "rows": rows}
    path.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n")
    return path


def merge_results(name: str, rows: list[dict[str, Any]], known: list[str]) -> Path:
    """Write the rows that were measured; of those `known`, in their order, the others stay.

    A row that was measured before keeps the commit it was measured at.
    """
    now = machine()
    path = RESULTS / f"{name}.json"
    before = orjson.loads(path.read_bytes()) if path.exists() else {"rows": []}
    found = {row["name"]: row for row in before["rows"]}
    for row in found.values():
        row.setdefault("commit", before["machine"]["commit"])
    found |= {row["name"]: row for row in rows}
    merged = [found[each] for each in known if each in found]
    for row in merged:
        if row.get("commit") == now["commit"]:
            del row["commit"]
    return write_results(name, merged)
