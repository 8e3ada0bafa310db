"""RocketMQ's Java push consumer over a backlog of 1 KiB messages: whom it waits for.

    python -m bench.java_push [--only TEXT] [--rounds N] [--backlog-mb N] [--port-base N]

The same client (5.x, a JVM as it would have) reads the same backlog from the original broker, from
Imago, and from a C server that has every answer ready, in turn, once a round: servers on one core,
the client on the other. The last one is as fast as any broker can seem to that client. Where the
client's processor share is close to 1 it waits for nobody, and no server makes it faster. The
client has read backlogs before, so that its code is compiled. Writes bench/results/java_push.json.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from rich.console import Console
from rich.table import Table

from bench import harness, originals
from imago_testing.interop.drivers import PARTS, ROCKETMQ5, running_commands
from imago_testing.interop.rocketmq import RocketmqClient
from imago_testing.java.driver import java_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from imago_testing.java.driver import JavaDriver

READ_SECONDS_MAX = 120.0
JVM: dict[str, Any] = {"heap_mb": 768, "flags": ("-Xms768m",)}
WARM_ROUNDS = 2
ORIGINAL, IMAGO, CANNED = "original", "imago", "canned"
SERVERS = (ORIGINAL, IMAGO, CANNED)


@dataclass(frozen=True, slots=True)
class Case:
    """Settings of the consumer that users have; what is not named is as the client ships."""

    name: str
    queues: int
    settings: dict[str, int] = field(default_factory=dict)

    @property
    def topic(self) -> str:
        return f"bench-{self.queues}"


BATCHES = {"pull_batch": 256, "consume_batch": 32}
CASES = [
    Case("as shipped, 4 queues", 4),
    Case("as shipped, 16 queues", 16),
    Case("listener of 32, 4 queues", 4, {"consume_batch": 32}),
    Case("pulls of 256, listener of 32, 4 queues", 4, BATCHES),
    Case("pulls of 256, listener of 32, 16 queues", 16, BATCHES),
    Case("the same, 10,000 messages cached a queue", 4, BATCHES | {"cached": 10_000}),
]


def ends(server: harness.Server, case: Case) -> list[int]:
    """Return how many messages each queue of a topic has."""
    code = 30  # GET_MAX_OFFSET
    fields = [{"topic": case.topic, "queueId": queue} for queue in range(case.queues)]
    return [int(originals.ask(server.rocketmq, code, each)[0]["offset"]) for each in fields]


def fill(server: harness.Server, case: Case, wanted: int) -> int:
    """Send batches until there are so many bytes; return how many messages it were."""
    while (count := sum(ends(server, case))) << 10 < wanted:
        keys = {"conns": 16, "depth": 4, "seconds": 1, "warmup": 0, "queues": case.queues}
        harness.load("batch", server.rocketmq, pids=[], topic=case.topic, **keys)
    return count


def records(server: harness.Server, case: Case, path: Path) -> Path:
    """Keep what the broker answers to a pull, for the server whose answers are ready."""
    fields = {"consumerGroup": "canned", "topic": case.topic, "queueId": 0, "queueOffset": 0}
    fields |= {"maxMsgNums": 32, "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0}
    fields |= {"subscription": "*", "subVersion": 0, "expressionType": "TAG"}
    path.write_bytes(originals.ask(server.rocketmq, 11, fields)[1])
    return path


def read(
    driver: JavaDriver, server: harness.Server, case: Case, group: str, count: int
) -> dict[str, Any]:
    """Have a group read so many messages: its rate, and who had how much of a core meanwhile."""
    process = psutil.Process(server.pid)
    client = RocketmqClient(5, driver, f"127.0.0.1:{server.names}")
    harness.wait_for_calm()
    began, at = process.cpu_times(), time.monotonic()
    busy = harness.busy_seconds(harness.cpu_ticks())
    own = harness.own_seconds([driver.pid, server.pid])
    reading = client.read_backlog(
        case.topic, group, count, seconds_max=READ_SECONDS_MAX, **case.settings
    )
    ended = process.cpu_times()
    others = harness.busy_seconds(harness.cpu_ticks()) - busy
    others -= harness.own_seconds([driver.pid, server.pid]) - own
    if not reading.whole:
        raise harness.BenchError(f"{case.name}: {reading} of {count} in {READ_SECONDS_MAX} s")
    spent = ended.user + ended.system - began.user - began.system
    return {
        "messages": reading.messages,
        "rate": round(reading.messages / reading.seconds),
        "client_share": round(reading.processor_seconds / reading.seconds, 3),
        "client_cpu_us": round(reading.processor_seconds / reading.messages * 1e6, 3),
        "server_share": round(spent / reading.seconds, 3),
        "server_cpu_us": round(spent / reading.messages * 1e6, 3),
        "held_back": reading.held_back,
        "others": round(max(0.0, others / (time.monotonic() - at)), 3),
    }


@contextlib.contextmanager
def running_client(folder: Path) -> Iterator[JavaDriver]:
    """Run the original client, with a JVM as it would have and on the generator's core."""

    def command(name: str, home: Path) -> list[str]:
        module, main = PARTS[name]
        # Started there, so that the JVM counts one core, too, and its threads begin on it.
        return ["taskset", "-c", str(harness.LOAD_CORE), *java_command(module, main, home, **JVM)]

    with running_commands([ROCKETMQ5], command, lambda name: folder / name) as drivers:
        yield drivers[ROCKETMQ5].wait_ready()


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the median rate, the least processor time, and what a core each would allow by it.

    Others who use the machine take rates, and add to what a message costs, which is why the least
    counts; the slower of the two sides then says how fast both can be at most.
    """
    rates = sorted(run["rate"] for run in runs)
    client, server = (min(run[f"{who}_cpu_us"] for run in runs) for who in ("client", "server"))
    return {
        "rate": rates[len(rates) // 2],
        "client_cpu_us": client,
        "server_cpu_us": server,
        "at_most": round(1e6 / max(client, server)),
        "runs": runs,
    }


def compare(
    cases: list[Case], options: argparse.Namespace, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Fill both brokers, then have one client read from all three, in turn."""
    base = options.port_base
    with tempfile.TemporaryDirectory(prefix="imago-bench-") as name, contextlib.ExitStack() as all_:
        folder = Path(name)
        original = all_.enter_context(originals.rocketmq())
        imago = all_.enter_context(harness.broker(base + 100))
        driver = all_.enter_context(running_client(folder))
        rows: list[dict[str, Any]] = []
        for case in cases:
            say(f"{case.name}: the backlog")
            if all(row["topic"] != case.topic for row in rows):
                originals.create_topic(original.rocketmq, case.topic, queues=case.queues)
                imago.create_topic(case.topic, case.queues)
            counts = {
                ORIGINAL: fill(original, case, options.backlog_mb << 20),
                IMAGO: fill(imago, case, options.backlog_mb << 20),
            }
            each = counts[ORIGINAL] // case.queues
            counts[CANNED] = each * case.queues
            held = records(original, case, folder / "records")
            with harness.canned(base, held, case.queues, each) as canned:
                servers = {ORIGINAL: original, IMAGO: imago, CANNED: canned}
                runs: dict[str, list[dict[str, Any]]] = {server: [] for server in SERVERS}
                warm = 0 if rows else WARM_ROUNDS
                for turn in range(-warm, options.rounds):
                    for server in SERVERS:
                        group = f"g{len(rows)}-{turn + warm}-{server}"
                        run = read(driver, servers[server], case, group, counts[server])
                        say(f"  {server}: {run}")
                        if turn >= 0:
                            runs[server].append(run)
            found = {server: summary(runs[server]) for server in SERVERS}
            rows.append({"name": case.name, "topic": case.topic, **found})
        return rows


def table(rows: list[dict[str, Any]]) -> Table:
    shown = Table(title="RocketMQ's Java push consumer over a backlog of 1 KiB messages")
    columns = ("consumer", "server", "k msg/s", "of the original's", "others")
    for column in (*columns, "client µs", "server µs", "at most k msg/s", "of the original's"):
        shown.add_column(column, justify="left" if column in columns[:2] else "right")
    for row in rows:
        for server in SERVERS:
            one, original = row[server], row[ORIGINAL]
            others = min(run["others"] for run in one["runs"])
            shown.add_row(
                row["name"] if server == ORIGINAL else "",
                server,
                f"{one['rate'] / 1e3:,.0f}",
                f"{one['rate'] / original['rate']:.2f} ×",
                f"{others:.2f}",
                f"{one['client_cpu_us']:.2f}",
                f"{one['server_cpu_us']:.2f}",
                f"{one['at_most'] / 1e3:,.0f}",
                f"{one['at_most'] / original['at_most']:.2f} ×",
            )
    shown.caption = (
        "k msg/s: of the median round; others: processors that anybody else had in the calmest; "
        "µs: CPU time a message, the least of all rounds; at most: what the slower side can do by "
        "that with a core of its own; canned: a C server that has every answer ready"
    )
    return shown


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.java_push", description=__doc__)
    parser.add_argument("--only", default="", help="cases whose name holds this text")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--backlog-mb", type=int, default=512, help="of each topic and server")
    parser.add_argument("--port-base", type=int, default=27600)
    options = parser.parse_args(sys.argv[1:] if arguments is None else arguments)
    console = Console()
    try:
        harness.build_native()
        chosen = harness.named(CASES, options.only)
        rows = compare(chosen, options, lambda text: console.print(f"[dim]{text}"))
    except harness.BenchError as error:
        console.print(f"[red]{error}")
        return 1
    console.print(table(rows))
    known = [case.name for case in CASES]
    console.print(f"written to {harness.merge_results('java_push', rows, known)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
