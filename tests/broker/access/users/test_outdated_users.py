"""A member whose copy of the log has fallen behind serves nobody as users were: it is not ready."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import aiohttp
import pytest

from imago_broker.model.access.access import AccessKind, AccessRule, Operation, Resource
from imago_broker.model.access.users import User
from imago_broker.model.topics.topics import TopicConfig
from imago_broker.replication.follower.following import Following
from imago_broker.service.access import outdated_users
from imago_broker.service.access.access_edits import Actor
from imago_broker.service.access.outdated_users import CURRENT_MS_MAX, OutdatedUsers
from imago_testing.clusters.shard_brokers import TOPIC, ShardBrokers, until
from imago_testing.peers.admin import Admin
from imago_testing.peers.remoting import RemotingPeer, pull_ext
from imago_testing.peers.signing import call_signed
from imago_testing.virtual.clocks import ManualClock
from imago_wire.remoting.codes import RequestCode as Code
from imago_wire.remoting.codes import ResponseCode
from imago_wire.text.handshake import Side, new_nonce, proof

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from imago_broker.app import Broker

ADMINISTRATOR, SECRET, GROUP = "of-the-administrator", "secret-of-ann", "readers"
ROOT = {"Authorization": f"Bearer {ADMINISTRATOR}"}
BY = Actor("the tests", "nowhere")
NOT_READY = ResponseCode.SERVICE_NOT_AVAILABLE


@dataclass
class Shard:
    """Three members of which one follows."""

    brokers: ShardBrokers
    leader: int
    follower: int
    anns_token: str = ""

    def broker(self, number: int) -> Broker:
        return self.brokers.brokers[number]

    async def cut_off(self, monkeypatch: pytest.MonkeyPatch, number: int, leader: int) -> None:
        """Close a follower's way to its leader, but not to the registry."""
        following = self.brokers.shell(number).executor.following
        assert following is not None

        async def unreachable() -> bool:
            return False

        monkeypatch.setattr(following, "_connect", unreachable)
        following.hang_up("cut")
        await until(lambda: number not in self.brokers.in_sync(leader))


@pytest.fixture
async def shard(tmp_path: Path) -> AsyncIterator[Shard]:
    (tmp_path / "token").write_text(ADMINISTRATOR)
    brokers = ShardBrokers(
        tmp_path,
        "admin.enabled=true",
        f"admin.token_file={tmp_path / 'token'}",
        "acl.enabled=true",
        "replication.slave_reads=true",
        "replication.handover_linger_ms=60000",
    )
    await brokers.start(0, 1, 2)
    await brokers.all_in_sync(0, 1, 2)
    leader = await brokers.led()
    made = Shard(brokers, leader, (leader + 1) % 3)
    core = made.broker(leader).core
    core.topics.create_or_update(TopicConfig(name=TOPIC, read_queues=1, write_queues=1))
    core.access.put_user(User(name="ann", secret=SECRET), BY)
    both = frozenset({Operation.PUBLISH, Operation.SUBSCRIBE, Operation.DESCRIBE})
    names = ((AccessKind.TOPIC, TOPIC), (AccessKind.GROUP, GROUP))
    rules = [AccessRule(Resource(kind, name), both) for kind, name in names]
    shown = frozenset({Operation.DESCRIBE, Operation.LIST})
    rules.append(AccessRule(Resource(AccessKind.CLUSTER), shown))
    core.access.set_rules("ann", rules, BY)
    async with aiohttp.ClientSession() as session:
        admin = Admin(session, made.broker(leader))
        status, said = await admin.call("POST", "/admin/v1/users/ann/tokens", {}, **ROOT)
        assert status == 200, said
        made.anns_token = said["token"]
    await brokers.put(leader, b"one")
    await brokers.same_logs()
    yield made
    await brokers.close()


async def pulled(broker: Broker, *, held_ms: int = 0) -> int:
    """Return how ann's pull of the queue's end, or of its first message, is answered."""
    peer = await RemotingPeer.connect(broker.rocketmq_port)
    ext = pull_ext(TOPIC, 1 if held_ms else 0, consumerGroup=GROUP)
    if held_ms:
        ext |= {"sysFlag": 6, "suspendTimeoutMillis": held_ms}
    answer = await call_signed(peer, Code.PULL_MESSAGE, ext, b"", user="ann", secret=SECRET)
    await peer.close()
    return answer.code


async def called(shard: Shard, path: str) -> int:
    """Return how the follower answers what ann asks of its admin port."""
    async with aiohttp.ClientSession() as session:
        admin = Admin(session, shard.broker(shard.follower))
        headers = {"Authorization": f"Bearer {shard.anns_token}"}
        return (await admin.call("GET", path, **headers))[0]


async def test_users_end_where_the_copy_has_fallen_behind(
    shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower = shard.broker(shard.follower)
    await until(lambda: not follower.core.access.outdated.why)
    assert await pulled(follower) == ResponseCode.SUCCESS
    topics, status = "/admin/v1/topics/orders", "/admin/v1/status"
    assert (await called(shard, topics), await called(shard, status)) == (200, 200)
    await shard.cut_off(monkeypatch, shard.follower, shard.leader)
    held = asyncio.create_task(pulled(follower, held_ms=600_000))
    await until(lambda: len(follower.rocketmq.delivery.hold) == 1)
    monkeypatch.setattr(outdated_users, "CURRENT_MS_MAX", 100)
    shard.broker(shard.leader).core.access.delete_user("ann", BY)
    async with asyncio.timeout(30):
        assert await held == ResponseCode.PULL_RETRY_IMMEDIATELY  # it is asked for again
    await until(lambda: bool(follower.core.access.outdated.why))
    assert await pulled(follower) == NOT_READY
    # How the cluster is may be seen where somebody looks for what cut it off.
    assert (await called(shard, topics), await called(shard, status)) == (503, 200)
    assert await called(shard, "/admin/v1/topics") == 503
    assert await pulled(shard.broker(shard.leader)) == ResponseCode.NO_PERMISSION
    monkeypatch.undo()
    await until(lambda: not follower.core.access.outdated.why)
    await shard.brokers.all_in_sync(0, 1, 2)
    assert await pulled(follower) == ResponseCode.NO_PERMISSION
    assert await called(shard, topics) == 401


async def test_connections_that_are_passed_on_end_with_what_is_known_of_their_users(
    shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    former, brokers = shard.leader, shard.brokers
    port = shard.broker(former).ports.metaq_port
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    nonce = new_nonce()
    writer.write(f"auth ann {nonce} 1\r\n".encode())
    size = int((await reader.readline()).split()[2])
    nonces = (nonce, (await reader.readexactly(size)).decode())
    writer.write(f"auth ann {proof(Side.CLIENT, SECRET, 'ann', nonces)} 2\r\n".encode())
    size = int((await reader.readline()).split()[2])
    await reader.readexactly(size)
    asked = brokers.shell(former).hand_over(shard.broker(shard.follower).uuid, "the tests")
    assert (await asked)[0]
    leader = await brokers.led(but=former)
    writer.write(b"put orders 0 5 0 9\r\nhello")
    assert (await reader.readline()).split()[1] == b"200", "it is passed on"
    await brokers.all_in_sync(0, 1, 2)
    monkeypatch.setattr(outdated_users, "CURRENT_MS_MAX", 100)
    await shard.cut_off(monkeypatch, former, leader)
    async with asyncio.timeout(30):
        await reader.read()  # the rest of the answer, and the end
    assert reader.at_eof()
    writer.close()


async def test_nobody_is_known_before_the_copy_is_in_sync(
    shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers, number = shard.brokers, shard.follower
    await brokers.stop(number)
    shard.broker(shard.leader).core.access.delete_user("ann", BY)
    monkeypatch.setattr(Following, "agreed", False)
    await brokers.start(number)
    assert await pulled(shard.broker(number)) == NOT_READY
    monkeypatch.undo()
    follower = shard.broker(number)
    await until(lambda: not follower.core.access.outdated.why)
    assert await pulled(follower) == ResponseCode.NO_PERMISSION


def test_a_copy_counts_for_a_while_after_it_was_current() -> None:
    clock, told = ManualClock(), []
    outdated = OutdatedUsers(clock, lambda: told.append(outdated.why))
    outdated.look()
    assert not outdated.why, "a broker that is alone has no copy"
    behind = ["the copy is not whole"]
    outdated.follow(lambda: behind[0])
    assert outdated.why.startswith("the copy is not whole")
    behind[0] = ""
    outdated.look()
    assert not outdated.why
    behind[0] = "the registry is silent"
    clock.advance(CURRENT_MS_MAX - 1)
    outdated.look()
    assert not outdated.why
    clock.advance(1)
    outdated.look()
    assert outdated.why.startswith("the registry is silent")
    behind[0] = "the copy is not whole"
    outdated.look()
    assert outdated.why.startswith("the copy is not whole")
    assert len(told) == 3
