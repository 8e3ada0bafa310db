"""A name service of its own knows the users of the cluster's brokers, and nobody without them."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from imago_broker.app.copied_access import follow_access
from imago_broker.model.access.access import AccessKind, AccessRule, Operation, Resource
from imago_broker.model.access.users import User
from imago_broker.model.registry.cluster import ClusterView
from imago_broker.namesrv.server import NameService
from imago_broker.namesrv.settings import NameServiceConfig
from imago_broker.processors.rocketmq.access.access_hook import AccessHook
from imago_broker.server.listener import Listener
from imago_broker.server.remoting.remoting_server import RemotingServer
from imago_broker.service.access.access import AccessService
from imago_broker.service.access.access_edits import Actor
from imago_broker.service.access.access_records import checked_record
from imago_broker.service.access.copied_records import CopiedRecords
from imago_broker.shard_work import access_following
from imago_broker.shard_work.access_following import NO_TOKEN, STARTING_MS, TRUSTED_MS
from imago_testing.peers.remoting import RemotingPeer
from imago_testing.peers.signing import call_signed
from imago_testing.virtual.clocks import ManualClock
from imago_wire.remoting.codes import RequestCode as Code
from imago_wire.remoting.codes import ResponseCode
from imago_wire.remoting.peer import Version

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from imago_broker.app import Broker
    from imago_broker.config import BrokerConfig
    from imago_broker.shard_work.access_following import AccessFollower
    from imago_wire.remoting.command import RemotingCommand

BY = Actor("the tests", "nowhere")
SECRET = "secret-of-ann"  # of this test alone
NOTE = {"namespace": "notes", "key": "k", "value": "v"}
RUN = AccessRule(Resource(AccessKind.CLUSTER), frozenset({Operation.ADMINISTER}))


@dataclass
class Names:
    """The process of a name service, but in this one: a port, and what it follows."""

    clock: ManualClock
    seen: list[ClusterView]
    follower: AccessFollower
    hook: AccessHook
    peer: RemotingPeer

    async def put(self, *, user: str = "ann", version: int = Version.V5_3_3) -> RemotingCommand:
        return await call_signed(
            self.peer, Code.PUT_KV_CONFIG, NOTE, user=user, secret=SECRET, version=version
        )


@asynccontextmanager
async def name_service(broker: Broker, config: BrokerConfig) -> AsyncIterator[Names]:
    clock = ManualClock(broker.clock.epoch_ms())
    seen = [broker.coordinator.view()]
    hooks, follower = follow_access(config, lambda: seen[0], clock, lambda: None)
    (hook,) = hooks
    assert isinstance(hook, AccessHook)
    service = NameService(NameServiceConfig(), broker.coordinator, clock, hooks)
    server = RemotingServer(table=service.table, loop=asyncio.get_running_loop())
    listener = Listener("127.0.0.1", 0, server.session)
    await listener.start()
    peer = await RemotingPeer.connect(listener.port)
    names = Names(clock, seen, follower, hook, peer)
    try:
        yield names
    finally:
        await peer.close()
        await follower.stop()
        await listener.stop()
        await service.stop()


def make_ann(broker: Broker) -> None:
    broker.core.access.put_user(User(name="ann", secret=SECRET), BY)
    broker.core.access.set_rules("ann", [RUN], BY)


async def test_users_of_the_brokers_are_known_and_forgotten(
    broker: Broker, config: BrokerConfig
) -> None:
    make_ann(broker)
    async with name_service(broker, config) as names:
        early = await names.put()
        assert early.code == ResponseCode.NO_PERMISSION
        assert "no users are known here yet" in (early.remark or "")
        route = await names.peer.call(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"})
        assert route.code == ResponseCode.SUCCESS
        await names.follower.look()
        assert (await names.put()).code == ResponseCode.SUCCESS
        nobody = await names.peer.call(Code.PUT_KV_CONFIG, NOTE)
        assert nobody.code == ResponseCode.NO_PERMISSION
        broker.core.access.set_rules("ann", [], BY)
        await names.follower.look()
        assert "has no permission" in ((await names.put()).remark or "")
        assert (await names.put(version=Version.V4_9_8)).code == ResponseCode.SYSTEM_ERROR
        broker.core.access.delete_user("ann", BY)
        await names.follower.look()
        assert "User:ann is not found." in ((await names.put()).remark or "")


async def test_users_that_no_master_confirms_are_served_for_a_minute(
    broker: Broker, config: BrokerConfig
) -> None:
    make_ann(broker)
    async with name_service(broker, config) as names:
        await names.follower.look()
        names.seen[0] = ClusterView(cluster="imago")
        names.clock.advance(TRUSTED_MS - 1)
        await names.follower.look()
        assert (await names.put()).code == ResponseCode.SUCCESS
        names.clock.advance(1)
        await names.follower.look()
        refused = await names.put()
        assert refused.code == ResponseCode.NO_PERMISSION
        assert "users are too old here: no shard has a master" in (refused.remark or "")


async def test_a_name_service_alone_names_the_cure(broker: Broker, config: BrokerConfig) -> None:
    async with name_service(broker, config) as names:
        names.seen[0] = ClusterView(cluster="imago")
        await names.follower.look()
        for version in (Version.V5_3_3, Version.V4_9_8):
            refused = await names.put(version=version)
            assert "no users are known here yet: no shard has a master" in (refused.remark or "")
            assert "start a broker of this cluster" in (refused.remark or "")


async def test_that_brokers_start_beside_it_is_no_warning(
    broker: Broker, config: BrokerConfig, caplog: pytest.LogCaptureFixture
) -> None:
    async with name_service(broker, config) as names:
        view, names.seen[0] = names.seen[0], ClusterView(cluster="imago")
        await names.follower.look()
        names.clock.advance(STARTING_MS - 1)
        await names.follower.look()
        assert "no users are known here yet" in ((await names.put()).remark or "")
        assert "access_closed" not in caplog.text
        names.clock.advance(1)
        await names.follower.look()
        assert "access_closed" in caplog.text
        names.seen[0] = view
        await names.follower.look()
        assert "User:ann is not found." in ((await names.put()).remark or "")


async def test_it_follows_by_itself(
    broker: Broker, config: BrokerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_following, "LOOK_SECONDS", 0.01)
    async with name_service(broker, config) as names:
        names.follower.start()
        make_ann(broker)
        async with asyncio.timeout(50):
            while (await names.put()).code != ResponseCode.SUCCESS:
                pass
            broker.core.access.delete_user("ann", BY)
            while (await names.put()).code == ResponseCode.SUCCESS:
                pass


async def test_nobody_is_known_without_the_brokers_token(
    broker: Broker, config: BrokerConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_ann(broker)
    for content, why in (("", NO_TOKEN), ("another\n", "shard-0 does not tell its users")):
        (tmp_path / "other").write_text(content)
        other = replace(config, admin=replace(config.admin, token_file=str(tmp_path / "other")))
        async with name_service(broker, other) as names:
            await names.follower.look()
            assert why in ((await names.put()).remark or "")
            names.clock.advance(STARTING_MS)
            await names.follower.look()
            assert why in caplog.text


def test_a_copy_is_what_the_master_has_and_nothing_else() -> None:
    def record(name: str) -> list[object]:
        return ["access-user", name, [1, 0], User(name=name, secret="some-password").to_json()]

    records = CopiedRecords()
    access = AccessService(records, clock=ManualClock(), shard=0)
    records.replace([record("ann"), record("bob")])
    assert set(access.users) == {"ann", "bob"}
    before = access.digest()
    records.replace([record("bob"), record("eve")])
    assert set(access.users) == {"bob", "eve"}
    assert access.digest() != before
    for wrong in ([["access-user", "x/../y", [1, 0], None]], [["other", "k", [1, 0], 1]], [[1]]):
        with pytest.raises(ValueError, match=r"no record about users|unpack"):
            records.replace(wrong)
    assert set(access.users) == {"bob", "eve"}
    with pytest.raises(TypeError, match="takes no changes"):
        access.put_user(User(name="dan", secret="some-password"), BY)
    assert checked_record(record("ann"))[:2] == ("access-user", "ann")
