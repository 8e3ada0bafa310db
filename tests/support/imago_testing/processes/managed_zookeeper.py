"""A server of ZooKeeper, run by the words of the operator's pods, on a machine without pods."""

from __future__ import annotations

import os
import shlex
import stat
from typing import TYPE_CHECKING, Any

from imago_cli.java import find_java
from imago_cli.zookeeper_server import ZooKeeperServer
from imago_testing.processes.ports import free_port_block
from imago_testing.processes.servers import ServerProcess

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from imago_testing.processes.mounted_secret import MountedSecret

PORTS = (2181, 2281, 2888, 3888)


class ManagedZooKeeper:
    """One server: what its pod has at the root of its file system is in a folder."""

    def __init__(
        self, folder: Path, template: Mapping[str, Any], config: str, mounted: MountedSecret
    ) -> None:
        """`mounted`: the folder of its certificate's Secret."""
        self._folder, self.mounted = folder, mounted
        block = free_port_block(len(PORTS))
        self._places = {
            "/tmp/": f"{folder}/tmp/",
            "/etc/imago-zookeeper-tls": str(mounted.folder),
            "/etc/imago-zookeeper/": f"{folder}/etc/",
            "/data": f"{folder}/data",
            "/stores": f"{folder}/stores",
            **{str(port): str(block + n) for n, port in enumerate(PORTS)},
        }
        self.plain, self.secure = block, block + 1
        for name in ("etc", "data", "stores", "bin", "tmp"):
            (folder / name).mkdir(parents=True)
        (folder / "etc" / "zoo.cfg").write_text(self._here(config))
        [container] = template["spec"]["containers"]
        # Kubernetes takes two of these for one.
        self._command = [self._here(word).replace("$$", "$") for word in container["command"]]
        self._process: ServerProcess | None = None

    def _here(self, text: str) -> str:
        for place, here in self._places.items():
            text = text.replace(place, here)
        return text

    def start(self) -> None:
        """Start it and wait until it serves."""
        server = ZooKeeperServer(folder=self._folder / "logs", port=self.plain, heap_mb=96)
        server.write_config()
        *command, _ = server.command(find_java())
        program = self._folder / "bin" / "zkServer.sh"
        program.write_text(f'#!/bin/bash\nexec {shlex.join(command)} "$2"\n')
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        path = f"{program.parent}:{os.environ['PATH']}"
        told = {"PATH": path, "HOSTNAME": "demo-zookeeper-0"}
        self._process = ServerProcess.start("zookeeper", self._command, self._folder, told)
        self._process.wait_for_port(self.plain)
        self._process.wait_for_port(self.secure)

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server runs"
        return self._process.pid

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None
