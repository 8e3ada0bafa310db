"""MetaQ consumers that come back to a backlog: the first one, and those after it.

The broker is started anew behind the fill, so that nothing is in its memory, and nothing in MetaQ's
own files: these are made while the first reader reads.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import harness

if TYPE_CHECKING:
    from bench.workloads import Workload

READ_SECONDS = 2
"""Of one pass over what was filled: the reader must not come to its end and begin again."""
FILL_SECONDS = 2
FILL_SECONDS_MAX = 180
FILES_SECONDS_MAX = 120
TOPIC, PARTITIONS = "bench", 4

Say = Callable[[str], None]


def measure(workload: Workload, port_base: int, say: Say) -> dict[str, Any]:
    """Fill, start again, and read as the first or, with files made, as a later reader."""
    with tempfile.TemporaryDirectory(prefix="imago-bench-") as name:
        folder = Path(name) / "data"
        with harness.lone_broker(folder, port_base) as server:
            server.wait_until_ready()
            server.create_topic(TOPIC, PARTITIONS)
            filled = fill(server, workload.fill_bytes, say)
        with harness.lone_broker(folder, port_base) as server:
            harness.pin(server.pid, harness.BROKER_CORE)
            keys = {"seconds": READ_SECONDS, "warmup": 0} | workload.keys
            if workload.reader == "later":
                say("a first reader, until MetaQ's files are made")
                make_files(folder, server)
                keys["warmup"] = 1
            say(f"the {workload.reader} reader")
            harness.wait_for_calm()
            row = harness.load("get", server.metaq, pids=[server.pid], **keys)
        return row | {"backlog_bytes": filled, "files_bytes": files_bytes(folder)}


def fill(server: harness.Server, wanted: int, say: Say) -> int:
    """Put so many bytes; return how many it were.

    BenchError: it took too long, so the machine is too busy for what is to be measured.
    """
    deadline = time.monotonic() + FILL_SECONDS_MAX
    keys: dict[str, int | str] = {"conns": 16, "depth": 64, "seconds": FILL_SECONDS, "warmup": 0}
    filled = 0
    while filled < wanted:
        if time.monotonic() > deadline:
            raise harness.BenchError(
                f"the backlog: {filled >> 20} of {wanted >> 20} MiB in {FILL_SECONDS_MAX} s: others"
                " use the machine; wait for them, or name a smaller one with --backlog-mb"
            )
        row = harness.load("put", server.metaq, pids=[], **keys)
        filled += int(row["seconds"] * row["bytes_per_second"])
        say(f"{filled >> 20} of {wanted >> 20} MiB")
    return filled


def files_bytes(folder: Path) -> int:
    """How much of MetaQ's own files there is."""
    return sum(path.stat().st_size for path in folder.rglob("*.meta"))


def make_files(folder: Path, server: harness.Server) -> None:
    """Read until the files grow no more."""
    deadline = time.monotonic() + FILES_SECONDS_MAX
    size, before = files_bytes(folder), -1
    while size == 0 or size > before:
        if time.monotonic() > deadline:
            raise harness.BenchError("MetaQ's files were not written in time")
        harness.load("get", server.metaq, pids=[], seconds=3, warmup=0, conns=4, fetch=1 << 20)
        before, size = size, files_bytes(folder)
