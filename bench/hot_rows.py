"""Rows of the Spark source without Spark: an answer of a broker becomes Arrow columns and a stream.

    python -m bench.hot_rows default|core ANSWERS ROUNDS [--profile]

Each round decodes so many answers of 200 records of 200 B, whose bodies are as they were sent, and
writes the batches as the worker writes them for Spark's JVM. `default`: the columns of a query that
names none; `core`: those of a table of ingest, and the checksums of bodies. Prints
µs a row. `bench.gate` runs it under callgrind and counts instructions.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bench.hot_driver import drive, measured
from imago_client import MessageQueue
from imago_spark.columns.decode import decode_batches
from imago_spark.schema import CHECKED, CORE, DEFAULT
from imago_wire.records.record import QueueTail, RecordBuilder, host_bytes, make_entry

if TYPE_CHECKING:
    from collections.abc import Sequence

RECORDS = 200
COLUMNS = {"default": DEFAULT, "core": (*CORE, CHECKED)}
WARM_ROUNDS = 2
TIME_MS = 1_790_000_000_000


def answer() -> bytes:
    """Return records as a broker stores them."""
    tail = QueueTail(b"bench", 0, dual=True, next_offset=0)
    host = host_bytes("127.0.0.1", 10911)
    made = [
        make_entry(
            tail,
            body=bytes((number + at) & 0xFF for at in range(200)),
            properties=b"KEYS\x01k%06d\x02UNIQ_KEY\x01%032X\x02" % (number, number),
            born_ms=TIME_MS,
            born_host=host,
        )
        for number in range(RECORDS)
    ]
    data, _ = RecordBuilder(host, 1, 0).build(made, 0, 1 << 30, TIME_MS, 1 << 30)
    return data


async def rounds(options: argparse.Namespace, folder: str) -> float:
    """Decode and write; return µs a row."""
    del folder  # nothing is kept
    columns, data = COLUMNS[options.columns], answer()
    queue = MessageQueue("bench", "shard-0", 0)

    def once() -> int:
        sink = pa.MockOutputStream()
        writer: Any = None
        for _ in range(options.answers):
            for batch in decode_batches(data, queue, columns, end_offset=1 << 62):
                writer = writer or pa.RecordBatchStreamWriter(sink, batch.schema)
                writer.write_batch(batch)
        return int(sink.size())

    for _ in range(WARM_ROUNDS):
        once()
    with measured(options) as taken:
        size = sum(once() for _ in range(options.rounds))
    rows: int = options.answers * options.rounds * RECORDS
    assert size > rows * 200, f"{size} bytes were written for {rows} rows"
    return taken.seconds / rows * 1_000_000


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.hot_rows", description=__doc__)
    parser.add_argument("columns", choices=list(COLUMNS))
    parser.add_argument("answers", type=int)
    parser.add_argument("rounds", type=int)
    return drive(parser, rounds, arguments, unit="row")


if __name__ == "__main__":
    sys.exit(main())
