"""docs/move.md: from an original RocketMQ cluster to ours, while producers and consumers work."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from imago_client import ConsumerConfig, Message, StartFrom
from imago_client.blocking import Client
from imago_client.errors import NoRouteError
from imago_testing.java.originals import rocketmq_original
from imago_testing.peers.remoting import RemotingPeer
from imago_testing.processes.ports import free_port_block
from imago_testing.processes.servers import wait_until
from imago_testing.processes.up import up
from imago_wire.remoting.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

pytestmark = [pytest.mark.interop, pytest.mark.processes]

PORTS = 30
MESSAGES = 40
QUEUES = 2
OLD, NEW = "broker-a", "shard-0"
READERS = ConsumerConfig(group="readers", start_from=StartFrom.EARLIEST)


def brokers(client: Client) -> set[str]:
    return {shard.shard for shard in client.admin.shards()}


def offered(namesrv: str) -> set[str]:
    """Return the brokers that a new client finds for the topic."""
    with Client(namesrv) as client:
        try:
            return {queue.shard for queue in client.pull_consumer("nobody").queues("orders")}
        except NoRouteError:
            return set()


def send(client: Client, bodies: Iterable[bytes]) -> set[str]:
    """Send to the topic; return the brokers that took something."""
    producer = client.producer()
    return {producer.send(Message("orders", body)).queue.shard for body in bodies}


def read(client: Client, count: int) -> list[bytes]:
    """Read as a member of the group until it has so many, and commit."""
    got: list[bytes] = []
    with client.group_consumer(READERS, ["orders"]) as member:

        def has_enough() -> bool:
            got.extend(one.body for one in member.poll())
            return len(got) >= count

        wait_until(has_enough, seconds_max=120, what=f"{count} messages have come")
        got.extend(one.body for one in member.poll())
        member.commit()
    return sorted(got)


def wipe(namesrv: str, broker: str) -> int:
    """`mqadmin wipeWritePerm`: how many topics producers no longer find there."""

    async def call() -> int:
        peer = await RemotingPeer.connect(int(namesrv.rpartition(":")[2]))
        try:
            done = await peer.call(RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": broker})
            return int(done.ext["wipeTopicCount"])
        finally:
            await peer.close()

    return asyncio.run(call())


def bodies(name: str) -> list[bytes]:
    return sorted(b"%s-%03d" % (name.encode(), number) for number in range(MESSAGES))


@pytest.mark.full
@pytest.mark.parametrize("version", [4, 5])
def test_nothing_is_missed_or_read_twice_on_the_way(tmp_path: Path, version: int) -> None:
    first, second, third, last = map(bodies, ("first", "second", "third", "last"))
    base, folder = free_port_block(PORTS), tmp_path / "original"
    folder.mkdir()
    with up(tmp_path / "data", "--port-base", str(base)) as ours:
        namesrv = str(ours.ready["namesrv"])
        with Client(namesrv) as new:
            new.admin.create_topic("orders", queues=QUEUES)
        with rocketmq_original(folder, version, also_at=[namesrv]) as original:
            with Client(original.registry) as old:
                wait_until(lambda: brokers(old) == {OLD}, seconds_max=60, what="it is there")
                old.admin.create_topic("orders", queues=QUEUES)
                assert send(old, first) == {OLD}
                assert read(old, MESSAGES) == first
            with Client(namesrv) as both:
                wait_until(lambda: brokers(both) == {OLD, NEW}, seconds_max=60, what="both are")
                wait_until(lambda: offered(namesrv) == {OLD, NEW}, seconds_max=60, what="routed")
            with Client(namesrv) as both:
                assert send(both, second) == {OLD, NEW}
                assert read(both, MESSAGES) == second, "the group goes on where it was"
            assert wipe(namesrv, OLD) > 0
            with Client(namesrv) as both:
                assert send(both, third) == {NEW}
                assert read(both, MESSAGES) == third
                described = both.admin.describe_group(READERS.group)
                assert {one.lag for one in described.progress} == {0}
        wait_until(lambda: offered(namesrv) == {NEW}, seconds_max=120, what="the old one is gone")
        with Client(namesrv) as alone:
            assert send(alone, last) == {NEW}
            assert read(alone, MESSAGES) == last
