"""Three broker processes and a ZooKeeper: masters die and hand over while a client sends."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from imago_client import Client, ClientConfig, ClientError, Message, PullStatus, SendStatus
from imago_testing.processes.ports import free_port_block
from imago_testing.processes.servers import ServerProcess, accepts
from imago_testing.processes.zookeeper import running_zookeeper

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]

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
[metaq]
port = {base}
[rocketmq]
port = {rocketmq}
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

    def __init__(self, folder: Path, zookeeper: str) -> None:
        self._folder, self._zookeeper = folder, zookeeper
        self.bases = [free_port_block(PORTS) for _ in range(3)]
        self.processes: dict[int, ServerProcess] = {}

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{base + 5}" for base in self.bases)

    def start(self, number: int) -> None:
        folder, base = self._folder / f"member-{number}", self.bases[number]
        folder.mkdir(exist_ok=True)
        config = folder / "broker.toml"
        config.write_text(
            CONFIG.format(
                folder=folder, zookeeper=self._zookeeper, base=base, rocketmq=base + 3,
                names=base + 5, topic=TOPIC,
            )
        )  # fmt: skip
        command = [str(Path(sys.executable).parent / "imago"), "broker", "--config", str(config)]
        self.processes[number] = ServerProcess.start("broker", command, folder)

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


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Members]:
    with running_zookeeper(tmp_path / "zookeeper") as zookeeper:
        made = Members(tmp_path, zookeeper.address)
        try:
            yield made
        finally:
            made.end()


@contextlib.asynccontextmanager
async def sending(client: Client, acknowledged: list[bytes]) -> AsyncIterator[None]:
    """Send one message after the other while the block runs; note those that were confirmed."""
    stopped = asyncio.Event()

    async def send() -> None:
        producer, number = client.producer(), 0
        while not stopped.is_set():
            number += 1
            body = b"%06d" % number
            try:
                result = await producer.send(Message(TOPIC, body))
            except ClientError:
                await asyncio.sleep(0.05)
                continue
            if result.status is SendStatus.OK:
                acknowledged.append(body)

    task = asyncio.create_task(send())
    try:
        yield
    finally:
        stopped.set()
        await task


async def more(acknowledged: list[bytes], count: int) -> None:
    wanted = len(acknowledged) + count
    async with asyncio.timeout(SECONDS_MAX):
        while len(acknowledged) < wanted:  # noqa: ASYNC110  told by another task's list
            await asyncio.sleep(0.05)


async def stored(client: Client) -> list[list[bytes]]:
    """The bodies of every queue, in order."""
    consumer, queues = client.pull_consumer("readers"), []
    for queue in await consumer.queues(TOPIC):
        bodies: list[bytes] = []
        offset, end = await consumer.min_offset(queue), await consumer.max_offset(queue)
        while offset < end:
            pulled = await consumer.pull(queue, offset)
            assert pulled.status is PullStatus.FOUND
            bodies += [message.body for message in pulled.messages()]
            offset = pulled.next_offset
        queues.append(bodies)
    return queues


async def test_nothing_confirmed_is_lost_when_masters_die_and_hand_over(members: Members) -> None:
    for number in range(3):
        members.start(number)
        await members.serve(number)
    acknowledged: list[bytes] = []
    config = ClientConfig(bootstrap=tuple(members.bootstrap.split(",")), route_age_max_s=1.0)
    async with Client(config) as client:
        leader = await members.leader(client)
        async with sending(client, acknowledged):
            await more(acknowledged, 50)
            members.processes[leader].kill()
            other = await members.leader(client, but=leader)
            await more(acknowledged, 50)
            members.start(leader)
            await members.serve(leader)
            assert await asyncio.to_thread(members.processes[other].stop) == 0
            await members.leader(client, but=other)
            await more(acknowledged, 50)
        kept = await stored(client)
    everything = {body for queue in kept for body in queue}
    assert set(acknowledged) <= everything
    for queue in kept:
        assert queue == sorted(queue), "the order in which one producer sent"
