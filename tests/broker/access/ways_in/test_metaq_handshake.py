"""Our own clients tell a MetaQ port whose they are; nobody else learns the password by that."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from imago_broker.model.access.access import AccessKind, AccessRule, Operation, Resource
from imago_broker.model.access.users import User
from imago_broker.model.topics.topics import TopicConfig
from imago_broker.processors.metaq.access import handshakes
from imago_broker.processors.metaq.access.handshakes import REFUSED
from imago_broker.service.access.access_edits import Actor
from imago_client.blocking.metaq import MetaqClient as BlockingClient
from imago_client.errors import AnswerError, ConnectionLostError, UsageError
from imago_client.metaq import MetaqClient, MetaqConfig
from imago_client.metaq.values import MetaqError
from imago_testing.clusters.brokers import running_broker
from imago_wire.text.handshake import OPEN, Side, is_proof, new_nonce, proof

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from imago_broker.app import Broker

BY = Actor("the tests", "nowhere")
SECRET = "secret-of-ann"
WAIT_SECONDS = 50
PUT = b"put orders 0 5 0 9\r\nhello"


class Line:
    """One connection that says lines and reads their answers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.sent = b""

    async def ask(self, data: bytes) -> tuple[int, str]:
        """Send a command; return the code and text of its answer."""
        self.writer.write(data)
        self.sent += data
        async with asyncio.timeout(WAIT_SECONDS):
            _, code, size, _ = (await self.reader.readline()).split()
            return int(code), (await self.reader.readexactly(int(size))).decode()

    async def begin(self, user: str = "ann", nonce: str = "a" * 64) -> str:
        code, broker_nonce = await self.ask(b"auth %b %b 1\r\n" % (user.encode(), nonce.encode()))
        assert code == 200, broker_nonce
        return broker_nonce

    async def prove(self, token: str, user: str = "ann") -> tuple[int, str]:
        return await self.ask(b"auth %b %b 2\r\n" % (user.encode(), token.encode()))

    async def shake_hands(self, user: str = "ann", secret: str = SECRET) -> tuple[int, str]:
        nonces = "a" * 64, await self.begin(user)
        return await self.prove(proof(Side.CLIENT, secret, user, nonces), user)

    async def is_closed(self) -> bool:
        async with asyncio.timeout(WAIT_SECONDS):
            return await self.reader.read(1) == b""


@asynccontextmanager
async def line_to(broker: Broker) -> AsyncIterator[Line]:
    line = Line(*await asyncio.open_connection("127.0.0.1", broker.ports.metaq_port))
    try:
        yield line
    finally:
        line.writer.close()
        await line.writer.wait_closed()


@pytest.fixture
async def users(broker: Broker) -> Broker:
    broker.topics.create_or_update(TopicConfig(name="orders", read_queues=1, write_queues=1))
    access = broker.core.access
    operations = frozenset({Operation.PUBLISH, Operation.SUBSCRIBE})
    for name in ("ann", "shut"):
        access.put_user(User(name=name, secret=f"secret-of-{name}", enabled=name == "ann"), BY)
        rules = [
            AccessRule(Resource(AccessKind.TOPIC, "orders"), operations),
            AccessRule(Resource(AccessKind.GROUP, "readers"), operations),
        ]
        access.set_rules(name, rules, BY)
    access.put_user(User(name="hashed", hashed="scrypt:00:00"), BY)
    return broker


def config(broker: Broker, **more: str) -> MetaqConfig:
    address = f"127.0.0.1:{broker.ports.metaq_port}"
    return MetaqConfig(servers=(address,), user="ann", **more)  # type: ignore[arg-type]


async def test_who_proves_it_is_a_user_and_both_sides_know_the_password(users: Broker) -> None:
    async with line_to(users) as line:
        assert (await line.ask(PUT))[0] == 403
        nonces = "a" * 64, await line.begin()
        assert (await line.ask(PUT))[0] == 403, "nothing is proved yet"
        code, shown = await line.prove(proof(Side.CLIENT, SECRET, "ann", nonces))
        assert code == 200
        assert is_proof(shown, Side.BROKER, SECRET, "ann", nonces)
        assert (await line.ask(PUT))[0] == 200
        assert SECRET.encode() not in line.sent
        code, _ = await line.ask(b"auth ann %b 3\r\n" % (b"a" * 64))
        assert code == 400, "it is ann's for good"
        assert (await line.ask(PUT))[0] == 200


async def test_nobody_learns_which_users_there_are(
    users: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[str] = []

    def counted(given: str, side: Side, secret: str, user: str, nonces: tuple[str, str]) -> bool:
        compared.append(user)
        return is_proof(given, side, secret, user, nonces)

    monkeypatch.setattr(handshakes, "is_proof", counted)
    said = set()
    tried = [("ann", "wrong secret"), ("nobody", SECRET), ("shut", "secret-of-shut")]
    for user, secret in (*tried, ("hashed", ""), ("anonymous", "")):
        compared.clear()
        async with line_to(users) as line:
            said.add(await line.shake_hands(user, secret))
            assert await line.is_closed()
        assert compared == [user] * 2, "the same work for everybody"
    assert said == {(403, REFUSED)}


async def test_what_was_seen_of_a_handshake_is_good_for_no_other(users: Broker) -> None:
    async with line_to(users) as line:
        assert (await line.shake_hands())[0] == 200
        seen = line.sent
    first, second = seen.splitlines(keepends=True)
    async with line_to(users) as thief:
        assert (await thief.ask(first))[0] == 200
        assert (await thief.ask(second))[0] == 403
        assert await thief.is_closed()
    async with line_to(users) as thief:
        nonces = "a" * 64, await thief.begin()
        shown_by_broker = proof(Side.BROKER, SECRET, "ann", nonces)
        assert (await thief.prove(shown_by_broker))[0] == 403, "no side's proof is the other's"
    async with line_to(users) as thief:
        nonces = "a" * 64, await thief.begin("shut")
        assert (await thief.prove(proof(Side.CLIENT, SECRET, "ann", nonces)))[0] == 403


async def test_a_proof_without_a_beginning_is_a_beginning(users: Broker) -> None:
    async with line_to(users) as line:
        code, broker_nonce = await line.prove("b" * 64)
        assert (code, len(broker_nonce)) == (200, 64)
        for token in ("short", "A" * 64, "a" * 65, "ä" * 64):
            assert (await line.ask(f"auth ann {token} 3\r\n".encode()))[0] == 400
        assert (await line.ask(PUT))[0] == 403


async def test_connections_end_with_their_user_and_with_its_password(users: Broker) -> None:
    access = users.core.access
    ann = access.users["ann"]
    async with line_to(users) as first, line_to(users) as second:
        assert (await first.shake_hands())[0] == 200
        access.put_user(ann.with_secret("another secret", former_until_ms=1 << 52), BY)
        assert (await first.ask(PUT))[0] == 200, "the one before counts for a while"
        assert (await second.shake_hands(secret="another secret"))[0] == 200
        access.put_user(replace(ann, secret="another secret"), BY)
        assert await first.is_closed()
        assert (await second.ask(PUT))[0] == 200
        access.delete_user("ann", BY)
        assert await second.is_closed()


async def test_the_clients_of_python_in_both_forms(users: Broker, tmp_path: Path) -> None:
    kept = tmp_path / "ann.password"
    kept.write_text(SECRET + "\n")
    told = config(users, password_file=str(kept))
    async with MetaqClient(told) as client:
        assert (await client.producer().send("orders", b"one")).offset == 0
    with pytest.raises(MetaqError, match="user ann: there is no such user"):
        async with MetaqClient(config(users, password="wrong password")) as client:
            await client.producer().send("orders", b"two")

    def blocking() -> None:
        with BlockingClient(told) as one:
            one.send("orders", b"three")
        with (
            BlockingClient(config(users, password="wrong password")) as one,
            pytest.raises(MetaqError, match="no such user"),
        ):
            one.send("orders", b"four")

    await asyncio.to_thread(blocking)
    assert users.store.queue_range("orders", 0) == (0, 2)
    assert SECRET not in repr(config(users, password=SECRET))


async def test_a_client_finds_out_a_broker_that_does_not_know_the_password(
    users: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(side: Side, secret: str, user: str, nonces: tuple[str, str]) -> str:
        return proof(side, secret + "x", user, nonces)

    monkeypatch.setattr(handshakes, "proof", made)
    with pytest.raises(AnswerError, match="does not know the password"):
        async with MetaqClient(config(users, password=SECRET)) as client:
            await client.producer().send("orders", b"x")


async def test_brokers_that_ask_nobody_and_brokers_that_know_no_handshake(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        async with line_to(broker) as line:
            assert await line.ask(b"auth ann %b 1\r\n" % new_nonce().encode()) == (200, OPEN)
        broker.topics.create_or_update(TopicConfig(name="orders", read_queues=1, write_queues=1))
        async with MetaqClient(config(broker, password=SECRET)) as client:
            await client.producer().send("orders", b"x")

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()  # as the original does at a line that is no command
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    told = MetaqConfig(servers=(f"127.0.0.1:{port}",), user="ann", password=SECRET)
    with pytest.raises(ConnectionLostError, match=r"ann was named; .* Others know no users"):
        async with MetaqClient(told) as client:
            await client.producer().send("orders", b"x")
    server.close()


async def test_the_listener_may_take_none(users: Broker) -> None:
    settings = users.core.metaq_settings
    settings.current = replace(settings.current, handshake=False)
    async with line_to(users) as line:
        code, text = await line.ask(b"auth ann %b 1\r\n" % (b"a" * 64))
        assert (code, "metaq.handshake" in text) == (403, True)


def test_a_user_needs_a_password_and_a_password_a_user() -> None:
    both = {"password": "x", "password_file": "y"}
    for more in ({"user": "ann"}, {"password": "x"}, {"user": "ann", **both}):
        with pytest.raises(UsageError, match="user: "):
            MetaqConfig(servers=("h:1",), **more)  # type: ignore[arg-type]
