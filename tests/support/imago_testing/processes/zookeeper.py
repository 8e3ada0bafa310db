"""A real ZooKeeper for tests, out of PySpark's jars, on a free port with a small heap."""

from __future__ import annotations

import contextlib
import os
import signal
from types import MappingProxyType
from typing import TYPE_CHECKING

from kazoo.client import KazooClient

from imago_cli.servers.java import find_java
from imago_cli.servers.zookeeper_server import ZooKeeperServer
from imago_testing.processes.ports import free_port_block
from imago_testing.processes.servers import ProcessFailedError, ServerProcess, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


class RunningZooKeeper:
    """A server process that can be killed, paused and started again on the same data."""

    def __init__(
        self,
        folder: Path,
        *,
        tick_ms: int = 500,
        port: int = 0,
        more: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        """`more`: lines of its configuration."""
        self._more = more
        self._server = ZooKeeperServer(
            folder=folder, port=port or free_port_block(1), tick_ms=tick_ms, heap_mb=96
        )
        self._command = self._server.command(find_java())
        self._process: ServerProcess | None = None

    @property
    def address(self) -> str:
        return f"{self._server.host}:{self._server.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server runs"
        return self._process.pid

    def start(self) -> None:
        """Start it and wait until it serves."""
        self._server.write_config()
        with self._server.config_path.open("a") as config:
            config.writelines(f"{key}={value}\n" for key, value in self._more.items())
        process = ServerProcess.start("zookeeper", self._command, self._server.folder)
        self._process = process

        def serves() -> bool:
            if process.process.poll() is not None:
                raise ProcessFailedError(f"ZooKeeper ended early:\n{process.log_tail()}")
            return self._server.serves()

        wait_until(serves, seconds_max=60, what="ZooKeeper serves")

    def pause(self) -> None:
        """Let it fall silent without closing anything."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """kill -9; `start` brings it back with its data."""
        assert self._process is not None, "the server runs"
        self._process.kill()
        self._process = None

    def stop(self) -> None:
        """End it and wait for the end."""
        if self._process is not None:
            self._process.stop()
            self._process = None


@contextlib.contextmanager
def running_zookeeper(
    folder: Path,
    *,
    tick_ms: int = 500,
    port: int = 0,
    more: Mapping[str, object] = MappingProxyType({}),
) -> Iterator[RunningZooKeeper]:
    """Run a server for as long as the block lasts, on a free port unless one is given."""
    server = RunningZooKeeper(folder, tick_ms=tick_ms, port=port, more=more)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def end_session(address: str, client: KazooClient) -> None:
    """Have the server end a client's session, as when the machine slept, and the client hear of it.

    Whoever knows a session's id and password may take it over and close it. A client that returns
    in between takes it back, so this goes on until the client knows that its session is gone.
    """
    session = client.client_id

    def ended() -> bool:
        thief = KazooClient(hosts=address, client_id=session)
        try:
            thief.start()
            thief.stop()
        finally:
            thief.close()
        return client.client_id not in {None, session}

    wait_until(ended, what="the session has ended")
