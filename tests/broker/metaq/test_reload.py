"""MetaQ's server.ini under a running broker: read again when it changes, or refused whole."""

from __future__ import annotations

import asyncio
import os
import threading
import zlib
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.app import Broker, reloading
from imago_broker.app.kept_settings.declared_notes import FILE
from imago_broker.app.kept_settings.declared_topics import REMOVED
from imago_broker.app.process_hooks import ProcessHooks
from imago_broker.config.sources import from_tree_with_ini
from imago_broker.errors import RequestError
from imago_broker.model.access.quotas import parse_subject, quotas_from_json
from imago_broker.model.topics.sealing import MOVE, seal_of
from imago_broker.model.topics.topics import TopicConfig
from imago_broker.service.access.access_edits import Actor
from imago_log.errors import DiskFullError
from imago_log.store import MessageStore
from imago_testing.clusters.brokers import loopback_tree, running_broker
from imago_testing.peers.metaq import metaq_peer, put_place

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from imago_broker.config import BrokerConfig

SYSTEM = """\
[system]
brokerId=7
numPartitions=2
unflushThreshold=1000
unflushInterval=10000
maxSegmentSize=1048576
maxTransferSize=1048576
[zookeeper]
zk.zkEnable=false
"""
TOPICS = """\
[topic=orders]
acceptSubscribe=false
[topic=old]
[topic=logs-*]
"""


class Ini:
    """The file, and the broker that runs by it."""

    def __init__(self, path: Path, data: Path) -> None:
        self.path, self._data, self._written = path, data, 0
        self.write(SYSTEM + TOPICS)
        self.broker = self._made()

    def _made(self) -> Broker:
        return Broker(self.read(), process=ProcessHooks(reread=self.read))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Broker]:
        """Run a broker by the file as it is now."""
        broker = self.broker = self._made()
        await broker.start()
        try:
            yield broker
        finally:
            await broker.stop()

    def read(self) -> BrokerConfig:
        tree = loopback_tree(self._data)
        tree["metaq"] = {"port": 0, "server_ini": str(self.path)}
        return from_tree_with_ini(tree)

    def write(self, text: str) -> None:
        self._written += 1
        self.path.write_text(text)
        os.utime(self.path, ns=(self._written, self._written))  # two writes in one tick of a clock


@pytest.fixture
async def ini(tmp_path: Path) -> AsyncIterator[Ini]:
    made = Ini(tmp_path / "server.ini", tmp_path / "data")
    await made.broker.start()
    try:
        yield made
    finally:
        await made.broker.stop()


async def test_the_broker_runs_by_the_file(ini: Ini) -> None:
    config = ini.broker.config
    assert config.metaq_broker_id == 7
    assert config.metaq.default_partitions == 2
    orders = ini.broker.topics.get("orders")
    assert orders is not None
    assert (orders.write_queues, orders.metaq_subscribe) == (2, False)
    async with metaq_peer(ini.broker.metaq_port) as peer:
        put_place(await peer.put("logs-web", 1, b"x"))


async def test_what_changed_is_taken_and_told_exactly(ini: Ini) -> None:
    broker = ini.broker
    async with metaq_peer(broker.metaq_port) as peer:
        put_place(await peer.put("orders", 1, b"x"))
        before = await peer.ask(b"stats config 1\r\n")
        ini.write(
            SYSTEM.replace("numPartitions=2", "numPartitions=3\nstat=true").replace(
                "brokerId=7", "brokerId=8"
            )
            + "[topic=orders]\nnumPartitions=1\n[topic=new]\nacceptPublish=false\n"
        )
        changes = await broker.source.reload()
        assert set(changes.applied) == {
            "metaq.default_partitions",
            "metaq.stat",
            "metaq.topic_patterns",
        }
        assert changes.waiting == ("metaq.broker_id_base",)
        assert set(changes.topics) == {"orders", "new"}
        assert changes.removed == ("old",)
        orders, new = broker.topics.get("orders"), broker.topics.get("new")
        assert orders is not None
        assert new is not None
        # What partition 1 holds stays readable; puts beyond the new number are refused.
        assert (orders.write_queues, orders.read_queues, orders.metaq_subscribe) == (1, 2, True)
        assert b"wrong partition 1" in await peer.put("orders", 1, b"x")
        assert (new.write_queues, new.metaq_publish) == (3, False)
        assert b"has been closed" in await peer.put("old", 0, b"x")
        assert b"do not accept topic logs-app" in await peer.put("logs-app", 0, b"x")
        after = await peer.ask(b"stats config 2\r\n")
        assert before.partition(b"\r\n")[2] != after.partition(b"\r\n")[2]
    ini.write(SYSTEM + TOPICS)
    assert "old" in (await broker.source.reload()).topics
    old = broker.topics.get("old")
    assert old is not None
    assert seal_of(old) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (SYSTEM.replace("numPartitions=2", "numPartitions=x"), "line 3: numPartitions"),
        (SYSTEM + "[topic=orders]\ndeletePolicy=burn,1\n", "line 11: deletePolicy"),
        (SYSTEM + "[topic=orders]\nnumPartitions=70000\n", "70000"),
        (SYSTEM + "[topic=orders]\n[topic=%RETRY%g]\nnumPartitions=2000000\n", "2000000"),
        ("", "Blank value for brokerId"),
    ],
)
async def test_a_wrong_file_changes_nothing(ini: Ini, text: str, reason: str) -> None:
    config, topics = ini.broker.config, ini.broker.topics.all()
    ini.write(text and text + "[topic=fresh]\n")
    with pytest.raises(ValueError, match=reason):
        await ini.broker.source.reload()
    assert ini.broker.config is config
    assert ini.broker.topics.all() == topics


async def test_the_broker_serves_while_the_file_is_read(tmp_path: Path) -> None:
    """Ten thousand topics take half a second."""
    ini, read = Ini(tmp_path / "server.ini", tmp_path / "data"), threading.Event()

    def slowly() -> BrokerConfig:
        assert read.wait(50), "the loop stood while the file was read"
        return ini.read()

    broker = Broker(ini.read(), process=ProcessHooks(reread=slowly))
    await broker.start()
    try:
        ini.write(SYSTEM + TOPICS + "[topic=fresh]\n")
        reload = asyncio.create_task(broker.source.reload())
        async with metaq_peer(broker.metaq_port) as peer:
            put_place(await peer.put("orders", 1, b"x"))
        read.set()
        assert set((await reload).topics) == {"fresh"}
    finally:
        read.set()
        await broker.stop()


async def test_who_asks_while_the_file_is_read_gets_what_it_says_then(tmp_path: Path) -> None:
    """A signal behind a change counts, even if a reload of the file before is under way."""
    ini, read, texts = Ini(tmp_path / "server.ini", tmp_path / "data"), threading.Event(), []

    def slowly() -> BrokerConfig:
        config = ini.read()
        texts.append(config.declared.keys())
        assert read.wait(50)
        return config

    broker = Broker(ini.read(), process=ProcessHooks(reread=slowly))
    await broker.start()
    try:
        broker.source.reload_soon()
        while not texts:  # noqa: ASYNC110  a thread's doing
            await asyncio.sleep(0.01)
        ini.write(SYSTEM + TOPICS + "[topic=fresh]\n")
        broker.source.reload_soon()
        read.set()
        while broker.topics.get("fresh") is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    finally:
        read.set()
        await broker.stop()


async def test_a_file_that_changes_is_read_again_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reloading, "LOOK_SECONDS", 0.01)
    ini = Ini(tmp_path / "server.ini", tmp_path / "data")
    await ini.broker.start()
    try:
        ini.write("nonsense")
        while "config_not_reloaded" not in caplog.text:  # noqa: ASYNC110  the broker's own timer
            await asyncio.sleep(0.01)
        assert "line 1" in caplog.text
        ini.write(SYSTEM + TOPICS + "[topic=fresh]\n")
        while ini.broker.topics.get("fresh") is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    finally:
        await ini.broker.stop()


async def test_a_file_is_read_once_nobody_writes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of a file may be a whole configuration: all topics behind it would be sealed."""
    ini = Ini(tmp_path / "server.ini", tmp_path / "data")
    halves = [SYSTEM + "[topic=orders]\n", SYSTEM + TOPICS + "[topic=fresh]\n"]
    tick = reloading.ConfigSource._tick

    def ticked(source: reloading.ConfigSource) -> None:
        if halves:
            ini.write(halves.pop(0))
        tick(source)

    monkeypatch.setattr(reloading, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(reloading.ConfigSource, "_tick", ticked)
    await ini.broker.start()
    sealed: list[str] = []
    monkeypatch.setattr(ini.broker.topics, "seal", lambda name, **_: sealed.append(name))
    try:
        while ini.broker.topics.get("fresh") is None:  # noqa: ASYNC110  the broker's own timer
            await asyncio.sleep(0.01)
    finally:
        await ini.broker.stop()
    assert not sealed


async def test_what_changed_while_the_broker_was_down_counts(tmp_path: Path) -> None:
    ini = Ini(tmp_path / "server.ini", tmp_path / "data")
    async with ini.running() as broker, metaq_peer(broker.metaq_port) as peer:
        put_place(await peer.put("orders", 1, b"x"))
        broker.topics.create_or_update(TopicConfig(name="by-hand"))
    ini.write(SYSTEM + "[topic=orders]\nnumPartitions=1\nacceptPublish=false\n[topic=new]\n")
    async with ini.running() as broker:
        found = {topic.name: topic for topic in broker.topics.all()}
        orders = found["orders"]
        assert (orders.write_queues, orders.read_queues) == (1, 2)
        assert (orders.metaq_publish, orders.metaq_subscribe) == (False, True)
        sealed = {name for name, topic in found.items() if seal_of(topic) is not None}
        assert sealed == {"old"}, "not what the file never named"
        assert "new" in found
    # Its section is back: sealed by a broker that runs no more, it takes messages again.
    ini.write(SYSTEM + TOPICS)
    async with ini.running() as broker, metaq_peer(broker.metaq_port) as peer:
        put_place(await peer.put("old", 0, b"x"))
        put_place(await peer.put("orders", 1, b"y"))


@pytest.mark.parametrize("content", [None, b"", b"0000000000\n{}"])
async def test_without_a_note_topics_that_are_there_stay_as_they_are(
    tmp_path: Path, content: bytes | None
) -> None:
    ini = Ini(tmp_path / "server.ini", tmp_path / "data")
    async with ini.running() as broker:
        broker.topics.seal("old", until_ms=0, cause=REMOVED)
    note = tmp_path / "data" / FILE
    if content is None:
        note.unlink(missing_ok=True)
    else:
        note.write_bytes(content)
    ini.write(SYSTEM.replace("numPartitions=2", "numPartitions=3") + TOPICS + "[topic=new]\n")
    async with ini.running() as broker:
        found = {topic.name: topic.write_queues for topic in broker.topics.all()}
    assert (found["orders"], found["old"], found["new"]) == (2, 2, 3)


async def test_a_section_opens_no_topic_that_was_moved(ini: Ini) -> None:
    topics = ini.broker.topics
    topics.create_or_update(TopicConfig(name="moved"))
    topics.seal("moved", until_ms=0, cause=MOVE)
    ini.write(SYSTEM + TOPICS + "[topic=moved]\n")
    await ini.broker.source.reload()
    moved = topics.get("moved")
    assert moved is not None
    assert seal_of(moved) is not None


async def test_a_log_without_room_takes_the_topics_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reloading, "LOOK_SECONDS", 0.01)
    ini = Ini(tmp_path / "server.ini", tmp_path / "data")
    await ini.broker.start()
    create = ini.broker.store.create_topic
    refused: list[str] = []

    def full(name: str, value: object) -> object:
        if len(refused) < 5:
            refused.append(name)
            raise DiskFullError(used_ratio=1.0, limit_ratio=1.0)
        return create(name, value)  # type: ignore[arg-type]

    monkeypatch.setattr(ini.broker.store, "create_topic", full)
    try:
        ini.write(SYSTEM + TOPICS + "[topic=fresh]\n")
        while ini.broker.topics.get("fresh") is None:  # noqa: ASYNC110  the broker's own timer
            await asyncio.sleep(0.01)
    finally:
        await ini.broker.stop()
    assert refused == ["fresh"] * 5
    assert caplog.text.count("config_not_reloaded") == 1


async def test_what_had_no_room_at_a_start_is_made_once_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reloading, "LOOK_SECONDS", 0.01)
    ini = Ini(tmp_path / "server.ini", tmp_path / "data")
    async with ini.running() as broker:
        assert broker.topics.delete("old")
    ini.write(SYSTEM + TOPICS.replace("[topic=old]", "numPartitions=4\n[topic=old]\n[topic=new]"))
    create, full = MessageStore.create_topic, [True]

    def create_topic(store: MessageStore, name: str, value: Any) -> None:
        if full:
            raise DiskFullError(used_ratio=1.0, limit_ratio=1.0)
        create(store, name, value)

    monkeypatch.setattr(MessageStore, "create_topic", create_topic)
    wanted = {"orders": 4, "old": 2, "new": 2}
    async with ini.running() as broker:

        def found() -> dict[str, int]:
            return {each.name: each.write_queues for each in broker.topics.all()}

        assert found().items() & wanted.items() == set()
        full.clear()
        while not wanted.items() <= found().items():  # noqa: ASYNC110  the broker's own timer
            await asyncio.sleep(0.01)


async def test_what_was_refused_at_a_start_is_taken_by_the_next_reload(tmp_path: Path) -> None:
    ini = Ini(tmp_path / "server.ini", tmp_path / "data")
    by, subject = Actor("the tests", "nowhere"), parse_subject("topic:orders*")
    async with ini.running() as broker:
        limits = quotas_from_json(subject, {"queues": 2})
        broker.core.access.set_quotas(subject, limits, by)
    ini.write(SYSTEM + TOPICS.replace("[topic=old]", "numPartitions=4\n"))
    async with ini.running() as broker:
        before = broker.topics.all()
        with pytest.raises(RequestError, match="orders"):
            await broker.source.reload()
        assert broker.topics.all() == before, "nothing of it, the removed topic neither"
        broker.core.access.set_quotas(subject, {}, by)
        await broker.source.reload()
        found = {topic.name: topic for topic in broker.topics.all()}
        assert found["orders"].write_queues == 4
        assert seal_of(found["old"]) is not None


async def test_the_checksum_of_the_settings_follows_them(ini: Ini) -> None:
    told: list[int] = []
    ini.broker.coordinator.tell_checksum = told.append  # type: ignore[assignment, method-assign]
    ini.write(SYSTEM.replace("numPartitions=2", "numPartitions=3") + TOPICS)
    await ini.broker.source.reload()
    assert told[-1] == zlib.crc32(ini.broker.config_file())


async def test_a_stop_serves_on_after_it_has_left_the_registry(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path, "metaq.stop_linger_ms=2000") as broker,
        metaq_peer(broker.metaq_port) as peer,
    ):
        stopping = asyncio.create_task(broker.stop())
        while broker.coordinator.registered is not None:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await asyncio.sleep(0.2)  # what closes a port at once has closed it by now
        assert (await peer.ask(b"version 1\r\n")).startswith(b"result 200 ")
        await stopping
        assert await peer.is_closed_without_an_answer()
