"""A user who puts a mark into everything that it keeps, and one who listens for the marks."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import TYPE_CHECKING, Final, SupportsIndex

from imago_broker.model.access.access import AccessKind, AccessRule, Operation, Resource
from imago_broker.model.topics.topics import TopicConfig
from imago_broker.service.access.access_edits import Actor
from imago_testing.peers.remoting import RemotingPeer, send_ext
from imago_testing.peers.signing import call_signed
from imago_testing.peers.transactions import half_properties
from imago_wire.remoting.codes import RequestCode as Code

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from imago_broker.app import Broker
    from imago_wire.remoting.command import RemotingCommand

BY = Actor("the tests", "nowhere")
KINDS = (
    *("topic", "group", "body", "property", "value", "key", "tag", "unique", "half", "timer"),
    *("client", "producer", "transaction", "prepared", "user", "note", "resource", "password"),
    *("metaq", "reply", "committed"),
)
MARKS: Final = {kind: f"zQ{number:02d}x{kind}Vq" for number, kind in enumerate(KINDS)}
THEIRS, OWN = MARKS["topic"], "eve-topic"
THEIR_GROUP, OWN_GROUP = MARKS["group"], "eve-group"
THEIR_PASSWORD, PASSWORD = MARKS["password"], "password-of-eve"
PUBLIC_NAMES: Final = {"topic", "group", "user"}
"""Told by routes of the name service and by metrics, which need no user."""


class Ear:
    """Collects what one side receives, and finds the marks in it."""

    def __init__(self) -> None:
        self.heard = bytearray()
        self.leaks: list[tuple[str, str]] = []
        self.found: set[str] = set()
        self._spellings = {kind: list(_spellings(mark)) for kind, mark in MARKS.items()}

    def listen(self, reader: asyncio.StreamReader) -> None:
        """Hear all that comes over a connection, asked for or not."""
        feed = reader.feed_data

        def fed(data: Iterable[SupportsIndex]) -> None:
            self.heard += bytes(data)
            feed(data)

        reader.feed_data = fed  # type: ignore[method-assign]  # it is only heard

    def check(self, what: str, asked: str, *, public: bool = False) -> None:
        """Note the marks in what was heard since the last time, but those of the question."""
        heard, self.heard = bytes(self.heard), bytearray()
        for kind, spellings in self._spellings.items():
            if MARKS[kind] in asked or (public and kind in PUBLIC_NAMES):
                continue
            if any(each in heard for each in spellings):
                self.leaks.append((what, kind))
                self.found.add(kind)


def _spellings(mark: str) -> Iterator[bytes]:
    data = mark.encode()
    yield data
    yield data.hex().encode()
    yield data.hex().upper().encode()
    yield mark.encode("utf-16-be")
    for shift in range(3):
        yield base64.b64encode(b" " * shift + data)[4 if shift else 0 : -4]


class Person:
    """Who asks a broker, and hears what it says."""

    def __init__(self, broker: Broker, user: str | None, password: str = "") -> None:
        self.broker, self.user, self._password = broker, user, password
        self.ear = Ear()
        self.offsets: list[int] = []
        """Of all records that were there when the questions began."""
        self._peers: dict[int, RemotingPeer] = {}

    async def peer(self, port: int) -> RemotingPeer:
        if port not in self._peers:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            self.ear.listen(reader)
            self._peers[port] = RemotingPeer(reader, writer)
        return self._peers[port]

    async def ask(
        self, port: int, code: int, ext: Mapping[str, object], body: bytes = b""
    ) -> RemotingCommand | None:
        """Send a request; None: the broker has closed the connection."""
        peer = await self.peer(port)
        try:
            if self.user is None:
                return await peer.call(code, ext, body)
            return await call_signed(peer, code, ext, body, user=self.user, secret=self._password)
        except ConnectionError:
            del self._peers[port]
            return None

    async def close(self) -> None:
        """End the connections; the next request makes others."""
        while self._peers:
            await self._peers.popitem()[1].close()


def rules(prefix: str) -> list[AccessRule]:
    kinds = (AccessKind.TOPIC, AccessKind.GROUP, AccessKind.TRANSACTION, AccessKind.PIPELINE)
    return [AccessRule(Resource(kind, prefix, prefix=True), frozenset(Operation)) for kind in kinds]


def make(broker: Broker) -> None:
    """Have both topics there, also when a request has deleted one."""
    for name in (THEIRS, OWN):
        if broker.topics.get(name) is None:
            broker.topics.create_or_update(TopicConfig(name=name, read_queues=1, write_queues=1))


def properties(**more: str) -> str:
    told = {
        "UNIQ_KEY": MARKS["unique"],
        "KEYS": MARKS["key"],
        "TAGS": MARKS["tag"],
        MARKS["property"]: MARKS["value"],
        **more,
    }
    return "".join(f"{name}\x01{value}\x02" for name, value in told.items())


async def keep(ann: Person) -> None:
    """Put marks everywhere."""
    broker, port = ann.broker, ann.broker.rocketmq_port

    async def told(code: int, ext: Mapping[str, object], body: bytes = b"") -> RemotingCommand:
        answer = await ann.ask(port, code, ext, body)
        assert answer is not None
        assert answer.code == 0, (Code(code).name, answer.remark)
        return answer

    beat = {
        "clientID": MARKS["client"],
        "producerDataSet": [{"groupName": MARKS["producer"]}],
        "consumerDataSet": [
            {
                "groupName": THEIR_GROUP,
                "subscriptionDataSet": [{"topic": THEIRS, "subString": MARKS["tag"]}],
            }
        ],
    }
    await told(Code.HEART_BEAT, {}, json.dumps(beat).encode())
    for body in ("body", "committed"):
        sent = send_ext(THEIRS, 0, properties(), a=MARKS["producer"])
        await told(Code.SEND_MESSAGE_V2, sent, MARKS[body].encode())
    timed = send_ext(THEIRS, 0, properties(TIMER_DELAY_SEC="3600"), a=MARKS["producer"])
    await told(Code.SEND_MESSAGE_V2, timed, MARKS["timer"].encode())
    levelled = send_ext(THEIRS, 0, properties(DELAY="18"), a=MARKS["producer"])
    await told(Code.SEND_MESSAGE_V2, levelled, MARKS["timer"].encode())
    begun = half_properties(MARKS["unique"], MARKS["producer"])
    halved = send_ext(THEIRS, 0, begun, f=4, a=MARKS["producer"])
    await told(Code.SEND_MESSAGE_V2, halved, MARKS["half"].encode())
    committed = {"consumerGroup": THEIR_GROUP, "topic": THEIRS, "queueId": 0, "commitOffset": 1}
    await told(Code.UPDATE_CONSUMER_OFFSET, committed)
    pop = {
        "consumerGroup": THEIR_GROUP,
        "topic": THEIRS,
        "queueId": 0,
        "maxMsgNums": 1,
        "invisibleTime": 600_000,
        "pollTime": 0,
        "bornTime": broker.clock.epoch_ms(),
        "initMode": 0,
        "exp": "*",
        "expType": "TAG",
        "order": "false",
    }
    await ann.ask(port, Code.POP_MESSAGE, pop)
    await keep_in_metaq(broker)


async def keep_in_metaq(broker: Broker) -> None:
    """Put a message, and prepare a transaction; MetaQ has no users: for this once everybody may."""
    access, allowed = broker.core.access, rules("zQ")
    allowed += [AccessRule(Resource(AccessKind.TRANSACTION, "XID", True), frozenset(Operation))]
    access.set_rules("anonymous", allowed, BY)
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.metaq_port)
    body, name = MARKS["metaq"].encode(), f"XID:100:676c:6271:{MARKS['transaction']}"
    inside = MARKS["prepared"].encode()
    writer.write(b"put %b 0 %d 0 -1 1\r\n%b" % (THEIRS.encode(), len(body), body))
    writer.write(f"transaction {name} s1 BEGIN 2\r\n".encode())
    writer.write(f"put {THEIRS} 0 {len(inside)} 0 -1 {name} 3\r\n".encode() + inside)
    writer.write(f"transaction {name} s1 PREPARE 4\r\n".encode())
    for _ in range(4):
        line = (await reader.readuntil(b"\r\n")).split()
        assert line[1] == b"200", line
        await reader.readexactly(int(line[2]))
    writer.close()
    await writer.wait_closed()
    access.set_rules("anonymous", [], BY)
