"""What MetaQ's clients do besides put and get: transactions, statistics, a slave that follows.

    python -m bench.metaq [--only TEXT] [--seconds N] [--port-base N]

`make bench` runs it after the workloads. Writes bench/results/metaq.json: the broker's CPU time a
message of a transaction beside that of a plain put by the same generator, on the same broker; of
one question for statistics; of a message that a slave copies.
"""

from __future__ import annotations

import argparse
import socket
import sys
import time
import zlib
from typing import TYPE_CHECKING, Any

import psutil
from rich.console import Console
from rich.table import Table

from bench import harness
from imago_wire.text.commands import Response, Result, Value
from imago_wire.text.decoder import Decoder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

BODY = b"x" * 1024
CHECKSUM = zlib.crc32(BODY) & 0x7FFFFFFF
OF_TRANSACTION = 10
"""Messages in each."""
UNDER_WAY = 32
"""Transactions, or questions, that are asked at once."""
PARTITIONS = 4
TOPICS = 100
FETCH_BYTES = 1 << 20
FILL_SECONDS = 4
READ_BYTES = 1 << 18
ANSWER_SECONDS_MAX = 60.0
STORED_BYTES = 20 + len(BODY)
"""Of a message in MetaQ's form."""


class Peer:
    """A connection that writes many commands and counts their answers."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_SECONDS_MAX)
        self._decoder = Decoder(line_bytes_max=4096, body_bytes_max=64 << 20)

    def ask(self, commands: bytes, answers: int) -> list[Response]:
        """Write commands; return so many answers. BenchError: one is an error."""
        self._socket.sendall(commands)
        found: list[Response] = []
        while len(found) < answers:
            command = self._decoder.next_command()
            if command is None:
                self._decoder.feed(self._socket.recv(READ_BYTES))
                continue
            assert isinstance(command, Result | Value)
            if isinstance(command, Result) and command.code not in (200, 404):
                raise harness.BenchError(f"answered {command.code} {command.text}")
            found.append(command)
        return found

    def close(self) -> None:
        self._socket.close()


def put(partition: int, key: str = "") -> bytes:
    """Return the put of one message, in a transaction where there is a key."""
    more = f"{key} " if key else ""
    head = f"put bench {partition} {len(BODY)} 0 {CHECKSUM} {more}7\r\n"
    return head.encode() + BODY


def transaction(key: str, *steps: str) -> list[bytes]:
    """Return the commands of one transaction: its beginning, its messages, its end."""

    def step(kind: str) -> bytes:
        return f"transaction {key} bench-1-1 {kind} 7\r\n".encode()

    puts = [put(number % PARTITIONS, key) for number in range(OF_TRANSACTION)]
    return [step("BEGIN"), *puts, *map(step, steps)]


def plain(peer: Peer) -> Iterator[int]:
    """Put messages without a transaction; yield how many at a time."""
    commands = b"".join(put(number % PARTITIONS) for number in range(OF_TRANSACTION * UNDER_WAY))
    while True:
        yield len(peer.ask(commands, OF_TRANSACTION * UNDER_WAY))


def local(peer: Peer) -> Iterator[int]:
    """Commit local transactions."""
    number = 0
    while True:
        commands: list[bytes] = []
        for _ in range(UNDER_WAY):
            number += 1
            commands += transaction(f"TX:bench-1-1:{number}", "COMMIT_ONE_PHASE")
        peer.ask(b"".join(commands), len(commands))
        yield OF_TRANSACTION * UNDER_WAY


def xa(peer: Peer) -> Iterator[int]:
    """Commit XA transactions in two phases; who commits has heard that they are prepared."""
    number = 0
    while True:
        first: list[bytes] = []
        second: list[bytes] = []
        for _ in range(UNDER_WAY):
            number += 1
            *before, commit = transaction(
                f"XID:1:{number:08x}:00:bench", "PREPARE", "COMMIT_TWO_PHASE"
            )
            first += before
            second.append(commit)
        peer.ask(b"".join(first), len(first))
        peer.ask(b"".join(second), len(second))
        yield OF_TRANSACTION * UNDER_WAY


def statistics(item: str) -> Callable[[Peer], Iterator[int]]:
    """Ask for statistics."""

    def ask(peer: Peer) -> Iterator[int]:
        command = f"stats {item} 7\r\n" if item else "stats  7\r\n"
        while True:
            yield len(peer.ask(command.encode() * UNDER_WAY, UNDER_WAY))

    return ask


def slave(peer: Peer) -> Iterator[int]:
    """Copy partition after partition as MetaQ's asynchronous slave does; then nothing is left."""
    positions = [0] * PARTITIONS
    left = set(range(PARTITIONS))
    while left:
        for number in sorted(left):
            group = "meta-slave-group_0"
            command = f"get bench {group} {number} {positions[number]} {FETCH_BYTES} 7\r\n"
            [answer] = peer.ask(command.encode(), 1)
            if not isinstance(answer, Value):
                left.discard(number)
                continue
            count = len(answer.body) // STORED_BYTES  # the last one may be cut
            positions[number] += count * STORED_BYTES
            yield count


def measured(
    server: harness.Server, work: Callable[[Peer], Iterator[int]], seconds: float
) -> dict[str, Any]:
    """Do work for so long, or until there is none; return its rate and what the broker spent."""
    peer = Peer(server.metaq)
    try:
        steps = work(peer)
        next(steps)  # the first of all is not counted
        harness.wait_for_calm()
        process = psutil.Process(server.pid)
        before, began, done = process.cpu_times(), time.monotonic(), 0
        for count in steps:
            done += count
            if time.monotonic() - began >= seconds:
                break
        passed, after = time.monotonic() - began, process.cpu_times()
    finally:
        peer.close()
    spent = after.user + after.system - before.user - before.system
    return {
        "rate": round(done / passed),
        "server_cpu_us": round(spent / done * 1e6, 2),
        "count": done,
    }


def transactions(port_base: int, seconds: float) -> list[dict[str, Any]]:
    """Rows of transactions, each beside plain puts."""
    rows = []
    for name, work in (("local transactions", local), ("XA, two phases", xa)):
        with harness.broker(port_base) as server:
            server.create_topic("bench", PARTITIONS)
            beside = measured(server, plain, seconds)
            row = measured(server, work, seconds)
        times = round(row["server_cpu_us"] / beside["server_cpu_us"], 2)
        rows.append({"name": name, "of": "message", **row, "plain": beside, "times_plain": times})
    return rows


def questions(port_base: int, seconds: float) -> list[dict[str, Any]]:
    """Rows of statistics, of a broker with many topics."""
    with harness.broker(port_base) as server:
        for number in range(TOPICS):
            server.create_topic(f"bench-{number}", PARTITIONS)
        server.create_topic("bench", PARTITIONS)
        measured(server, plain, 1)
        items = (("", "stats"), ("bench", "stats of a topic"), ("offsets", "stats offsets"))
        return [
            {"name": name, "of": "question", **measured(server, statistics(item), seconds)}
            for item, name in items
        ]


def slaves(port_base: int, seconds: float) -> list[dict[str, Any]]:
    """The row of a slave that copies what was put before."""
    with harness.broker(port_base) as server:
        server.create_topic("bench", PARTITIONS)
        measured(server, plain, FILL_SECONDS)
        row = measured(server, slave, seconds)
    row["bytes_per_second"] = row["rate"] * STORED_BYTES
    return [{"name": "slave copies", "of": "message", **row}]


ROWS = {"transactions": transactions, "statistics": questions, "slaves": slaves}


def table(rows: Sequence[dict[str, Any]]) -> Table:
    shown = Table(title="MetaQ's clients besides put and get (1 KiB, 10 messages a transaction)")
    for column in ("what", "a second", "CPU µs", "of a", "plain put µs (times)"):
        shown.add_column(column, justify="right" if column != "what" else "left")
    for row in rows:
        beside = (
            f"{row['plain']['server_cpu_us']:.2f} ({row['times_plain']:.1f} ×)"
            if "plain" in row
            else ""
        )
        shown.add_row(
            row["name"], f"{row['rate']:,}", f"{row['server_cpu_us']:.2f}", row["of"], beside
        )
    return shown


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.metaq", description=__doc__)
    parser.add_argument("--only", default="", help="rows whose subject holds this text")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--port-base", type=int, default=27000)
    options = parser.parse_args(sys.argv[1:] if arguments is None else arguments)
    rows: list[dict[str, Any]] = []
    console = Console()
    for subject, measure in ROWS.items():
        if options.only in subject:
            console.print(f"[dim]{subject} …")
            rows += measure(options.port_base, options.seconds)
    console.print(table(rows))
    console.print(f"written to {harness.write_results('metaq', rows)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
