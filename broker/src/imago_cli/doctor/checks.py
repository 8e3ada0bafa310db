"""What `imago doctor` checks: each check returns findings, and each finding has its cure."""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import socket
import sys
import sysconfig
import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import StrEnum
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from imago_cli.exits import CommandError
from imago_cli.servers.java import find_java
from imago_cli.servers.zookeeper_server import class_path, four_letters
from imago_log.disk.vfs import disk_usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from imago_broker.cluster.session.tree_access import TreeAccess
    from imago_broker.config import BrokerConfig

PYTHON_MIN = (3, 11)
SKEW_SECONDS_MAX = 2.0
"""HTTP dates are whole seconds, so less cannot be told."""
FUTURE_SECONDS_MAX = 60.0
FILES_BESIDE_CONNECTIONS = 1024
"""Open files of the log, beside one for each connection."""
_TIMEOUT_SECONDS = 3.0
_TIME_ERROR = 5
"""adjtimex(2): the kernel's clock is not synchronised."""
_ANYWHERE = ("0.0.0.0", "::", "")  # noqa: S104  looked for, not bound


class CheckLevel(StrEnum):
    """How bad it is. Only errors make the command fail."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """One thing that was checked."""

    check: str
    level: CheckLevel
    message: str
    cure: str = ""


def check_python() -> Iterator[CheckFinding]:
    """Version of the interpreter."""
    version = sys.version.split()[0]
    if sys.version_info >= PYTHON_MIN:
        yield CheckFinding("python", CheckLevel.OK, f"Python {version}")
    else:
        wanted = ".".join(map(str, PYTHON_MIN))
        yield CheckFinding(
            "python", CheckLevel.ERROR, f"Python {version} is too old", f"use {wanted} or newer"
        )


def check_compiled() -> Iterator[CheckFinding]:
    """Whether the hot modules run compiled, and whether they could be."""
    from imago_wire import hot

    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    headers = Path(sysconfig.get_paths()["include"]) / "Python.h"
    if hot.COMPILED:
        yield CheckFinding("compiled", CheckLevel.OK, "the hot modules run compiled")
    elif os.environ.get("IMAGO_PURE"):
        yield CheckFinding(
            "compiled",
            CheckLevel.WARNING,
            "IMAGO_PURE forces the slow pure-Python modules",
            "unset it",
        )
    elif compiler and headers.exists():
        yield CheckFinding(
            "compiled",
            CheckLevel.WARNING,
            f"not compiled: {', '.join(hot.MISSING)}: the broker is several times slower",
            "make setup",
        )
    else:
        lacking = "C compiler" if not compiler else f"Python.h ({headers})"
        yield CheckFinding(
            "compiled",
            CheckLevel.WARNING,
            f"no {lacking}: the hot modules run as plain Python, several times slower",
            "apt install gcc python3-dev (or the like), then make setup",
        )


def check_java() -> Iterator[CheckFinding]:
    """Whether ZooKeeper and Spark could be started here."""
    try:
        java = find_java()
    except CommandError as error:
        message = f"{error.message}: neither ZooKeeper nor Spark can run here"
        yield CheckFinding("java", CheckLevel.WARNING, message, error.cure)
    else:
        yield CheckFinding(
            "java", CheckLevel.OK, f"Java {java.version} from {java.source}: {java.home}"
        )
    try:
        class_path()
    except CommandError as error:
        yield CheckFinding("zookeeper jars", CheckLevel.WARNING, error.message, error.cure)
    else:
        yield CheckFinding("zookeeper jars", CheckLevel.OK, "PySpark brings a ZooKeeper along")


def check_ports(
    ports: Iterable[tuple[str, int]], ours: Mapping[int, str]
) -> Iterator[CheckFinding]:
    """Who has the ports that brokers need. `ours`: process ids of a cluster here, and names."""
    owners = _listeners(ours)
    free = []
    for what, port in ports:
        owner = owners.get(port)
        if owner is None and _can_bind(port):
            free.append(port)
        elif owner and owner.startswith("imago"):
            yield CheckFinding("ports", CheckLevel.NOTE, f"{port} ({what}) is served by {owner}")
        else:
            taken = owner or "a process of another user"
            yield CheckFinding(
                "ports",
                CheckLevel.WARNING,
                f"{port} ({what}) is taken by {taken}",
                "stop it, or choose other ports (imago up --port-base, or the *.port settings)",
            )
    if free:
        yield CheckFinding("ports", CheckLevel.OK, f"free: {', '.join(map(str, free))}")


def check_disk(
    folder: Path, *, clean_ratio: float, force_ratio: float, full_ratio: float
) -> Iterator[CheckFinding]:
    """Room on the disk of the data folder, and whether it can be written."""
    existing = next(path for path in [folder, *folder.parents] if path.exists())
    usage = disk_usage(existing)
    free = usage.total - usage.used
    said = f"{usage.ratio:.0%} of the disk of {folder} is used, {free >> 20} MiB are free"
    if usage.ratio > full_ratio:
        cure = f"free some space: puts are refused above {full_ratio:.0%} (store.disk_full_ratio)"
        yield CheckFinding("disk", CheckLevel.ERROR, said, cure)
    elif usage.ratio > clean_ratio:
        cure = (
            f"free some space: above {force_ratio:.0%} (store.disk_force_ratio) the oldest "
            f"messages are deleted early, above {full_ratio:.0%} puts are refused"
        )
        yield CheckFinding("disk", CheckLevel.WARNING, said, cure)
    else:
        yield CheckFinding("disk", CheckLevel.OK, said)
    if os.statvfs(existing).f_flag & os.ST_RDONLY:
        cure = (
            "look in the kernel's log (dmesg) whether the disk fails, which mounts it so; else "
            "mount it writable, or choose another folder"
        )
        yield CheckFinding("disk", CheckLevel.ERROR, f"{existing} is mounted read-only", cure)
    elif not os.access(existing, os.W_OK | os.X_OK):
        cure = f"chown it to user {os.getuid()}, or choose another folder"
        yield CheckFinding("disk", CheckLevel.ERROR, f"{existing} cannot be written", cure)


def check_open_files(connections_max: int) -> Iterator[CheckFinding]:
    """Whether a broker, which raises its limit, may open as many files as connections need."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections_max + FILES_BESIDE_CONNECTIONS
    if hard == resource.RLIM_INFINITY or hard >= wanted:
        yield CheckFinding("open files", CheckLevel.OK, "as many as connections need are allowed")
        return
    said = f"{hard} are allowed, {connections_max} connections (limits.connections_max) need more"
    cure = f"raise the hard limit to {wanted}: /etc/security/limits.conf, or the unit's LimitNOFILE"
    yield CheckFinding("open files", CheckLevel.WARNING, said, cure)


def check_clock(folder: Path, admins: Sequence[tuple[str, int]]) -> Iterator[CheckFinding]:
    """Whether this machine's time is right: for the kernel, the files, the other brokers."""
    problems = [*_kernel_clock(), *_future_files(folder), *_other_clocks(admins)]
    yield from problems
    if not problems:
        yield CheckFinding("clock", CheckLevel.OK, "nothing contradicts this machine's time")


def check_zookeeper(
    connect: str, session_timeout_ms: int, access: TreeAccess | None = None
) -> Iterator[CheckFinding]:
    """Whether the registry can be reached and grants the configured session."""
    if connect == "none":
        yield CheckFinding(
            "zookeeper", CheckLevel.NOTE, "zookeeper.connect is none: one broker alone"
        )
        return
    from imago_cli.doctor.zookeeper import granted_ms

    granted = granted_ms(connect, session_timeout_ms, access=access, seconds_max=_TIMEOUT_SECONDS)
    for address, answer in granted.items():
        if isinstance(answer, str):
            cure = "start it, or correct zookeeper.connect; brokers cannot start without a majority"
            yield CheckFinding("zookeeper", CheckLevel.ERROR, f"{address}: {answer}", cure)
        elif answer != session_timeout_ms:
            yield CheckFinding(
                "zookeeper",
                CheckLevel.ERROR,
                f"{address} grants sessions of {answer} ms, not {session_timeout_ms} ms",
                "set zookeeper.session_timeout_ms between 2 and 20 times the server's tickTime",
            )
        else:
            mode = " over TLS" if access and access.ca_file else _mode(address)
            yield CheckFinding("zookeeper", CheckLevel.OK, f"{address} answers{mode}")


def check_listeners(config: BrokerConfig) -> Iterator[CheckFinding]:
    """Who may use the broker."""
    bind = config.broker.bind
    if config.acl.refuses:
        yield CheckFinding("access", CheckLevel.OK, f"listeners bind {bind}; requests need a user")
    elif bind in _ANYWHERE:
        yield CheckFinding(
            "access",
            CheckLevel.WARNING,
            f"clients of any machine may connect ({bind or 'all addresses'}) and there is no "
            "access control: anyone who reaches the ports may read, write and delete",
            "set acl.enabled = true, or broker.bind to an address of a trusted network",
        )
    else:
        yield CheckFinding("access", CheckLevel.OK, f"listeners bind {bind} only")
    admin = config.admin.bind or bind
    if config.admin.enabled and admin in _ANYWHERE and not config.admin.token_file:
        yield CheckFinding(
            "access",
            CheckLevel.NOTE,
            "the admin interface listens everywhere; without admin.token_file it takes "
            "administration from this machine only, and only with admin.loopback_trusted",
            "set admin.token_file to administer from elsewhere",
        )


def _mode(address: str) -> str:
    host, _, port = address.rpartition(":")
    answer = four_letters("srvr", host.strip("[]"), int(port))
    modes = [line for line in answer.splitlines() if line.startswith("Mode:")]
    return f" ({modes[0].partition(': ')[2]})" if modes else ""


def _listeners(ours: Mapping[int, str]) -> dict[int, str]:
    """Port to "name (pid)" of who listens there, as far as this user may know."""
    found = {}
    for process in psutil.process_iter(["pid", "name", "cmdline"]):
        try:
            connections = process.net_connections(kind="tcp")
        except (psutil.AccessDenied, psutil.NoSuchProcess):
            continue
        pid, name = process.info["pid"], process.info["name"]
        if any("imago_cli" in word for word in process.info["cmdline"] or []):
            name = "imago"
        name = f"imago {ours[pid]}" if pid in ours else name
        for connection in connections:
            if connection.status == psutil.CONN_LISTEN:
                found[connection.laddr.port] = f"{name} (pid {pid})"
    return found


def _can_bind(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def _kernel_clock() -> Iterator[CheckFinding]:
    if sys.platform != "linux":
        return
    # struct timex is at most 208 bytes; all zero asks without changing anything.
    state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(512))
    if state == _TIME_ERROR:
        yield CheckFinding(
            "clock",
            CheckLevel.WARNING,
            "the kernel says that the clock is not synchronised",
            "run chrony or systemd-timesyncd, here or on the host of this machine",
        )


def _future_files(folder: Path) -> Iterator[CheckFinding]:
    now = time.time()
    for path in sorted(folder.glob("shard-*/*")) or sorted(folder.glob("*")):
        ahead = path.stat().st_mtime - now
        if ahead > FUTURE_SECONDS_MAX:
            yield CheckFinding(
                "clock",
                CheckLevel.ERROR,
                f"{path} was written {ahead:.0f} s in the future: the clock was set back",
                "set the clock; time stamps of new messages wait until it has caught up",
            )
            return


def _other_clocks(admins: Sequence[tuple[str, int]]) -> Iterator[CheckFinding]:
    for host, port in admins:
        theirs = _http_date(host, port)
        if theirs is None:
            continue
        skew = time.time() - theirs
        if abs(skew) > SKEW_SECONDS_MAX:
            yield CheckFinding(
                "clock",
                CheckLevel.ERROR,
                f"this machine's clock is {skew:+.0f} s from that of {host}:{port}",
                "synchronise both with the same time server",
            )


def _http_date(host: str, port: int) -> float | None:
    connection = HTTPConnection(host, port, timeout=_TIMEOUT_SECONDS)
    try:
        connection.request("GET", "/healthz")
        date = connection.getresponse().getheader("Date")
        # The second that was cut off is on average half a second ago.
        return parsedate_to_datetime(date).timestamp() + 0.5 if date else None
    except (OSError, HTTPException, ValueError):
        return None
    finally:
        connection.close()
