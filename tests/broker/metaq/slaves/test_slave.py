"""This broker as the asynchronous slave of another master: what it copies, and what it refuses.

The masters are of ours too, with ids of their own choice put in by `put_copies`; an original one
is in `tests/interop/cross/test_cross_metaq_slaves.py`.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import aiohttp

from imago_broker.app import Broker
from imago_broker.app.ports.metaq_port import ConfigFile
from imago_broker.cluster.coordinator import TreeCoordinator
from imago_broker.cluster.memory import MemoryEnsemble, MemoryTree
from imago_broker.cluster.settings import CoordinatorConfig
from imago_broker.core.metaq.metaq_copies import copied_entry
from imago_broker.model.topics.topics import (
    DELETE_WHEN,
    METAQ_ARCHIVE,
    METAQ_FILTER,
    RETENTION_MS,
    TopicConfig,
)
from imago_broker.replication.metaq import copied, slave
from imago_broker.service.puts.put_status import PutStatus
from imago_log.offline.check import check
from imago_testing.clusters.brokers import loopback_config
from imago_testing.clusters.shard_brokers import until
from imago_testing.peers.metaq import MetaqPeer, metaq_peer, put_frame, put_place, value_body
from imago_wire.crc import crc31
from imago_wire.hot import QueueTail

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import pytest

    from imago_broker.config import BrokerConfig

HOST = bytes(8)
MASTER_TOPICS = ("topics.test.queues=2", "topics.other.queues=1")
SLAVE = ("metaq.slave_id=3", "metaq.slave_delay_ms_max=20")


def config_of(folder: Path, cluster: str, *settings: str) -> BrokerConfig:
    return loopback_config(
        folder, f"broker.cluster={cluster}", "zookeeper.connect=memory", "namesrv.enabled=false",
        "admin.enabled=false", *settings,
    )  # fmt: skip


@asynccontextmanager
async def member(
    ensemble: MemoryEnsemble, folder: Path, cluster: str, *settings: str
) -> AsyncIterator[Broker]:
    """Run a broker alone in its cluster; MetaQ's tree is that of all."""
    config = config_of(folder, cluster, *settings)
    registry = CoordinatorConfig(cluster=cluster, metaq_slave=config.metaq.slave_id)
    broker = Broker(config, coordinator=TreeCoordinator(registry, MemoryTree(ensemble)))
    await broker.start()
    try:
        await until(lambda: broker.role.current.leads)
        yield broker
    finally:
        await broker.stop()


async def copied_up_to(broker: Broker, topic: str, number: int, end: int) -> None:
    """Wait until a partition ends there."""
    await until(lambda: broker.store.position_range(topic, number)[1] == end)


async def put_with_id(broker: Broker, number: int, body: bytes, message_id: int) -> None:
    """Have a message in the log with an id that others gave."""
    tail = broker.store.tail("test", number)
    entry = copied_entry(tail, body, 0, crc31(body), 1, HOST, message_id)
    told: asyncio.Future[PutStatus] = asyncio.get_running_loop().create_future()
    broker.messages.put([entry], None, lambda token, status, _: token.set_result(status), told)
    assert await told is PutStatus.OK


async def whole(peer: MetaqPeer, topic: str, partition: int, start: int = 0) -> bytes:
    found = b""
    while (answer := await peer.get(topic, partition, start + len(found))).startswith(b"value"):
        found += value_body(answer)
    return found


async def test_a_slave_has_the_bytes_and_positions_of_its_master(tmp_path: Path) -> None:
    ensemble = MemoryEnsemble()
    async with member(ensemble, tmp_path / "master", "theirs", *MASTER_TOPICS) as master:
        async with metaq_peer(master.metaq_port) as peer:
            for number in range(60):
                flag = number % 2
                body = (b"\0\0\0\3tag" if flag else b"") + b"%d" % number * (number * 7 % 40)
                put_place(await peer.ask(put_frame("test", number % 2, body, flag=flag)))
        for message_id in (-5_468_922_380_556_435_456, -1, 4_000_000_000_000_000_000, -2):
            await put_with_id(master, 1, b"hello", message_id)
        async with member(ensemble, tmp_path / "slave", "ours", *SLAVE) as copy:
            for number in range(2):
                end = master.store.position_range("test", number)[1]
                await copied_up_to(copy, "test", number, end)
            await put_with_id(master, 0, b"later", -77)
            end = master.store.position_range("test", 0)[1]
            await copied_up_to(copy, "test", 0, end)
            async with metaq_peer(master.metaq_port) as one, metaq_peer(copy.metaq_port) as other:
                for number in range(2):
                    expected = await whole(one, "test", number)
                    assert len(expected) > 500
                    assert await whole(other, "test", number) == expected
            names = {
                path.rpartition("/")[2]
                for path in (await copy.coordinator.metaq_consumers.metaq_tree())[1]
            }
            assert {"master", "slave3", "0-m", "0-s3"} <= names
    report = check(tmp_path / "slave")
    assert not list(report)


async def test_topics_have_the_settings_of_the_masters_file(tmp_path: Path) -> None:
    ensemble, copying = MemoryEnsemble(), (*SLAVE, "metaq.slave_sync_config=true")
    first = (
        *MASTER_TOPICS, "topics.test.retention_ms=3600000", "topics.test.metaq_archive=zip",
        "topics.test.metaq_publish=false", "store.delete_when=0 0 3 * * ?",
    )  # fmt: skip
    async with (
        member(ensemble, tmp_path / "slave", "ours", *copying) as copy,
        member(ensemble, tmp_path / "master", "theirs", *first) as master,
    ):
        await until(lambda: copy.topics.get("other") is not None)
        topic, other = copied_topic(copy, "test"), copied_topic(copy, "other")
        of_master = copied_topic(master, "test").attributes
        assert topic.attributes == {**of_master, DELETE_WHEN: "0 0 3 * * ?"}
        assert other.attributes[DELETE_WHEN] == "0 0 3 * * ?"
        assert other.attributes[RETENTION_MS] == str(master.config.store.retention_ms)
        # The file's checksum in ZooKeeper says that it is another one.
        longer = "topics.test.retention_ms=7200000"
        master.reload(config_of(tmp_path / "master", "theirs", *MASTER_TOPICS, longer))
        await until(lambda: copied_topic(copy, "test").attributes[RETENTION_MS] == "7200000")
        assert copied_topic(copy, "test").metaq_publish
        assert METAQ_ARCHIVE not in copied_topic(copy, "test").attributes


async def test_what_is_strange_in_the_masters_file_holds_up_no_copying(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ensemble, copying = MemoryEnsemble(), (*SLAVE, "metaq.slave_sync_config=true")
    async with member(ensemble, tmp_path / "master", "theirs", *MASTER_TOPICS) as master:
        text = master.config_file()
        filters = b"[topic=test]\ngroup.red=tags: red\ngroup.java=com.example.Filter\n"
        texts = [text.replace(b"[topic=test]\n", filters), b"[system]\n", text]
        assert texts[0] != text
        monkeypatch.setattr(ConfigFile, "__call__", lambda _: texts[0])
        async with metaq_peer(master.metaq_port) as peer:
            put_place(await peer.put("test", 0, b"hello"))
        async with member(ensemble, tmp_path / "slave", "ours", *copying) as copy:
            await copied_up_to(copy, "test", 0, 25)
            slave_ = copy.metaq_slave
            assert slave_ is not None
            line = texts[0].splitlines().index(b"group.java=com.example.Filter") + 1
            assert f"the master's server.ini, line {line}: group.java" in problem_of(slave_)
            filtered = copied_topic(copy, "test").attributes
            assert filtered[METAQ_FILTER + "red"] == "tags: red"
            assert METAQ_FILTER + "java" not in filtered
            # A file that is none: what was told before stays.
            del texts[0]
            slave_.restart()
            await until(lambda: "Blank value for brokerId" in problem_of(slave_))
            await until(lambda: slave_.status().copies)
            assert copied_topic(copy, "test").attributes == filtered
            # And one that names the filter no more.
            del texts[0]
            slave_.restart()
            await until(lambda: problem_of(slave_) == "" and slave_.status().copies)
            assert METAQ_FILTER + "red" not in copied_topic(copy, "test").attributes


def problem_of(copying: slave.MetaqSlave) -> str:
    return copying.status().config_problem


def copied_topic(broker: Broker, name: str) -> TopicConfig:
    topic = broker.topics.get(name)
    assert topic is not None
    return topic


async def test_a_slave_goes_on_where_it_was_and_takes_over_as_a_normal_broker(
    tmp_path: Path,
) -> None:
    ensemble = MemoryEnsemble()
    expected = b""
    for life in range(3):
        async with (
            member(ensemble, tmp_path / "master", "theirs", *MASTER_TOPICS) as master,
            metaq_peer(master.metaq_port) as peer,
            member(ensemble, tmp_path / "slave", "ours", *SLAVE) as copy,
        ):
            put_place(await peer.put("test", 0, b"life %d" % life))
            expected = await whole(peer, "test", 0)
            await copied_up_to(copy, "test", 0, len(expected))
    async with (
        member(ensemble, tmp_path / "slave", "ours") as broker,
        metaq_peer(broker.metaq_port) as peer,
    ):
        assert await whole(peer, "test", 0) == expected
        message_id, _, position = put_place(await peer.put("test", 0, b"own"))
        assert (message_id > 0, position) == (True, len(expected))


async def test_a_partition_begins_where_the_masters_does(tmp_path: Path) -> None:
    ensemble = MemoryEnsemble()
    async with (
        member(ensemble, tmp_path / "master", "theirs", *MASTER_TOPICS) as master,
        metaq_peer(master.metaq_port) as peer,
    ):
        for body in (b"deleted", b"deleted too"):
            put_place(await peer.put("test", 0, body))
        begin = master.topics.delete_partitions("test", [0])[0]
        put_place(await peer.put("test", 0, b"kept"))
        for _ in range(2):  # the second time over a restart that finds it so
            async with (
                member(ensemble, tmp_path / "slave", "ours", *SLAVE) as copy,
                metaq_peer(copy.metaq_port) as reader,
            ):
                await copied_up_to(copy, "test", 0, begin + 24)
                assert copy.store.position_range("test", 0)[0] == begin == 58
                assert (await whole(reader, "test", 0, begin)).endswith(b"kept")
                assert (await reader.get("test", 0, 0)).startswith(b"result 301 ")
    assert not list(check(tmp_path / "slave"))


async def test_administrators_see_how_the_copy_stands_and_restart_it(tmp_path: Path) -> None:
    ensemble, admin = MemoryEnsemble(), ("admin.enabled=true", "admin.port=0")
    async with (
        member(ensemble, tmp_path / "master", "theirs", *MASTER_TOPICS, *admin) as master,
        metaq_peer(master.metaq_port) as peer,
        member(ensemble, tmp_path / "slave", "ours", *SLAVE, *admin) as copy,
        aiohttp.ClientSession() as session,
    ):
        put_place(await peer.put("test", 1, b"hello"))
        await copied_up_to(copy, "test", 1, 25)
        url = f"http://127.0.0.1:{copy.ports.admin_port}/admin/v1/metaq/slave"
        async with session.get(url) as response:
            found = await response.json()
        rows = found.pop("partitions")
        assert found == {
            "slaveId": 3, "group": "meta-slave-group_3", "copies": True, "problem": "",
            "master": f"meta://127.0.0.1:{master.metaq_port}", "leftOut": found["leftOut"],
            "configProblem": None,
        }  # fmt: skip
        row = {"topic": "test", "partition": 1, "position": 25, "messages": 1, "problem": ""}
        assert row in rows
        async with session.post(f"{url}/restart", json={}) as response:
            assert response.status == 200
        put_place(await peer.put("test", 1, b"again"))
        await copied_up_to(copy, "test", 1, 50)
        of_master = url.replace(str(copy.ports.admin_port), str(master.ports.admin_port))
        async with session.get(of_master) as response:
            assert response.status == 409


async def test_a_slave_takes_nothing_from_producers(tmp_path: Path) -> None:
    ensemble = MemoryEnsemble()
    async with (
        member(ensemble, tmp_path / "master", "theirs", *MASTER_TOPICS) as master,
        member(ensemble, tmp_path / "slave", "ours", *SLAVE) as copy,
        metaq_peer(copy.metaq_port) as peer,
    ):
        await until(lambda: copy.topics.get("test") is not None)
        answer = await peer.put("test", 0, b"no")
        assert answer.startswith(b"result 500 ")
        address = f"copies the original master meta://127.0.0.1:{master.metaq_port}, put there"
        assert answer.endswith(address.encode())
        assert copy.store.position_range("test", 0)[1] == 0


async def test_a_copy_that_differs_stops_and_is_made_anew_when_its_topic_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slave, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(slave, "RETRY_SECONDS", 0.05)
    ensemble = MemoryEnsemble()
    async with (
        member(ensemble, tmp_path / "master", "theirs", *MASTER_TOPICS) as master,
        metaq_peer(master.metaq_port) as peer,
    ):
        put_place(await peer.put("test", 0, b"theirs"))
        async with member(
            ensemble, tmp_path / "slave", "ours", *MASTER_TOPICS, "metaq.broker_id_base=1"
        ) as other:
            await put_with_id(other, 0, b"fork!!", -5)
        async with member(ensemble, tmp_path / "slave", "ours", *SLAVE) as copy:
            told = copy.metaq_slave
            assert told is not None
            await until(lambda: any(each.problem for each in told.status().partitions))
            (wrong,) = [each for each in told.status().partitions if each.problem]
            assert (wrong.topic, wrong.partition, told.status().copies) == ("test", 0, False)
            assert "has another message there: delete the topic here" in wrong.problem
            put_place(await peer.put("other", 0, b"goes on"))
            await copied_up_to(copy, "other", 0, 27)
            assert copy.topics.delete("test")
            await copied_up_to(copy, "test", 0, 26)
            await until(lambda: told.status().copies)


async def test_small_questions_bring_messages_of_every_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slave, "ASKED_AT_ONCE", 1)
    init = copied.CopiedPartition.__init__
    monkeypatch.setattr(
        copied.CopiedPartition, "__init__", lambda *a, **k: init(*a, **k, fetch_bytes=50)
    )
    ensemble = MemoryEnsemble()
    async with (
        member(ensemble, tmp_path / "master", "theirs", *MASTER_TOPICS) as master,
        metaq_peer(master.metaq_port) as peer,
        member(ensemble, tmp_path / "slave", "ours", *SLAVE) as copy,
        metaq_peer(copy.metaq_port) as reader,
    ):
        for size in (0, 10, 29, 30, 31, 5000, 3, 100, 2, 49, 50, 51):
            put_place(await peer.put("test", 1, b"x" * size))
        expected = await whole(peer, "test", 1)
        await copied_up_to(copy, "test", 1, len(expected))
        assert await whole(reader, "test", 1) == expected


async def test_an_attribute_that_no_property_holds_keeps_its_place() -> None:
    tail = QueueTail(b"t", 0, dual=True)
    body = b"\0\0\0\3a\x01bpayload"
    entry = copied_entry(tail, body, 1, crc31(body), 1, HOST, -3)
    assert (entry[1], entry[2], entry[3]) == (body, b"", 0)
