"""While a shard has nobody: ordering keys and a sink's rows stay, and no query passes over it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from imago_client import Client, Message, NoRouteError, SendFailedError
from imago_client.config import ClientConfig, parse_addresses
from imago_client.core.sending.selection import queue_for_key
from imago_spark.broker import close_clients
from imago_spark.errors import SourceError
from imago_spark.options import parse_options
from imago_spark.reader import BatchReader
from imago_spark.sink_options import SinkOptions
from imago_spark.writer import planned_queues
from imago_testing.clusters.shard_pair import make, running_pair

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

KEYS = [f"key-{number}" for number in range(40)]


def planned(bootstrap: str) -> object:
    """Plan a sink as the driver does when a query is started, again."""
    try:
        return planned_queues(SinkOptions(bootstrap=parse_addresses(bootstrap), topic="orders"))
    finally:
        close_clients()


def read(bootstrap: str, **more: str) -> set[str]:
    """Plan a batch as the driver does; return the shards that it reads."""
    options = parse_options({"bootstrap": bootstrap, "subscribe": "orders", **more})
    try:
        parts = BatchReader(options).partitions()
        return {one.queue.shard for part in parts for one in part.value}
    finally:
        close_clients()


@asynccontextmanager
async def half_gone(
    folder: Path,
) -> AsyncIterator[tuple[Client, str, Callable[[], Awaitable[None]]]]:
    """A topic on two shards with a message in each queue, and what makes the second one go."""
    async with running_pair(folder) as pair:
        for admin in (pair.one, pair.two):
            make(admin, "orders")
        bootstrap = f"127.0.0.1:{pair.one.broker.ports.namesrv_port}"
        settings = ClientConfig(bootstrap=(bootstrap,), failover_timeout_s=0.5)
        async with Client(settings) as client:
            await until_queues(client, 4)
            for queue in await client.producer().queues("orders"):
                await client.producer().send(Message("orders", b"x"), queue=queue)

            async def go() -> None:
                await pair.two.broker.stop()
                await until_queues(client, 2)

            yield client, bootstrap, go


async def until_queues(client: Client, count: int) -> None:
    """Wait until readers find so many queues."""
    async with asyncio.timeout(50):
        while True:
            client._state.drop_route("orders")
            try:
                if len(await client.pull_consumer("g").queues("orders")) == count:
                    return
            except NoRouteError:
                pass  # not registered yet
            await asyncio.sleep(0.05)


async def test_no_key_moves_while_a_shard_is_gone(tmp_path: Path) -> None:
    async with half_gone(tmp_path) as (client, bootstrap, go):
        producer = client.producer()
        before = await producer.queues("orders")
        sink_before = await asyncio.to_thread(planned, bootstrap)
        await go()
        assert await producer.queues("orders") == before
        assert await asyncio.to_thread(planned, bootstrap) == sink_before
        homes = {key: queue_for_key(key, before) for key in KEYS}
        gone = [key for key, home in homes.items() if home.shard == "shard-1"]
        for key in homes.keys() - set(gone):
            sent = await producer.send(Message("orders", b"x", ordering_key=key))
            assert sent.queue == homes[key]
        with pytest.raises(SendFailedError, match="shard-1 has no live master"):
            await producer.send(Message("orders", b"x", ordering_key=gone[0]))
        for _ in range(4):
            assert (await producer.send(Message("orders", b"x"))).queue.shard == "shard-0"


async def test_batch_does_not_pass_over_a_shard_that_is_gone(tmp_path: Path) -> None:
    async with half_gone(tmp_path) as (_, bootstrap, go):
        assert await asyncio.to_thread(read, bootstrap) == {"shard-0", "shard-1"}
        await go()
        with pytest.raises(SourceError, match="shard-1 has no live broker"):
            await asyncio.to_thread(read, bootstrap)
        assert await asyncio.to_thread(read, bootstrap, onDataLoss="skip") == {"shard-0"}
