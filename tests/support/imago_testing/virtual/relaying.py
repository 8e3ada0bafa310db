"""Members of a shard with the client ports that brokers have, and clients, in a virtual network.

What stands behind the ports is simple: a log that all members share, and a master that answers a
send when the test says that it is replicated. Sessions, relays and ports are the real ones.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from imago_broker.core.budget import InputBudget, OutputBudget
from imago_broker.model.registry.cluster import BrokerRecord
from imago_broker.processors.rocketmq.exchange import OK, Reply
from imago_broker.server.client_ports import ClientPorts, Door
from imago_broker.server.listener import Listener
from imago_broker.server.remoting.remoting_server import RemotingServer
from imago_broker.server.text.text_session import TextLimits, TextSession
from imago_testing.peers.metaq import put_frame
from imago_testing.peers.remoting import heartbeat, pull_ext, send_ext
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.command import RemotingCommand
from imago_wire.remoting.frame import FrameDecoder, encode_frame
from imago_wire.text.encoder import result

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from imago_broker.processors.rocketmq.exchange import Exchange
    from imago_broker.server.text.text_channel import TextChannel
    from imago_testing.virtual.loop import Network, VirtualLoop, VirtualTransport, Wire
    from imago_wire.text.commands import Command

FRAMED_PORT, TEXT_PORT = 10911, 8123
_BEAT_OPAQUE = 1 << 30


class Member:
    """One broker: its ports, and just enough behind them."""

    def __init__(self, name: str, loop: VirtualLoop, log: list[bytes]) -> None:
        self.name, self.log = name, log
        self.leads = False
        self.grants = None
        """Nobody asks for rights."""
        self.lanes: dict[str, Any] = {}
        self._waiting: list[Callable[[bool], None]] = []
        self._held: list[Exchange] = []
        server = RemotingServer(table=cast("Any", self), loop=loop)
        doors = []
        for port, session in ((FRAMED_PORT, server.session), (TEXT_PORT, self._text_session)):
            listener = Listener(name, port, session)
            loop.network.listening[name, port] = listener._make
            doors.append(Door(listener, _always(port)))
        self.ports = ClientPorts(
            doors, loop=loop, append_now=lambda: None, answer_held=self.answer_held
        )

    def _text_session(self) -> TextSession:
        output, unfinished = OutputBudget(1 << 30), InputBudget(1 << 30)
        return TextSession(cast("Any", self), TextLimits(), output, unfinished)

    @property
    def record(self) -> BrokerRecord:
        return BrokerRecord(
            shard=0,
            uuid=self.name,
            host=self.name,
            metaq=TEXT_PORT,
            rocketmq=FRAMED_PORT,
            fast=0,
            replication=0,
            admin=0,
            broker_name="shard-0",
        )

    def replicated(self, done: bool) -> None:
        """Answer what waits for the other members."""
        waiting, self._waiting = self._waiting, []
        for answer in waiting:
            answer(done)

    def answer_held(self) -> None:
        """End the polls."""
        held, self._held = self._held, []
        for exchange in held:
            exchange.answer(Reply(ResponseCode.PULL_NOT_FOUND))

    def _put(self, body: bytes, answer: Callable[[bool], None]) -> None:
        if self.leads:
            self.log.append(body)
            self._waiting.append(answer)
        else:
            answer(False)

    # A table of request codes.

    def dispatch(self, exchange: Exchange) -> None:
        match exchange.command.code:
            case RequestCode.GET_BROKER_CONFIG:
                role = b"ASYNC_MASTER" if self.leads else b"SLAVE"
                exchange.answer(Reply(body=b"brokerRole=" + role))
            case RequestCode.SEND_MESSAGE_V2:
                self._put(
                    exchange.command.body,
                    lambda done: exchange.answer(
                        OK if done else Reply(ResponseCode.SERVICE_NOT_AVAILABLE)
                    ),
                )
            case RequestCode.PULL_MESSAGE if self.leads:
                self._held.append(exchange)
            case RequestCode.PULL_MESSAGE:
                exchange.answer(Reply(ResponseCode.PULL_RETRY_IMMEDIATELY))
            case _:
                exchange.answer(OK)

    # MetaQ's processors.

    def met(self, peer: TextChannel) -> None:
        """All may do all."""

    def take_puts(self, peer: TextChannel, data: bytes) -> int:
        del peer, data
        return 0

    def refusal(self, peer: TextChannel, command: Command) -> None:
        """All are read whole."""

    def run(self, peer: TextChannel, items: Sequence[Any], at: int) -> int:
        for item in items[at:]:
            if len(item) == 8:
                peer.puts += 1
                self._put(item[7], partial(_told, peer, item[6]))
            else:
                peer.reply(result(404, "none", item[6]))
        return len(items)


def _always(port: int) -> Callable[[BrokerRecord], int]:
    return lambda _: port


def _told(peer: TextChannel, opaque: int, done: bool) -> None:
    peer.puts -= 1
    peer.stored(result(200 if done else 500, "text", opaque))


@dataclass(eq=False)
class Client(asyncio.Protocol):
    """One connection of a client: what it asked, and what it was told."""

    name: str
    framed: bool
    asked: list[int] = field(default_factory=list)
    told: dict[int, list[int]] = field(default_factory=dict)
    """By number the codes of the answers."""
    polls: int = 0
    closed: bool = False
    strange: int = 0
    """Answers to nothing that was asked."""
    _decoder: FrameDecoder = field(default_factory=FrameDecoder)
    _text: bytearray = field(default_factory=bytearray)
    _transport: VirtualTransport | None = None

    @property
    def connected(self) -> bool:
        return self._transport is not None and not self.closed

    @property
    def unanswered(self) -> list[int]:
        return [number for number in self.asked if number not in self.told]

    async def connect(self, network: Network, member: str) -> None:
        with contextlib.suppress(ConnectionRefusedError):
            await network.connect(lambda: self, member, FRAMED_PORT if self.framed else TEXT_PORT)

    def body(self, number: int) -> bytes:
        return f"{self.name}/{number:06}".encode()

    def send(self) -> None:
        """Ask for the next message to be stored."""
        number = self._next()
        body = self.body(number)
        if self.framed:
            self._ask(RequestCode.SEND_MESSAGE_V2, number, send_ext("T"), body)
        else:
            self._write(put_frame("T", 0, body, opaque=number))

    def poll(self) -> None:
        """Ask for messages that are not there yet."""
        if self.framed:
            self._ask(RequestCode.PULL_MESSAGE, self._next(), pull_ext("T"), b"")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("VirtualTransport", transport)
        if self.framed:
            self._ask(RequestCode.HEART_BEAT, _BEAT_OPAQUE, {}, heartbeat("group"))

    def data_received(self, data: bytes) -> None:
        if self.framed:
            self._decoder.feed(data)
            while frame := self._decoder.next_frame():
                if frame.opaque != _BEAT_OPAQUE:
                    self._heard(frame.opaque, frame.code)
            return
        self._text += data
        while (end := self._text.find(b"\r\n")) >= 0:
            _, code, size, opaque = self._text[:end].split()
            if len(self._text) < end + 2 + int(size):
                return
            self._heard(int(opaque), int(code))
            del self._text[: end + 2 + int(size)]

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.closed = True

    def _next(self) -> int:
        self.asked.append(len(self.asked) + 1)
        return self.asked[-1]

    def _heard(self, number: int, code: int) -> None:
        self.told.setdefault(number, []).append(code)

    def _ask(self, code: int, opaque: int, ext: dict[str, object], body: bytes) -> None:
        fields = {key: str(value) for key, value in ext.items()}
        self._write(encode_frame(RemotingCommand(code=code, opaque=opaque, ext=fields, body=body)))

    def _write(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)


def happen(what: Wire | asyncio.Future[None], count: int = 1 << 20) -> None:
    """Deliver so many bytes, or let a connection be opened."""
    if isinstance(what, asyncio.Future):
        if not what.done():
            what.set_result(None)
    elif what.ready:
        what.deliver(count)


class RelayingWorld:
    """Members, clients, and what may happen to them."""

    def __init__(self, loop: VirtualLoop, members: str) -> None:
        self.loop, self.network = loop, loop.network
        self.log: list[bytes] = []
        self.members = {name: Member(name, loop, self.log) for name in members}
        self.clients: list[Client] = []
        self._connecting: set[asyncio.Task[None]] = set()

    def client(self, name: str, member: str, *, framed: bool) -> Client:
        client = Client(name, framed)
        self.clients.append(client)
        self._connecting.add(self.loop.create_task(client.connect(self.network, member)))
        return client

    def kill(self, name: str) -> None:
        """End a member at once: its connections break, and nobody listens there."""
        for port in (FRAMED_PORT, TEXT_PORT):
            del self.network.listening[name, port]
        for door in self.members[name].ports._doors:
            for session in door.listener.sessions:
                session.transport.abort()

    async def settle(self, seconds_max: float = 30.0) -> None:
        """Deliver and answer everything; time passes where that is needed."""
        end_s = self.loop.now_s + seconds_max
        while self.loop.now_s < end_s:
            await asyncio.sleep(0)
            pending = self.network.pending
            for each in pending:
                happen(each)
            for member in self.members.values():
                member.replicated(True)
                member.answer_held()
            if pending:
                continue
            if all(client.closed or not client.unanswered for client in self.clients):
                return
            await asyncio.sleep(0.002)

    def faults(self) -> list[str]:
        """What no client should ever see."""
        found = []
        for client in self.clients:
            if client.unanswered and not client.closed:
                found.append(f"{client.name}: no answer to {client.unanswered}")
            twice = [number for number, codes in client.told.items() if len(codes) > 1]
            if twice:
                found.append(f"{client.name}: two answers to {twice}")
            stored = [body for body in self.log if body.startswith(client.name.encode() + b"/")]
            if len(stored) != len(set(stored)):
                found.append(f"{client.name}: stored twice: {stored}")
            for number, codes in client.told.items():
                if codes[0] in (0, 200) and client.body(number) not in stored:
                    found.append(f"{client.name}: {number} is not stored")
        return found

    def out_of_order(self) -> list[str]:
        """The clients whose messages are not stored in the order in which they were sent."""
        fronts = [client.name.encode() + b"/" for client in self.clients]
        stored = [[body for body in self.log if body.startswith(front)] for front in fronts]
        return [
            front.decode() for front, own in zip(fronts, stored, strict=True) if own != sorted(own)
        ]
