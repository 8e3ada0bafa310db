"""With rights in force, what is allowed takes the fast paths; what is not is refused as ever."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.features.transactions.transaction_requests import TransactionProcessor
from imago_broker.model.access.access import AccessKind, AccessRule, Operation, Resource
from imago_broker.model.access.users import User
from imago_broker.model.topics.topics import TopicConfig
from imago_broker.processors.rocketmq.pull.pull import PullProcessor
from imago_broker.processors.rocketmq.send.send import SendProcessor
from imago_broker.service.access import grants
from imago_broker.service.access.access_edits import Actor
from imago_testing.peers.remoting import RemotingPeer, pull_ext, send_ext
from imago_testing.peers.signing import call_signed
from imago_wire.remoting.codes import ResponseCode
from imago_wire.remoting.command import SerializeType
from imago_wire.remoting.messages import BatchEntry, encode_batch
from imago_wire.remoting.peer import Version
from imago_wire.remoting.signing import signed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from imago_broker.app import Broker
    from imago_wire.remoting.command import RemotingCommand

BY = Actor("the tests", "nowhere")
SECRET = "secret-of-tester"
UNIQUE = "UNIQ_KEY\x01%s\x02"
OK, DENIED = int(ResponseCode.SUCCESS), int(ResponseCode.NO_PERMISSION)


def rule(kind: AccessKind, name: str, *operations: Operation, **more: Any) -> AccessRule:
    return AccessRule(Resource(kind, name), frozenset(operations), **more)


SEND = rule(AccessKind.TOPIC, "orders", Operation.PUBLISH)
READ = [
    rule(AccessKind.TOPIC, "orders", Operation.SUBSCRIBE),
    rule(AccessKind.GROUP, "readers", Operation.SUBSCRIBE),
]


@pytest.fixture
def careful(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Name what the table serves."""
    served: list[str] = []
    ways = ((SendProcessor, "send"), (PullProcessor, "pull"), (TransactionProcessor, "end"))
    for processor, name in ways:
        monkeypatch.setattr(processor, name, counted(served, getattr(processor, name)))
    return served


def counted(served: list[str], way: Any) -> Any:
    def serve(self: Any, exchange: Any) -> Any:
        served.append(way.__name__)
        return way(self, exchange)

    return serve


class Client:
    """Signs what it asks for."""

    def __init__(self, broker: Broker, peer: RemotingPeer) -> None:
        self.broker, self.peer, self.secret = broker, peer, SECRET
        self.access = broker.core.access

    def have(self, *rules: AccessRule) -> None:
        self.access.put_user(User(name="tester", secret=SECRET), BY)
        self.access.set_rules("tester", rules, BY)

    async def ask(self, code: int, ext: Any, body: bytes = b"", **more: Any) -> RemotingCommand:
        return await call_signed(
            self.peer, code, ext, body, user="tester", secret=self.secret, **more
        )

    async def send(self, topic: str = "orders", properties: str = "", **more: Any) -> int:
        ext = send_ext(topic, properties=UNIQUE % "U" + properties, **more)
        return (await self.ask(310, ext, b"hello")).code


@pytest.fixture
async def client(careful: list[str], broker: Broker) -> AsyncIterator[Client]:
    for topic in ("orders", "other"):
        broker.topics.create_or_update(TopicConfig(name=topic, read_queues=1, write_queues=1))
    peer = await RemotingPeer.connect(broker.rocketmq_port)
    client = Client(broker, peer)
    client.have(SEND)
    assert await client.send() == OK  # the first of a queue
    careful.clear()
    yield client
    await peer.close()


@pytest.mark.parametrize(
    "properties", ["", "TAGS\x01标签\x02", "DELAY\x013\x02", "TRAN_MSG\x01true\x02"]
)
async def test_sends_that_are_allowed_take_the_short_way(
    client: Client, careful: list[str], properties: str
) -> None:
    assert await client.send(properties=properties) == OK
    careful.clear()
    assert await client.send(properties=properties) == OK
    assert not careful
    denials = client.access.denials.count
    assert await client.send("other", properties) == DENIED
    client.secret = "wrong"
    assert await client.send(properties=properties) == DENIED
    client.secret = SECRET
    assert client.access.denials.count == denials + 2
    client.have(*READ)
    assert await client.send(properties=properties) == DENIED
    assert not careful, "access control answers in front of the handler"
    assert client.broker.store.queue_range("other", 0)[1] == 0


async def test_each_change_counts_at_once(client: Client, careful: list[str]) -> None:
    access = client.access
    near = rule(AccessKind.TOPIC, "orders", Operation.PUBLISH, hosts=("127.0.0.0/8",))
    far = rule(AccessKind.TOPIC, "orders", Operation.PUBLISH, hosts=("10.0.0.0/8",))
    for rules, wanted in (((near,), OK), ((far,), DENIED), ((near, far), OK), ((), DENIED)):
        client.have(*rules)
        assert await client.send() == wanted
    client.have(SEND)
    access.put_user(User(name="tester", secret=SECRET, enabled=False), BY)
    assert await client.send() == DENIED
    access.put_user(User(name="tester", secret="another-secret"), BY)
    assert await client.send() == DENIED
    client.secret = "another-secret"
    assert await client.send() == OK
    access.delete_user("tester", BY)
    assert await client.send() == DENIED
    access.put_user(User(name="tester", secret=SECRET, white_addresses="127.0.0.*"), BY)
    client.secret = "wrong: its addresses are enough"
    assert await client.send() == OK
    access.delete_user("tester", BY)
    access.set_white_addresses(["127.0.0.1"], BY)
    assert await client.send() == OK
    assert not careful


async def test_who_shows_no_credentials(client: Client, careful: list[str]) -> None:
    ext = send_ext("orders", properties=UNIQUE % "U")
    assert (await client.peer.call(310, ext, b"hello")).code == DENIED
    client.access.set_rules("anonymous", [SEND], BY)
    assert (await client.peer.call(310, ext, b"hello")).code == OK
    assert not careful


async def test_a_client_of_version_4_hears_its_words(client: Client) -> None:
    client.have()
    ext = send_ext("orders", properties=UNIQUE % "U")
    answer = await client.ask(310, ext, b"hello", version=Version.V4_9_8)
    assert (answer.code, answer.remark) == (1, "No default permission for orders")


@pytest.mark.parametrize("form", list(SerializeType))
async def test_pulls_that_are_allowed_take_the_short_way(
    client: Client, careful: list[str], form: SerializeType
) -> None:
    client.have(*READ)
    texts = {
        name: str(value)
        for name, value in pull_ext("orders", consumerGroup="readers", maxMsgNums=9).items()
    }
    ext = signed(texts, b"", access_key="tester", secret=SECRET)
    await client.peer.call(11, ext, serialize=form)  # makes the group
    careful.clear()
    answer = await client.peer.call(11, ext, serialize=form)
    assert (answer.code, careful) == (OK, [])
    assert answer.body
    forged = ext | {"maxMsgNums": "8"}
    assert (await client.peer.call(11, forged, serialize=form)).code == DENIED
    client.have(READ[0])
    assert (await client.peer.call(11, ext, serialize=form)).code == DENIED
    client.have(READ[1], SEND)
    assert (await client.peer.call(11, ext, serialize=form)).code == DENIED


async def test_ends_of_transactions_that_are_allowed_take_the_short_way(
    client: Client, careful: list[str]
) -> None:
    properties = UNIQUE % "H" + "TRAN_MSG\x01true\x02PGROUP\x01makers\x02"
    places = []
    for _ in range(4):
        ext = send_ext("orders", properties=properties, sysFlag=4)
        half = await client.ask(310, ext | {"f": "4"}, b"hello")
        assert half.code == OK
        places.append((half.ext["queueOffset"], str(int(half.ext["msgId"][-16:], 16))))

    async def end(number: int, **more: str) -> int:
        offset, place = places[number]
        ext = {
            "producerGroup": "makers", "tranStateTableOffset": offset, "commitLogOffset": place,
            "commitOrRollback": "8", "fromTransactionCheck": "false", "msgId": "H",
        }  # fmt: skip
        return (await client.ask(37, ext | more)).code

    careful.clear()
    assert await end(0) == OK
    assert await end(1, topic="orders") == OK
    assert not careful
    assert await end(2, topic="other") == DENIED
    client.have(*READ)
    assert await end(2) == DENIED
    client.have(SEND)
    client.secret = "wrong"
    assert await end(2) == DENIED
    assert client.broker.store.queue_range("orders", 0)[1] == 3


async def test_batches_that_are_allowed_take_the_short_way(
    client: Client, careful: list[str]
) -> None:
    body = encode_batch([BatchEntry(b"a", b"UNIQ_KEY\x01A\x02", 0)] * 3)
    for topic, wanted in (("orders", OK), ("other", DENIED), ("orders", OK)):
        ext = send_ext(topic, properties=UNIQUE % "U") | {"m": "true"}
        assert (await client.ask(320, ext, body)).code == wanted
    assert not careful
    assert client.broker.store.queue_range("orders", 0)[1] == 7


async def test_more_than_is_remembered(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("USERS_KEPT_MAX", "DECISIONS_KEPT_MAX"):
        monkeypatch.setattr(grants, name, 1)
    client.have(SEND)
    client.access.put_user(User(name="second", secret=SECRET), BY)
    client.access.set_rules("second", [rule(AccessKind.TOPIC, "other", Operation.PUBLISH)], BY)
    for _ in range(3):
        for topic, user in (("orders", "tester"), ("other", "second")):
            for asked in ("orders", "other"):
                ext = send_ext(asked, properties=UNIQUE % "U")
                answer = await call_signed(
                    client.peer, 310, ext, b"hello", user=user, secret=SECRET
                )
                assert answer.code == (OK if asked == topic else DENIED)
