"""The original Java consumer over a backlog: of ours, and of its own server, in one run.

    python -m bench.java_backlog [--backlog-mb N] [--port-base N]

`make bench-peers` runs it after the comparisons. Both servers get the same messages of 1 KiB in
four partitions and are started again. The consumer reads each through once as a group that comes
back and once more as the next one; it has read one backlog before, so that its code is compiled.
Writes bench/results/java_backlog.json.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from rich.console import Console
from rich.table import Table

from bench import backlog, harness
from bench.metaq import STORED_BYTES, Peer
from imago_testing.interop.drivers import METAQ, PARTS, running_commands
from imago_testing.interop.metaq import MetaqClient
from imago_testing.java.driver import java_command
from imago_testing.java.originals import (
    AS_SHIPPED,
    metaq_broker,
    original_zookeeper,
    wait_for_topic,
)
from imago_wire.text.commands import Result

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from imago_testing.java.driver import JavaDriver

READ_SECONDS_MAX = 120.0
JVM: dict[str, Any] = {"heap_mb": 512, "flags": ("-Xms512m",)}
READERS = ("first", "later")


@dataclass(frozen=True, slots=True)
class Contender:
    """A server over a folder of its own, and where its consumers find it."""

    name: str
    folder: Path
    zookeeper: int
    port_base: int

    @property
    def registry(self) -> str:
        return f"127.0.0.1:{self.zookeeper}"

    def run(self) -> AbstractContextManager[harness.Server]:
        """Run it; its data may be there already."""
        return self._original() if self.name == "original" else self._ours()

    @contextlib.contextmanager
    def _original(self) -> Iterator[harness.Server]:
        with metaq_broker(self.folder, [backlog.TOPIC], self.zookeeper, AS_SHIPPED) as broker:
            wait_for_topic(self.registry, backlog.TOPIC)
            harness.pin(broker.pid, harness.BROKER_CORE)
            yield harness.Server(broker.pid, broker.port, 0)

    @contextlib.contextmanager
    def _ours(self) -> Iterator[harness.Server]:
        self.folder.mkdir(exist_ok=True)
        data = self.folder / "data"
        with harness.lone_broker(data, self.port_base, self.registry) as server:
            server.wait_until_ready()
            server.create_topic(backlog.TOPIC, backlog.PARTITIONS)
            wait_for_topic(self.registry, backlog.TOPIC)
            harness.pin(server.pid, harness.BROKER_CORE)
            yield server


def fill(contender: Contender, wanted: int, say: backlog.Say) -> None:
    """Put the backlog."""
    with contender.run() as server:
        if contender.name == "original":
            # One connection first: the first put makes the partitions, not safely from many.
            harness.load("put", server.metaq, pids=[], conns=1, seconds=1, warmup=0)
        backlog.fill(server, wanted, say)


def stored_messages(port: int) -> int:
    """How many there are: each is equally large, and all partitions begin at 0."""
    with contextlib.closing(Peer(port)) as peer:
        (answer,) = peer.ask(b"stats offsets 1\r\n", 1)
    assert isinstance(answer, Result)
    lines = [line.split() for line in answer.text.splitlines()]
    ends = [int(words[6]) for words in lines if words[:2] == [backlog.TOPIC, "part"]]
    return sum(ends) // STORED_BYTES


def read(
    driver: JavaDriver, contender: Contender, server: harness.Server, group: str, count: int
) -> dict[str, Any]:
    """Have a group read so many messages: its rate, and what a message costs the server."""
    process = psutil.Process(server.pid)
    client = MetaqClient(driver, contender.registry, [])
    with client.factory() as factory:
        harness.wait_for_calm()
        before, used = harness.busy_seconds(harness.cpu_ticks()), harness.own_seconds([driver.pid])
        began = process.cpu_times()
        reading = factory.read_backlog(backlog.TOPIC, group, count, seconds_max=READ_SECONDS_MAX)
        ended = process.cpu_times()
        own = harness.own_seconds([driver.pid]) - used
    if not reading.whole:
        raise harness.BenchError(f"{contender.name}: {reading} of {count} in {READ_SECONDS_MAX} s")
    spent = ended.user + ended.system - began.user - began.system
    busy = harness.busy_seconds(harness.cpu_ticks()) - before
    return {
        "messages": reading.messages,
        "rate": round(reading.messages / reading.seconds),
        "bytes_per_second": round(reading.bytes / reading.seconds),
        "server_cpu_us": round(spent / reading.messages * 1e6, 3),
        "client_cpu_us": round(own / reading.messages * 1e6, 3),
        "others_seconds": round(max(0.0, busy - own - spent), 2),
    }


def warm_up(driver: JavaDriver, contender: Contender) -> None:
    """Have the consumer read a backlog, so that its code is compiled."""
    with contender.run() as server:
        read(driver, contender, server, "warm", stored_messages(server.metaq))


def measure(driver: JavaDriver, contender: Contender) -> dict[str, Any]:
    """Return what the first group and the next one got of a server that was started again."""
    with contender.run() as server:
        count = stored_messages(server.metaq)
        return {each: read(driver, contender, server, each, count) for each in READERS}


@contextlib.contextmanager
def running_client(folder: Path) -> Iterator[JavaDriver]:
    """Run the original client, with a JVM as it would have and on the generator's core."""

    def command(name: str, home: Path) -> list[str]:
        module, main = PARTS[name]
        return java_command(module, main, home, **JVM)

    with running_commands([METAQ], command, lambda name: folder / name) as drivers:
        driver = drivers[METAQ].wait_ready()
        harness.pin(driver.pid, harness.LOAD_CORE)
        yield driver


def compare(options: argparse.Namespace, say: backlog.Say) -> dict[str, dict[str, Any]]:
    """Fill both servers, then have one consumer read both."""
    with tempfile.TemporaryDirectory(prefix="imago-bench-") as name, contextlib.ExitStack() as all_:
        folder = Path(name)
        contenders = []
        for each in ("original", "imago"):
            own = folder / each
            own.mkdir()
            zookeeper = all_.enter_context(original_zookeeper(own))
            contenders.append(Contender(each, own / "broker", zookeeper, options.port_base))
        for contender in contenders:
            say(f"{contender.name}: the backlog")
            fill(contender, options.backlog_mb << 20, say)
        driver = all_.enter_context(running_client(folder))
        say("the consumer's code is compiled")
        warm_up(driver, contenders[0])
        found = {}
        for contender in contenders:
            say(f"{contender.name}: the consumer")
            found[contender.name] = measure(driver, contender)
        return found


def table(found: dict[str, dict[str, Any]]) -> Table:
    shown = Table(title="The original Java consumer over a backlog of 1 KiB messages")
    for column in ("server", "group", "k msg/s", "MB/s", "server µs", "client µs", "others s"):
        shown.add_column(column, justify="right")
    for name, readers in found.items():
        for reader, row in readers.items():
            shown.add_row(
                name,
                reader,
                f"{row['rate'] / 1e3:,.0f}",
                f"{row['bytes_per_second'] / 1e6:,.0f}",
                f"{row['server_cpu_us']:.2f}",
                f"{row['client_cpu_us']:.2f}",
                f"{row['others_seconds']:.1f}",
            )
    shown.caption = "µs: CPU time a message, all threads; others: processor seconds of anybody else"
    return shown


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.java_backlog", description=__doc__)
    parser.add_argument("--backlog-mb", type=int, default=1024)
    parser.add_argument("--port-base", type=int, default=27400)
    options = parser.parse_args(sys.argv[1:] if arguments is None else arguments)
    console = Console()
    try:
        harness.build_native()
        found = compare(options, lambda text: console.print(f"[dim]{text} …"))
    except harness.BenchError as error:
        console.print(f"[red]{error}")
        return 2
    console.print(table(found))
    rows = [{"name": name, **readers} for name, readers in found.items()]
    console.print(f"written to {harness.write_results('java_backlog', rows)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
