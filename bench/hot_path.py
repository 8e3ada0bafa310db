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
import contextlib
import cProfile
import hmac
import os
import pstats
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from imago_broker.app import Broker
from imago_broker.app.process import settle_garbage_collector
from imago_broker.config import BrokerConfig
from imago_broker.config.metaq_section import MetaqSection
from imago_broker.config.sections import (
    AdminSection,
    BrokerSection,
    NamesrvSection,
    RocketmqSection,
    StoreSection,
)
from imago_broker.config.security_sections import AclSection
from imago_broker.model.access import AccessKind, AccessRule, Operation, Resource
from imago_broker.model.topics import TopicConfig
from imago_broker.model.users import ANONYMOUS, User
from imago_broker.service.access import Actor
from imago_wire.crc import crc31
from imago_wire.remoting.signing import signed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

BODY = bytes(ord("a") + i % 23 for i in range(1024))
QUEUES = 4
BATCH = 16
WARM_ROUNDS = 5
METAQ = {"metaq", "granted"}
GUARDED = {"granted", "signed"}
USER, SECRET = "bench-user", "secret-of-bench"


class Wire(asyncio.Transport):
    """A transport that counts what would be sent."""

    def __init__(self, **extra: object) -> None:
        super().__init__({"peername": ("127.0.0.1", 40000), **extra})
        self.written = 0

    def write(self, data: Any) -> None:
        self.written += len(data)

    def writelines(self, list_of_data: Any) -> None:
        self.written += sum(map(len, list_of_data))

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is ever held back here."""

    def pause_reading(self) -> None:
        """There is nothing to pause."""

    def resume_reading(self) -> None:
        """Nor to resume."""

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        """There is nothing to close."""


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


def rocketmq_frame(code: int, ext: str, opaque: int, body: bytes) -> bytes:
    """A request as the Java client of version 5 writes it, its header in JSON."""
    header = (
        f'{{"code":{code},"extFields":{{{ext}}},"flag":0,"language":"JAVA","opaque":{opaque},'
        '"serializeTypeCurrentRPC":"JSON","version":479}'
    ).encode()
    return struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body


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


class RoundClock:
    """A millisecond a round: what is done every so often is done as often in every run."""

    def __init__(self) -> None:
        self.now_ms = time.time_ns() // 1_000_000

    @contextlib.contextmanager
    def rules(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """Have the loop's timers go by this clock, not by how fast the machine is."""
        began, began_ms = loop.time(), self.now_ms
        loop.time = lambda: began + (self.now_ms - began_ms) / 1000  # type: ignore[method-assign]  # of this loop only
        try:
            yield
        finally:
            del loop.time

    def epoch_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms


async def run_rounds(sessions: Sequence[tuple[Any, bytes]], rounds: int, clock: RoundClock) -> None:
    for _ in range(rounds):
        clock.now_ms += 1
        for session, data in sessions:
            session.data_received(data)
        await asyncio.sleep(0)
        await asyncio.sleep(0)


def count_instructions(options: argparse.Namespace, *, on: bool) -> None:
    """Under callgrind: count from here on, or no more."""
    if options.callgrind:
        monitor("instrumentation on" if on else "dump")


def monitor(command: str) -> None:
    """Tell the valgrind that runs this process."""
    words = ["vgdb", f"--pid={os.getpid()}", *command.split()]
    subprocess.run(words, check=True, capture_output=True, timeout=60)


def configuration(folder: str, *, guarded: bool = False) -> BrokerConfig:
    token = Path(folder) / "admin.token"
    token.write_text("t" * 32)
    token.chmod(0o600)
    return BrokerConfig(
        acl=AclSection(enabled=guarded),
        broker=BrokerSection(data_dir=folder, host="127.0.0.1", bind="127.0.0.1"),
        metaq=MetaqSection(port=0),
        rocketmq=RocketmqSection(port=0, fast_port=0),
        namesrv=NamesrvSection(port=0),
        admin=AdminSection(port=0, token_file=str(token)),
        store=StoreSection(segment_bytes_max=256 << 20),
    )


def allow(broker: Broker) -> None:
    """Have the user, and who shows no credentials, send from here."""
    by, topic = Actor("bench", "here"), Resource(AccessKind.TOPIC, "ben", prefix=True)
    rules = [AccessRule(topic, frozenset({Operation.PUBLISH}), hosts=("127.0.0.0/8",))]
    access = broker.core.access
    access.put_user(User(name=USER, secret=SECRET), by)
    for name in (USER, ANONYMOUS):
        access.set_rules(name, rules, by)


def digests(options: argparse.Namespace) -> float:
    """Make as many digests as there would be signed sends; return the seconds they took."""
    text = requests("signed", 0, 1)[8:]  # about what is signed, and as long
    count_instructions(options, on=True)
    began = time.process_time()
    for _ in range(options.connections * options.depth * options.rounds):
        hmac.digest(SECRET.encode(), text, "sha1")
    took = time.process_time() - began
    count_instructions(options, on=False)
    return took


async def timed_rounds(
    options: argparse.Namespace, sessions: Sequence[tuple[Any, bytes]], clock: RoundClock
) -> float:
    """Run all rounds; return the processor seconds of those that count."""
    with clock.rules(asyncio.get_running_loop()):
        await run_rounds(sessions, WARM_ROUNDS, clock)
        count_instructions(options, on=True)
        began = time.process_time()
        await run_rounds(sessions, options.rounds, clock)
        took: float = time.process_time() - began
        count_instructions(options, on=False)
    return took


async def turns(options: argparse.Namespace, folder: str) -> float:
    """Run the rounds; return the seconds they took."""
    clock = RoundClock()
    guarded = options.protocol in GUARDED
    broker = Broker(configuration(folder, guarded=guarded), clock=clock)
    await broker.start()
    if guarded:
        allow(broker)
    broker.topics.create_or_update(
        TopicConfig(name="bench", read_queues=QUEUES, write_queues=QUEUES)
    )
    listener = broker.ports.metaq if options.protocol in METAQ else broker.ports.rocketmq
    sessions = []
    for number in range(options.connections):
        session = listener.protocol_factory()
        session.connection_made(Wire())
        sessions.append((session, requests(options.protocol, number, options.depth)))
    settle_garbage_collector()
    profile = cProfile.Profile() if options.profile else None
    if profile:
        profile.enable()
    took = await timed_rounds(options, sessions, clock)
    if profile:
        profile.disable()
        pstats.Stats(profile).sort_stats("tottime").print_stats(25)
    per = BATCH if options.protocol == "batch" else 1
    expected: int = options.connections * options.depth * options.rounds * per
    warm = options.connections * options.depth * WARM_ROUNDS * per
    stored: int = sum(broker.store.queue_range("bench", q)[1] for q in range(QUEUES))
    assert stored == expected + warm, f"stored {stored} of {expected + warm}"
    for session, _ in sessions:
        session.connection_lost(None)
    await broker.stop()
    return took / expected * 1_000_000


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.hot_path", description=__doc__)
    parser.add_argument("protocol", choices=[*METAQ, "rocketmq", "batch", "signed", "digest"])
    parser.add_argument("connections", type=int)
    parser.add_argument("depth", type=int)
    parser.add_argument("rounds", type=int)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--callgrind", action="store_true", help="running under callgrind")
    options = parser.parse_args(sys.argv[1:] if arguments is None else arguments)
    if options.protocol == "digest":
        took = digests(options) / (options.connections * options.depth * options.rounds)
        print(f"{took * 1_000_000:.2f} µs a digest")
        return 0
    with tempfile.TemporaryDirectory(prefix="imago-bench-") as folder:
        took = asyncio.run(turns(options, folder))
    print(f"{took:.2f} µs a message")
    return 0


if __name__ == "__main__":
    sys.exit(main())
