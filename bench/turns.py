"""The longest turns of a broker's event loop under an open loop, and what was done in them.

    python -m bench.turns [--work send|put] [--rate N] [--seconds N] [--topics N] [--idle N]
                          [--switch-us N] [--scrape PATH …] [--along]
                          [--storm endless|whole [--addresses N] [--key ec|rsa:2048|rsa:4096]]

A turn's time is told apart, so that a busy machine does not matter: `cpu` is the loop's own
processor time, `held` the time in which it could not go on although it had a processor to run on
(another thread had the interpreter, or the disk kept a write). The rest, the wait for a processor,
is left out. One turn follows the other without a pause, which costs a core while this runs.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import gc
import heapq
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvloop

from bench import harness
from bench.hot_driver import configuration
from bench.tls import KEYS, certificate
from imago_broker.app import Broker
from imago_broker.app.process import settle_garbage_collector
from imago_broker.config.sections.security_sections import TlsSection
from imago_broker.model.topics.topics import TopicConfig
from imago_broker.server.remoting.remoting_session import RemotingSession
from imago_broker.server.text.text_session import TextSession
from imago_log.disk.vfs import OsVfs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SHOWN = 12
CAUSE_US = 100
REQUEST_US, REQUEST_BYTES = 60, 1350
"""What a request may take, and its size: a turn that has many to answer is no surprise."""
OTHERS_US, OTHERS_EVERY = 500, 64
BUCKETS_US = (100, 200, 500, 1000, 2000, 5000, 10_000)


@dataclass(order=True, slots=True)
class Turn:
    """One turn of the loop, in microseconds."""

    spent: int
    cpu: int
    held: int
    requests: int
    at: float
    causes: list[tuple[int, str]] = field(default_factory=list, compare=False)


class Watch:
    """Measures each turn, and each callback that takes long in it."""

    def __init__(self) -> None:
        self.longest: list[Turn] = []
        self.turns = 0
        self.counts: Counter[int] = Counter()
        self.watching = False
        self._causes: list[tuple[int, str]] = []
        self._gc_began = (0, 0, 0)
        self._stat = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY)
        self._last = (0, 0, 0)
        self.requests = 0
        self._before: dict[str, int] = {}
        self.held: Counter[int] = Counter()

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Measure from now on."""
        gc.callbacks.append(self._collecting)
        self.watching = True
        self._began = time.monotonic()
        self._last = self.now()
        loop.call_soon(self._turn, loop)

    def end(self) -> None:
        self.watching = False
        gc.callbacks.remove(self._collecting)

    def note(self, name: str, began: tuple[int, int, int]) -> None:
        """Keep what a callback took, if it was long."""
        cpu, held = self._since(began, self.now())
        if cpu + held >= CAUSE_US:
            self._causes.append((cpu + held, f"{name} {cpu}+{held}"))

    @staticmethod
    def _since(began: tuple[int, int, int], ended: tuple[int, int, int]) -> tuple[int, int]:
        """Return the processor time, and that in which nothing was done, in microseconds."""
        wall, cpu, waited = (b - a for a, b in zip(began, ended, strict=True))
        return cpu // 1000, max(0, (wall - cpu - waited) // 1000)

    def _others(self) -> dict[str, int]:
        """Processor time of the other threads, in microseconds."""
        found = {}
        for thread in threading.enumerate():
            if thread is not threading.main_thread() and thread.native_id:
                with contextlib.suppress(OSError):
                    text = Path(f"/proc/self/task/{thread.native_id}/schedstat").read_text()
                    found[thread.name] = int(text.split()[0]) // 1000
        return found

    def now(self) -> tuple[int, int, int]:
        waited = int(os.pread(self._stat, 100, 0).split()[1])
        return time.monotonic_ns(), time.thread_time_ns(), waited

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        now = self.now()
        own, held = self._since(self._last, now)
        self.turns += 1
        spent = max(0, own - self.requests * REQUEST_US) + held
        for limit in BUCKETS_US:
            self.counts[limit] += own >= limit
            self.held[limit] += held >= limit
        if spent >= BUCKETS_US[0]:
            causes = sorted(self._causes, reverse=True)
            if held >= OTHERS_US:
                others = self._others()
                causes += [
                    (0, f"[{name} {took - self._before[name]}]")
                    for name, took in others.items()
                    if took - self._before.get(name, took) >= CAUSE_US
                ]
                self._before = others
            turn = Turn(
                spent, own, held, self.requests, round(time.monotonic() - self._began, 2), causes
            )
            (heapq.heappush if len(self.longest) < SHOWN else heapq.heappushpop)(self.longest, turn)
        self._causes, self.requests = [], 0
        if self.turns % OTHERS_EVERY == 0:
            self._before = self._others()
        self._last = self.now()
        if self.watching:
            loop.call_soon(self._turn, loop)

    def _collecting(self, phase: str, about: dict[str, int]) -> None:
        if phase == "start":
            self._gc_began = self.now()
        elif threading.current_thread() is threading.main_thread():
            self.note(f"collection {about['generation']}", self._gc_began)


WATCH = Watch()


def watched(call: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Have the watch see how long it takes."""

    @functools.wraps(call)
    def measured(*arguments: Any, **named: Any) -> Any:
        if not WATCH.watching:
            return call(*arguments, **named)
        if threading.current_thread() is not threading.main_thread():
            return call(*arguments, **named)
        began = WATCH.now()
        try:
            return call(*arguments, **named)
        finally:
            WATCH.note(name, began)

    return measured


def name_of(call: Any) -> str:
    """Name a callback: of a task's step, the coroutine."""
    owner = getattr(call, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return f"task {getattr(owner.get_coro(), '__qualname__', owner)}"
    return getattr(call, "__qualname__", None) or repr(call)


class WatchedLoop(uvloop.Loop):
    """Has callbacks measured, those of the watch itself aside."""

    def call_soon(self, call: Any, *arguments: Any, context: Any = None) -> Any:  # type: ignore[override]
        if getattr(call, "__self__", None) is not WATCH:
            call = watched(call, name_of(call))
        return super().call_soon(call, *arguments, context=context)

    def call_soon_threadsafe(self, call: Any, *arguments: Any, context: Any = None) -> Any:  # type: ignore[override]
        call = watched(call, name_of(call))
        return super().call_soon_threadsafe(call, *arguments, context=context)

    def call_later(self, delay: float, call: Any, *arguments: Any, context: Any = None) -> Any:  # type: ignore[override]
        call = watched(call, name_of(call))
        return super().call_later(delay, call, *arguments, context=context)

    def call_at(self, when: float, call: Any, *arguments: Any, context: Any = None) -> Any:  # type: ignore[override]
        call = watched(call, name_of(call))
        return super().call_at(when, call, *arguments, context=context)


def watch_reads() -> None:
    """Have what sockets bring measured, and counted by its size."""
    for session in (RemotingSession, TextSession):
        take = watched(session.data_received, f"{session.__name__}.data_received")

        def counted(self: Any, data: bytes, take: Callable[..., Any] = take) -> None:
            WATCH.requests += 1 + len(data) // REQUEST_BYTES
            take(self, data)

        session.data_received = counted  # type: ignore[method-assign]  # of this process only


def watch_files() -> None:
    """Have what the loop does with files measured."""
    for name, call in list(vars(OsVfs).items()):
        if isinstance(call, staticmethod):
            setattr(OsVfs, name, staticmethod(watched(call.__func__, name)))
        elif not name.startswith("_"):
            setattr(OsVfs, name, watched(call, name))


def scraping(port: int, paths: Sequence[str]) -> str:
    """Return the shell's words that ask for pages of the admin port every other second."""
    token = f"Authorization: Bearer {'t' * 32}"
    asked = "; ".join(
        f"curl -s -o /dev/null -H '{token}' http://127.0.0.1:{port}{path}" for path in paths
    )
    return f"while true; do {asked}; sleep 2; done"


def beside(options: argparse.Namespace, broker: Broker) -> Iterator[Sequence[str]]:
    """Yield the programs that run beside the generator."""
    seconds = options.seconds
    if options.along:
        follow = ("pull", f"port={broker.rocketmq_port}", "conns=4", "follow=1")
        yield str(harness.BUILD / "load"), *follow, f"seconds={seconds + 1}"
    if options.scrape:
        yield "sh", "-c", scraping(broker.ports.admin_port, options.scrape)
    if options.storm:
        words = ("-m", "bench.storm", str(broker.ports.metaq_tls.port), "--kind", options.storm)
        more = ("--addresses", str(options.addresses), "--seconds", str(seconds + 5))
        yield sys.executable, *words, *more


async def run(options: argparse.Namespace, folder: str) -> str:
    """Serve the load and watch; return what the generator says."""
    config = configuration(folder)
    if options.storm:
        pem, key = certificate(Path(folder), options.key)
        config = replace(config, tls=TlsSection(certificate_file=pem, key_file=key, metaq_port=0))
    broker = Broker(config)
    await broker.start()
    for number in range(options.topics):
        name = "bench" if options.topics == 1 else f"bench-{number}"
        broker.topics.create_or_update(TopicConfig(name=name, read_queues=4, write_queues=4))
    settle_garbage_collector()
    port = broker.metaq_port if options.work == "put" else broker.rocketmq_port
    seconds = options.seconds
    words = [options.work, f"port={port}", "conns=16", "depth=4096", f"rate={options.rate}"]
    words += [f"seconds={seconds}", "warmup=1", f"topics={options.topics}", f"idle={options.idle}"]
    program = str(harness.BUILD / "load")
    load = await asyncio.create_subprocess_exec(program, *words, stdout=-1, stderr=-1)
    others = [await asyncio.create_subprocess_exec(*words) for words in beside(options, broker)]
    await asyncio.sleep(5)
    WATCH.begin(asyncio.get_running_loop())
    out, error = await load.communicate()
    WATCH.end()
    report()
    for other in others:
        with contextlib.suppress(ProcessLookupError):
            other.kill()
        await other.communicate()
    await broker.stop()
    return (out or error).decode()


def report() -> None:
    print(f"{WATCH.turns} turns; of them as long as:")
    for name, counts in (("cpu", WATCH.counts), ("held", WATCH.held)):
        print(f"{name:>6}" + "".join(f"  {limit} µs: {counts[limit]}" for limit in BUCKETS_US))
    for turn in sorted(WATCH.longest, reverse=True):
        causes = ", ".join(f"{name}" for _, name in turn.causes[:9])
        spent = f"{turn.spent:>8} µs = cpu {turn.cpu} + held {turn.held}"
        print(f"{spent}, {turn.requests} requests, at {turn.at} s: {causes}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.turns", description=__doc__)
    parser.add_argument("--work", choices=("send", "put"), default="send")
    parser.add_argument("--rate", type=int, default=20_000)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--topics", type=int, default=1)
    parser.add_argument("--switch-us", type=int, default=0, help="interval of threads' turns")
    parser.add_argument("--idle", type=int, default=0, help="connections that do nothing")
    parser.add_argument("--scrape", nargs="*", default=[], help="pages of the admin port")
    parser.add_argument("--storm", choices=("endless", "whole"), help="handshakes, 2,000 a second")
    parser.add_argument("--addresses", type=int, default=1, help="of the storm")
    parser.add_argument("--key", choices=sorted(KEYS), default="ec", help="of the certificate")
    parser.add_argument("--along", action="store_true", help="a group reads what is sent")
    options = parser.parse_args(sys.argv[1:] if arguments is None else arguments)
    harness.build_native()
    watch_reads()
    watch_files()
    if options.switch_us:
        sys.setswitchinterval(options.switch_us / 1e6)
    with (
        tempfile.TemporaryDirectory(prefix="imago-bench-") as folder,
        asyncio.Runner(loop_factory=WatchedLoop) as runner,
    ):
        print(runner.run(run(options, folder)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
