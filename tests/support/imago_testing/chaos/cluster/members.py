"""The brokers of one shard, each on a machine of its own, on a small disk of its own."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import resource
import shutil
import signal
import subprocess
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from imago_testing.chaos.cluster.full_disks import forced_in
from imago_testing.chaos.cluster.knobs import Knobs
from imago_testing.chaos.credentials import Address
from imago_testing.chaos.nursery import RUNS, Nursery
from imago_testing.processes.certificates import Pair
from imago_testing.processes.servers import accepts, wait_until

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping
    from pathlib import Path

    from imago_testing.chaos.cluster.closing import Closed
    from imago_testing.chaos.cluster.network import Network

METAQ_PORT, ROCKETMQ_PORT, NAMES_PORT, ADMIN_PORT = 8123, 10911, 9876, 8080
METAQ_TLS_PORT = 8124
REPLICATION_PORT = ROCKETMQ_PORT + 1
_FILL_STEP_BYTES = 64 << 10
_SERVES_SECONDS_MAX = 120
_HTTP_SECONDS_MAX = 5
_WORDS_MAX = 200
_LINGER_MS = 1000
"""How long topics that are sealed take messages still."""
_AS_ADMIN = {"Authorization": "Bearer chaos"}
_CONFIG = """\
[broker]
cluster = "chaos"
shard = {number}
seal_linger_ms = {linger_ms}
replicas = {replicas}
data_dir = "{data}"
bind = "0.0.0.0"
host = "{host}"
drain_seconds = 5
[zookeeper]
connect = "{zookeeper}"
session_timeout_ms = {session_ms}
[replication]
min_in_sync = {in_sync}
handover_linger_ms = 3000
[metaq]
message_bytes_max = 1048576
[rocketmq]
message_bytes_max = 1048576
light_queues = true
[admin]
loopback_trusted = true
token_file = "{token}"
[store]
# Small files, so that many of them are begun and finished between two faults.
segment_bytes_max = {segment}
metaq_segment_bytes_max = 262144
# The oldest of them go all the time, also while members change places.
retention_bytes_max = {retention}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Of a member's files and its disk, in bytes."""

    segment: int = 16 << 20
    retention: int = 192 << 20
    """Of the log, on which its oldest file goes; 0: all is kept."""

    @property
    def disk(self) -> int:
        """Room for the log, for as much in MetaQ's own files, and for a member that is behind."""
        return max(512 << 20, 5 * self.retention) if self.retention else 2 << 30


class Member:
    """One broker: its machine, its disk, its process."""

    def __init__(
        self,
        name: str,
        network: Network,
        folder: Path,
        *,
        zookeeper: str,
        session_ms: int,
        replicas: int,
        library: Path,
        sizes: Sizes,
        closed: Closed | None = None,
        number: int = 0,
    ) -> None:
        """`number` of its shard.

        `closed`: it speaks TLS alone, and serves who has the right to what it asks."""
        self.name, self.address, self.number = name, network.address(name), number
        self.folder = folder
        folder.mkdir(parents=True)
        self.disk = folder / "disk"
        self.disk.mkdir()
        options = f"size={sizes.disk}"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, name, str(self.disk)], check=True)
        self.data = self.disk / "data"
        self._token = folder / "token"
        self._token.write_text("chaos")
        self._closed = closed
        self.pair = Pair(folder / "tls.pem", folder / "tls.key")
        """Its certificate in a closed cluster."""
        more = closed.settings_of(self, METAQ_TLS_PORT) if closed is not None else ""
        config = folder / "broker.toml"
        config.write_text(
            more
            + _CONFIG.format(
                number=number,
                linger_ms=_LINGER_MS,
                replicas=replicas,
                in_sync=min(2, replicas),
                data=self.data,
                host=self.address,
                zookeeper=zookeeper,
                session_ms=session_ms,
                token=self._token,
                segment=sizes.segment,
                retention=sizes.retention,
            )
        )
        self.log = folder / "broker.log"
        self.knobs = Knobs(folder / "knobs")
        environment = {"LD_PRELOAD": str(library), "IMAGO_FAULTS": str(self.knobs.path)}
        self._nursery = Nursery(config, self.log, inside=network.inside(name, []), env=environment)
        self.pid = 0

    @property
    def metaq(self) -> Address:
        if self._closed is not None:
            return Address(self.address, METAQ_TLS_PORT, self._closed.metaq)
        return Address(self.address, METAQ_PORT)

    @property
    def rocketmq(self) -> Address:
        if self._closed is not None:
            return Address(self.address, ROCKETMQ_PORT, self._closed.rocketmq)
        return Address(self.address, ROCKETMQ_PORT)

    @property
    def alive(self) -> bool:
        return bool(self.pid) and self._nursery.ask("poll") == RUNS

    def start(self) -> None:
        """Start the process; it does not serve yet when this returns."""
        assert not self.pid
        self.pid = self._nursery.ask("start")

    def wait(self) -> None:
        """Return when it answers its admin interface."""

        def serves() -> bool:
            assert self.alive, f"{self.name} ended early:\n{self.log_tail()}"
            return accepts(ADMIN_PORT, self.address)

        wait_until(serves, seconds_max=_SERVES_SECONDS_MAX, what=f"{self.name} serves")

    def kill(self) -> None:
        """kill -9, and the process is gone."""
        os.kill(self.pid, signal.SIGKILL)
        self.ended()

    def stop(self) -> int:
        """Stop it in order; return the exit code."""
        os.kill(self.pid, signal.SIGTERM)
        return self.ended()

    def ended(self) -> int:
        """Wait for the end of the process and return its exit code."""
        self.pid = 0
        return self._nursery.ask("wait")

    def pause(self, *, on: bool) -> None:
        """Stop the process in the middle of whatever it does, or let it go on."""
        os.kill(self.pid, signal.SIGSTOP if on else signal.SIGCONT)

    def files_max(self, count: int) -> None:
        """Limit the files that the process may open from now on."""
        _, hard = resource.prlimit(self.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(self.pid, resource.RLIMIT_NOFILE, (min(count, hard), hard))

    def open_files(self) -> int:
        """How many files the process holds open."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))  # noqa: PTH208 — names are enough

    def fill_disk(self, used: float = 1.0) -> None:
        """Have this part of the disk used; 1: leave no room at all."""
        with (self.disk / "ballast").open("wb") as file, contextlib.suppress(OSError):
            for size in itertools.count(0, _FILL_STEP_BYTES):
                usage = shutil.disk_usage(self.disk)
                if used < 1 and usage.used >= used * usage.total:
                    return
                os.posix_fallocate(file.fileno(), size, _FILL_STEP_BYTES)

    def empty_disk(self) -> None:
        """Give the room back."""
        (self.disk / "ballast").unlink(missing_ok=True)

    def forced_out(self) -> float:
        """How many messages it has deleted before they had expired, since its process began."""
        request = urllib.request.Request(self._url("/metrics"), headers=_AS_ADMIN)
        with urllib.request.urlopen(request, timeout=_HTTP_SECONDS_MAX, context=self._tls) as got:
            return forced_in(got.read().decode())

    def disk_use(self) -> str:
        """Return how full its disk is, and with what."""
        usage = shutil.disk_usage(self.disk)
        folders = [each for each in self.data.iterdir() if each.is_dir()]
        sizes = {each.name: sum(f.stat().st_size for f in each.rglob("*")) for each in folders}
        parts = ", ".join(f"{name} {size >> 20}" for name, size in sizes.items() if size >> 20)
        return f"disk {usage.used >> 20} of {usage.total >> 20} MiB ({parts})"

    def log_tail(self) -> str:
        return self.log.read_bytes()[-4000:].decode(errors="replace") if self.log.exists() else ""

    def last_words(self) -> str:
        """Return what it said was fatal, last."""
        lines = [line for line in self.log_tail().splitlines() if " CRITICAL " in line]
        return lines[-1].partition(" CRITICAL ")[2][:_WORDS_MAX] if lines else "without a word"

    def ask(
        self,
        path: str,
        *,
        method: str = "GET",
        body: Mapping[str, object] | None = None,
        seconds_max: float = _HTTP_SECONDS_MAX,
    ) -> tuple[int, Any]:
        """Call the admin interface; (0, None) when nobody answers."""
        request = urllib.request.Request(
            self._url(path),
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json", **_AS_ADMIN},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=seconds_max, context=self._tls) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)
        except (OSError, ValueError):
            return 0, None

    def _url(self, path: str) -> str:
        scheme = "http" if self._closed is None else "https"
        return f"{scheme}://{self.address}:{ADMIN_PORT}{path}"

    @property
    def _tls(self) -> ssl.SSLContext | None:
        return self._closed.rocketmq.tls if self._closed is not None else None

    def close(self) -> None:
        """Whatever happened: leave no process and no disk behind."""
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGCONT)
        self._nursery.close()
        self.knobs.close()
        if self.disk.is_mount():
            subprocess.run(["umount", "-l", str(self.disk)], check=False)
