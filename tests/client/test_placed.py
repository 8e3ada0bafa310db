"""What stays where it is while a shard has nobody: ordering keys, and a sink's rows."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from imago_client import Client, Message, SendFailedError
from imago_client.config import ClientConfig, parse_addresses
from imago_client.core.selection import queue_for_key
from imago_spark.broker import close_clients
from imago_spark.sink_options import SinkOptions
from imago_spark.writer import planned_queues
from imago_testing.shard_pair import make, running_pair

if TYPE_CHECKING:
    from pathlib import Path

KEYS = [f"key-{number}" for number in range(40)]


def planned(bootstrap: str) -> object:
    """Plan a sink as the driver does when a query is started, again."""
    try:
        return planned_queues(SinkOptions(bootstrap=parse_addresses(bootstrap), topic="orders"))
    finally:
        close_clients()


@pytest.mark.timeout(120)
async def test_no_key_moves_while_a_shard_is_gone(tmp_path: Path) -> None:
    async with running_pair(tmp_path) as pair:
        for admin in (pair.one, pair.two):
            make(admin, "orders")
        bootstrap = f"127.0.0.1:{pair.one.broker.namesrv_port}"
        settings = ClientConfig(bootstrap=(bootstrap,), failover_timeout_s=0.5)
        async with Client(settings) as client:
            producer = client.producer()
            async with asyncio.timeout(20):
                while len(await producer.queues("orders")) < 4:  # noqa: ASYNC110 - registered soon
                    await asyncio.sleep(0.05)
            before = await producer.queues("orders")
            sink_before = await asyncio.to_thread(planned, bootstrap)
            await pair.two.broker.stop()
            async with asyncio.timeout(20):
                while len(await client.pull_consumer("g").queues("orders")) > 2:
                    client._state.drop_route("orders")
                    await asyncio.sleep(0.05)
            assert await producer.queues("orders") == before
            assert await asyncio.to_thread(planned, bootstrap) == sink_before
            refused = 0
            for key in KEYS:
                home = queue_for_key(key, before)
                message = Message("orders", b"x", ordering_key=key)
                if home.shard == "shard-0":
                    assert (await producer.send(message)).queue == home
                elif refused < 2:
                    refused += 1
                    with pytest.raises(SendFailedError, match="shard-1 has no live master"):
                        await producer.send(message)
            assert refused == 2
            for _ in range(4):
                assert (await producer.send(Message("orders", b"x"))).queue.shard == "shard-0"
