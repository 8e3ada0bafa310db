"""Members of the version before beside those of this one: up, back and up again, under load."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from imago_broker.model.feature_level import NEWEST
from imago_client import Client, ClientConfig, ClientError, Message, PullStatus, SendStatus
from imago_client.metaq import MetaqSessionFactory
from imago_testing.clusters.former_version import (
    FORMER,
    ROOT,
    FormerVersionMissingError,
    MixedMembers,
    former_version,
)
from imago_testing.clusters.shard_processes import SECONDS_MAX, TOPIC
from imago_testing.processes.zookeeper import running_zookeeper

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from imago_testing.processes.zookeeper import RunningZooKeeper

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper, pytest.mark.full]
USAGE = 2


@pytest.fixture
def zookeeper(tmp_path: Path) -> Iterator[RunningZooKeeper]:
    with running_zookeeper(tmp_path / "zookeeper") as server:
        yield server


@pytest.fixture
def members(tmp_path: Path, zookeeper: RunningZooKeeper) -> Iterator[MixedMembers]:
    made = MixedMembers(tmp_path, zookeeper.address, former_version(tmp_path / "former"))
    try:
        yield made
    finally:
        made.end()


class Load:
    """What two producers have sent, one of each protocol, and was confirmed."""

    def __init__(self) -> None:
        self.confirmed: dict[str, list[bytes]] = {"metaq": [], "rocketmq": []}
        self._stopped = asyncio.Event()

    async def _send(self, name: str, send: Callable[[bytes], Awaitable[bool]]) -> None:
        number = 0
        while not self._stopped.is_set():
            number += 1
            body = b"%b-%06d" % (name.encode(), number)
            try:
                if await send(body):
                    self.confirmed[name].append(body)
            except (ClientError, OSError):
                await asyncio.sleep(0.05)

    async def more(self, count: int = 30) -> None:
        """Wait until both have got through with some more."""
        wanted = {name: len(bodies) + count for name, bodies in self.confirmed.items()}
        async with asyncio.timeout(SECONDS_MAX):
            while any(len(self.confirmed[n]) < wanted[n] for n in wanted):  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    @contextlib.asynccontextmanager
    async def sent(self, client: Client, zookeeper: str) -> AsyncIterator[None]:
        producer = client.producer()

        async def rocketmq(body: bytes) -> bool:
            return (await producer.send(Message(TOPIC, body))).status is SendStatus.OK

        async with MetaqSessionFactory(zookeeper) as factory:
            metaq_producer = factory.producer()

            async def metaq(body: bytes) -> bool:
                await metaq_producer.send(TOPIC, body)
                return True

            tasks = [
                asyncio.create_task(self._send("rocketmq", rocketmq)),
                asyncio.create_task(self._send("metaq", metaq)),
            ]
            try:
                yield
            finally:
                self._stopped.set()
                await asyncio.gather(*tasks)


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


async def test_members_go_up_back_and_up_again_and_nothing_confirmed_is_lost(
    members: MixedMembers, zookeeper: RunningZooKeeper
) -> None:
    for number in range(3):
        members.start(number, former=True)
        await members.serve(number)
    assert await members.whole() == [FORMER] * 3
    load = Load()
    config = ClientConfig(bootstrap=tuple(members.bootstrap.split(",")), route_age_max_s=1.0)
    async with Client(config) as client:
        async with load.sent(client, zookeeper.address):
            await load.more()
            for former in (False, True, False):
                for number in range(3):
                    versions = await members.replace(number, former=former)
                    assert (versions[number] == FORMER) is former
                    await load.more()
                    if not former:
                        _still_the_first_level(members, number, all_new=number == 2)
            await asyncio.to_thread(_raise_as_the_page_says, members)
            await load.more()
            await _former_refuses(members)
            await load.more()
        kept = await stored(client)
    print({name: len(bodies) for name, bodies in load.confirmed.items()})
    everything = [body for queue in kept for body in queue]
    confirmed = [body for bodies in load.confirmed.values() for body in bodies]
    assert set(confirmed) - set(everything) == set()
    for queue in kept:
        for name in load.confirmed:
            mine = [body for body in queue if body.startswith(name.encode())]
            assert mine == sorted(mine), "the order in which one producer sent"


def _still_the_first_level(members: MixedMembers, number: int, *, all_new: bool) -> None:
    said = members.ask(number, "/admin/v1/features")
    assert (said["level"], said["highest"]) == (1, NEWEST if all_new else 1)
    if not all_new:
        refused = members.ask(number, "/admin/v1/features", {"level": NEWEST})
        assert refused["error"] == "not_raised"
        assert "understand less: upgrade them first" in refused["message"]


def _raise_as_the_page_says(members: MixedMembers) -> None:
    page = (ROOT / "docs" / "upgrade.md").read_text().partition("### Without Kubernetes")[2]
    block = page.partition("```sh\n")[2].partition("```")[0]
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "IMAGO_ADMIN": f"http://127.0.0.1:{members.bases[0] + 6}",
    }
    done = subprocess.run(
        ["bash", "-euc", block], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    before, after = done.stdout.split("feature level ")[1], done.stdout.split("feature level ")[2]
    assert before.startswith("1\nall brokers understand 2:"), done.stdout
    assert "sinks publish micro-batches" in before
    assert after.startswith(f"{NEWEST}\n")
    assert members.ask(0, "/admin/v1/features")["level"] == NEWEST


async def _former_refuses(members: MixedMembers) -> None:
    """The version before does not start any more, and says so; this one goes on."""
    assert await asyncio.to_thread(members.processes[0].stop) == 0
    members.start(0, former=True)
    process = members.processes[0]
    assert await asyncio.to_thread(process.process.wait, SECONDS_MAX) == USAGE
    assert "format 2, this version knows 1" in process.log_tail()
    members.start(0)
    await members.serve(0)
    await members.whole()


def test_a_clone_without_history_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FormerVersionMissingError, match="git fetch --unshallow"):
        former_version(tmp_path / "former", repository=tmp_path)
