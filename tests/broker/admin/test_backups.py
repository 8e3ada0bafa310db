"""Backups of two shards over HTTP: any broker takes the call, each shard does its part."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from imago_backup import shelf
from imago_backup.restoring import RestoreOrder, ShardRestore
from imago_broker.admin.backups import routes
from imago_broker.admin.backups.parts import (
    DONE,
    FAILED,
    INTERRUPTED,
    RUNNING,
    chosen,
    parts,
    state_of,
)
from imago_broker.app import Broker
from imago_broker.cluster.memory import MemoryEnsemble, memory_coordinator
from imago_broker.cluster.settings import CoordinatorConfig
from imago_broker.config.sections.backup_section import BackupSection
from imago_broker.model.registry.cluster import BrokerRecord, ClusterView, Role
from imago_broker.model.registry.shard import Member, ShardState
from imago_broker.shard_work import backing_up
from imago_objects import Objects, ObjectsConfig, open_objects
from imago_testing.clusters.shard_pair import eventually, make, put, running_pair
from imago_testing.peers.admin import Admin, broker_config
from imago_wire.errors import WrongError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from imago_testing.clusters.shard_pair import Pair

PATH = "/admin/v1/cluster/backups"


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    async with running_pair(tmp_path) as pair:
        for admin in (pair.one, pair.two):
            section = BackupSection(url=f"file://{tmp_path}/bucket")
            admin.broker.apply(replace(admin.broker.config, backup=section))
            make(admin, "orders")
        yield pair


def bucket_of(folder: Path) -> Objects:
    return open_objects(ObjectsConfig(f"file://{folder}/bucket"))


async def until(admin: Admin, name: str, state: str) -> dict[str, Any]:
    body: dict[str, Any] = {}
    for _ in range(1000):
        status, body = await admin.call("GET", f"{PATH}/{name}")
        if status == 200 and body["state"] == state:
            return body
        await asyncio.sleep(0.05)
    raise TimeoutError(body)


async def test_taken_shown_deleted(pair: Pair, tmp_path: Path) -> None:
    for _ in range(5):
        await put(pair.one, "orders")
        await put(pair.two, "orders")
    status, body = await pair.two.call("POST", f"{PATH}/monday", {"bytesASecond": 0})
    assert (status, set(body["shards"])) == (200, {"shard-0", "shard-1"})
    body = await until(pair.one, "monday", DONE)
    for number, admin in enumerate((pair.one, pair.two)):
        shard = body["shards"][f"shard-{number}"]
        assert shard["state"] == DONE
        assert 0 < shard["logEnd"] <= admin.broker.store.log_end
        assert shard["size"] <= shard["bytes"] == shard["bytesDone"]
    status, again = await pair.one.call("POST", f"{PATH}/monday", {})
    assert (status, again["state"], again["startedAt"]) == (200, DONE, body["startedAt"])
    status, listed = await pair.two.call("GET", PATH)
    assert (status, [each["backup"] for each in listed["items"]]) == (200, ["monday"])
    assert listed["incomplete"] == []
    status, answer = await pair.one.call("DELETE", f"{PATH}/monday")
    assert (status, answer["deleted"]) == (200, True)
    bucket = bucket_of(tmp_path)
    for _ in range(1000):
        if not await bucket.list():
            break
        await asyncio.sleep(0.05)
    assert await bucket.list() == []
    for method in ("GET", "DELETE"):
        status, answer = await pair.two.call(method, f"{PATH}/monday")
        assert (status, answer["error"]) == (404, "backup_not_found")


async def test_a_part_that_was_interrupted_goes_on(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = asyncio.Event()
    real = Objects.put

    async def held(self: Objects, name: str, data: Any) -> None:
        await go.wait()
        await real(self, name, data)

    monkeypatch.setattr(Objects, "put", held)
    await pair.one.call("POST", f"{PATH}/first")
    running = await until(pair.one, "first", RUNNING)
    assert {each["state"] for each in running["shards"].values()} == {RUNNING}
    assert {each["member"] for each in running["shards"].values()} == {
        pair.one.broker.uuid, pair.two.broker.uuid
    }  # fmt: skip
    status, busy = await pair.two.call("POST", f"{PATH}/second")
    assert {each["state"] for each in busy["shards"].values()} == {FAILED}
    assert "busy with the backup first" in busy["shards"]["shard-0"]["error"]
    status, refused = await pair.two.call("DELETE", f"{PATH}/first")
    assert (status, refused["error"]) == (409, "busy")
    await pair.two.broker.shards.work.backups.stop()
    stopped = await until(pair.one, "first", FAILED)
    assert stopped["shards"]["shard-1"]["error"] == "the broker stops"
    pair.two.broker.shards.work.backups._jobs.clear()  # as a new process
    lost = await until(pair.one, "first", INTERRUPTED)
    assert lost["shards"]["shard-1"]["state"] == INTERRUPTED
    go.set()
    await pair.one.call("POST", f"{PATH}/first")
    await until(pair.two, "first", DONE)


async def test_refusals(pair: Pair, tmp_path: Path) -> None:
    status, answer = await pair.one.call("POST", f"{PATH}/UPPER")
    assert (status, answer["error"]) == (400, "bad_request")
    for body in ({"bytesASecond": -1}, {"bytesASecond": True}, {"rate": 3}, {"started": 3}):
        status, answer = await pair.one.call("POST", f"{PATH}/fine", body)
        if "started" not in body:
            assert (status, answer["error"]) == (400, "bad_request"), body
    status, answer = await pair.one.call("GET", f"{PATH}/unknown")
    assert (status, answer["error"]) == (404, "backup_not_found")
    section = BackupSection(url="file:///proc/nobody")
    pair.one.broker.apply(replace(pair.one.broker.config, backup=section))
    status, answer = await pair.one.call("GET", PATH)
    assert status in (409, 503), answer
    assert answer["error"] in ("bucket_refused", "bucket_away")
    pair.one.broker.apply(replace(pair.one.broker.config, backup=BackupSection()))
    status, answer = await pair.one.call("POST", f"{PATH}/fine")
    assert (status, answer["error"]) == (409, "no_backup_url")
    other = replace(pair.two.broker.config.broker, cluster="other")
    bucket = bucket_of(tmp_path)
    assert await bucket.list()
    await pair.two.call("POST", f"{PATH}/mine")
    pair.two.broker.config = replace(pair.two.broker.config, broker=other)
    status, answer = await pair.two.call("POST", f"{PATH}/mine")
    assert (status, answer["error"]) == (409, "other_cluster")


@pytest.mark.parametrize("url", ["ftp://x", "s3://", "s3://key:secret@bucket", "/folder"])
def test_urls_that_are_none(url: str) -> None:
    with pytest.raises(WrongError, match="url: "):
        BackupSection(url=url)
    assert BackupSection(url="s3://bucket/a/b").url


@asynccontextmanager
async def restored(folder: Path, backup: str) -> AsyncIterator[tuple[Broker, MemoryEnsemble]]:
    """Run shard-0 of a backup as the first member of a new cluster."""
    bucket, new = bucket_of(folder), folder / "new"
    new.mkdir()
    config = broker_config(new)
    manifest = await shelf.manifest_of(bucket, backup)
    order = RestoreOrder(backup=manifest, shard="shard-0", folder=new / "data")
    size = (await ShardRestore(bucket, order).run()).segment_bytes
    config = replace(config, store=replace(config.store, segment_bytes_max=size))
    ensemble, settings = MemoryEnsemble(), CoordinatorConfig(session_timeout_ms=60_000)
    broker = Broker(config, coordinator=memory_coordinator(settings, ensemble))
    await broker.start()
    yield broker, ensemble
    await broker.stop()


async def test_offsets_of_metaqs_groups_come_back(pair: Pair, tmp_path: Path) -> None:
    consumers = pair.one.broker.coordinator.metaq_consumers
    for _ in range(3):
        await put(pair.one, "orders")
    end = pair.one.broker.store.position_range("orders", 0)[1]
    await consumers.set_metaq_offset("orders", "readers", 0, end // 3)
    await consumers.set_metaq_offset("orders", "ahead", 0, end + 1000)
    await pair.two.call("POST", f"{PATH}/first")
    await until(pair.one, "first", DONE)
    await consumers.set_metaq_offset("orders", "readers", 0, end)  # behind the cut
    async with restored(tmp_path, "first") as (broker, ensemble):
        mark = tmp_path / "new/data/config/restored-offsets"
        await eventually(lambda: not mark.exists())
        told = await broker.coordinator.metaq_consumers.metaq_progress(["orders"])
        assert told == {"orders": {"readers": {0: end // 3}, "ahead": {0: end}}}
        assert any(path.endswith("/offsets/orders/0-0") for path in ensemble._entries)
        async with aiohttp.ClientSession() as session:
            status, body = await Admin(session, broker).call("GET", "/admin/v1/topics/orders")
        assert (status, body["name"]) == (200, "orders")


async def test_who_reads_on_is_left_alone(pair: Pair) -> None:
    consumers = pair.one.broker.coordinator.metaq_consumers
    await put(pair.one, "orders")
    await consumers.set_metaq_offset("orders", "readers", 0, 0)
    await pair.two.call("POST", f"{PATH}/first")
    await until(pair.one, "first", DONE)
    at = pair.one.broker.store.position_range("orders", 0)[1]
    work = pair.one.broker.shards.work._restored
    work._path.write_bytes(b'{"orders": {"readers": {"0": 1}, "others": {"1": 0}}}')
    await consumers.set_metaq_offset("orders", "readers", 0, at)
    assert await work._bring() == 1
    told = await consumers.metaq_progress(["orders"])
    assert told["orders"] == {"readers": {0: at}, "others": {1: 0}}


async def test_only_so_many_ends_are_remembered(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backing_up, "JOBS_MAX", 2)
    for name in ("one", "two", "three"):
        await pair.one.call("POST", f"{PATH}/{name}")
        await until(pair.one, name, DONE)
    assert [*pair.one.broker.shards.work.backups._jobs] == ["two", "three"]


def _member(replica: int, *, master: bool = False, damaged: bool = False) -> BrokerRecord:
    return BrokerRecord(
        shard=0, uuid=f"uuid-{replica}", host="h", metaq=1, rocketmq=1, fast=1, replication=1,
        admin=1, broker_name="shard-0", replica=replica, damaged=damaged,
        role=Role.MASTER if master else Role.SLAVE,
    )  # fmt: skip


def test_who_does_a_part() -> None:
    view = ClusterView(cluster="c", cluster_id="c", brokers=(_member(0, master=True),))
    found = chosen(view, 0)
    assert found is not None
    assert found.replica == 0
    assert chosen(view, 1) is None
    in_sync = tuple(Member(f"uuid-{number}", 0) for number in range(3))
    state = ShardState(leader=in_sync[0], epoch=1, in_sync=in_sync)
    brokers = (_member(0, master=True), _member(1, damaged=True), _member(2), _member(3))
    for there, replica in ((brokers, 2), (brokers[:2], 0), (brokers[3:], None)):
        found = chosen(replace(view, brokers=there, states={0: state}), 0)
        assert (found.replica if found else None) == replica


def test_how_far_it_is() -> None:
    told: list[dict[str, Any]] = [
        {"shard": "shard-0", "state": FAILED, "error": "no room", "member": "a"},
        {"shard": "shard-1", "state": RUNNING, "member": "b", "bytes": 5},
    ]
    found = parts(["shard-0", "shard-1", "shard-2"], (), told)
    assert [each.state for each in found] == [FAILED, RUNNING, INTERRUPTED]
    assert found[0].to_json()["error"] == "no room"
    assert state_of(found, complete=False) == FAILED
    assert state_of(found[1:2], complete=False) == RUNNING
    stored = parts(["shard-0"], ["shard-0"], told)
    assert [each.state for each in stored] == [DONE]
    assert state_of(stored, complete=False) == INTERRUPTED  # its last word is missing
    assert state_of(stored, complete=True) == DONE


async def test_who_asks_does_not_wait_for_a_silent_bucket(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator would take the broker for silent, and say so."""

    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(shelf, "parts_of", never)
    monkeypatch.setattr(routes, "ANSWERS_S", 0.05)
    status, answer = await pair.one.call("GET", f"{PATH}/monday")
    assert (status, answer["error"]) == (503, "bucket_away")
    assert "it has not answered for 0.05 s" in answer["message"]
