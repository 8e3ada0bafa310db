"""A cluster at a ZooKeeper with TLS and a user: brokers, commands, and original MetaQ clients.

MetaQ's clients speak no TLS and have no user there: they have the plain port. Every node that
brokers make is looked at, through the deaths, pauses and handovers of masters.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from imago_client import Client, ClientConfig
from imago_testing.clusters.shard_processes import TOPIC, Members
from imago_testing.interop.metaq import MetaqClient
from imago_testing.interop.sharing import committed, numbers, puts
from imago_testing.processes.guarded_zookeeper import GuardedZooKeeper
from imago_testing.processes.ports import free_port_block
from imago_testing.processes.registry_rights import ROOTS, nodes_below, taken, wrong_rights
from imago_testing.processes.servers import ServerProcess, running, wait_until
from imago_testing.processes.zookeeper import running_zookeeper

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kazoo.client import KazooClient

    from imago_testing.java.driver import JavaDriver

pytestmark = [
    pytest.mark.interop,
    pytest.mark.zookeeper,
    pytest.mark.shows("across", clients=("metaq",)),
]
IMAGO = str(Path(sys.executable).parent / "imago")
SECONDS_MAX = 60.0


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[GuardedZooKeeper]:
    made = GuardedZooKeeper(tmp_path)
    with running_zookeeper(tmp_path / "zookeeper", more=made.more) as made.server:
        yield made


@pytest.fixture
def members(guarded: GuardedZooKeeper, tmp_path: Path) -> Iterator[Members]:
    lines = "\n".join(f'{key} = "{value}"' for key, value in guarded.settings().items())
    made = Members(tmp_path, guarded.connect(), registry=lines)
    try:
        yield made
    finally:
        made.end()


def imago(bootstrap: str, *words: str) -> None:
    """Have a command do its work."""
    env = {**os.environ, "IMAGO_BOOTSTRAP": bootstrap}
    done = subprocess.run(
        [IMAGO, *words], env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


def everything(insider: KazooClient) -> list[str]:
    return [path for root in ROOTS for path in nodes_below(insider, root)]


def wait_for_master(stranger: KazooClient) -> None:
    """Wait until MetaQ's clients find a master, and the topic on it."""
    nodes = ("/meta/brokers/ids/0/master", f"/meta/brokers/topics-pub/{TOPIC}/0-m")
    wait_until(
        lambda: all(stranger.exists(path) for path in nodes),
        seconds_max=SECONDS_MAX,
        what="a master is registered",
    )


@pytest.fixture
def names(guarded: GuardedZooKeeper, members: Members, tmp_path: Path) -> Iterator[str]:
    """A name service of its own, at the same ZooKeeper."""
    port, folder = free_port_block(1), tmp_path / "names"
    more = [f'{key} = "{value}"' for key, value in guarded.settings().items()]
    lines = ["[broker]", 'cluster = "test"', "[namesrv]", f"port = {port}", "[zookeeper]"]
    config = folder / "names.toml"
    folder.mkdir()
    config.write_text("\n".join([*lines, f'connect = "{guarded.connect()}"', *more]))
    members.start(0)
    command = [IMAGO, "namesrv", "--config", str(config)]
    with running(ServerProcess.start("namesrv", command, folder)) as server:
        server.wait_for_port(port)
        yield f"127.0.0.1:{port}"


@pytest.mark.full  # `contracts/test_zookeeper_access.py` tries each right by itself
async def test_nobody_else_writes_what_is_the_clusters_whatever_happens_to_it(
    guarded: GuardedZooKeeper, members: Members, names: str, drivers: dict[str, JavaDriver]
) -> None:
    for number in (1, 2):
        members.start(number)
    for number in range(3):
        await members.serve(number)
    config = ClientConfig(bootstrap=tuple(members.bootstrap.split(",")), route_age_max_s=1.0)
    drivers["metaq"].wait_ready()
    metaq = MetaqClient(drivers["metaq"], guarded.server.address, [])
    async with Client(config) as client:
        with guarded.insider() as insider, guarded.client() as stranger:
            leader = await members.leader(client)
            await asyncio.to_thread(imago, names, "topic", "create", "made")
            await asyncio.to_thread(imago, names, "produce", "made", "hello")
            await asyncio.to_thread(used, metaq, stranger, "before", 0)
            await asyncio.to_thread(check, insider, stranger)

            members.processes[leader].kill()
            second = await members.leader(client, but=leader)
            members.start(leader)
            await members.serve(leader)
            await asyncio.to_thread(check, insider, stranger)

            # Its session ends while it is silent: what it made is made anew, by itself or another.
            os.kill(members.processes[second].pid, signal.SIGSTOP)
            third = await members.leader(client, but=second)
            os.kill(members.processes[second].pid, signal.SIGCONT)
            await members.serve(second)
            await asyncio.to_thread(check, insider, stranger)

            assert await asyncio.to_thread(members.processes[third].stop) == 0
            await members.leader(client, but=third)
            await asyncio.to_thread(used, metaq, stranger, "after", 20)
            await asyncio.to_thread(check, insider, stranger)
            # Whatever strangers tried: the shard is led, and takes messages.
            await asyncio.to_thread(imago, names, "produce", TOPIC, "last")


def check(insider: KazooClient, stranger: KazooClient) -> None:
    """Look at every node, and try to take each."""
    wait_for_master(stranger)
    paths = everything(insider)
    assert {"/imago/test/id", "/imago/test/shards/0/state", "/meta/brokers/ids"} <= set(paths)
    assert any(path.startswith(f"/meta/brokers/topics-pub/{TOPIC}/") for path in paths)
    assert any(path.startswith("/imago/test/brokers/") for path in paths)
    assert wrong_rights(insider, paths) == []
    assert taken(stranger, paths) == []


def used(metaq: MetaqClient, stranger: KazooClient, group: str, first: int) -> None:
    """Have original clients find the brokers, share partitions, and keep their offsets."""
    wait_for_master(stranger)
    with metaq.factory() as factory, factory.producer([TOPIC]) as producer:
        sent = producer.send(TOPIC, puts(first, first + 20))
        assert all(each.success for each in sent), sent
        with factory.consumer([TOPIC], group) as consumer:
            found = consumer.take(first + 20)
            wait_until(
                lambda: sum(committed(stranger, group, TOPIC).values()) > 0,
                seconds_max=SECONDS_MAX,
                what="the group's offsets are kept",
            )
    assert numbers(found)[-20:] == list(range(first, first + 20))
