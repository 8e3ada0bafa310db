"""What a broker tells of itself is what clients get: status and metrics beside real puts."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import aiohttp
from prometheus_client import generate_latest

from imago_broker.app import Broker
from imago_broker.cluster.memory import MemoryEnsemble, memory_coordinator
from imago_broker.cluster.settings import CoordinatorConfig
from imago_broker.metrics import registry
from imago_broker.service.puts.put_status import PutStatus
from imago_broker.service.role import UNSETTLED
from imago_testing.clusters.shard_pair import eventually, make
from imago_testing.peers.admin import Admin, broker_config
from imago_testing.peers.remoting import RemotingPeer
from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import pytest


@asynccontextmanager
async def member(folder: Path, level: str, *, least: int) -> AsyncIterator[Admin]:
    """Run the only live member of a shard that is to have two."""
    config = broker_config(folder)
    config = replace(
        config,
        broker=replace(config.broker, replicas=2),
        zookeeper=replace(config.zookeeper, connect="in-memory:2181"),
        replication=replace(config.replication, min_in_sync=least),
        acknowledgement=replace(config.acknowledgement, level=level, timeout_ms=50),
        store=replace(config.store, segment_bytes_max=8 << 20),
    )
    settings = CoordinatorConfig(session_timeout_ms=60_000)
    broker = Broker(config, coordinator=memory_coordinator(settings, MemoryEnsemble()))
    await broker.start()
    try:
        await eventually(lambda: broker.role.current.leads)
        async with aiohttp.ClientSession() as session:
            admin = Admin(session, broker)
            make(admin, "t")
            yield admin
    finally:
        await broker.stop()


async def said(admin: Admin) -> dict[str, Any]:
    """Return what the broker says of puts and gets, in each place; all of them say the same."""
    _, status = await admin.call("GET", "/admin/v1/status")
    text = generate_latest(registry(admin.broker.collector)).decode()
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")
    assert lines["imago_writable"] == f"{float(status['puts']['accepted'])}"
    assert lines["imago_readable"] == f"{float(status['gets']['accepted'])}"
    for kind in ("puts", "gets"):
        assert status[kind]["accepted"] is (status[kind]["reasons"] == [])
    return {kind: status[kind] for kind in ("puts", "gets")}


async def put(admin: Admin) -> int:
    peer = await RemotingPeer.connect(admin.broker.rocketmq_port)
    answer = await peer.put("t", b"x", queue_id=0)
    await peer.close()
    return answer.code


async def test_below_the_least_number_in_sync_puts_are_refused_and_that_is_told(
    tmp_path: Path,
) -> None:
    async with member(tmp_path, "replicated", least=2) as admin:
        assert await put(admin) != ResponseCode.SUCCESS
        told = await said(admin)
        assert told["puts"]["accepted"] is False
        assert "too few members are in sync" in told["puts"]["reasons"][0]
        assert told["gets"] == {"accepted": True, "reasons": []}


async def test_puts_that_wait_for_nobody_are_taken_and_that_is_told(tmp_path: Path) -> None:
    async with member(tmp_path, "leader", least=2) as admin:
        assert await put(admin) == ResponseCode.SUCCESS
        assert (await said(admin))["puts"] == {"accepted": True, "reasons": []}


async def test_whatever_refuses_every_put_is_told(tmp_path: Path) -> None:
    async with member(tmp_path, "leader", least=1) as admin:
        broker = admin.broker
        broker.messages.refuse(PutStatus.STOPPING)
        assert await put(admin) != ResponseCode.SUCCESS
        assert (await said(admin))["puts"]["reasons"] == ["every put is answered stopping"]
        broker.messages.refuse(None)
        broker.ticker.health = replace(broker.health, writable=False, disk_used_ratio=0.95)
        assert (await said(admin))["puts"]["reasons"] == ["the disk is full: 95% used"]
        broker.ticker.health = replace(broker.health, writable=True)
        assert broker.gate is not None
        broker.gate.lease_end_ms = 0
        told = await said(admin)
        assert told["puts"]["accepted"] is told["gets"]["accepted"] is False
        assert "another may lead" in told["gets"]["reasons"][0]


async def test_a_shard_without_a_master_serves_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with member(tmp_path, "leader", least=1) as admin:
        broker = admin.broker
        led = broker.role.current
        broker.role.change(UNSETTLED)
        with monkeypatch.context() as held:  # the first moments of an election may say it again
            held.setattr(type(broker.role), "change", lambda *_: None)
            told = await said(admin)
        assert told["puts"] == told["gets"]
        assert "no master" in told["puts"]["reasons"][0]
        broker.role.change(led)
