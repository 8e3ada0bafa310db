"""What the store itself costs: appends, reads, many queues. Prints a table; `--json` for programs.

Run it alone on a quiet machine: `python bench/micro_log.py`. CPU time is what counts, not the
clock: every figure is the best of several rounds, in µs of CPU a message.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from imago_log import FileSlice, MessageStore, StoreConfig
from imago_wire import hot
from imago_wire.records.record import RecordBuilder, make_entry, metaq_entry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from imago_wire.records.record import Entry

HOST = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])
BATCH = 64
BODY = b"x" * 1024
PROPERTIES = b"UNIQ_KEY\x01AC1E0A0100002A9F4D5E6F7081920000\x02WAIT\x01true\x02TAGS\x01TagA\x02"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def cpu_us_per_message(run: Callable[[], int], rounds: int = 5) -> float:
    """Return the best of the rounds; `run` returns how many messages it handled."""
    best = float("inf")
    for _ in range(rounds):
        start = time.process_time_ns()
        count = run()
        best = min(best, (time.process_time_ns() - start) / 1000 / count)
    return best


def open_store(folder: Path, **changes: object) -> MessageStore:
    settings = {"segment_bytes_max": 512 << 20, "retention_bytes": 1 << 30, **changes}
    config = StoreConfig(data_dir=folder, metaq_broker_id=1, store_host=HOST, **settings)  # type: ignore[arg-type]
    return MessageStore.open(config, clock=now_ms)


def rocketmq_entry(store: MessageStore, topic: str, queue_id: int) -> Entry:
    tail = store.tail(topic, queue_id)
    return make_entry(tail, BODY, PROPERTIES, born_ms=now_ms(), born_host=HOST)


def build_only(batches: int = 400) -> float:
    """The record builder alone: the floor of every append."""
    tail = hot.QueueTail(b"T", 0, dual=True)
    entries = [make_entry(tail, BODY, PROPERTIES, born_ms=1, born_host=HOST)] * BATCH
    builder = RecordBuilder(HOST, 1, 0)

    def run() -> int:
        for _ in range(batches):
            builder.build(entries, 0, 0, now_ms(), 1 << 30)
            tail.units.clear()
            tail.positions.clear()
        return batches * BATCH

    return cpu_us_per_message(run)


def write_only(folder: Path, batches: int = 400) -> float:
    """The same bytes with one pwrite a batch and nothing else."""
    tail = hot.QueueTail(b"T", 0, dual=True)
    entries = [make_entry(tail, BODY, PROPERTIES, born_ms=1, born_host=HOST)] * BATCH
    data, _ = RecordBuilder(HOST, 1, 0).build(entries, 0, 0, now_ms(), 1 << 30)
    fd = os.open(folder / "plain", os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(fd, 0, 256 << 20)
    position = 0

    def run() -> int:
        nonlocal position
        for _ in range(batches):
            if position > 200 << 20:
                position = 0
            os.pwrite(fd, data, position)
            position += len(data)
        return batches * BATCH

    figure = cpu_us_per_message(run)
    os.close(fd)
    return figure


def appends(
    store: MessageStore, groups: Sequence[Sequence[Entry]], batches: int = 400
) -> Callable[[], int]:
    """Append the groups of entries in turn."""

    def run() -> int:
        at = 0
        for _ in range(batches):
            store.append(groups[at])
            at = at + 1 if at + 1 < len(groups) else 0
        return batches * len(groups[0])

    return run


def append_figures(folder: Path) -> dict[str, float]:
    """Appends of one queue, singly and in batches, and of many queues."""
    figures = {}
    store = open_store(folder / "one")
    store.create_topic("T", {"name": "T"})
    store.create_topic("M", {"name": "M", "attributes": {"materialised": "true"}})
    one = [rocketmq_entry(store, "T", 0)]
    figures["append 1"] = cpu_us_per_message(appends(store, [one], 5000))
    figures["append 64"] = cpu_us_per_message(appends(store, [one * BATCH]))
    metaq = [metaq_entry(store.tail("M", 0), BODY, 0, -1, now_ms(), HOST)]
    figures["append 64, materialised"] = cpu_us_per_message(appends(store, [metaq * BATCH]))
    store.close()
    figures["append 64, 1 topic × 10 queues"] = many_queues(folder / "ten", 1)
    figures["append 64, 1000 topics × 10 queues"] = many_queues(folder / "many", 1000)
    return figures


def many_queues(folder: Path, topics: int) -> float:
    """Round-robin over topics × 10 queues; every message goes to another queue."""
    store = open_store(folder)
    for number in range(topics):
        store.create_topic(f"T{number}", {"name": f"T{number}"})
    entries = [
        rocketmq_entry(store, f"T{number}", queue_id)
        for queue_id in range(10)
        for number in range(topics)
    ]
    entries *= -(-BATCH // len(entries))
    groups = [entries[at : at + BATCH] for at in range(0, len(entries) - BATCH + 1, BATCH)]
    figure = cpu_us_per_message(appends(store, groups, 1000))
    store.close(clean=False)
    return figure


def pulls(store: MessageStore, messages_max: int) -> Callable[[], int]:
    """Read one queue from its start, as pulls of so many messages do."""

    def run() -> int:
        offset, total = 0, store.queue_range("T", 0)[1]
        while offset < total:
            result = store.read("T", 0, offset, messages_max=messages_max, bytes_max=1 << 22)
            offset = result.next_offset
        return total

    return run


def gets(store: MessageStore, topic: str) -> Callable[[], int]:
    """Read one partition from its start, as MetaQ gets of 1 MiB do."""

    def run() -> int:
        position, end = store.position_range(topic, 0)
        while position < end:
            data = store.read_positions(topic, 0, position, 1 << 20).data
            position += len(data.read() if isinstance(data, FileSlice) else data)
        return store.queue_range(topic, 0)[1]

    return run


def read_figures(folder: Path) -> dict[str, float]:
    """Reads of one queue: pulls, MetaQ gets, look-ups."""
    store = open_store(folder / "reads")
    store.create_topic("T", {"name": "T"})
    store.create_topic("M", {"name": "M", "attributes": {"materialised": "true"}})
    for topic in ("T", "M"):
        appends(store, [[rocketmq_entry(store, topic, 0)] * BATCH], 600)()
    store.tick()
    total = store.queue_range("T", 0)[1]

    def latest() -> int:
        for _ in range(5000):
            store.read("T", 0, total - 1, messages_max=32, bytes_max=1 << 18)
        return 5000

    def ranges() -> int:
        for _ in range(20000):
            store.queue_range("T", 0)
        return 20000

    figures = {
        "pull 32": cpu_us_per_message(pulls(store, 32)),
        "pull 4096": cpu_us_per_message(pulls(store, 4096)),
        "pull the newest": cpu_us_per_message(latest),
        "get 1 MiB, transcoded": cpu_us_per_message(gets(store, "T")),
        "get 1 MiB, materialised": cpu_us_per_message(gets(store, "M")),
        "queue_range": cpu_us_per_message(ranges),
        "key look-up (38,400 messages)": cpu_us_per_message(
            lambda: len(store.find_key("T", "absent", 0, 1 << 60, 64)) or 1
        ),
    }
    store.close()
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--folder", type=Path, help="where to write (default: a temporary folder)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        figures = {
            "build 64": build_only(),
            "pwrite 64": write_only(folder),
            **append_figures(folder),
            **read_figures(folder),
        }
    if arguments.json:
        print(json.dumps({"compiled": hot.COMPILED, "cpu_us_per_message": figures}))
        return 0
    print(f"compiled: {hot.COMPILED}; bodies of 1 KiB; µs of CPU a message")
    for what, figure in figures.items():
        print(f"{what:40} {figure:8.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
