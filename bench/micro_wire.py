"""What the hot functions cost: nanoseconds an operation, plain Python beside compiled.

    python bench/micro_wire.py [--json FILE]

The minimum of many short loops, on one thread; a message has 1 KiB of body unless said otherwise.
"""

from __future__ import annotations

import argparse
import importlib
import json
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BODY: Final = bytes(range(256)) * 4
HOST: Final = bytes([10, 0, 0, 5, 0, 0, 42, 159])
NOW: Final = 1_800_000_000_000
PROPERTIES: Final = (
    b"KEYS\x01order-1\x02UNIQ_KEY\x01AC1E0A0100002A9F4D5E6F7081920000\x02"
    b"WAIT\x01true\x02TAGS\x01TagA\x02"
)
BATCH: Final = 64
REPEATS: Final = 40
LOOP_S: Final = 0.004


def ns_per_call(call: Callable[[], object]) -> float:
    """Return the least time of one call over many loops of some milliseconds."""
    loops, spent = 1, 0.0
    while spent < LOOP_S:
        loops *= 2
        spent = _timed(call, loops)
    return min(_timed(call, loops) for _ in range(REPEATS)) / loops * 1e9


def _timed(call: Callable[[], object], loops: int) -> float:
    start = time.perf_counter()
    for _ in range(loops):
        call()
    return time.perf_counter() - start


class Twin:
    """The hot functions of one kind."""

    def __init__(self, suffix: str) -> None:
        for part in ("text._text", "_record", "_scan", "_index", "_metaq"):
            module = importlib.import_module(f"imago_wire.{part}{suffix}")
            self.__dict__.update(vars(module))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


def cases(twin: Twin) -> Iterator[tuple[str, int, Callable[[], object]]]:
    """Yield name, operations in a call, and the call."""
    yield from text_cases(twin)
    yield from build_cases(twin)
    yield from read_cases(twin)


def text_cases(twin: Twin) -> Iterator[tuple[str, int, Callable[[], object]]]:
    put = b"put topic 0 1024 0 %d 77\r\n" % crc31(BODY) + BODY
    get = b"get topic group 0 1234567 1048576 77\r\n"
    for name, data, count in [
        ("scan_text: one put", put, 1),
        ("scan_text: 64 puts in a read", put * BATCH, BATCH),
        ("scan_text: 64 gets in a read", get * BATCH, BATCH),
        ("scan_text: 64 heartbeats in a read", b"version -77\r\n" * BATCH, BATCH),
    ]:
        yield name, count, partial(twin.scan_text, data, 4096, 1 << 20)
    asked = [(-2147483648, 1, "topic")] * BATCH
    placed = [(0, 0, 0, 123456789, 1661382015569645571)] * BATCH
    for count in (1, BATCH):
        encode = partial(twin.encode_put_results, asked, placed, 0, count)
        yield f"encode_put_results: {count}", count, encode
    tails = {"topic": [twin.QueueTail(b"topic", 0, dual=True)]}
    limits, born = (4096, 1 << 20), (NOW, HOST)

    def take(data: bytes) -> None:
        twin.take_puts(data, limits, tails, born, [], [])

    yield "take_puts: one", 1, partial(take, put)
    yield "take_puts: 64", BATCH, partial(take, put * BATCH)


def build_cases(twin: Twin) -> Iterator[tuple[str, int, Callable[[], object]]]:
    tail = twin.QueueTail(b"topic", 0, dual=True)
    builder = twin.RecordBuilder(HOST, 1, 0)
    tagged = len(b"TagA").to_bytes(4, "big") + b"TagA" + BODY
    sums = crc31(BODY), crc31(tagged)
    entry = partial(twin.make_entry, tail, BODY, PROPERTIES, born_ms=NOW, born_host=HOST)
    plain_entry = partial(twin.metaq_entry, tail, BODY, 0, sums[0], NOW, HOST)
    yield "make_entry", 1, entry
    yield "metaq_entry", 1, plain_entry
    tagged_entry = partial(twin.metaq_entry, tail, tagged, 1, sums[1], NOW, HOST)
    yield "metaq_entry with attribute", 1, tagged_entry

    def build(entries: list[Any]) -> Callable[[], object]:
        def run() -> None:
            builder.build(entries, 0, 1 << 40, NOW, 1 << 30)
            tail.units.clear()
            tail.positions.clear()

        return run

    yield "build: one MetaQ record", 1, build([plain_entry()])
    yield "build: 64 MetaQ records", BATCH, build([plain_entry()] * BATCH)
    yield "build: one RocketMQ record", 1, build([entry()])
    yield "build: 64 RocketMQ records", BATCH, build([entry()] * BATCH)


def read_cases(twin: Twin) -> Iterator[tuple[str, int, Callable[[], object]]]:
    tail = twin.QueueTail(b"topic", 0, dual=True)
    plain = twin.make_entry(tail, BODY, b"KEYS\x01k", born_ms=NOW, born_host=HOST)
    rich = twin.make_entry(tail, BODY, PROPERTIES, born_ms=NOW, born_host=HOST)
    for name, entry in [("untagged", plain), ("tagged", rich)]:
        builder = twin.RecordBuilder(HOST, 1, 0)
        data, placed = builder.build([entry] * BATCH, 0, 0, NOW, 1 << 30)
        views = [memoryview(data)[at : at + size] for _, at, size, _, _ in placed]
        yield f"metaq_block: 64 {name}", BATCH, partial(twin.metaq_block, views)
        if entry is rich:
            yield "scan_records, verified: 64", BATCH, partial(twin.scan_records, data, 0)
            yield "key_entries: 64", BATCH, partial(twin.key_entries, data, 0)


def crc31(data: bytes) -> int:
    """The project's own checksum, imported late so that IMAGO_PURE can be set first."""
    return int(importlib.import_module("imago_wire.crc").crc31(data))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    figures: dict[str, dict[str, float]] = {}
    for kind, suffix in [("python", "_py"), ("compiled", "_c")]:
        for name, count, call in cases(Twin(suffix)):
            figures.setdefault(name, {})[kind] = ns_per_call(call) / count
    print(f"{'ns an operation':38} {'python':>9} {'compiled':>9} {'ratio':>6}")
    for name, row in figures.items():
        ratio = row["python"] / row["compiled"]
        print(f"{name:38} {row['python']:9.0f} {row['compiled']:9.0f} {ratio:6.1f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
