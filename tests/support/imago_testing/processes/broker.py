"""A whole broker as a process of its own, as a pod runs it, without ZooKeeper."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from imago_testing.processes.ports import free_port_block
from imago_testing.processes.segments import SEGMENT_BYTES
from imago_testing.processes.servers import ServerProcess, running

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Settings = dict[str, dict[str, object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerProcess:
    """Where it listens, and the process."""

    server: ServerProcess
    metaq: int
    rocketmq: int
    fast: int
    namesrv: int
    admin: int
    grpc: int
    data: Path

    @property
    def pid(self) -> int:
        return self.server.pid

    @property
    def alive(self) -> bool:
        return self.server.process.poll() is None

    def resident_bytes(self) -> int:
        """Memory that the process holds now."""
        return int(psutil.Process(self.pid).memory_info().rss)

    def connections(self) -> set[tuple[int, int]]:
        """The connections that the process holds: its own port and the peer's."""
        connections = psutil.Process(self.pid).net_connections("tcp")
        return {(each.laddr.port, each.raddr.port) for each in connections if each.raddr}

    def log_text(self) -> str:
        return self.server.log_path.read_text(errors="replace")


@contextlib.contextmanager
def broker_process(
    folder: Path, settings: Mapping[str, Mapping[str, object]]
) -> Iterator[BrokerProcess]:
    """Run a broker with the given sections until the block ends. It must then stop in order."""
    base = free_port_block(7)
    merged = _merged(_settings(folder, base), settings)
    config = folder / "broker.toml"
    config.write_text(_toml(merged))
    command = [str(Path(sys.executable).parent / "imago"), "broker", "--config", str(config)]
    with running(ServerProcess.start("broker", command, folder)) as server:
        # The admin port is the last to open.
        server.wait_for_port(base + 2)
        yield BrokerProcess(
            server=server,
            metaq=base,
            fast=base + 1,
            admin=base + 2,
            rocketmq=base + 3,
            namesrv=base + 5,
            grpc=base + 6,
            data=folder / "data",
        )


def _settings(folder: Path, base: int) -> Settings:
    return {
        "broker": {"data_dir": str(folder / "data"), "bind": "127.0.0.1", "host": "127.0.0.1"},
        "metaq": {"port": base},
        "rocketmq": {"port": base + 3, "grpc_port": base + 6},
        "namesrv": {"port": base + 5},
        "admin": {"port": base + 2, "loopback_trusted": True},
        # How full the disk of the machine is that runs the tests is no concern of theirs.
        "store": {
            "segment_bytes_max": SEGMENT_BYTES,
            "disk_clean_ratio": 1.0,
            "disk_force_ratio": 1.0,
            "disk_full_ratio": 1.0,
        },
    }


def _merged(one: Settings, other: Mapping[str, Mapping[str, object]]) -> Settings:
    return {name: {**one.get(name, {}), **other.get(name, {})} for name in {*one, *other}}


def _toml(settings: Settings) -> str:
    lines: list[str] = []
    for section, values in settings.items():
        lines.append(f"[{section}]")
        lines += [f"{key} = {_value(value)}" for key, value in values.items()]
    return "\n".join(lines) + "\n"


def _value(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int() | float():
            return str(value)
        case _:
            return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'
