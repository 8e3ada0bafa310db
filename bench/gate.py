"""`make bench-gate`: instructions of the hot path a message, against the recorded ones.

    python -m bench.gate [--record] [--only TEXT]

callgrind counts the user instructions of `bench.hot_path`, `bench.hot_waiting`, `bench.hot_reads`,
`bench.hot_grpc` and `bench.hot_rows` between the first and the last round; that repeats to a few
percent whatever else the machine does. Fails at +5 %. `--record` accepts today's figures, with
`--only` those of the cases whose name holds the text.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from bench.harness import RESULTS, BenchError, named
from imago_wire.hot import COMPILED

if TYPE_CHECKING:
    from collections.abc import Sequence

RECORD = RESULTS / "gate.json"
GROWTH_MAX = 0.05
ROUNDS = 40


@dataclass(frozen=True, slots=True)
class Case:
    """A shape of load: connections × requests in one read."""

    name: str
    protocol: str
    connections: int
    depth: int
    messages_a_request: int = 1
    module: str = "bench.hot_path"

    @property
    def shape(self) -> list[str]:
        """The arguments that say it."""
        numbers = [self.connections, self.depth] if self.depth else [self.connections]
        return ["-m", self.module, self.protocol, *map(str, numbers)]


CASES = [
    Case("MetaQ put, 64 × 1", "metaq", 64, 1),
    Case("MetaQ put, 1 × 64", "metaq", 1, 64),
    Case("RocketMQ send, 64 × 1", "rocketmq", 64, 1),
    Case("RocketMQ batch of 16, 64 × 1", "batch", 64, 1, 16),
    Case("MetaQ put by a rule, 64 × 1", "granted", 64, 1),
    Case("RocketMQ signed send by a rule, 64 × 1", "signed", 64, 1),
    Case("the digest of a signature alone", "digest", 64, 1),
    *(
        Case(name, work, 64, 0, module="bench.hot_waiting")
        for name, work in (
            ("RocketMQ idempotent send, 64 × 1", "numbered"),
            ("RocketMQ half message, 64 × 1", "half"),
            ("RocketMQ commit, 64 × 1", "end"),
            ("RocketMQ delay level: parked and delivered, 64 × 1", "delay"),
            ("RocketMQ timer: parked and delivered, 64 × 1", "timer"),
        )
    ),
    Case("MetaQ get of 100, a request", "get", 4, 0, module="bench.hot_reads"),
    Case("MetaQ get of 250 by a first reader, a request", "first", 4, 0, module="bench.hot_reads"),
    Case("RocketMQ pull of 32, a request", "pull", 4, 0, module="bench.hot_reads"),
    Case("RocketMQ pull that waits for a put, both", "follow", 4, 0, module="bench.hot_reads"),
    Case("SDK send, 4 × 16", "send", 4, 16, module="bench.hot_grpc"),
    Case("SDK receive of 32, a message", "receive", 4, 1, 32, module="bench.hot_grpc"),
    Case("SDK acknowledgement of 32, a message", "acknowledge", 4, 1, 32, module="bench.hot_grpc"),
    Case("Spark's seven columns, a row", "default", 4, 0, 200, module="bench.hot_rows"),
    Case(
        "columns of a table of ingest, checked, a row", "core", 4, 0, 200, module="bench.hot_rows"
    ),
]


def instructions(case: Case) -> int:
    """Count the instructions of one run under callgrind."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        raise BenchError("valgrind is missing: apt-get install valgrind")
    with tempfile.TemporaryDirectory(prefix="imago-gate-") as folder:
        out = Path(folder) / "callgrind.out"
        command = [
            valgrind,
            "--tool=callgrind",
            "--instr-atstart=no",
            f"--callgrind-out-file={out}",
            sys.executable,
        ]
        command += [*case.shape, str(ROUNDS), "--callgrind"]
        environment = os.environ | {"PYTHONHASHSEED": "0", "PYTHONMALLOC": "malloc"}
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        if done.returncode != 0:
            raise BenchError(f"{case.name}: {done.stderr[-600:]}")
        found = re.search(r"^(?:summary|totals): (\d+)", Path(f"{out}.1").read_text(), re.MULTILINE)
        assert found, "callgrind writes its total"
        return int(found.group(1))


def per_message(case: Case) -> int:
    """Instructions a message; of reads, a request."""
    messages = ROUNDS * case.connections * max(1, case.depth) * case.messages_a_request
    return round(instructions(case) / messages)


def judge(counted: dict[str, int], recorded: dict[str, int]) -> list[str]:
    """Print one line a case; return the names of those that grew too much."""
    grown = []
    for name, now in counted.items():
        before = recorded.get(name)
        change = f"{(now - before) / before:+.1%}" if before else "new"
        print(f"{name:52} {now:>8,} instructions  {change}")
        if before and now > before * (1 + GROWTH_MAX):
            grown.append(name)
    return grown


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.gate", description=__doc__)
    parser.add_argument("--record", action="store_true", help="accept today's figures")
    parser.add_argument("--only", default="", help="cases whose name holds this text")
    options = parser.parse_args(sys.argv[1:] if arguments is None else arguments)
    if not COMPILED:
        print("the hot modules are not compiled: run `make setup` with a C compiler")
        return 2
    try:
        counted = {case.name: per_message(case) for case in named(CASES, options.only)}
    except BenchError as error:
        print(error)
        return 2
    recorded = orjson.loads(RECORD.read_bytes()) if RECORD.exists() else {}
    grown = judge(counted, recorded)
    if options.record:
        recorded = {case.name: (recorded | counted).get(case.name) for case in CASES}
        kept = {name: figure for name, figure in recorded.items() if figure}
        RECORD.write_bytes(orjson.dumps(kept, option=orjson.OPT_INDENT_2) + b"\n")
        print(f"recorded in {RECORD.name}")
        return 0
    if grown:
        print(f"more than {GROWTH_MAX:.0%} over the record: {', '.join(grown)}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
