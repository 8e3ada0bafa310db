"""Limits per tenant on a whole broker: who is delayed, who is answered as busy, and who is not."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from imago_broker.app import Broker
from imago_broker.model.access.access import AccessKind, AccessRule, Operation, Resource
from imago_broker.model.access.quotas import parse_subject, quotas_from_json
from imago_broker.model.access.users import User
from imago_broker.model.topics.topics import TopicConfig
from imago_broker.server.connection_states import WaitReason
from imago_broker.server.relay.relay_handover import ClientSession
from imago_broker.service.access.access_edits import Actor
from imago_testing.clusters.shard_pair import running_pair
from imago_testing.peers.admin import TOKEN, Admin
from imago_testing.peers.metaq import metaq_peer
from imago_testing.peers.remoting import RemotingPeer, pull_ext, send_ext
from imago_testing.peers.sdk_calls import asks, message, received, sends
from imago_testing.peers.sdk_peer import SdkPeer, signed_headers
from imago_testing.peers.signing import call_signed
from imago_wire.grpc.codes import SdkCode
from imago_wire.remoting.codes import RequestCode as Code
from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from imago_broker.config import BrokerConfig
    from imago_wire.remoting.command import RemotingCommand

BY = Actor("the tests", "nowhere")
ROOT = {"Authorization": f"Bearer {TOKEN}"}
BUSY = ResponseCode.SYSTEM_BUSY
LARGE = b"x" * 10_000
"""Ten seconds of the rates here."""


@pytest.fixture
async def admin(broker: Broker) -> AsyncIterator[Admin]:
    """The administrator of a broker with the topic T, and with ann and bob, who may use it."""
    broker.topics.create_or_update(TopicConfig(name="T", read_queues=1, write_queues=1))
    kinds = (AccessKind.TOPIC, AccessKind.GROUP)
    rules = [AccessRule(Resource(kind, "", prefix=True), frozenset(Operation)) for kind in kinds]
    for name in ("ann", "bob"):
        broker.core.access.put_account(User(name=name, secret=f"secret-{name}"), rules, BY)
    broker.core.access.set_rules("anonymous", rules, BY)
    async with aiohttp.ClientSession() as session:
        yield Admin(session, broker)


async def limit(admin: Admin, subject: str, **quotas: int) -> None:
    path = f"/admin/v1/quotas/{subject}"
    status, told = await admin.call("PUT", path, {"quotas": quotas}, **ROOT)
    assert (status, told["quotas"]) == (200, quotas), told


class Client:
    """One connection of a user."""

    def __init__(self, peer: RemotingPeer, user: str) -> None:
        self.peer, self.user = peer, user

    @classmethod
    async def of(cls, admin: Admin, user: str) -> Client:
        return cls(await RemotingPeer.connect(admin.broker.rocketmq_port), user)

    async def ask(self, code: int, ext: dict[str, Any], body: bytes = b"") -> RemotingCommand:
        secret = f"secret-{self.user}"
        return await call_signed(self.peer, code, ext, body, user=self.user, secret=secret)

    async def send(self, body: bytes = b"x", topic: str = "T") -> int:
        return (await self.ask(Code.SEND_MESSAGE_V2, send_ext(topic), body)).code

    async def pull(self) -> int:
        return (await self.ask(Code.PULL_MESSAGE, pull_ext("T"))).code


def paused(broker: Broker) -> int:
    """Return how many connections are not read for what they have taken."""
    sessions = [*broker.ports.rocketmq.sessions, *broker.ports.metaq.sessions]
    return sum(
        bool(each.state.waits & WaitReason.QUOTA)
        for each in sessions
        if isinstance(each, ClientSession)
    )


@pytest.mark.parametrize("subject", ["user:ann", "topic:T", "topic:T*"])
async def test_who_sends_too_much_is_delayed_then_answered_as_busy(
    admin: Admin, subject: str
) -> None:
    broker = admin.broker
    await limit(admin, subject, producerBytesPerSecond=1000)
    ann, other, bob = [await Client.of(admin, name) for name in ("ann", "ann", "bob")]
    assert await ann.send() == 0
    assert paused(broker) == 0
    assert await ann.send(LARGE) == 0, "it is here already"
    assert paused(broker) == 1
    assert await other.send() == BUSY
    assert await bob.send() == (0 if subject == "user:ann" else BUSY)
    assert await bob.send(topic="U") == 0
    _, told = await admin.call("GET", "/admin/v1/quotas", **ROOT)
    (shown,) = told["items"]
    assert shown["subject"] == subject
    assert shown["usage"]["throttledMs"] == 1000
    assert shown["usage"]["refused"] == (1 if subject == "user:ann" else 2)
    assert shown["usage"]["owedMs"]["producerBytesPerSecond"] > 2000
    async with admin.session.get(f"http://127.0.0.1:{broker.ports.admin_port}/metrics") as answer:
        text = await answer.text()
    assert f'imago_quota_throttled_seconds_total{{subject="{subject}"}} 1.0' in text
    await limit(admin, subject, producerBytesPerSecond=1 << 40)
    assert await other.send() == 0, "another rate is in force at once"
    assert await ann.send() == 0, "what waited is served"
    for each in (ann, other, bob):
        await each.peer.close()


async def test_requests_a_second_and_reading_have_limits_of_their_own(admin: Admin) -> None:
    ann, other = [await Client.of(admin, "ann") for _ in range(2)]
    for _ in range(10):
        assert await ann.send(b"x" * 1000) == 0
    await limit(admin, "user:ann", consumerBytesPerSecond=1000)
    assert await ann.pull() == 0
    assert paused(admin.broker) == 1
    assert await other.pull() == BUSY
    assert await other.send() == 0, "sending has no limit"
    await limit(admin, "user:ann", producerRequestsPerSecond=1)
    many = [await Client.of(admin, "ann") for _ in range(8)]
    codes = [await each.send() for each in many]
    assert codes[:2] == [0, 0], "the second of them owes"
    assert BUSY in codes
    assert await other.pull() == 0
    for each in (ann, other, *many):
        await each.peer.close()


async def test_every_way_to_read_or_copy_messages_counts(admin: Admin) -> None:
    """By a message's place, by its key, and given back, which stores it once more."""
    ann, other = [await Client.of(admin, "ann") for _ in range(2)]
    sent = await ann.ask(Code.SEND_MESSAGE_V2, send_ext("T", 0, "KEYS\x01k\x02"), LARGE)
    offset = int(sent.ext["msgId"][-16:], 16)
    view = (Code.VIEW_MESSAGE_BY_ID, {"offset": offset})
    times = {"beginTimestamp": 0, "endTimestamp": 1 << 53}
    query = (Code.QUERY_MESSAGE, {"topic": "T", "key": "k", "maxNum": 32, **times})
    back = {"offset": offset, "group": "g", "delayLevel": 1, "originMsgId": "", "originTopic": "T"}
    for limited, (code, ext) in (
        ("consumerBytesPerSecond", view),
        ("consumerBytesPerSecond", query),
        ("producerBytesPerSecond", (Code.CONSUMER_SEND_MSG_BACK, back)),
    ):
        await limit(admin, "user:ann", **{limited: 1000})
        first = await ann.ask(code, ext)
        assert (code, first.code) == (code, 0), first.remark
        assert (await other.ask(code, ext)).code == BUSY
        await limit(admin, "user:ann")
        assert (await other.ask(code, ext)).code == 0
    for each in (ann, other):
        await each.peer.close()


async def test_metaq_clients_are_delayed_and_answered_as_busy(admin: Admin) -> None:
    port = admin.broker.metaq_port
    await limit(admin, "user:anonymous", producerBytesPerSecond=1000)
    async with metaq_peer(port) as one, metaq_peer(port) as other:
        assert (await one.put("T", 0, LARGE)).startswith(b"result 200 ")
        assert paused(admin.broker) == 1
        assert (await other.put("T", 0, b"x")).startswith(b"result 503 ")
        assert (await other.get("T", 0, 0)).startswith(b"value ")
        await limit(admin, "user:anonymous", consumerBytesPerSecond=1000)
        assert (await other.get("T", 0, 0)).startswith(b"value ")
        assert paused(admin.broker) == 2
        async with metaq_peer(port) as third:
            assert (await third.get("T", 0, 0)).startswith(b"result 503 ")
            await limit(admin, "user:anonymous")
            assert (await third.get("T", 0, 0)).startswith(b"value ")
        assert (await one.put("T", 0, b"x")).startswith(b"result 200 ")


async def test_sends_and_receives_of_sdks_count(admin: Admin) -> None:
    """Ordinary ones have a fast path, which nobody with a limit may go."""
    first, other = [await SdkPeer.connect(admin.broker.ports.grpc_port) for _ in range(2)]
    ann, bob = (signed_headers(name, f"secret-{name}") for name in ("ann", "bob"))

    async def send(peer: SdkPeer, user: dict[str, str], body: bytes = b"x") -> int:
        code: int = (await peer.call("SendMessage", sends(message("T", body)), user)).status.code
        return code

    async def receive(peer: SdkPeer, user: dict[str, str]) -> int:
        return (await received(peer, asks(topic="T", batch_size=1), user))[0]

    await limit(admin, "user:ann", producerBytesPerSecond=1000)
    assert await send(first, ann, LARGE) == SdkCode.OK
    assert await send(other, ann) == SdkCode.TOO_MANY_REQUESTS
    assert [await send(other, bob, LARGE) for _ in range(3)] == [SdkCode.OK] * 3
    await limit(admin, "user:ann", consumerBytesPerSecond=1000)
    assert await receive(other, ann) == SdkCode.OK
    third = await SdkPeer.connect(admin.broker.ports.grpc_port)
    assert await receive(third, ann) == SdkCode.TOO_MANY_REQUESTS
    assert await receive(third, bob) == SdkCode.OK
    await limit(admin, "user:ann")
    assert await receive(third, ann) == SdkCode.OK
    for peer in (first, other, third):
        await peer.close()


async def test_commands_of_one_read_go_on_after_the_delay(admin: Admin) -> None:
    await limit(admin, "topic:T", producerBytesPerSecond=100_000)
    async with metaq_peer(admin.broker.metaq_port) as peer:
        frames = b"".join(
            b"put %b 0 20000 0 -1 %d\r\n" % (topic, n) + b"x" * 20_000
            for n, topic in enumerate([b"T", b"T", b"T", b"T", b"T", b"T", b"T"])
        )
        await peer.send(frames + b"version 99\r\n")
        found = [await peer.frame() for _ in range(8)]
    assert [frame.split()[1] for frame in found] == [b"200"] * 8
    assert [int(frame.split()[3]) for frame in found] == [*range(7), 99]
    assert admin.broker.store.queue_range("T", 0)[1] == 7


async def test_connections_of_a_user(admin: Admin) -> None:
    await limit(admin, "user:ann", connections=1)
    first, second = [await Client.of(admin, "ann") for _ in range(2)]
    assert [await first.send(), await first.send(), await second.send()] == [0, 0, BUSY]
    _, shown = await admin.call("GET", "/admin/v1/users/ann", **ROOT)
    assert (shown["quotas"], shown["usage"]["connections"]) == ({"connections": 1}, 1)
    await first.peer.close()
    async with asyncio.timeout(50):
        while await second.send() != 0:  # noqa: ASYNC110  what the broker comes to
            await asyncio.sleep(0.01)
    await limit(admin, "user:ann", connectionsPerAddress=1)
    third = await Client.of(admin, "ann")
    assert [await second.send(), await third.send()] == [0, BUSY]
    for each in (second, third):
        await each.peer.close()


async def test_topics_queues_and_groups_of_a_prefix(admin: Admin) -> None:
    await limit(admin, "topic:team-*", topics=2, queues=5)
    await limit(admin, "group:team-*", groups=1)

    async def make(what: str, body: dict[str, Any]) -> int:
        status, answer = await admin.call("PUT", f"/admin/v1/{what}", body, **ROOT)
        assert status in (200, 201) or "quota" in answer["message"], answer
        return status

    assert await make("topics/team-a", {"queues": 3}) == 201
    assert await make("topics/team-b", {"queues": 3}) == 400
    assert await make("topics/team-b", {"queues": 2}) == 201
    assert await make("topics/team-a", {"queues": 4}) == 400
    assert await make("topics/team-c", {"queues": 1}) == 400
    assert await make("topics/other", {"queues": 9}) == 201
    assert (await admin.call("DELETE", "/admin/v1/topics/team-b", **ROOT))[0] == 200
    await limit(admin, "topic:team-*", topics=2)
    ann = await Client.of(admin, "ann")
    assert await ann.send(topic="team-d") == 0, "made by a send"
    assert await ann.send(topic="team-e") != 0
    assert await make("groups/team-1", {}) in (200, 201)
    assert await make("groups/team-2", {}) == 400
    assert admin.broker.groups.get_or_create("team-3") is None
    assert await make("groups/other", {}) in (200, 201)
    await ann.peer.close()


async def test_limits_outlive_a_restart_and_end_with_their_user(
    config: BrokerConfig, admin: Admin, broker: Broker
) -> None:
    told = {"quotas": {"connections": 5, "producerBytesPerSecond": 1000}}
    status, answer = await admin.call("PUT", "/admin/v1/users/ann", told, **ROOT)
    assert (status, answer["user"]["quotas"]) == (200, told["quotas"])
    await limit(admin, "topic:orders*", topics=3)
    wrong: tuple[dict[str, Any], ...] = (
        {"quotas": {"topics": 1}},
        {"quotas": {"connections": 0}},
        {"quotas": []},
    )
    for body in wrong:
        assert (await admin.call("PUT", "/admin/v1/users/ann", body, **ROOT))[0] == 400
    for path in ("user:eve", "user:..", "cluster:x", "group:g"):
        body = {"quotas": {"connections": 1}}
        assert (await admin.call("PUT", f"/admin/v1/quotas/{path}", body, **ROOT))[0] == 400
    before = broker.core.access.quota_table.quotas
    assert [str(each) for each in sorted(before)] == ["topic:orders*", "user:ann"]
    await broker.stop()
    again = Broker(replace(config))
    await again.start()
    try:
        access = again.core.access
        assert access.quota_table.quotas == before
        access.delete_user("ann", BY)
        assert [str(each) for each in access.quota_table.quotas] == ["topic:orders*"]
        assert again.core.quotas.of("ann", "T") == ()
    finally:
        await again.stop()


async def test_limits_reach_the_other_shard(tmp_path: Path) -> None:
    async with running_pair(tmp_path) as pair:
        path = "/admin/v1/quotas/topic:orders*"
        status, told = await pair.one.call("PUT", path, {"quotas": {"topics": 3}})
        assert (status, told["shards"]) == (200, {"shard-0": "ok", "shard-1": "ok"})
        one, two = (admin.broker.core.access for admin in (pair.one, pair.two))
        subject = parse_subject("topic:orders*")
        wanted = {subject: quotas_from_json(subject, {"topics": 3})}
        assert one.quota_table.quotas == two.quota_table.quotas == wanted
        assert (await pair.two.call("DELETE", path))[0] == 200
        assert (await pair.two.call("DELETE", path))[0] == 404
        assert one.quota_table.quotas == {}


@pytest.mark.parametrize(
    "record",
    [
        ["access-quota", "user:../x", [1, 0], None],
        ["access-quota", "user:ann", [1, 0], {"topics": 1}],
        ["access-quota", "user:ann", [1, 0], {"connections": 0}],
        ["access-quotas", "user:ann", [1, 0], {}],
    ],
)
def test_records_that_cannot_be_are_not_taken_over(broker: Broker, record: list[Any]) -> None:
    with pytest.raises(ValueError, match=r"user|limit|name|number"):
        broker.core.access.merge([record])
