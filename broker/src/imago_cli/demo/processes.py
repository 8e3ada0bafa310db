"""The processes of the demonstration: a cluster by `imago up`, and a Spark application."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson

from imago_cli.distribution import install
from imago_cli.exits import CommandError
from imago_cli.servers.java import find_java, spark_home

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SHARDS: Final = 2
_FIXED_PORTS: Final = (9876, 2181)
_ERROR_LINE: Final = re.compile(r"(error: |[\w.: ]*(Error|Exception)\b)")
START_SECONDS_MAX: Final = 180.0
"""Longer than `imago up` itself waits for a new cluster's members and name service."""
_STOP_SECONDS_MAX: Final = 30.0
SPARK_SECONDS_MAX: Final = 300.0
_BUSY: Final = "; a machine that is busy with other work may need longer"


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running cluster."""

    process: asyncio.subprocess.Process
    ready: dict[str, Any]

    @property
    def bootstrap(self) -> str:
        return str(self.ready["namesrv"])

    @property
    def metaq(self) -> str:
        masters = [broker for broker in self.ready["brokers"] if broker["role"] == "master"]
        return ",".join(str(broker["metaq"]) for broker in masters)

    @property
    def dashboard(self) -> str:
        return f"{self.ready['brokers'][0]['admin']}/"

    async def stop(self) -> None:
        """Stop everything in order."""
        await _stop(self.process)


async def start_cluster(data: Path, log_path: Path, *, replicas: int) -> Cluster:
    """Run `imago up` and wait until everything serves. CommandError: it did not, and why."""
    command = [sys.executable, "-m", "imago_cli", "up", "--json", "--shards", str(SHARDS)]
    command += ["--replicas", str(replicas), "--data", str(data), *_ports(SHARDS * replicas)]
    with log_path.open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=log
        )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_SECONDS_MAX):
            line = await process.stdout.readline()
    except TimeoutError:
        said = _last_words(log_path)
        await _stop(process)
        raise CommandError(
            f"the cluster does not serve within {START_SECONDS_MAX:g} s: {said}",
            cure=f"see {log_path}, and the logs in {data / 'logs'}{_BUSY}",
        ) from None
    except asyncio.CancelledError:
        await _stop(process)
        raise
    if not line:
        await process.wait()
        raise CommandError(
            f"the cluster did not start: {_last_words(log_path).removeprefix('error: ')}",
            cure=_last_cure(log_path) or f"see {log_path}; `imago doctor` finds common mistakes",
        )
    return Cluster(process, orjson.loads(line))


@dataclass(frozen=True, slots=True)
class SparkApplication:
    """The ingest application, waiting for its word to begin."""

    process: asyncio.subprocess.Process
    log_path: Path

    async def land(self) -> dict[str, Any]:
        """Let it run; return what it says at its end. CommandError: it failed, and its log."""
        try:
            async with asyncio.timeout(SPARK_SECONDS_MAX):
                line = await self._landed()
        except TimeoutError:
            said = _last_words(self.log_path)
            await self.stop()
            raise CommandError(
                f"Spark has not landed the topic within {SPARK_SECONDS_MAX:g} s: {said}",
                cure=f"see {self.log_path}{_BUSY}",
            ) from None
        if not line.startswith(b"{"):
            raise await self._failed()
        landed: dict[str, Any] = orjson.loads(line)
        return landed

    async def stop(self) -> None:
        """End it, however far it is."""
        await _stop(self.process)

    async def _landed(self) -> bytes:
        """Return the application's last line."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        if (await self.process.stdout.readline()).strip() != b"READY":
            raise await self._failed()
        self.process.stdin.write(b"GO\n")
        self.process.stdin.close()
        line = await self.process.stdout.readline()
        await self.process.wait()
        return line

    async def _failed(self) -> CommandError:
        await _stop(self.process)
        return CommandError(
            f"Spark did not run: {_last_words(self.log_path)}",
            cure=f"see {self.log_path}; if packages are missing: {install('spark')}",
        )


async def start_spark(
    bootstrap: str, topic: str, path: Path, folder: Path, *, page: Path, groups: Sequence[str]
) -> SparkApplication:
    """Start Spark early: it needs seconds until it can do anything."""
    java = await asyncio.to_thread(find_java)
    home = await asyncio.to_thread(spark_home, java, folder / "java")
    log_path = folder / "spark.log"
    command = [sys.executable, "-m", "imago_spark.pipelines.ingest", "--short", "--wait"]
    command += ["--bootstrap", bootstrap, "--topics", topic, "--path", str(path)]
    command += ["--page", str(page), "--groups", ",".join(groups)]
    with log_path.open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            env={**os.environ, "JAVA_HOME": str(home)},
            cwd=folder,
        )
    return SparkApplication(process, log_path)


def _last_words(log_path: Path) -> str:
    """Return what a log most likely says about what went wrong: its last error, or its end."""
    said = log_path.read_text(errors="replace").strip().splitlines()
    errors = [line for line in said if _ERROR_LINE.match(line)]
    return (errors or said or ["it said nothing"])[-1].strip()


def _last_cure(log_path: Path) -> str:
    """Return the cure that a command named at its end; "": it named none."""
    last = log_path.read_text(errors="replace").rstrip().rpartition("\n")[2].strip()
    return last.removeprefix("cure: ") if last.startswith("cure: ") else ""


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        async with asyncio.timeout(_STOP_SECONDS_MAX):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def _ports(brokers: int) -> list[str]:
    """The usual ports where they are free, else a free block."""
    if all(_is_free(port) for port in _usual_ports(brokers)):
        return []
    size = 10 + 10 * brokers
    for base in range(20_000, 30_000, size):
        if all(_is_free(base + offset) for offset in range(size)):
            return ["--port-base", str(base)]
    raise CommandError(
        "no free ports between 20000 and 30000", cure="stop what has them, and try again"
    )


def _usual_ports(brokers: int) -> list[int]:
    ports = list(_FIXED_PORTS)
    for n in range(brokers):
        first = 10909 + 10 * n
        ports += [8080 + n, 8123 + n, first, first + 2, first + 3]
    return ports


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
