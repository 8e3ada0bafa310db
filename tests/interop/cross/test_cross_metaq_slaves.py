"""Slaves: this broker copies an original master, and original slaves have what this one has.

The originals' own are in a jar that was never published; those here are the original broker,
registered as a slave and fed by the original client, or served `sync` (`java/src/metaq-parts`).
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING

import pytest
from kazoo.client import KazooClient

from imago_broker.model.topics.topics import RETENTION_MS
from imago_log.offline.check import check
from imago_testing.clusters.brokers import running_broker
from imago_testing.clusters.shard_brokers import until
from imago_testing.interop.drivers import METAQ
from imago_testing.interop.metaq import MetaqClient
from imago_testing.java.originals import (
    SMALL,
    Part,
    Scale,
    metaq_broker,
    metaq_by_file,
    original_zookeeper,
    wait_for_topic,
)
from imago_testing.peers.metaq import MetaqPeer, metaq_peer, put_frame, put_place, value_body
from imago_testing.processes.ports import free_port_block

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from imago_broker.app import Broker
    from imago_log import MessageStore
    from imago_testing.interop.metaq import MetaqConsumer
    from imago_testing.java.driver import JavaDriver
    from imago_testing.java.originals import OriginalBroker

pytestmark = [
    pytest.mark.interop,
    pytest.mark.shows("across", clients=("metaq",)),
]
TOPIC = "copied"
PARTITIONS = 4
FILE_BYTES = 4096
KEPT_HOURS = 30
SCALE = Scale(
    metaq={**SMALL.metaq, "maxSegmentSize": FILE_BYTES, "deletePolicy": f"delete,{KEPT_HOURS}"}
)
OURS = (
    "zookeeper.session_timeout_ms=6000",
    f"store.metaq_segment_bytes_max={FILE_BYTES}",
    "namesrv.enabled=false",
)
AS_SLAVE = ("metaq.slave_id=1", "metaq.slave_delay_ms_max=50", "metaq.slave_sync_config=true")


async def put_all(port: int, first: int, last: int) -> None:
    """Put messages of many sizes into all partitions, every third with an attribute."""
    async with metaq_peer(port) as peer:
        for number in range(first, last):
            flag = int(number % 3 == 0)
            prefix = b"\0\0\0\6gr\xc3\xbcn!" if flag else b""
            body = prefix + b"%d:" % number + b"x" * (number * 7 % 50 * 10)
            put_place(await peer.ask(put_frame(TOPIC, number % PARTITIONS, body, flag=flag)))


async def partitions(port: int) -> list[bytes]:
    """Return what each partition holds, read to its end."""
    async with metaq_peer(port) as peer:
        return [await whole(peer, number) for number in range(PARTITIONS)]


async def whole(peer: MetaqPeer, partition: int) -> bytes:
    found = b""
    while (answer := await peer.get(TOPIC, partition, len(found))).startswith(b"value"):
        found += value_body(answer)
    return found


def files(folder: Path) -> dict[str, bytes]:
    """Return what stands in the files of each partition, one after the other."""
    return {
        each.name: b"".join(path.read_bytes() for path in sorted(each.glob("*.meta")))
        for each in folder.glob(f"{TOPIC}-*")
    }


def copied_end(store: MessageStore, number: int) -> int:
    """Return where a partition ends."""
    return store.position_range(TOPIC, number)[1]


async def copies_all(copy: Broker, expected: list[bytes]) -> None:
    """Wait until our broker has so much."""
    ends = [len(each) for each in expected]
    await until(lambda: [copied_end(copy.store, number) for number in range(PARTITIONS)] == ends)


async def check_nodes(copy: Broker, master: OriginalBroker) -> None:
    """What MetaQ's clients find: a master, and a slave that producers do not see."""
    _, nodes = await copy.coordinator.metaq_consumers.metaq_tree()
    brokers = "/meta/brokers"
    assert nodes[f"{brokers}/ids/0/slave1"].data == f"meta://127.0.0.1:{copy.metaq_port}"
    assert nodes[f"{brokers}/ids/0/master"].data == master.url
    offered = {path for path in nodes if f"/{TOPIC}/0-" in path}
    assert offered == {
        f"{brokers}/{where}"
        for where in (
            f"topics/{TOPIC}/0-m", f"topics-pub/{TOPIC}/0-m", f"topics-sub/{TOPIC}/0-m",
            f"topics/{TOPIC}/0-s1", f"topics-sub/{TOPIC}/0-s1",
        )
    }  # fmt: skip


async def test_ours_copies_an_original_master_and_takes_over(tmp_path: Path) -> None:
    with original_zookeeper(tmp_path / "zk") as port:
        connect = f"zookeeper.connect=127.0.0.1:{port}"
        with metaq_broker(tmp_path / "master", [TOPIC], port, SCALE) as master:
            await asyncio.to_thread(wait_for_topic, master.registry, TOPIC)
            await put_all(master.port, 0, 100)
            async with running_broker(tmp_path / "ours", connect, *OURS, *AS_SLAVE) as copy:
                await put_all(master.port, 100, 150)
                expected = await partitions(master.port)
                await copies_all(copy, expected)
                assert await partitions(copy.metaq_port) == expected
                assert copy.metaq_slave is not None
                status, topic = copy.metaq_slave.status(), copy.topics.get(TOPIC)
                assert (status.copies, status.config_problem) == (True, "")
                assert topic is not None
                assert topic.attributes[RETENTION_MS] == str(KEPT_HOURS * 3_600_000)
                await check_nodes(copy, master)
            # It was away meanwhile, and finds what came.
            await put_all(master.port, 150, 170)
            expected = await partitions(master.port)
            async with leading(tmp_path / "ours", connect, *OURS, *AS_SLAVE) as copy:
                await copies_all(copy, expected)
        assert files(tmp_path / "ours" / "metaq") == files(tmp_path / "master" / "meta")
        assert list(check(tmp_path / "ours")) == []
        async with running_broker(tmp_path / "ours", connect, *OURS) as broker:
            await until(lambda: broker.role.current.leads)
            assert await partitions(broker.metaq_port) == expected
            async with metaq_peer(broker.metaq_port) as peer:
                message_id, _, position = put_place(await peer.put(TOPIC, 0, b"own"))
            assert (message_id > 0, position) == (True, len(expected[0]))


@pytest.mark.full
async def test_the_original_runs_by_what_ours_tells_as_its_configuration(tmp_path: Path) -> None:
    port = free_port_block(2)
    with original_zookeeper(tmp_path / "zk") as registry:
        settings = (
            *OURS, f"metaq.port={port}", f"admin.port={port + 1}", "topics.gone.queues=2",
            f"zookeeper.connect=127.0.0.1:{registry}", f"topics.{TOPIC}.queues={PARTITIONS}",
            "topics.gone.metaq_archive=zip", "topics.gone.retention_ms=90000",
            "topics.gone.metaq_publish=false", "topics.gone.delete_when=0 0 3 * * ?",
        )  # fmt: skip
        async with running_broker(tmp_path / "ours", *settings), metaq_peer(port) as peer:
            told = value_text(await peer.ask(b"stats config 1\r\n"))
        # A slave that takes its master's file has its paths too: ours names none.
        ini = told.replace("[system]\n", f"[system]\ndataPath={tmp_path / 'meta'}\n", 1)
        assert ini != told
        with metaq_by_file(tmp_path / "original", ini, port, registry, SCALE) as broker:
            await asyncio.to_thread(wait_for_topic, broker.registry, TOPIC)
            await put_all(port, 0, 10)
            await shows_all(port)
            async with metaq_peer(port) as peer:
                assert value_text(await peer.ask(b"stats config 1\r\n")) == ini
                topics = value_text(await peer.ask(b"stats topics 2\r\n"))
            assert "gone *Empty*" in topics


async def shows_all(port: int) -> None:
    """Wait until each partition has something: an original shows what it has flushed."""
    for _ in range(600):
        if all(await partitions(port)):
            return
        await asyncio.sleep(0.1)
    raise AssertionError("there are partitions without a message that can be read")


def value_text(answer: bytes) -> str:
    return answer.partition(b"\r\n")[2].decode()


@pytest.mark.full
async def test_an_original_gregor_slave_has_what_our_samsa_master_answers(tmp_path: Path) -> None:
    gregor = Part("GregorSlave")
    with (
        original_zookeeper(tmp_path / "zk") as port,
        metaq_broker(tmp_path / "slave", [TOPIC], port, SCALE, part=gregor) as slave,
    ):
        pair = f"metaq.samsa_slave=127.0.0.1:{slave.port}"
        ours = (pair, f"topics.{TOPIC}.queues={PARTITIONS}", *OURS)
        async with running_broker(tmp_path / "ours", *ours) as master:
            await until(lambda: master.samsa is not None and master.samsa.refusal is None)
            await put_all(master.metaq_port, 0, 100)
            expected = await partitions(master.metaq_port)
            assert min(map(len, expected)) > FILE_BYTES
            assert await partitions(slave.port) == expected


async def test_point_11_an_original_slave_has_our_bytes_and_consumers_read_from_it(
    tmp_path: Path, drivers: dict[str, JavaDriver]
) -> None:
    drivers[METAQ].wait_ready()
    with original_zookeeper(tmp_path / "zk") as port, ExitStack() as stack:
        connect = f"zookeeper.connect=127.0.0.1:{port}"
        ours = (connect, *OURS, f"topics.{TOPIC}.queues={PARTITIONS}")
        client = MetaqClient(drivers[METAQ], f"127.0.0.1:{port}", [])
        async with leading(tmp_path / "ours", *ours) as master:
            fixed = f"metaq.port={master.metaq_port}"
            slave = await asyncio.to_thread(begin_slave, stack, tmp_path, port, master)
            await put_all(master.metaq_port, 0, 80)
            await has_all_of(slave, master)
            consumer = await asyncio.to_thread(begin_consumer, stack, client)
            seen = await consumed(consumer, set(), 80)
            await put_all(master.metaq_port, 80, 90)
            await has_all_of(slave, master)
        assert files(tmp_path / "ours" / "metaq") == files(tmp_path / "slave" / "meta")
        # Without a master the group goes on at the slave, and with one it comes back.
        await consumed(consumer, seen, 90)
        assert await asyncio.to_thread(registered, slave) == {"slave1": slave.url}
        async with leading(tmp_path / "ours", *ours, fixed) as master:
            await put_all(master.metaq_port, 90, 110)
            await consumed(consumer, seen, 110)
            await has_all_of(slave, master)
            url = f"meta://127.0.0.1:{master.metaq_port}"
            both = await asyncio.to_thread(registered, slave)
            assert both == {"master": url, "slave1": slave.url}
            # While the master still serves: a consumer says good-bye.
            await asyncio.to_thread(stack.close)


@asynccontextmanager
async def leading(folder: Path, *settings: str) -> AsyncIterator[Broker]:
    """Run our broker with MetaQ's own files; it leads its shard, also as an original's slave."""
    async with running_broker(folder, *settings) as broker:
        await until(lambda: broker.role.current.leads)
        broker.topics.materialise(TOPIC)
        yield broker


def begin_slave(stack: ExitStack, folder: Path, port: int, master: Broker) -> OriginalBroker:
    """Run an original slave of our broker, until the stack ends."""
    url = f"meta://127.0.0.1:{master.metaq_port}"
    part = Part("AsyncSlave", ["1", url, TOPIC, str(PARTITIONS)])
    return stack.enter_context(metaq_broker(folder / "slave", [TOPIC], port, SCALE, part=part))


def registered(slave: OriginalBroker) -> dict[str, str]:
    """Return the brokers of the slave's id as MetaQ's clients find them: name and address."""
    tree = KazooClient(slave.registry)
    tree.start(timeout=20)
    folder = "/meta/brokers/ids/0"
    try:
        names = set(tree.get_children(folder)) - {"master_config_checksum"}
        return {name: tree.get(f"{folder}/{name}")[0].decode() for name in names}
    finally:
        tree.stop()
        tree.close()


async def has_all_of(slave: OriginalBroker, master: Broker) -> None:
    """Wait until the slave has what our broker has."""
    expected = await partitions(master.metaq_port)
    for _ in range(600):
        if await partitions(slave.port) == expected:
            return
        await asyncio.sleep(0.1)
    assert await partitions(slave.port) == expected


def begin_consumer(stack: ExitStack, client: MetaqClient) -> MetaqConsumer:
    """Run an original consumer that finds brokers in ZooKeeper."""
    factory = stack.enter_context(client.factory())
    return stack.enter_context(factory.consumer([TOPIC], "g"))


async def consumed(consumer: MetaqConsumer, seen: set[bytes], count: int) -> set[bytes]:
    """Wait until so many messages were seen: a group that moves gets some of them twice."""
    with suppress(TimeoutError):
        async with asyncio.timeout(90):
            while len(seen) < count:
                seen |= {each.body for each in await asyncio.to_thread(consumer.take, 1)}
    numbers = {int(body.partition(b":")[0]) for body in seen}
    assert numbers == set(range(count)), f"not seen: {sorted(set(range(count)) - numbers)}"
    return seen
