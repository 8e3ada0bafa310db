"""A broker's life: start, restart, refusal to start, failure, stop."""

from __future__ import annotations

import asyncio
import errno
import socket
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from imago_broker.app import Broker, process
from imago_broker.app.member.identity import numeric_address
from imago_broker.cluster.coordinator import TreeCoordinator
from imago_broker.cluster.memory import MemoryEnsemble, MemoryTree
from imago_broker.cluster.settings import CoordinatorConfig
from imago_broker.core.puts.acknowledgement import Acknowledgement
from imago_broker.errors import ExitCode, FatalError
from imago_broker.model.topics.topics import TopicConfig
from imago_log.errors import LogIOError
from imago_testing.clusters.brokers import loopback_config, running_broker
from imago_testing.clusters.shard_brokers import until
from imago_testing.peers.metaq import MetaqPeer, metaq_peer, put_frame, put_place, value_body

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from imago_broker.model.registry.cluster import BrokerRecord
    from imago_wire.records.record import Entry, Placed


@asynccontextmanager
async def started(folder: Path) -> AsyncIterator[tuple[Broker, MetaqPeer]]:
    """Run a broker with the topic t, and a client of its MetaQ port."""
    async with (
        running_broker(folder, "topics.t.queues=1") as broker,
        metaq_peer(broker.metaq_port) as peer,
    ):
        yield broker, peer


async def test_one_address_is_counted_over_all_ports(tmp_path: Path) -> None:
    async with running_broker(tmp_path, "limits.connections_per_address_max=3") as broker:
        listeners = {each.port: each for each in broker.ports.wanted}
        assert len(listeners) == 5
        ports = [*listeners, broker.ports.admin_port]
        places = broker.ports.places
        writers = []
        for port in ports:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writers.append(writer)
        await until(lambda: sum(each.accepted for each in listeners.values()) == len(listeners))
        assert places.taken == places.held("127.0.0.1") == 3, "the machine has places kept for it"
        for writer in writers:
            writer.close()
        await until(lambda: not places.taken)


@pytest.mark.parametrize(("bind", "warned"), [("127.0.0.1", False), ("0.0.0.0", True)])
async def test_open_ports_are_warned_of_where_others_reach_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, bind: str, warned: bool
) -> None:
    async with running_broker(tmp_path, f"broker.bind={bind}"):
        pass
    assert ("access_open" in caplog.text) is warned


async def test_ports_are_bound_and_known(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        ports = {
            broker.metaq_port,
            broker.rocketmq_port,
            broker.ports.fast_port,
            broker.ports.namesrv_port,
            broker.ports.admin_port,
        }
        assert len(ports) == 5
        assert 0 not in ports
        for port in ports:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            await writer.wait_closed()


async def test_ports_that_are_not_enabled_are_not_bound(tmp_path: Path) -> None:
    off = [f"{name}.enabled=false" for name in ("metaq", "rocketmq", "namesrv", "admin")]
    async with running_broker(tmp_path, *off) as broker:
        assert broker.metaq_port == broker.rocketmq_port == broker.ports.fast_port == 0
        assert broker.ports.namesrv_port == broker.ports.admin_port == 0


async def test_fast_port_is_two_below_the_other_unless_set(tmp_path: Path) -> None:
    config = loopback_config(tmp_path)
    assert (
        Broker(replace(config, rocketmq=replace(config.rocketmq, port=20911))).ports.fast_port
        == 20909
    )
    fixed = replace(config.rocketmq, port=20911, fast_port=20000)
    assert Broker(replace(config, rocketmq=fixed)).ports.fast_port == 20000


async def test_everything_is_found_again_after_a_stop(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_broker(tmp_path, "topics.t.queues=2") as broker:
        uuid = broker.uuid
        broker.topics.create_or_update(TopicConfig(name="made", write_queues=3))
        broker.groups.get_or_create("g")
        broker.offsets.commit("g", "t", 1, 42)
        async with metaq_peer(broker.metaq_port) as peer:
            first_id, _, _ = put_place(await peer.put("t", 1, b"hello"))
    assert "topic_has_fewer_queues" not in caplog.text
    async with running_broker(tmp_path, "topics.t.queues=9") as broker:
        assert broker.uuid == uuid
        made, declared = broker.topics.get("made"), broker.topics.get("t")
        assert made is not None
        assert made.write_queues == 3
        assert declared is not None
        assert declared.write_queues == 2, "the file names topics to make, not to change"
        told = "topic_has_fewer_queues topic=t queues=2 declared=9: a start makes topics that are"
        assert told in caplog.text
        assert "imago topic alter t --queues 9" in caplog.text
        assert broker.groups.get("g") is not None
        assert broker.offsets.query("g", "t", 1) == 42
        async with metaq_peer(broker.metaq_port) as peer:
            assert value_body(await peer.get("t", 1, 0))[20:] == b"hello"
            second_id, _, position = put_place(await peer.put("t", 1, b"again"))
    assert position == 25
    assert second_id > first_id


async def test_acknowledged_messages_survive_a_process_that_just_ends(tmp_path: Path) -> None:
    """Without the orderly stop: what `kill -9` leaves behind."""
    broker = Broker(loopback_config(tmp_path, "topics.t.queues=1"))
    await broker.start()
    async with metaq_peer(broker.metaq_port) as peer:
        for number in range(100):
            put_place(await peer.put("t", 0, b"%d" % number))
    await broker.stop(clean=False)
    async with running_broker(tmp_path) as again, metaq_peer(again.metaq_port) as peer:
        block, at = b"", 0
        while (answer := await peer.get("t", 0, at)).startswith(b"value"):
            block += value_body(answer)
            at = len(block)
    assert block.count(b"\0" * 4) >= 100
    assert block.endswith(b"99")


async def test_busy_port_stops_the_start_before_the_folder_is_touched(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        broker = Broker(loopback_config(tmp_path / "data", f"admin.port={port}"))
        with pytest.raises(FatalError, match=f"127.0.0.1:{port}: the port is in use") as refused:
            await broker.start()
    assert refused.value.exit_code is ExitCode.USAGE
    assert not (tmp_path / "data").exists()


async def test_folder_of_another_broker_stops_the_start(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as first:
        second = Broker(loopback_config(tmp_path))
        with pytest.raises(FatalError, match="locked by another process") as refused:
            await second.start()
        assert refused.value.exit_code is ExitCode.DATA
        assert first.serving
        assert second.ports.metaq.connections == 0


async def test_another_file_size_stops_the_start_with_the_setting_that_it_was(
    tmp_path: Path,
) -> None:
    """Not as damage, which an operator of Kubernetes would read out of exit code 3."""
    async with running_broker(tmp_path, "store.segment_bytes_max=16MiB"):
        pass
    smaller = loopback_config(tmp_path, "store.segment_bytes_max=8MiB")
    with pytest.raises(
        FatalError, match=r"set store\.segment_bytes_max to 16777216 again"
    ) as refused:
        await Broker(smaller).start()
    assert refused.value.exit_code is ExitCode.USAGE
    assert "log check" not in str(refused.value)


async def test_damaged_uuid_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "uuid").write_text("nonsense")
    with pytest.raises(FatalError, match="holds no uuid") as refused:
        await Broker(loopback_config(tmp_path)).start()
    assert refused.value.exit_code is ExitCode.DATA


async def test_host_that_nobody_knows_stops_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient = partial(numeric_address, patience_seconds=0)
    monkeypatch.setattr("imago_broker.app.broker.numeric_address", impatient)
    config = loopback_config(tmp_path, "broker.host=no-such-host.invalid", "broker.bind=0.0.0.0")
    with pytest.raises(FatalError, match=r"broker\.host: 'no-such-host\.invalid'") as refused:
        await Broker(config).start()
    assert refused.value.exit_code is ExitCode.USAGE


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("topics.../x.queues=1", "letters"),
        ("topics.t.kueues=1", "did you mean queues"),
        ("topics.t.acknowledgement=all", "must be one of leader"),
    ],
)
async def test_declared_topic_that_cannot_be_stops_the_start(
    tmp_path: Path, setting: str, reason: str
) -> None:
    with pytest.raises(FatalError, match=reason) as refused:
        await Broker(loopback_config(tmp_path, setting)).start()
    assert refused.value.exit_code is ExitCode.USAGE


async def test_failed_write_ends_the_broker_and_answers_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with started(tmp_path) as (broker, peer):
        put_place(await peer.put("t", 0, b"kept"))
        error = LogIOError("write", Path("log"), OSError(errno.EIO, "Input/output error"))

        def failing(_: Sequence[Entry], **_options: bool) -> list[Placed]:
            broker.store.on_failure(error)
            raise error

        monkeypatch.setattr(broker.store, "append", failing)
        await peer.send(put_frame("t", 0, b"lost"))
        failure = await broker.failed
        assert failure.exit_code is ExitCode.IO
        await broker.stop(clean=False)
        assert await peer.is_closed_without_an_answer()


async def test_changed_settings_are_in_force_at_once(tmp_path: Path) -> None:
    async with running_broker(tmp_path, "topics.t.queues=1") as broker:
        config = broker.config
        broker.apply(
            replace(
                config,
                acknowledgement=replace(config.acknowledgement, level="leader-fsync"),
                metaq=replace(config.metaq, auto_create_topic=True, default_partitions=2),
            )
        )
        handle = broker.topics.handles.of("t")
        assert handle is not None
        assert handle.level is Acknowledgement.LEADER_FSYNC
        async with metaq_peer(broker.metaq_port) as peer:
            put_place(await peer.put("made-now", 1, b"x"))


async def test_topics_are_announced_and_withdrawn(tmp_path: Path) -> None:
    async with running_broker(tmp_path, "topics.t.queues=2") as broker:
        view = broker.coordinator.view()
        assert view.brokers[0].metaq == broker.metaq_port
        assert view.brokers[0].uuid == broker.uuid
        assert view.topics["t"].shards[0].write == 2
        changed = asyncio.Event()
        broker.coordinator.on_change(lambda _: changed.set())
        broker.topics.create_or_update(TopicConfig(name="later", write_queues=5))
        while "later" not in broker.coordinator.view().topics:
            changed.clear()
            await changed.wait()
        broker.topics.delete("later")
        while "later" in broker.coordinator.view().topics:
            changed.clear()
            await changed.wait()


async def test_stopping_twice_is_stopping_once(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.stop()
        await broker.stop()


async def test_deleted_topic_is_gone_for_clients_and_offsets(tmp_path: Path) -> None:
    async with started(tmp_path) as (broker, peer):
        put_place(await peer.put("t", 0, b"x"))
        broker.offsets.commit("g", "t", 0, 1)
        broker.topics.delete("t")
        assert (await peer.put("t", 0, b"x")).startswith(b"result 500 ")
        assert (await peer.get("t", 0, 0)).startswith(b"result 404 ")
        assert broker.offsets.query("g", "t", 0) is None
        broker.topics.create_or_update(TopicConfig(name="t", write_queues=1))
        assert put_place(await peer.put("t", 0, b"y"))[2] == 0


async def test_messages_are_synced_soon_whatever_their_level(tmp_path: Path) -> None:
    async with started(tmp_path) as (broker, peer):
        synced = asyncio.Event()
        loop = asyncio.get_running_loop()

        def durable(_: int) -> None:
            loop.call_soon_threadsafe(synced.set)

        broker.store.on_durable.add(durable)
        put_place(await peer.put("t", 0, b"x"))
        end = broker.store.log_end
        while broker.store.durable_end < end:
            await synced.wait()
            synced.clear()


async def test_a_shorter_time_between_syncs_holds_from_when_it_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rarely = loopback_config(tmp_path, "topics.t.queues=1", "store.sync_interval_ms=600000")
    asked = asyncio.Event()
    broker = Broker(rarely)
    await broker.start()

    def request(*, urgent: bool) -> None:
        assert not urgent, "nobody waits for it"
        asked.set()

    monkeypatch.setattr(broker.store, "request_sync", request)
    async with metaq_peer(broker.metaq_port) as peer:
        put_place(await peer.put("t", 0, b"x"))
        often = loopback_config(tmp_path, "topics.t.queues=1", "store.sync_interval_ms=10")
        broker.reload(often)
        async with asyncio.timeout(50):
            await asked.wait()
    await broker.stop()


async def test_message_limit_that_no_file_of_the_log_holds_is_refused(tmp_path: Path) -> None:
    async with running_broker(tmp_path, f"store.segment_bytes_max={5 << 20}") as broker:
        before = broker.config.rocketmq
        with pytest.raises(ValueError, match="does not fit into a file of the log"):
            broker.rocketmq.settings.change(replace(before, message_bytes_max=5 << 20))
        assert broker.rocketmq.settings.current == broker.config.rocketmq == before
        raised = replace(before, message_bytes_max=(4 << 20) + 1)
        broker.rocketmq.settings.change(raised)
        assert broker.rocketmq.settings.current == broker.config.rocketmq == raised


async def test_broker_whose_place_is_taken_ends_with_the_code_of_a_fenced_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ensemble = MemoryEnsemble()

    def coordinator() -> TreeCoordinator:
        settings = CoordinatorConfig(session_timeout_ms=20_000, stranger_wait_ms=200)
        return TreeCoordinator(settings, MemoryTree(ensemble))

    usurper = coordinator()
    taking: list[asyncio.Task[int]] = []

    async def take(record: BrokerRecord) -> int:
        await usurper.start()
        return await usurper.register(record)

    def ready(broker: Broker) -> None:
        taking.append(asyncio.create_task(take(broker.record())))

    config = loopback_config(tmp_path, "zookeeper.connect=memory")
    monkeypatch.setattr(process, "Broker", partial(Broker, coordinator=coordinator()))
    async with asyncio.timeout(50):
        assert await process.run(config, on_ready=ready) == ExitCode.FENCED
    await taking[0]
    await usurper.stop()


async def test_clients_are_told_another_way_in(tmp_path: Path) -> None:
    told = ("broker.advertised_host=198.51.100.7", "metaq.advertised_port=30001")
    async with running_broker(tmp_path, *told, "rocketmq.advertised_port=30011") as broker:
        record = broker.record()
        assert record.host == "127.0.0.1"
        assert record.metaq_url == "meta://198.51.100.7:30001"
        assert record.rocketmq_address == "198.51.100.7:30011"
        assert record.replication_address.startswith("127.0.0.1:")
        assert broker.metaq is not None
        assert broker.metaq.identity.url == record.metaq_url
        assert broker.rocketmq.identity.address == record.rocketmq_address


async def test_a_name_that_is_not_known_yet_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = [socket.gaierror(socket.EAI_NONAME, "not yet")] * 2

    def resolve(*_: object, **__: object) -> object:
        if answers:
            raise answers.pop()
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("10.1.2.3", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    assert await numeric_address("broker-0.brokers") == "10.1.2.3"
    assert not answers


async def test_a_name_that_is_never_known_is_a_wrong_setting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def resolve(*_: object, **__: object) -> object:
        raise socket.gaierror(socket.EAI_NONAME, "unknown")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with pytest.raises(FatalError, match=r"broker\.host.*cannot be resolved") as caught:
        await numeric_address("broker-0.brokers", patience_seconds=0)
    assert caught.value.exit_code is ExitCode.USAGE
