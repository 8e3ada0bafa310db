"""A server of ZooKeeper, run by the words of the operator's pods, on a machine without pods."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import stat
from typing import TYPE_CHECKING, Any

from imago_cli.servers.java import find_java
from imago_cli.servers.zookeeper_server import ZooKeeperServer
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
        self,
        folder: Path,
        template: Mapping[str, Any],
        files: Mapping[str, str],
        mounted: MountedSecret,
        number: int = 0,
    ) -> None:
        """`files`: its ConfigMap. `mounted`: the folder of its certificate's Secret."""
        self._folder, self.mounted, self._number = folder, mounted, number
        block = free_port_block(len(PORTS))
        self._places = {
            "/tmp/": f"{folder}/tmp/",
            "/etc/imago-zookeeper-tls": str(mounted.folder),
            "/etc/imago-zookeeper/": f"{folder}/etc/",
            "/data": f"{folder}/data",
            "/stores": f"{folder}/stores",
            **{str(port): str(block + n) for n, port in enumerate(PORTS)},
        }
        self.plain, self.secure, self.quorum, self.election = range(block, block + len(PORTS))
        for name in ("etc", "data", "stores", "bin", "tmp"):
            (folder / name).mkdir(parents=True)
        self._files = dict(files)
        self._process: ServerProcess | None = None
        self.made_of(template)

    def finds(self, others: Mapping[str, str]) -> None:
        """Say where it finds what the configuration names."""
        self._places = {**others, **self._places}

    def made_of(self, template: Mapping[str, Any], faster: Mapping[str, str] | None = None) -> None:
        """Have its pod made again, of a template; what is not a volume's is gone.

        `faster`: words of the template for which the test has others.
        """
        shutil.rmtree(self._folder / "stores")
        (self._folder / "stores").mkdir()
        [container] = template["spec"]["containers"]
        # Kubernetes takes two of these for one.
        words = [word.replace("$$", "$") for word in container["command"]]
        for slow, fast in (faster or {}).items():
            words = [word.replace(slow, fast) for word in words]
        self._words = words

    def tell(self, files: Mapping[str, str]) -> None:
        """Have the kubelet write what is new in its ConfigMap, whole files at a time."""
        self._files |= files
        for name, text in self._files.items():
            new = self._folder / "tmp" / name
            new.write_text(self._here(text))
            new.replace(self._folder / "etc" / name)

    def _program(self, name: str, command: str) -> None:
        program = self._folder / "bin" / name
        program.write_text(f"#!/bin/bash\nexec {command}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)

    def _here(self, text: str) -> str:
        found = "|".join(re.escape(place) for place in self._places)
        return re.sub(found, lambda place: self._places[place[0]], text)

    def start(self) -> None:
        """Start it and wait until it serves, or waits for others."""
        self.tell({})
        server = ZooKeeperServer(folder=self._folder / "logs", port=self.plain, heap_mb=96)
        server.write_config()
        *command, _ = server.command(find_java())
        flags = "${JVMFLAGS:-}"
        run, main = command[:-1], command[-1]
        shell = [*command[:1], "-Xmx48m", *run[run.index("-cp") :]]
        self._program("zkServer.sh", f'{shlex.join(run)} {flags} {main} "$2"')
        self._program("zkCli.sh", f'{shlex.join(shell)} org.apache.zookeeper.ZooKeeperMain "$@"')
        path = f"{self._folder}/bin:{os.environ['PATH']}"
        told = {"PATH": path, "HOSTNAME": f"demo-zookeeper-{self._number}"}
        words = [self._here(word) for word in self._words]
        self._process = ServerProcess.start("zookeeper", words, self._folder, told)
        self._process.wait_for_port(self.plain)
        if "secureClientPort" in words[-1]:
            self._process.wait_for_port(self.secure)

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server runs"
        return self._process.pid

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None
