"""What the original clients are pointed at: Imago, or an original broker to check expectations."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from imago_testing.java.originals import metaq_original, rocketmq_original
from imago_testing.processes.ports import free_port_block
from imago_testing.processes.segments import SMALL_SEGMENTS
from imago_testing.processes.servers import ServerProcess, running

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ROCKETMQ_VERSIONS = (4, 5)
METAQ_TOPICS = tuple(f"interop-{index:02}" for index in range(64))
"""Topics that the MetaQ side is configured with; tests take them in turn."""
METAQ_PATTERN = "pattern-*"
"""Topics that the MetaQ side makes at their first put."""
_SHARDS = 2
_PORTS_FIXED, _PORTS_BROKER = 20, 10
_READY_SECONDS_MAX = 60.0


class TargetName(Enum):
    IMAGO = "imago"
    METAQ_ORIGINAL = "metaq-original"
    ROCKETMQ_ORIGINAL = "rocketmq-original"


def chosen_target() -> TargetName:
    """The target that the environment variable INTEROP_TARGET names; Imago when it is not set."""
    return TargetName(os.environ.get("INTEROP_TARGET", TargetName.IMAGO.value))


def applies(place: str, target: TargetName) -> bool:
    """Whether what lies in tests/interop at this place, a folder or module, applies to a target.

    An original broker speaks one protocol: the tests of the other do not apply to it.
    """
    wanted = {
        TargetName.METAQ_ORIGINAL: ("metaq", "test_toolchain.py"),
        TargetName.ROCKETMQ_ORIGINAL: ("rocketmq", "test_sdks.py", "test_toolchain.py"),
    }
    return target is TargetName.IMAGO or place in wanted[target]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Addresses of what runs. Empty: this target does not speak that protocol."""

    name: TargetName
    zookeeper: str = ""
    metaq_urls: Sequence[str] = ()
    admins: Sequence[str] = ()
    """Addresses of administration; only ours has them."""
    namesrv: Mapping[int, str] = field(default_factory=dict)
    """Major version of the client to the address of its name service."""


@contextlib.contextmanager
def running_target(name: TargetName, folder: Path) -> Iterator[Target]:
    """Start the target, and stop it at the end."""
    match name:
        case TargetName.IMAGO:
            with imago_up(folder, shards=_SHARDS, options=_SETTINGS) as ready:
                yield _imago(ready)
        case TargetName.METAQ_ORIGINAL:
            with metaq_original(folder, (*METAQ_TOPICS, METAQ_PATTERN)) as broker:
                yield Target(name=name, zookeeper=broker.registry, metaq_urls=[broker.url])
        case TargetName.ROCKETMQ_ORIGINAL:
            with contextlib.ExitStack() as stack:
                namesrv = {
                    version: stack.enter_context(
                        rocketmq_original(_folder(folder, str(version)), version)
                    ).registry
                    for version in ROCKETMQ_VERSIONS
                }
                yield Target(name=name, namesrv=namesrv)


def _imago(ready: Mapping[str, object]) -> Target:
    brokers = ready["brokers"]
    assert isinstance(brokers, list)
    return Target(
        name=TargetName.IMAGO,
        zookeeper=str(ready["zookeeper"]),
        metaq_urls=[f"meta://{broker['metaq']}" for broker in brokers],
        admins=[str(broker["admin"]) for broker in brokers],
        namesrv=dict.fromkeys(ROCKETMQ_VERSIONS, str(ready["namesrv"])),
    )


@contextlib.contextmanager
def imago_up(
    folder: Path,
    *,
    shards: int,
    replicas: int = 1,
    options: Sequence[str] = (),
    small: Sequence[str] = SMALL_SEGMENTS,
) -> Iterator[Mapping[str, object]]:
    """Run `imago up` with the MetaQ topics configured; yield the line it prints when it serves.

    `small`: options that measurements leave out.
    """
    ini = folder / "server.ini"
    ini.write_text(
        _METAQ_INI + "".join(f"[topic={topic}]\n" for topic in (*METAQ_TOPICS, METAQ_PATTERN))
    )
    command = [str(Path(sys.executable).parent / "imago"), "up", "--json"]
    command += ["--shards", str(shards), "--replicas", str(replicas)]
    ports = free_port_block(_PORTS_FIXED + shards * replicas * _PORTS_BROKER)
    command += ["--data", str(folder / "data"), "--port-base", str(ports)]
    command += ["--metaq-ini", str(ini), *small, *options]
    with (folder / "up.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, cwd=folder)
    server = ServerProcess("imago up", process, folder / "up.log")
    assert process.stdout is not None
    with process.stdout, running(server):
        yield _ready_line(server)


def _ready_line(server: ServerProcess) -> Mapping[str, object]:
    assert server.process.stdout is not None
    line = server.process.stdout.readline()
    if not line:
        server.process.wait()
        raise RuntimeError(f"imago up ended before it served:\n{server.log_tail()}")
    ready: Mapping[str, object] = json.loads(line)
    assert ready["ready"] is True
    return ready


def _folder(parent: Path, name: str) -> Path:
    folder = parent / name
    folder.mkdir()
    return folder


_SETTINGS = (
    "--set",
    "rocketmq.transaction_timeout_ms=1000",
    "--set",
    "rocketmq.transaction_check_interval_ms=1000",
    "--set",
    "rocketmq.light_queues=true",
)
"""So that nobody waits half a minute to be asked about a transaction; and LMQ."""
_METAQ_INI = """\
[system]
brokerId=0
numPartitions=4
unflushThreshold=0
unflushInterval=1000
maxSegmentSize=16777216
maxTransferSize=1048576
stat=true
[zookeeper]
zk.zkConnect=127.0.0.1:2181
"""
