"""The broker's hot path without sockets: real sessions, services and store, bytes in and out.

    python -m bench.hot_path WORK CONNECTIONS DEPTH ROUNDS [--profile]

One round is one loop turn: every connection gets DEPTH requests of 1 KiB in one read. Works are
`metaq`, `rocketmq` and `batch`; with access control in force `granted`, MetaQ's puts by a rule
about networks, and `signed`, RocketMQ's sends of a user with a rule; `digest` is what a signature
costs at least, and nothing else. Prints µs a message. `bench.gate` runs it under callgrind and
counts instructions.
"""

from __future__ import annotations

import argparse
import asyncio
import struct
import sys
from typing import TYPE_CHECKING, Any

import orjson

from bench.hot_driver import (
    BODY,
    QUEUES,
    RoundClock,
    Wire,
    bench_broker,
    drive,
    measured,
    rocketmq_frame,
)
from imago_broker.app.process import settle_garbage_collector
from imago_broker.model.access.access import AccessKind, AccessRule, Operation, Resource
from imago_broker.model.access.users import ANONYMOUS, User
from imago_broker.service.access.access_edits import Actor
from imago_wire.crc import crc31
from imago_wire.remoting.scanning.granting import keyed_digest
from imago_wire.remoting.signing import signed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_broker.app import Broker

BATCH = 16
WARM_ROUNDS = 5
METAQ = {"metaq", "granted"}
GUARDED = {"granted", "signed"}
USER, SECRET = "bench-user", "secret-of-bench"


def metaq_put(number: int) -> bytes:
    head = f"put bench {number % QUEUES} {len(BODY)} 0 {crc31(BODY)} {number}\r\n"
    return head.encode() + BODY


def rocketmq_send(number: int, *, batch: bool = False, sign: bool = False) -> bytes:
    """SEND_MESSAGE_V2, or SEND_BATCH_MESSAGE of 16, as the Java client of version 5 writes it."""
    unique = f"UNIQ_KEY\\u0001{number:032X}\\u0002WAIT\\u0001true\\u0002"
    ext = (
        f'"a":"bench_producer","b":"bench","c":"TBW102","d":"4","e":"{number % QUEUES}","f":"0",'
        f'"g":"1795258220883","h":"0","i":"{unique}","j":"0","k":"false","m":"{str(batch).lower()}",'
        '"n":"shard-0"'
    )
    body = b"".join(batched(number) for _ in range(BATCH)) if batch else BODY
    if sign:
        fields = signed(orjson.loads(f"{{{ext}}}"), body, access_key=USER, secret=SECRET)
        ext = orjson.dumps(fields).decode()[1:-1]
    return rocketmq_frame(320 if batch else 310, ext, number, body)


def batched(number: int) -> bytes:
    """One message inside a batch's body."""
    properties = f"UNIQ_KEY\x01{number:032X}\x02WAIT\x01true\x02".encode()
    total = 22 + len(BODY) + len(properties)
    head = struct.pack(">iiiii", total, 0, 0, 0, len(BODY))
    return head + BODY + struct.pack(">h", len(properties)) + properties


def requests(protocol: str, connection: int, depth: int) -> bytes:
    first = connection * depth
    numbers = range(first, first + depth)
    if protocol in METAQ:
        return b"".join(map(metaq_put, numbers))
    batch, sign = protocol == "batch", protocol == "signed"
    return b"".join(rocketmq_send(n, batch=batch, sign=sign) for n in numbers)


async def run_rounds(sessions: Sequence[tuple[Any, bytes]], rounds: int, clock: RoundClock) -> None:
    for _ in range(rounds):
        clock.now_ms += 1
        for session, data in sessions:
            session.data_received(data)
        await asyncio.sleep(0)
        await asyncio.sleep(0)


def allow(broker: Broker) -> None:
    """Have the user, and who shows no credentials, send from here."""
    by, topic = Actor("bench", "here"), Resource(AccessKind.TOPIC, "ben", prefix=True)
    rules = [AccessRule(topic, frozenset({Operation.PUBLISH}), hosts=("127.0.0.0/8",))]
    access = broker.core.access
    access.put_user(User(name=USER, secret=SECRET), by)
    for name in (USER, ANONYMOUS):
        access.set_rules(name, rules, by)


def digests(options: argparse.Namespace) -> float:
    """Make as many digests as there would be signed sends; return the seconds of each."""
    keyed = keyed_digest(SECRET.encode())
    text = BODY + bytes(150)  # as long as the body and the values of a header
    count: int = options.connections * options.depth * options.rounds
    with measured(options) as taken:
        for _ in range(count):
            digest = keyed.copy()
            digest.update(text)
            digest.digest()
    return taken.seconds / count * 1_000_000


async def turns(options: argparse.Namespace, folder: str) -> float:
    """Run the rounds; return the microseconds that a message took."""
    if options.protocol == "digest":
        return digests(options)
    clock, guarded = RoundClock(), options.protocol in GUARDED
    async with bench_broker(folder, clock, guarded=guarded) as broker:
        if guarded:
            allow(broker)
        listener = broker.ports.metaq if options.protocol in METAQ else broker.ports.rocketmq
        sessions = []
        for number in range(options.connections):
            session = listener.protocol_factory()
            session.connection_made(Wire())
            sessions.append((session, requests(options.protocol, number, options.depth)))
        settle_garbage_collector()
        with clock.rules(asyncio.get_running_loop()):
            await run_rounds(sessions, WARM_ROUNDS, clock)
            with measured(options) as taken:
                await run_rounds(sessions, options.rounds, clock)
        per = BATCH if options.protocol == "batch" else 1
        expected: int = options.connections * options.depth * options.rounds * per
        warm = options.connections * options.depth * WARM_ROUNDS * per
        stored: int = sum(broker.store.queue_range("bench", q)[1] for q in range(QUEUES))
        assert stored == expected + warm, f"stored {stored} of {expected + warm}"
        for session, _ in sessions:
            session.connection_lost(None)
    return taken.seconds / expected * 1_000_000


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.hot_path", description=__doc__)
    parser.add_argument("protocol", choices=[*METAQ, "rocketmq", "batch", "signed", "digest"])
    parser.add_argument("connections", type=int)
    parser.add_argument("depth", type=int)
    parser.add_argument("rounds", type=int)
    return drive(parser, turns, arguments, unit="message")


if __name__ == "__main__":
    sys.exit(main())
