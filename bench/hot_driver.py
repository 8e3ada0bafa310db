"""What the hot paths share: a broker without sockets, rounds by a clock, and what is measured.

`bench.hot_path`, `bench.hot_reads` and `bench.hot_waiting` say what a round is; `drive` runs one of
them as a program of its own, by hand or under callgrind.
"""

from __future__ import annotations

import asyncio
import contextlib
import cProfile
import os
import pstats
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from imago_broker.app import Broker
from imago_broker.config import BrokerConfig
from imago_broker.config.sections.metaq_section import MetaqSection
from imago_broker.config.sections.sections import (
    AdminSection,
    BrokerSection,
    NamesrvSection,
    RocketmqSection,
    StoreSection,
)
from imago_broker.config.sections.security_sections import AclSection
from imago_broker.model.topics.topics import TopicConfig

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence

BODY = bytes(ord("a") + i % 23 for i in range(1024))
QUEUES = 4
PROFILE_LINES = 30


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


def rocketmq_frame(code: int, ext: str, opaque: int, body: bytes) -> bytes:
    """A request as the Java client of version 5 writes it, its header in JSON."""
    header = (
        f'{{"code":{code},"extFields":{{{ext}}},"flag":0,"language":"JAVA","opaque":{opaque},'
        '"serializeTypeCurrentRPC":"JSON","version":479}'
    ).encode()
    return struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body


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


@contextlib.asynccontextmanager
async def bench_broker(
    folder: str, clock: RoundClock, *, guarded: bool = False
) -> AsyncIterator[Broker]:
    """A broker with the topic `bench`; `guarded`: with access control in force."""
    broker = Broker(configuration(folder, guarded=guarded), clock=clock)
    await broker.start()
    broker.topics.create_or_update(
        TopicConfig(name="bench", read_queues=QUEUES, write_queues=QUEUES)
    )
    yield broker
    await broker.stop()


class Measured:
    """What the rounds that count took."""

    seconds = 0.0
    """Of the processor."""


@contextlib.contextmanager
def measured(options: argparse.Namespace) -> Iterator[Measured]:
    """Measure what is done meanwhile: time, instructions, and where it goes."""
    taken, profile = Measured(), cProfile.Profile(time.process_time) if options.profile else None
    if profile:
        profile.enable()
    count_instructions(options, on=True)
    began = time.process_time()
    yield taken
    taken.seconds = time.process_time() - began
    count_instructions(options, on=False)
    if profile:
        profile.disable()
        pstats.Stats(profile).sort_stats("tottime").print_stats(PROFILE_LINES)


def drive(
    parser: argparse.ArgumentParser,
    turns: Callable[[argparse.Namespace, str], Awaitable[float]],
    arguments: Sequence[str] | None,
    *,
    unit: str,
) -> int:
    """Run what the arguments ask for, and print µs a message or request."""
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--callgrind", action="store_true", help="running under callgrind")
    options = parser.parse_args(sys.argv[1:] if arguments is None else arguments)

    async def run(folder: str) -> float:
        return await turns(options, folder)

    with tempfile.TemporaryDirectory(prefix="imago-bench-") as folder:
        took = asyncio.run(run(folder))
    print(f"{took:.2f} µs a {unit}")
    return 0
