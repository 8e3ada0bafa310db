"""The readers of the Spark source as PySpark calls them, on a topic of two queues."""

from __future__ import annotations

import asyncio
import pickle
from typing import TYPE_CHECKING, Any

from imago_client import Message, MessageQueue
from imago_client.blocking import Client
from imago_spark import broker as source_broker
from imago_spark.options import SourceOptions, parse_options

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql.datasource import InputPartition

    from imago_spark.reader import BatchReader, StreamReader

QUEUE = MessageQueue("orders", "shard-0", 0)


async def in_thread(bootstrap: str, work: Callable[[Client], None]) -> None:
    """Run blocking work beside the broker's loop, on a topic of two queues."""

    def run() -> None:
        try:
            with Client(bootstrap) as client:
                client.admin.create_topic("orders", queues=2)
                work(client)
        finally:
            source_broker.close_clients()

    await asyncio.to_thread(run)


def options(client: Client, **more: str) -> SourceOptions:
    given = {"bootstrap": ",".join(client.config.bootstrap), "subscribe": "orders"}
    return parse_options({**given, **more})


def send(client: Client, count: int, queue_id: int = 0, start: int = 0) -> None:
    messages = [Message("orders", b"%d" % number) for number in range(start, start + count)]
    queue = MessageQueue("orders", "shard-0", queue_id)
    client.producer().send_batch(messages, queue=queue)


def values(reader: BatchReader | StreamReader, partitions: Sequence[InputPartition]) -> list[int]:
    """Read partitions as workers do: after a pickled journey."""
    found = []
    for partition in partitions:
        travelled = pickle.loads(pickle.dumps(partition))
        for batch in pickle.loads(pickle.dumps(reader)).read(travelled):
            found += [int(value.as_py()) for value in batch.column("value")]
    return found


def ends(offset: dict[str, Any]) -> dict[str, int]:
    found: dict[str, int] = offset["topics"]["orders"]["shard-0"]
    return found
