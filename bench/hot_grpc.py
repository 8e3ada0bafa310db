"""The path of RocketMQ 5's SDKs without sockets: HTTP/2 in, services and store, HTTP/2 out.

    python -m bench.hot_grpc send|receive|acknowledge CONNECTIONS DEPTH ROUNDS [--profile]

One round is one loop turn: every connection makes DEPTH calls in one read. `send` puts 1 KiB each,
`receive` gets 32 messages a call, `acknowledge` has as many acknowledged in one call. Each call has
a request id of its own, and headers shortened as grpc-go and Node shorten them. Prints µs a
message. `bench.gate` runs it under callgrind and counts instructions.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from typing import Any

from hpack import Decoder, Encoder

from bench.hot_driver import BODY, QUEUES, RoundClock, Wire, bench_broker, drive, measured
from imago_broker.app.process import settle_garbage_collector
from imago_wire.grpc import frames
from imago_wire.grpc.frames import END_HEADERS, END_STREAM, PREFACE, Http2Frame
from imago_wire.grpc.messages import SERVICE, duration, encoded, make, parse, timestamp

BATCH = 32
WARM_ROUNDS = 5
BORN_MS = 1_795_258_220_883
DATE = "20261130T000000Z"
AUTHORIZATION = (
    "MQv2-HMAC-SHA1 Credential=bench-user, SignedHeaders=x-mq-date-time, "
    "Signature=0A1B2C3D4E5F60718293A4B5C6D7E8F901234567"
)


class BenchClient:
    """One connection: its calls as bytes, and what the broker answered."""

    def __init__(self, number: int) -> None:
        self._encoder, self._decoder = Encoder(), Decoder()
        self._stream, self._number = -1, number
        self.wire = KeptWire()

    def greeting(self) -> bytes:
        """How the connection begins: with room for all answers."""
        settings = frames.settings({frames.Setting.INITIAL_WINDOW_SIZE: frames.WINDOW_MAX})
        return PREFACE + settings + frames.window_update(0, frames.WINDOW_MAX - (1 << 16))

    def call(self, method: str, message: bytes) -> bytes:
        """Return a call's frames."""
        self._stream += 2
        head = frames.frame(Http2Frame.HEADERS, END_HEADERS, self._stream, self._block(method))
        whole, size = b"\0" + len(message).to_bytes(4, "big") + message, frames.FRAME_BYTES_MAX
        parts = [whole[at : at + size] for at in range(0, len(whole), size)]
        return head + b"".join(
            frames.frame(
                Http2Frame.DATA, END_STREAM if part is parts[-1] else 0, self._stream, part
            )
            for part in parts
        )

    def _block(self, method: str) -> bytes:
        told = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", SERVICE + method),
            (":authority", "127.0.0.1:8081"),
            ("content-type", "application/grpc"),
            ("user-agent", "grpc-go/1.72.0"),
            ("te", "trailers"),
            ("grpc-timeout", "30S"),
            ("x-mq-client-id", f"bench@{self._number}@0@a"),
            ("x-mq-language", "GO"),
            ("x-mq-protocol", "v2"),
            ("x-mq-client-version", "5.1.4"),
            ("x-mq-date-time", DATE),
            ("x-mq-request-id", f"{self._stream:08x}-1234-5678-9abc-{self._number:012x}"),
            ("x-mq-namespace", ""),
            ("authorization", AUTHORIZATION),
        ]
        block: bytes = self._encoder.encode(told)
        return block

    def answers(self, name: str) -> list[Any]:
        """Return, and forget, the messages that came."""
        data, at, bodies = bytes(self.wire.kept), 0, dict[int, bytearray]()
        self.wire.kept.clear()
        while at < len(data):
            size, kind, _, number = frames.read_head(data, at)
            at += frames.HEAD_BYTES + size
            if kind == Http2Frame.DATA:
                bodies.setdefault(number, bytearray()).extend(data[at - size : at])
        found = []
        for body in bodies.values():
            while body:
                size = int.from_bytes(body[1:5], "big")
                found.append(parse(name, bytes(body[5 : 5 + size])))
                del body[: 5 + size]
        return found


class KeptWire(Wire):
    """A transport that keeps what would be sent, for as long as somebody wants to read it."""

    def __init__(self) -> None:
        super().__init__()
        self.kept, self.keeps = bytearray(), False

    def write(self, data: Any) -> None:
        super().write(data)
        if self.keeps:
            self.kept += data


def send_request(number: int) -> bytes:
    """Return a SendMessage of 1 KiB as SDKs write it: a tag, a key, a property."""
    message = make("Message", topic=make("Resource", name="bench"), body=BODY)
    message.user_properties["colour"] = "blue"
    told = message.system_properties
    told.tag, told.message_id, told.message_type = "tag", f"01{number:032X}", 1
    told.keys.append(f"key-{number}")
    told.body_encoding, told.born_host = 1, "bench-host"
    told.born_timestamp.CopyFrom(timestamp(BORN_MS))
    return encoded(make("SendMessageRequest", messages=[message]))


def receive_request() -> bytes:
    """Return a ReceiveMessage of a simple consumer."""
    named = make("Resource", name="bench")
    request = make(
        "ReceiveMessageRequest",
        group=make("Resource", name="bench-readers"),
        message_queue=make("MessageQueue", topic=named),
        filter_expression=make("FilterExpression", type=1, expression="*"),
        batch_size=BATCH,
        invisible_duration=duration(60_000),
        long_polling_timeout=duration(5_000),
    )
    return encoded(request)


def ack_request(messages: Sequence[Any]) -> bytes:
    """Return an AckMessage of all messages of a receive."""
    request = make(
        "AckMessageRequest",
        group=make("Resource", name="bench-readers"),
        topic=make("Resource", name="bench"),
    )
    for message in messages:
        told = message.system_properties
        request.entries.add(message_id=told.message_id, receipt_handle=told.receipt_handle)
    return encoded(request)


async def settle() -> None:
    """Let the turn end."""
    for _ in range(3):
        await asyncio.sleep(0)


Turns = Sequence[Sequence[bytes]]
"""What each connection sends, turn by turn."""


async def turns(options: argparse.Namespace, folder: str) -> float:
    """Run the rounds; return the microseconds that a message took."""
    clock, every = RoundClock(), options.rounds + WARM_ROUNDS
    sends: bool = options.work == "send"
    async with bench_broker(folder, clock) as broker:
        clients = [BenchClient(number) for number in range(options.connections)]
        sessions = []
        for client in clients:
            session: Any = broker.ports.grpc.protocol_factory()
            session.connection_made(client.wire)
            session.data_received(client.greeting())
            sessions.append(session)
        with clock.rules(asyncio.get_running_loop()):
            one = options.depth if sends else options.depth * BATCH
            filling = [
                [
                    b"".join(
                        client.call("SendMessage", send_request(turn * one + call))
                        for call in range(one)
                    )
                    for client in clients
                ]
                for turn in range(every)
            ]
            if sends:
                taken = await measure(options, clock, sessions, filling)
            else:
                await run_rounds(clock, sessions, filling)
                taken = await read_back(options, clock, clients, sessions)
        wanted = options.connections * one * every
        stored = sum(broker.store.queue_range("bench", q)[1] for q in range(QUEUES))
        assert stored == wanted, f"stored {stored} of {wanted}"
        for session in sessions:
            session.connection_lost(None)
    counted: int = wanted // every * options.rounds
    return taken / counted * 1_000_000


async def read_back(
    options: argparse.Namespace,
    clock: RoundClock,
    clients: Sequence[BenchClient],
    sessions: Sequence[Any],
) -> float:
    """Receive all messages, then acknowledge them; return the seconds of what is measured."""
    every = range(options.rounds + WARM_ROUNDS)
    asked = [
        [
            b"".join(client.call("ReceiveMessage", receive_request()) for _ in range(options.depth))
            for client in clients
        ]
        for _ in every
    ]
    if options.work == "receive":
        return await measure(options, clock, sessions, asked)
    for client in clients:
        client.wire.keeps = True
    await run_rounds(clock, sessions, asked)
    acks: list[list[bytes]] = [[] for _ in every]
    for client in clients:
        got = [each.message for each in client.answers("ReceiveMessageResponse")]
        got = [message for message in got if message.body]
        assert len(got) == options.depth * BATCH * len(every), f"{len(got)} messages came"
        for turn in every:
            mine = got[turn * options.depth * BATCH : (turn + 1) * options.depth * BATCH]
            parts = [mine[at : at + BATCH] for at in range(0, len(mine), BATCH)]
            acks[turn].append(
                b"".join(client.call("AckMessage", ack_request(part)) for part in parts)
            )
    taken = await measure(options, clock, sessions, acks)
    for client in clients:
        told = client.answers("AckMessageResponse")
        assert len(told) == options.depth * len(every), f"{len(told)} answers came"
        assert all(each.status.code == 20000 for each in told), told[-1]
    return taken


async def measure(
    options: argparse.Namespace, clock: RoundClock, sessions: Sequence[Any], told: Turns
) -> float:
    """Run all rounds; return the seconds of those that count."""
    settle_garbage_collector()
    await run_rounds(clock, sessions, told[:WARM_ROUNDS])
    with measured(options) as taken:
        await run_rounds(clock, sessions, told[WARM_ROUNDS:])
    return taken.seconds


async def run_rounds(clock: RoundClock, sessions: Sequence[Any], told: Turns) -> None:
    """Have every connection send once a round."""
    for turn in told:
        clock.now_ms += 1
        for session, data in zip(sessions, turn, strict=True):
            session.data_received(data)
        await settle()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.hot_grpc", description=__doc__)
    parser.add_argument("work", choices=["send", "receive", "acknowledge"])
    parser.add_argument("connections", type=int)
    parser.add_argument("depth", type=int)
    parser.add_argument("rounds", type=int)
    return drive(parser, turns, arguments, unit="message")


if __name__ == "__main__":
    sys.exit(main())
