"""Clients of one more shard that is drained: each is owed something that only it can have.

What they are told and given they note in a `DrainedShard`. Bodies are unique.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from kazoo.client import KazooClient

from imago_testing.chaos.connections import GROUP, XA
from imago_testing.chaos.producers import LIGHT
from imago_testing.peers.metaq import MetaqPeer, value_body
from imago_testing.peers.popping import acknowledge, bodies, pop, receipts
from imago_testing.peers.remoting import RemotingPeer
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.messages import decode_messages
from imago_wire.text.message import parse_block

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Mapping

    from imago_testing.chaos.cluster.members import Member
    from imago_testing.chaos.credentials import Credentials
    from imago_testing.chaos.drained import DrainedShard

    Owed = Callable[[], Coroutine[Any, Any, None]]
    """Takes what is owed, so that nothing is any more."""
    Kind = Callable[[], Coroutine[Any, Any, Owed]]

COMMIT: Final = 8
OK: Final = ResponseCode.SUCCESS
_PAUSE_SECONDS = 0.05
_LARGE = 48
_LARGE_BYTES = 256 << 10
_BYTES_AT_ONCE_MAX = 1 << 24
READS_ALL: Final = f"{GROUP}-g"
"""The group that reads whatever is sent."""


class SigningPeer(RemotingPeer):
    """A client whose requests are signed where its cluster wants that."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, shown: Credentials
    ) -> None:
        super().__init__(reader, writer)
        self._shown = shown

    def send(
        self, code: int, ext: Mapping[str, object] | None = None, body: bytes = b"", **more: Any
    ) -> int:
        texts = {name: str(value) for name, value in (ext or {}).items()}
        return super().send(code, self._shown.signed(texts, body), body, **more)


class Clients:
    """All clients of one more shard, over two connections."""

    _metaq: MetaqPeer
    _remoting: RemotingPeer

    def __init__(self, member: Member, zookeeper: str, drained: DrainedShard, tag: str) -> None:
        self._member, self._zookeeper = member, zookeeper
        self._drained, self._tag = drained, tag
        self._numbers = itertools.count()
        self._at: dict[tuple[str, str], int] = {}
        """How far a group is in a topic."""
        self.turn = 0
        """Of drains: each has groups of its own, so that nobody has ever committed anything."""

    async def connect(self) -> None:
        """Open both connections."""
        streams: list[Any] = []
        for host, port, shown in (self._member.metaq, self._member.rocketmq):
            how: dict[str, Any] = {"limit": _BYTES_AT_ONCE_MAX, **shown.transport()}
            streams.append(await asyncio.open_connection(host, port, **how))
        self._metaq = MetaqPeer(*streams[0])
        reader, writer = streams[1]
        self._remoting = SigningPeer(reader, writer, self._member.rocketmq.credentials)

    async def close(self) -> None:
        """Close them; their broker may be gone."""
        for writer in (self._metaq.writer, self._remoting._writer):
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def reconnect(self) -> None:
        """Open both anew: brokers close those that say nothing for two minutes, as in a drain."""
        await self.close()
        await self.connect()

    async def send_much(self) -> None:
        """Fill several files of the log with what the group that reads all has read."""
        for _ in range(_LARGE):
            await self.send("orders", READS_ALL, padding=_LARGE_BYTES)
        await self.read("orders", READS_ALL)

    @property
    def kinds(self) -> list[Kind]:
        """What there is that a client may be owed."""
        alone = [self.fresh, self.light, self.popped, self.prepared, self.half]
        return [*alone, self.timed, self.given_back, self.metaq]

    def topic(self, kind: str) -> str:
        """Return the topic of a kind; what is sent to the first one all drains have."""
        return f"chaos-drain-{self._tag}-{kind}" + (f"-{self.turn}" if kind != "orders" else "")

    @property
    def topics(self) -> list[str]:
        """Return the topics of this drain."""
        return [self.topic(k) for k in ("orders", "fresh", "light", "pop", "metaq", "retried")]

    @property
    def _own(self) -> str:
        return f"{self._tag}-{self.turn}"

    def _body(self, kind: str, padding: int = 0) -> bytes:
        return f"{self._tag} {kind} {next(self._numbers)}".encode().ljust(padding)

    def reader(self, kind: str, group: str) -> str:
        """Return how a group is called that is to have the messages of a topic."""
        return f"{group} of {self.topic(kind)}"

    async def send(
        self, kind: str, *groups: str, properties: str = "", padding: int = 0, **more: Any
    ) -> Any:
        """Send a message that these groups are to have; they are owed it if it is acknowledged."""
        body = self._body(kind, padding)
        answer = await self._remoting.put(
            self.topic(kind), body, properties=f"TAGS\x01x\x02{properties}", **more
        )
        if answer.code == OK:
            self._drained.acked(body, *(self.reader(kind, group) for group in groups))
        return answer

    async def produce(self) -> None:
        """Send for as long as the shard takes it."""
        taken = True
        while taken:
            taken = (await self.send("orders", READS_ALL)).code == OK
            await asyncio.sleep(_PAUSE_SECONDS)

    async def read(self, kind: str, group: str, topic: str = "") -> None:
        """Have a group read a topic to its end, and commit."""
        name = topic or self.topic(kind)
        at = self._at.get((name, group), 0)
        while True:
            answer = await self._remoting.pull(name, at, consumerGroup=group)
            if answer.code != OK:
                break
            found = decode_messages(answer.body)
            self._drained.got(self.reader(kind, group), [each.body for each in found])
            at = int(answer.ext["nextBeginOffset"])
        self._at[name, group] = at
        told = {"consumerGroup": group, "topic": name, "queueId": 0, "commitOffset": at}
        assert (await self._remoting.call(RequestCode.UPDATE_CONSUMER_OFFSET, told)).code == OK

    # What is owed to one client alone

    async def fresh(self) -> Owed:
        """A group that is connected and has committed nothing."""
        consumer = {
            "groupName": f"{GROUP}-fresh-{self._own}",
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
            "subscriptionDataSet": [
                {"topic": self.topic("fresh"), "subString": "*", "subVersion": 1}
            ],
        }
        told = json.dumps({"clientID": "fresh", "consumerDataSet": [consumer]}).encode()
        assert (await self._remoting.call(RequestCode.HEART_BEAT, body=told)).code == OK
        group = f"{GROUP}-fresh-{self._own}"
        await self.send("fresh", READS_ALL, group)
        await self.read("fresh", READS_ALL)
        return lambda: self.read("fresh", group)

    async def light(self) -> Owed:
        """A light queue that nobody has read."""
        name = f"{LIGHT}{self._own}"
        await self.send("light", READS_ALL, name, properties=f"INNER_MULTI_DISPATCH\x01{name}\x02")
        await self.read("light", READS_ALL)
        return lambda: self.read("light", name, topic=name)

    async def popped(self) -> Owed:
        """A message that was popped and not acknowledged."""
        await self.send("pop", f"{GROUP}-pops")
        ask: dict[str, Any] = {"topic": self.topic("pop"), "consumerGroup": f"{GROUP}-pops"}
        answer = await pop(self._remoting, **ask)
        self._drained.got(self.reader("pop", f"{GROUP}-pops"), bodies(answer))

        async def take() -> None:
            for receipt in receipts(answer):
                assert (await acknowledge(self._remoting, receipt, **ask)).code == OK

        return take

    async def prepared(self) -> Owed:
        """An XA transaction that was prepared: its messages come with its end."""
        body, key = self._body("xa"), f"{XA}-{self._own}"
        await self._transaction(key, "BEGIN")
        head = f"put {self.topic('orders')} 0 {len(body)} 0 -1 {key} 9\r\n".encode()
        assert (await self._metaq.ask(head + body)).startswith(b"result 200")
        await self._transaction(key, "PREPARE")
        self._drained.acked(body, self.reader("orders", READS_ALL))

        async def take() -> None:
            await self._transaction(key, "COMMIT_TWO_PHASE")
            await self.read("orders", READS_ALL)

        return take

    async def _transaction(self, key: str, kind: str) -> None:
        answer = await self._metaq.ask(f"transaction {key} s1 {kind} 9\r\n".encode())
        assert answer.startswith(b"result 200"), (kind, answer)

    async def half(self) -> Owed:
        """A half message of RocketMQ."""
        more = "TRAN_MSG\x01true\x02UNIQ_KEY\x01u\x02PGROUP\x01P\x02"
        answer = await self.send("orders", READS_ALL, properties=more, f=4, a="P")

        async def take() -> None:
            ended = await self._remoting.call(
                RequestCode.END_TRANSACTION,
                {
                    "producerGroup": "P",
                    "tranStateTableOffset": answer.ext["queueOffset"],
                    "commitLogOffset": int(answer.ext["msgId"][16:], 16),
                    "commitOrRollback": COMMIT,
                    "fromTransactionCheck": "false",
                    "msgId": "u",
                    "transactionId": "u",
                },
            )
            assert ended.code == OK, ended.remark
            await self.read("orders", READS_ALL)

        return take

    async def timed(self) -> Owed:
        """Messages of a level and of a time; they come by themselves."""
        reader = self.reader("orders", READS_ALL)
        before = set(self._drained.told.get(reader, ()))
        sent = [
            await self.send("orders", READS_ALL, properties="DELAY\x013\x02"),
            await self.send("orders", READS_ALL, properties="TIMER_DELAY_SEC\x0110\x02"),
        ]
        assert all(answer.code == OK for answer in sent), sent
        mine = self._drained.told[reader] - before

        async def take() -> None:
            while mine - set(self._drained.had.get(reader, ())):
                await self.read("orders", READS_ALL)
                await asyncio.sleep(_PAUSE_SECONDS)

        return take

    async def given_back(self) -> Owed:
        """Messages that a group gave back: one is tried again, the other a dead letter."""
        group = f"{GROUP}-back-{self._own}"
        for reading, level in ((group, 1), (f"{GROUP}-mourners", -1)):
            await self.send("retried", READS_ALL, reading)
            found = await self._remoting.messages(
                self.topic("retried"),
                self._at.get((self.topic("retried"), READS_ALL), 0),
                consumerGroup=READS_ALL,
            )
            back = {"offset": found[-1].physical_offset, "group": group, "delayLevel": level}
            answer = await self._remoting.call(RequestCode.CONSUMER_SEND_MSG_BACK, back)
            assert answer.code == OK, answer.remark
            await self.read("retried", READS_ALL)

        async def take() -> None:
            retried = self.reader("retried", group)
            while not self._drained.had.get(retried):
                await self.read("retried", group, topic=f"%RETRY%{group}")
                await asyncio.sleep(_PAUSE_SECONDS)
            await self.read("retried", f"{GROUP}-mourners", topic=f"%DLQ%{group}")

        return take

    async def metaq(self) -> Owed:
        """A group of MetaQ's consumers that has a consumer, and has told no progress."""
        topic, group = self.topic("metaq"), f"{GROUP}-m-{self._own}"
        await self.send("metaq", READS_ALL, group)
        await self.read("metaq", READS_ALL)
        folder = f"/meta/consumers/{group}"
        await asyncio.to_thread(self._note, f"{folder}/ids/host-1", topic.encode())

        async def take() -> None:
            answer = await self._metaq.ask(f"get {topic} {group} 0 0 {1 << 20} 5\r\n".encode())
            found = list(parse_block(value_body(answer)))
            self._drained.got(self.reader("metaq", group), [each.payload for each in found])
            position = b"%d-%d" % (found[-1].id, sum(each.size for each in found))
            path = f"{folder}/offsets/{topic}/{self._member.number}-0"
            await asyncio.to_thread(self._note, path, position)

        return take

    def _note(self, path: str, data: bytes) -> None:
        client = KazooClient(self._zookeeper, timeout=10)
        client.start()
        try:
            client.create(path, data, makepath=True)
        finally:
            client.stop()
            client.close()


@asynccontextmanager
async def clients(
    member: Member, zookeeper: str, drained: DrainedShard, tag: str
) -> AsyncIterator[Clients]:
    """Connect to a member, which is the whole shard."""
    found = Clients(member, zookeeper, drained, tag)
    await found.connect()
    try:
        yield found
    finally:
        await found.close()
