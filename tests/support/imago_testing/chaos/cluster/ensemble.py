"""Three ZooKeeper servers, each on a machine of its own."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from imago_cli.servers.java import find_java
from imago_cli.servers.zookeeper_server import ZooKeeperServer, four_letters
from imago_testing.processes.servers import ProcessFailedError, ServerProcess, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from imago_testing.chaos.cluster.network import Network

_CLIENT_PORT = 2181
_SERVES_SECONDS_MAX = 120.0


class Ensemble:
    """The servers by the names of their machines."""

    def __init__(self, network: Network, names: list[str], folder: Path, *, tick_ms: int) -> None:
        self._network, self.names = network, names
        self._processes: dict[str, ServerProcess] = {}
        self._servers = {
            name: ZooKeeperServer(
                folder=folder / name,
                port=_CLIENT_PORT,
                host=network.address(name),
                tick_ms=tick_ms,
                heap_mb=96,
            )
            for name in names
        }

    @property
    def connect(self) -> str:
        """The connect string of all servers."""
        return ",".join(f"{self._network.address(name)}:{_CLIENT_PORT}" for name in self.names)

    def start(self) -> None:
        """Start all of them and wait until they have a leader."""
        for name in self.names:
            self.start_one(name)
        self.wait()

    def start_one(self, name: str) -> None:
        """Start one server that does not run."""
        server = self._servers[name]
        server.write_config()
        (server.folder / "data").mkdir(exist_ok=True)
        number = self.names.index(name) + 1
        (server.folder / "data" / "myid").write_text(f"{number}\n")
        peers = "".join(
            f"server.{other}={self._network.address(peer)}:2888:3888\n"
            for other, peer in enumerate(self.names, start=1)
        )
        with server.config_path.open("a") as config:
            config.write(f"initLimit=20\nsyncLimit=10\n{peers}")
        command = self._network.inside(name, server.command(find_java()))
        self._processes[name] = ServerProcess.start("zookeeper", command, server.folder)

    def wait(self) -> None:
        """Return when every server that was started serves."""
        for name, process in self._processes.items():

            def serves(name: str = name, process: ServerProcess = process) -> bool:
                if process.process.poll() is not None:
                    raise ProcessFailedError(f"{name} ended early:\n{process.log_tail()}")
                return self._servers[name].answers()

            wait_until(serves, seconds_max=_SERVES_SECONDS_MAX, what=f"{name} serves")

    def leader(self) -> str:
        """Return the server that leads the others."""
        for name in self.names:
            told = four_letters("srvr", self._network.address(name), _CLIENT_PORT)
            if "Mode: leader" in told:
                return name
        return self.names[0]

    def kill(self, name: str) -> None:
        """kill -9."""
        self._processes.pop(name).kill()

    def pause(self, name: str, *, on: bool) -> None:
        """Let a server fall silent without closing anything, or go on."""
        os.kill(self._processes[name].pid, signal.SIGSTOP if on else signal.SIGCONT)

    def start_missing(self) -> None:
        """Start those that were killed."""
        for name in self.names:
            if name not in self._processes:
                self.start_one(name)

    def close(self) -> None:
        """Whatever happened: leave no process behind."""
        for process in self._processes.values():
            process.kill()
        self._processes.clear()
