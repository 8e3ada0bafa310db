"""kill -9 of a broker in the midst of MetaQ's transactions: each is there whole, or not at all."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from imago_testing.chaos.broker import ChaosBroker
from imago_testing.interop.members import Members
from imago_testing.interop.targets import METAQ_TOPICS, imago_up
from imago_testing.peers.metaq import MetaqPeer, metaq_peer, value_body
from imago_testing.processes.servers import wait_until
from imago_wire.text.message import parse_block

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.processes]
LIVES, EACH, PARTITIONS = 6, 60, 4


@dataclass
class Case:
    """One transaction, as its producer knows it."""

    key: str
    commit: bool
    bodies: list[str] = field(default_factory=list)
    prepared: bool = False
    """Heard."""
    ended: bool = False
    """Heard."""

    @property
    def xa(self) -> bool:
        return self.key.startswith("XID:")


class Producer:
    """Begins transactions, and ends each of them until it hears that it has ended."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.cases: list[Case] = []

    async def live(self, broker: ChaosBroker, life: int) -> None:
        """Go on until the broker is killed, which happens at some point of it."""
        async with metaq_peer(broker.metaq_port) as peer:
            await self._recover(peer)
            cases = [self._case(f"{life}-{each}") for each in range(EACH)]
            asked: dict[int, tuple[Case, str]] = {}
            for case in cases:
                for what, line in self._lines(case):
                    asked[len(asked)] = case, what
                    peer.writer.write(line.replace(b" OPAQUE\r\n", b" %d\r\n" % (len(asked) - 1)))
                if self.rng.random() < 0.2:
                    await peer.writer.drain()
                    await asyncio.sleep(0)
            for _ in range(self.rng.randrange(len(asked))):
                await self._hear(peer, asked)
            broker.kill()
            # What came before the end counts as heard.
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                while True:
                    await self._hear(peer, asked)

    def _case(self, name: str) -> Case:
        xa = self.rng.random() < 0.6
        key = f"XID:1:{name.encode().hex()}:bb:q" if xa else f"TX:s-{name}:1"
        case = Case(key, self.rng.random() < 0.7)
        case.bodies = [f"{name}.{n}" for n in range(self.rng.randint(1, 6))]
        self.cases.append(case)
        return case

    def _lines(self, case: Case) -> list[tuple[str, bytes]]:
        def command(kind: str) -> tuple[str, bytes]:
            return kind, f"transaction {case.key} s {kind} OPAQUE\r\n".encode()

        lines = [command("BEGIN")]
        for body in case.bodies:
            partition = self.rng.randrange(PARTITIONS)
            head = f"put T {partition} {len(body)} 0 -1 {case.key} OPAQUE\r\n"
            lines.append(("put", f"{head}{body}".encode()))
        if case.xa:
            lines.append(command("PREPARE"))
        lines.append(command(self._end(case)))
        return lines

    @staticmethod
    def _end(case: Case) -> str:
        if not case.commit:
            return "ROLLBACK"
        return "COMMIT_TWO_PHASE" if case.xa else "COMMIT_ONE_PHASE"

    async def _hear(self, peer: MetaqPeer, asked: dict[int, tuple[Case, str]]) -> None:
        answer = await peer.frame()
        line = answer.split(b"\r\n")[0].split()
        case, what = asked[int(line[3])]
        assert line[1] == b"200", answer
        case.prepared |= what == "PREPARE"
        case.ended |= what == self._end(case)

    async def _recover(self, peer: MetaqPeer) -> None:
        """End what is prepared, as a transaction manager does after a crash."""
        answer = await peer.ask(b"transaction null s RECOVER q 9\r\n")
        told = answer.partition(b"\r\n")[2].decode().split("\r\n")
        known = {case.key: case for case in self.cases}
        for case in self.cases:
            if case.prepared and not case.ended:
                # Its end may be in the log though nobody has heard of it.
                end = f"transaction {case.key} s {self._end(case)} 9\r\n".encode()
                if case.key not in told:
                    assert (await peer.ask(end)).startswith(b"result 200 ")
                    case.ended = True
        for key in filter(None, told):
            case = known[key]
            end = f"transaction {key} s {self._end(case)} 9\r\n".encode()
            assert (await peer.ask(end)).startswith(b"result 200 ")
            case.ended = case.prepared = True

    async def delivered(self, broker: ChaosBroker) -> list[list[str]]:
        """End everything, then read the topic, partition by partition."""
        async with metaq_peer(broker.metaq_port) as peer:
            await self._recover(peer)
            found = []
            for partition in range(PARTITIONS):
                data = b""
                while True:
                    answer = await peer.get("T", partition, len(data))
                    if answer.startswith(b"result 404 "):
                        break
                    data += value_body(answer)
                found.append([each.body.decode() for each in parse_block(data)])
            return found


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in (1, 2))]
)
def test_transactions_survive_kills(tmp_path: Path, seed: int) -> None:
    broker, producer = ChaosBroker(tmp_path), Producer(seed)
    try:
        for life in range(LIVES):
            broker.start()
            broker.wait()
            if not life:
                broker.put("topics/T", {"queues": PARTITIONS})
            asyncio.run(producer.live(broker, life))
        broker.start()
        broker.wait()
        partitions = asyncio.run(producer.delivered(broker))
    finally:
        broker.close()
    told = [body for bodies in partitions for body in bodies]
    assert len(told) == len(set(told)), "each is delivered once"
    heard = 0
    for case in producer.cases:
        there = [body for body in case.bodies if body in told]
        assert there in ([], case.bodies), f"{case.key} is there in part"
        assert case.commit or not there, f"{case.key} was rolled back"
        if case.commit and case.ended:
            assert there, f"{case.key} was acknowledged"
            heard += 1
    assert heard > LIVES


async def ask(port: int, kind: str, key: str) -> bytes:
    async with metaq_peer(port) as peer:
        return await peer.ask(f"transaction {key} s {kind} 9\r\n".encode())


async def prepare(port: int, key: str) -> None:
    async with metaq_peer(port) as peer:
        await peer.ask(f"transaction {key} s BEGIN 9\r\n".encode())
        for n in range(4):
            body = f"{key} {n}".encode()
            head = f"put {METAQ_TOPICS[0]} {n % 2} {len(body)} 0 -1 {key} 9\r\n"
            assert (await peer.ask(head.encode() + body)).startswith(b"result 200 ")
        answer = await peer.ask(f"transaction {key} s PREPARE 9\r\n".encode())
        assert answer == b"result 200 1 9\r\n0"


async def stored(port: int) -> list[str]:
    async with metaq_peer(port) as peer:
        found: list[str] = []
        for partition in range(2):
            answer = await peer.get(METAQ_TOPICS[0], partition, 0)
            if answer.startswith(b"value "):
                found += [each.body.decode() for each in parse_block(value_body(answer))]
        return sorted(found)


def test_prepared_transactions_are_ended_at_the_next_master(tmp_path: Path) -> None:
    kept, dropped = "XID:1:aa:bb:q", "XID:2:aa:bb:q"
    with imago_up(tmp_path, shards=1, replicas=3, options=["--no-restart"]) as ready:
        brokers: Any = ready["brokers"]
        ports = {each["replica"]: int(each["metaq"].rpartition(":")[2]) for each in brokers}
        members = Members(ready)
        members.settled(3)
        master = members.master("shard-0")
        assert master is not None
        for key in (kept, dropped):
            asyncio.run(prepare(ports[master.replica], key))
        # A member that does not lead says who does.
        other = next(port for replica, port in ports.items() if replica != master.replica)
        assert b"is not the master" in asyncio.run(ask(other, "RECOVER", "null"))
        former = master.replica
        master.signal(signal.SIGKILL)
        wait_until(
            lambda: (now := members.master("shard-0")) is not None and now.replica != former,
            seconds_max=90,
            what="another member leads",
        )
        now = members.master("shard-0")
        assert now is not None
        port = ports[now.replica]
        answer = asyncio.run(ask(port, "RECOVER", "null"))
        assert answer.partition(b"\r\n")[2].decode().split("\r\n") == [kept, dropped]
        for kind, key in (("COMMIT_TWO_PHASE", kept), ("ROLLBACK", dropped)):
            assert asyncio.run(ask(port, kind, key)) == b"result 200 0 9\r\n"
        # Readable once the members that are left have it, which a commit does not wait for.
        wait_until(
            lambda: asyncio.run(stored(port)) == [f"{kept} {n}" for n in range(4)],
            seconds_max=60,
            what="what was committed, once and in order, and nothing else, is readable",
        )
