"""The broker processes of one shard, and the ZooKeeper between them."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path

from imago_client import Client, ClientError
from imago_testing.processes.ports import free_port_block
from imago_testing.processes.servers import ServerProcess, accepts

TOPIC = "orders"
PORTS = 6
SECONDS_MAX = 60.0

CONFIG = """
[broker]
cluster = "test"
replicas = 3
data_dir = "{folder}/data"
bind = "127.0.0.1"
host = "127.0.0.1"
[zookeeper]
connect = "{zookeeper}"
session_timeout_ms = 4000
{registry}
[metaq]
port = {base}
[rocketmq]
port = {rocketmq}
grpc_port = 0
light_queues = true
[namesrv]
port = {names}
[admin]
enabled = false
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


class Members:
    """The processes of one shard."""

    def __init__(self, folder: Path, zookeeper: str, *, registry: str = "") -> None:
        """`registry`: more lines of the section `zookeeper`."""
        self._folder, self._zookeeper, self._registry = folder, zookeeper, registry
        self.bases = [free_port_block(PORTS) for _ in range(3)]
        self.processes: dict[int, ServerProcess] = {}

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{base + 5}" for base in self.bases)

    def start(self, number: int) -> None:
        config, base = self.config(number), self.bases[number]
        folder = config.parent
        folder.mkdir(exist_ok=True)
        config.write_text(
            CONFIG.format(
                folder=folder, zookeeper=self._zookeeper, base=base, rocketmq=base + 3,
                names=base + 5, topic=TOPIC, registry=self._registry,
            )
        )  # fmt: skip
        command = [str(Path(sys.executable).parent / "imago"), "broker", "--config", str(config)]
        self.processes[number] = ServerProcess.start("broker", command, folder)

    def config(self, number: int) -> Path:
        """The configuration file of a member that was started."""
        return self._folder / f"member-{number}" / "broker.toml"

    async def serve(self, number: int) -> None:
        async with asyncio.timeout(SECONDS_MAX):
            while not await asyncio.to_thread(accepts, self.bases[number] + 5):  # noqa: ASYNC110  another process
                await asyncio.sleep(0.1)

    async def leader(self, client: Client, *, but: int = -1) -> int:
        """The member that routes name as the master, once there is another than `but`."""
        async with asyncio.timeout(SECONDS_MAX):
            while True:
                with contextlib.suppress(ClientError):
                    masters = {each.addresses.get(0) for each in await client.admin.shards()}
                    for number, base in enumerate(self.bases):
                        if f"127.0.0.1:{base + 3}" in masters and number != but:
                            return number
                await asyncio.sleep(0.1)

    def end(self) -> None:
        for process in self.processes.values():
            if process.process.poll() is None:
                process.kill()
