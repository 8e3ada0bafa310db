"""Clients of MetaQ's text protocol: asyncio here, blocking in `imago_client.blocking.metaq`.

    async with imago_client.metaq.MetaqClient("127.0.0.1:8123") as client:
        await client.producer().send("orders", b"hello", attribute="paid")

They are told the brokers' addresses, one a shard, and look for nothing else. MetaQ keeps no
consumer offsets on the broker: a consumer is given an offset store, and reads every partition of
its topics on every broker it knows. Sharing a topic between several members is what MetaQ's
own clients do through ZooKeeper, and what `imago_client.Client.push_consumer` does here.
"""

from __future__ import annotations

from imago_client.metaq.client import MetaqClient
from imago_client.metaq.consumer import MetaqConsumer, MetaqConsumerConfig
from imago_client.metaq.offsets import FileOffsets, MemoryOffsets, OffsetStore
from imago_client.metaq.producer import MetaqProducer
from imago_client.metaq.transacting import XaError, Xid
from imago_client.metaq.transactions import LocalTransaction, XaResource
from imago_client.metaq.values import (
    Fetched,
    MetaqConfig,
    MetaqError,
    MetaqMessage,
    Partition,
    PutResult,
)

__all__ = [
    "Fetched",
    "FileOffsets",
    "LocalTransaction",
    "MemoryOffsets",
    "MetaqClient",
    "MetaqConfig",
    "MetaqConsumer",
    "MetaqConsumerConfig",
    "MetaqError",
    "MetaqMessage",
    "MetaqProducer",
    "OffsetStore",
    "Partition",
    "PutResult",
    "XaError",
    "XaResource",
    "Xid",
]
