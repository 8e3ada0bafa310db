"""A broker that may lack users yet is not ready: it refuses nobody for good."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import aiohttp

from imago_broker.cluster.memory import MemoryEnsemble
from imago_broker.model.access.users import User
from imago_broker.service.access.access_edits import Actor
from imago_broker.service.access.awaited_users import AWAITED_MS_MAX, NOT_ASKED, AwaitedUsers
from imago_broker.shard_work import access_spreading
from imago_testing.clusters.shard_brokers import ShardBrokers
from imago_testing.clusters.shard_pair import eventually
from imago_testing.peers.admin import Admin
from imago_testing.peers.remoting import RemotingPeer
from imago_testing.peers.signing import call_signed
from imago_testing.virtual.clocks import ManualClock
from imago_wire.remoting.codes import RequestCode as Code
from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from imago_broker.app import Broker

BY = Actor("the tests", "nowhere")
SECRET = "password"


async def asked(broker: Broker) -> tuple[int, bytes, int]:
    """Return the code, the status and the HTTP status that a user gets by each protocol."""
    peer = await RemotingPeer.connect(broker.rocketmq_port)
    answer = await call_signed(peer, Code.GET_BROKER_CONFIG, {}, b"", user="ann", secret=SECRET)
    await peer.close()
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.ports.metaq_port)
    writer.write(b"put orders 0 5 0 1\r\nhello")
    line = await reader.readline()
    writer.close()
    await writer.wait_closed()
    async with aiohttp.ClientSession() as session:
        headers = {"Authorization": "Bearer nobody's"}
        admin = Admin(session, broker)
        status, _ = await admin.call("GET", "/admin/v1/topics", **headers)
        body = {"user": "eve", "password": SECRET}
        login, _ = await admin.call("POST", "/admin/v1/login", body)
        assert login == status
    return answer.code, line.split()[1], status


async def test_who_may_be_known_elsewhere_is_told_to_try_again(broker: Broker) -> None:
    access = broker.core.access
    denied = (ResponseCode.NO_PERMISSION, b"403", 401)
    assert await asked(broker) == denied
    counted = access.denials.count
    lacks = ["this broker's copy of the log is not in sync yet"]
    access.awaited.copy_lacks.append(lambda: lacks)
    assert await asked(broker) == (ResponseCode.SERVICE_NOT_AVAILABLE, b"503", 503)
    access.put_user(User(name="ann", secret=SECRET, is_super=True), BY)
    code, *others = await asked(broker)
    assert (code, others) == (ResponseCode.SUCCESS, [b"503", 503])  # who is known is served
    assert access.denials.count == counted
    lacks.clear()
    assert await asked(broker) == (ResponseCode.SUCCESS, b"403", 401)


async def test_handshakes_of_unknown_users_end_with_a_broker_that_is_not_ready(
    broker: Broker,
) -> None:
    lacks = ["this broker's copy of the log is not in sync yet"]
    broker.core.access.awaited.copy_lacks.append(lambda: lacks)
    for status in (b"503", b"403"):
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.ports.metaq_port)
        token = b"a" * 64
        writer.write(b"auth ann %b 1\r\nauth ann %b 2\r\n" % (token, token))
        said = [word for word in (await reader.read()).split() if len(word) == 3]
        assert said[:2] == [b"200", status]
        writer.close()
        await writer.wait_closed()
        lacks.clear()


async def test_a_new_shard_asks_for_users_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_spreading, "LOOK_SECONDS", 3600.0)
    token = tmp_path / "token"
    token.write_text("sesame\n")
    ensemble, shards = MemoryEnsemble(), []

    async def started(shard: int) -> Broker:
        settings = (f"broker.shard={shard}", "admin.enabled=true", "admin.port=0")
        acl = ("acl.enabled=true", f"admin.token_file={token}")
        brokers = ShardBrokers(tmp_path / str(shard), *settings, *acl, replicas=1)
        brokers.ensemble = ensemble
        shards.append(brokers)
        await brokers.start(0)
        broker = brokers.brokers[0]
        await eventually(lambda: not broker.core.access.awaited.why)
        return broker

    try:
        first = await started(0)
        first.core.access.put_user(User(name="ann", secret=SECRET, is_super=True), BY)
        second = await started(1)
        assert "ann" in second.core.access.users
        assert (await asked(second))[0] == ResponseCode.SUCCESS
    finally:
        for brokers in reversed(shards):
            await brokers.close()


def test_other_shards_are_not_awaited_for_ever() -> None:
    clock = ManualClock()
    awaited, told = AwaitedUsers(clock), []
    awaited.on_begin.append(lambda: told.append(awaited.why))
    why = [awaited.why]
    awaited.begin()
    for ms in (0, AWAITED_MS_MAX - 1, 1):
        clock.advance(ms)
        why.append(awaited.why)
    assert why == ["", NOT_ASKED, NOT_ASKED, ""]
    assert told == [NOT_ASKED]
