"""Brokers of the version before, made of the clone's history, beside brokers of this one.

There are no tags: version 0.1 is the last commit that called itself 0.1.0 (docs/versions.md). Its
compiled modules are left out; the plain forms of the same functions run.
"""

from __future__ import annotations

import asyncio
import functools
import io
import json
import subprocess
import sys
import tarfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Final

from imago_testing.clusters.shard_processes import SECONDS_MAX, TOPIC, Members
from imago_testing.processes.ports import free_port_block
from imago_testing.processes.servers import ServerProcess

ROOT: Final = Path(__file__).resolve().parents[4]
FORMER: Final = "0.1.0"
COMMIT: Final = "e1d0ff01eb9c853d88cce9cbfddd9967ae18df02"
PORTS: Final = 7
_METADATA: Final = f"Metadata-Version: 2.1\nName: imago\nVersion: {FORMER}\n"
_CONFIG: Final = """
[broker]
cluster = "test"
replicas = 3
data_dir = "{folder}/data"
bind = "127.0.0.1"
host = "127.0.0.1"
[zookeeper]
connect = "{zookeeper}"
session_timeout_ms = 6000
[metaq]
port = {base}
[rocketmq]
port = {rocketmq}
{more}
[namesrv]
port = {names}
[admin]
port = {admin}
loopback_trusted = true
[replication]
handover_linger_ms = 2000
[store]
segment_bytes_max = 16777216
disk_clean_ratio = 1.0
disk_force_ratio = 1.0
disk_full_ratio = 1.0
[topics.{topic}]
queues = 2
"""


class FormerVersionMissingError(Exception):
    """The clone lacks what the version before is made of; the text says what and what to do."""


def extract(folder: Path, *paths: str, repository: Path = ROOT) -> None:
    """Write what the version before had at these paths into a folder."""
    done = subprocess.run(
        ["git", "-C", str(repository), "archive", "--format=tar", COMMIT, *paths],
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise FormerVersionMissingError(
            f"version {FORMER} is commit {COMMIT}, which {repository} does not have"
            f" ({done.stderr.decode(errors='replace').strip()}): a shallow clone gets it by"
            " `git fetch --unshallow`, an exported tree cannot have it"
        )
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")


def former_version(folder: Path, *, repository: Path = ROOT) -> Path:
    """Write the packages of the version before into a folder; return what PYTHONPATH names."""
    extract(folder, "broker/src", repository=repository)
    path = folder / "broker" / "src"
    (path / f"imago-{FORMER}.dist-info").mkdir()
    (path / f"imago-{FORMER}.dist-info" / "METADATA").write_text(_METADATA)
    return path


class MixedMembers(Members):
    """Members of one shard, each of this version or of the one before."""

    def __init__(self, folder: Path, zookeeper: str, former: Path) -> None:
        super().__init__(folder, zookeeper)
        self.bases = [free_port_block(PORTS) for _ in range(3)]
        self._former = former
        self.versions: dict[int, str] = {}

    def start(self, number: int, *, former: bool = False) -> None:
        config, base = self.config(number), self.bases[number]
        config.parent.mkdir(exist_ok=True)
        config.write_text(
            _CONFIG.format(
                folder=config.parent, zookeeper=self._zookeeper, base=base, rocketmq=base + 3,
                names=base + 5, admin=base + 6, topic=TOPIC, more="" if former else "grpc_port = 0",
            )
        )  # fmt: skip
        command = [sys.executable, "-m", "imago_cli", "broker", "--config", str(config)]
        env = {"PYTHONPATH": str(self._former)} if former else {}
        self.processes[number] = ServerProcess.start("broker", command, config.parent, env)

    def ask(self, number: int, path: str, body: object = None) -> Any:
        """Call a member's administration; None: it does not answer."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.bases[number] + 6}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=SECONDS_MAX) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return json.load(error)
        except (OSError, ValueError):
            return None

    async def whole(self) -> list[str]:
        """Return the members' versions once all three are in sync under one master."""
        async with asyncio.timeout(2 * SECONDS_MAX):
            while True:
                asked = [functools.partial(self.ask, n, "/admin/v1/status") for n in range(3)]
                said = await asyncio.gather(*(asyncio.to_thread(each) for each in asked))
                up = [each for each in said if each and "inSync" in each]
                one_leads = sum(each["role"] == "master" for each in up) == 1
                if len(up) == 3 and one_leads and all(len(each["inSync"]) == 3 for each in up):
                    return [each["version"] for each in up]
                await asyncio.sleep(0.2)

    async def replace(self, number: int, *, former: bool) -> list[str]:
        """Stop a member in order and start the other version on its folder."""
        assert await asyncio.to_thread(self.processes[number].stop) == 0
        self.start(number, former=former)
        await self.serve(number)
        return await self.whole()
