"""One user, or one address, cannot hold all transactions that a broker has room for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from imago_broker.model.access.access import AccessKind, AccessRule, Operation, Resource
from imago_broker.model.access.users import User
from imago_broker.model.topics.topics import TopicConfig
from imago_broker.processors.rocketmq.send.send import SendProcessor
from imago_broker.service.access.access_edits import Actor
from imago_client.metaq import MetaqClient, MetaqConfig
from imago_testing.clusters.brokers import running_broker
from imago_testing.peers.remoting import RemotingPeer, send_ext
from imago_testing.peers.transactions import ROLLBACK, Half, end, half, half_properties
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.signing import signed
from imago_wire.text.commands import Put, Transaction, TransactionType

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from imago_broker.app import Broker
    from imago_broker.processors.rocketmq.exchange import Exchange
    from imago_broker.service.groups.channel import Reply
    from imago_wire.remoting.command import RemotingCommand

BY = Actor("the tests", "nowhere")
OK, BUSY = int(ResponseCode.SUCCESS), int(ResponseCode.SYSTEM_BUSY)


class Producer:
    """A user's connection; each half message is of a producer group of its own."""

    def __init__(self, peer: RemotingPeer, user: str) -> None:
        self.peer, self.user, self.count = peer, user, 0

    def properties(self) -> str:
        self.count += 1
        return half_properties(f"{self.user}-{self.count}", f"group-{self.user}-{self.count}")

    def send(self) -> int:
        told = {
            name: str(value) for name, value in send_ext("T", 0, self.properties(), f=4).items()
        }
        secret = f"secret-of-{self.user}"
        return self.peer.send(310, signed(told, b"x", access_key=self.user, secret=secret), b"x")

    async def begin(self) -> RemotingCommand:
        return await self.peer.answer(self.send())


def allow(broker: Broker, *users: str) -> None:
    access = broker.core.access
    for name in users:
        access.put_user(User(name=name, secret=f"secret-of-{name}"), BY)
        rules = [AccessRule(Resource(AccessKind.TOPIC, "T"), frozenset({Operation.PUBLISH}))]
        access.set_rules(name, rules, BY)


def limit(broker: Broker, **limits: int) -> None:
    settings = broker.rocketmq.settings
    settings.current = replace(settings.current, **limits)  # type: ignore[arg-type]


@pytest.fixture
async def peers(broker: Broker) -> AsyncIterator[list[RemotingPeer]]:
    broker.topics.create_or_update(TopicConfig(name="T", read_queues=1, write_queues=1))
    allow(broker, "greedy", "modest")
    connected = [await RemotingPeer.connect(broker.rocketmq_port) for _ in range(3)]
    yield connected
    for peer in connected:
        await peer.close()


async def test_a_user_gets_no_more_than_its_share_over_all_connections_and_groups(
    broker: Broker, peers: list[RemotingPeer]
) -> None:
    limit(broker, transactions_per_user_max=3, transactions_max=6)
    first, second = (Producer(peer, "greedy") for peer in peers[:2])
    second.count = 100
    codes = [(await one.begin()).code for one in (first, second, first)]
    assert codes == [OK] * 3
    for one in (first, second):
        refused = await one.begin()
        assert refused.code == BUSY
        assert "3 transactions of user greedy are open" in (refused.remark or "")
        assert "rocketmq.transactions_per_user_max" in (refused.remark or "")
    modest = Producer(peers[2], "modest")
    assert [(await modest.begin()).code for _ in range(4)] == [OK, OK, OK, BUSY]


async def test_half_messages_of_one_read_count_as_those_of_their_connections_user(
    broker: Broker, peers: list[RemotingPeer], monkeypatch: pytest.MonkeyPatch
) -> None:
    careful: list[int] = []
    real = SendProcessor.send

    def send(self: SendProcessor, exchange: Exchange) -> Reply | None:
        careful.append(exchange.command.code)
        return real(self, exchange)

    monkeypatch.setattr(SendProcessor, "send", send)
    greedy, modest = Producer(peers[0], "greedy"), Producer(peers[1], "modest")
    assert (await greedy.begin()).code == OK  # makes the queue of half messages
    assert (await modest.begin()).code == OK, "the first of a connection, read with others' or not"
    careful.clear()
    halves = broker.rocketmq.transactions.service.halves
    for producer, count in ((greedy, 5), (modest, 2)):
        opaques = [producer.send() for _ in range(count)]
        assert [(await producer.peer.answer(opaque)).code for opaque in opaques] == [OK] * count
    assert careful == [], "they took the fast path"
    assert (halves.of_owner("user greedy"), halves.of_owner("user modest")) == (6, 3)
    limit(broker, transactions_per_user_max=7)
    opaques = [greedy.send() for _ in range(3)]
    assert [(await peers[0].answer(opaque)).code for opaque in opaques] == [OK, BUSY, BUSY]


async def test_without_access_control_an_address_has_a_share(tmp_path: Path) -> None:
    async with running_broker(tmp_path, "rocketmq.transactions_per_user_max=3") as broker:
        peers = [await RemotingPeer.connect(broker.rocketmq_port) for _ in range(2)]
        first = await half(peers[0], b"1", unique="1")
        await half(peers[1], b"2", unique="2")
        opaques = [
            peers[1].send(310, send_ext("T", 0, half_properties(f"u{n}", f"P{n}"), f=4), b"x")
            for n in range(3)
        ]
        answers = [await peers[1].answer(opaque) for opaque in opaques]
        assert [answer.code for answer in answers] == [OK, BUSY, BUSY]
        assert "of address 127.0.0.1 are open" in (answers[1].remark or "")
        assert (await end(peers[0], first, ROLLBACK)).code == OK
        await half(peers[1], b"3", unique="3")
        refused = await peers[0].put("T", b"4", properties=half_properties("4", "Q"), f=4)
        assert refused.code == BUSY
        for peer in peers:
            await peer.close()


async def test_shares_are_free_again_with_the_last_end(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        peer = await RemotingPeer.connect(broker.rocketmq_port)
        begun: list[Half] = [await half(peer, b"%d" % n, unique=str(n)) for n in range(4)]
        halves = broker.rocketmq.transactions.service.halves
        assert halves.of_owner("address 127.0.0.1") == 4
        for opaque in [
            peer.send(RequestCode.END_TRANSACTION, one.header(ROLLBACK)) for one in begun
        ]:
            assert (await peer.answer(opaque)).code == OK
        assert halves.of_owner("address 127.0.0.1") == halves.counted == 0
        await peer.close()


async def test_transactions_of_metaq_have_shares_too(
    broker: Broker, peers: list[RemotingPeer]
) -> None:
    del peers  # the users that go with them
    access = broker.core.access
    for name in ("greedy", "modest"):
        rules = [
            AccessRule(Resource(AccessKind.TOPIC, "T"), frozenset({Operation.PUBLISH})),
            AccessRule(Resource(AccessKind.TRANSACTION, "TX:", prefix=True), frozenset(Operation)),
        ]
        access.set_rules(name, rules, BY)
    metaq = broker.core.metaq_settings
    metaq.current = replace(
        metaq.current, transactions_per_user_max=2, transactions_bytes_per_user_max=1024
    )
    address = f"127.0.0.1:{broker.ports.metaq_port}"
    for name in ("greedy", "modest"):
        config = MetaqConfig(servers=(address,), user=name, password=f"secret-of-{name}")
        async with MetaqClient(config) as one, MetaqClient(config) as another:
            said = []
            for client, session in ((one, "a"), (another, "b"), (one, "c")):
                said.append(await _ask(client, address, f"TX:{session}:1", session))
            assert said[:2] == ["", ""]
            assert f"2 transactions of user {name} are open" in said[2]
            assert "metaq.transactions_per_user_max" in said[2]
            full = await one.connections.ask(
                address,
                lambda opaque: Put("T", 0, 0, b"x" * 900, opaque, None, "TX:a:1"),
                timeout_s=50,
            )
            assert b"metaq.transactions_bytes_per_user_max" in full.body


async def _ask(
    client: MetaqClient,
    address: str,
    key: str,
    session: str,
    kind: TransactionType = TransactionType.BEGIN,
) -> str:
    answer = await client.connections.ask(
        address, lambda opaque: Transaction(key, session, kind, opaque), timeout_s=50
    )
    return answer.body.decode()


@pytest.mark.parametrize("key", ["TX:a:1", "XID:100:676c:6271:uq"])
async def test_a_commit_needs_the_right_to_its_topics_as_it_is_then(
    broker: Broker, peers: list[RemotingPeer], key: str
) -> None:
    del peers  # the users that go with them
    access, local = broker.core.access, key.startswith("TX")
    keys = AccessRule(Resource(AccessKind.TRANSACTION, key[:3], prefix=True), frozenset(Operation))
    send = AccessRule(Resource(AccessKind.TOPIC, "T"), frozenset({Operation.PUBLISH}))
    access.set_rules("modest", [keys, send], BY)
    address = f"127.0.0.1:{broker.ports.metaq_port}"
    config = MetaqConfig(servers=(address,), user="modest", password="secret-of-modest")
    commit = TransactionType.COMMIT_ONE_PHASE if local else TransactionType.COMMIT_TWO_PHASE
    async with MetaqClient(config) as client:
        assert await _ask(client, address, key, "a") == ""
        await client.connections.ask(
            address, lambda opaque: Put("T", 0, 0, b"x", opaque, None, key), timeout_s=50
        )
        if not local:
            assert await _ask(client, address, key, "a", TransactionType.PREPARE) == "0"
        access.set_rules("modest", [keys], BY)
        refused = await _ask(client, address, key, "a", commit)
        assert "may not publish topic T" in refused
        assert broker.store.queue_range("T", 0)[1] == 0
        access.set_rules("modest", [keys, send], BY)
        assert await _ask(client, address, key, "a", commit) == ""
        assert broker.store.queue_range("T", 0)[1] == 1
