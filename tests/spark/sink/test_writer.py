"""The sink as PySpark calls it, against a broker, without Spark: what its id is remembered with."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from imago_client.blocking import Client
from imago_spark import broker as source_broker
from imago_spark import writer
from imago_spark.errors import SinkError
from imago_spark.sink_options import parse_sink_options
from imago_spark.writer import BatchWriter
from imago_testing.clusters.brokers import running_broker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SINK = "nightly"


def write(bootstrap: str, count: int) -> int:
    """Write numbers, as a task of a batch does; return how many messages the topic has then."""
    options = parse_sink_options({"bootstrap": bootstrap, "topic": "orders", "sinkId": SINK})
    rows = pa.RecordBatch.from_pydict({"value": [b"%d" % number for number in range(count)]})
    BatchWriter(options, SINK).write(iter([rows]))
    with Client(bootstrap) as client:
        return sum(one.max_offset for one in client.admin.topic_bounds("orders"))


def write_batch(bootstrap: str, batch: int, **more: str) -> int:
    """Write ten numbers as a batch of the sink; return how many messages the topic has then."""
    options = {"bootstrap": bootstrap, "topic": "orders", "sinkId": SINK, "sinkBatch": str(batch)}
    rows = pa.RecordBatch.from_pydict({"value": [b"%d" % number for number in range(10)]})
    BatchWriter(parse_sink_options(options | more), SINK).write(iter([rows]))
    with Client(bootstrap) as client:
        return sum(one.max_offset for one in client.admin.topic_bounds("orders"))


def make(bootstrap: str) -> None:
    with Client(bootstrap) as client:
        if "orders" in client.admin.topics():
            client.admin.delete_topic("orders")
        client.admin.create_topic("orders", queues=1)


async def test_a_sink_id_is_remembered_with_its_topic(tmp_path: Path) -> None:
    def work(bootstrap: str) -> None:
        try:
            make(bootstrap)
            assert [write(bootstrap, 5), write(bootstrap, 5)] == [5, 5], "it was written before"
            make(bootstrap)
            source_broker.close_clients()
            assert [write(bootstrap, 5), write(bootstrap, 5)] == [5, 5]
        finally:
            source_broker.close_clients()

    for cluster in ("a", "b"):
        async with running_broker(tmp_path / cluster) as broker:
            await asyncio.to_thread(work, f"127.0.0.1:{broker.ports.namesrv_port}")


async def test_batches_of_a_sink_are_stored_once_each_and_the_last_one_fences(
    tmp_path: Path,
) -> None:
    def work(bootstrap: str) -> None:
        try:
            make(bootstrap)
            found = [write_batch(bootstrap, batch, rowsPerSecond="1000") for batch in (0, 1, 1)]
            assert found == [10, 20, 20]
            with pytest.raises(SinkError, match="a later micro-batch of this sink was written"):
                write_batch(bootstrap, 0)
        finally:
            source_broker.close_clients()

    async with running_broker(tmp_path) as broker:
        await asyncio.to_thread(work, f"127.0.0.1:{broker.ports.namesrv_port}")


def test_a_pace_is_of_the_whole_query() -> None:
    options = parse_sink_options({"bootstrap": "b:1", "topic": "orders", "rowsPerSecond": "5"})
    with pytest.raises(SinkError, match=r"write one partition, \.coalesce\(1\)"):
        writer._pace(options, 1)


async def test_a_writer_that_goes_on_in_a_topic_made_anew_is_refused(tmp_path: Path) -> None:
    """What it sent before is gone: its rest alone would be a part of the rows."""

    def work(bootstrap: str) -> None:
        options = parse_sink_options(
            {"bootstrap": bootstrap, "topic": "orders", "sinkId": SINK, "sendBytes": "4096"}
        )

        def rows() -> Iterator[pa.RecordBatch]:
            for part in range(2):
                yield pa.RecordBatch.from_pydict({"value": [bytes(1000)] * 8})
                if not part:
                    make(bootstrap)

        try:
            make(bootstrap)
            with pytest.raises(SinkError, match="does not know"):
                BatchWriter(options, SINK).write(rows())
        finally:
            source_broker.close_clients()

    async with running_broker(tmp_path) as broker:
        await asyncio.to_thread(work, f"127.0.0.1:{broker.ports.namesrv_port}")
