"""Clients of MetaQ's text protocol: asyncio here, blocking in `imago_client.blocking.metaq`.

    async with imago_client.metaq.MetaqClient("127.0.0.1:8123") as client:
        await client.producer().send("orders", b"hello", attribute="paid")

A `MetaqClient` is told the brokers' addresses, one a shard, and looks for nothing else. A
`MetaqSessionFactory` finds brokers in ZooKeeper, where the original's clients do, and its consumers
share the partitions of a topic with the other members of their group, Java's or ours.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from imago_client.metaq.client import MetaqClient
from imago_client.metaq.producer import MetaqProducer
from imago_client.metaq.reading.consumer import MetaqConsumer, MetaqConsumerConfig
from imago_client.metaq.reading.offsets import FileOffsets, MemoryOffsets, OffsetStore
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

if TYPE_CHECKING:
    from imago_client.core.metaq.nodes import PartitionId, StoredOffset
    from imago_client.core.metaq.ordering import OrderedPartitions
    from imago_client.core.metaq.shares import ShareStrategy
    from imago_client.metaq.groups.group_config import MetaqGroupConsumerConfig
    from imago_client.metaq.groups.group_consumer import MetaqGroupConsumer
    from imago_client.metaq.groups.group_offsets import (
        LocalFileOffsets,
        OffsetStorage,
        SqlOffsets,
        ZooKeeperOffsets,
    )
    from imago_client.metaq.groups.group_producer import MetaqGroupProducer, OrderedProducer
    from imago_client.metaq.groups.oneway_producer import OnewayProducer
    from imago_client.metaq.groups.recovering import DropPolicy, RecoverManager, RejectionPolicy
    from imago_client.metaq.groups.sessions import MetaqSessionFactory

_HOMES = {
    "metaq.groups.group_config": ("MetaqGroupConsumerConfig",),
    "metaq.groups.group_consumer": ("MetaqGroupConsumer",),
    "metaq.groups.group_offsets": (
        "LocalFileOffsets",
        "OffsetStorage",
        "SqlOffsets",
        "ZooKeeperOffsets",
    ),
    "metaq.groups.group_producer": (
        "MetaqGroupProducer",
        "OrderedProducer",
    ),
    "metaq.groups.oneway_producer": ("OnewayProducer",),
    "metaq.groups.recovering": (
        "DropPolicy",
        "RecoverManager",
        "RejectionPolicy",
    ),
    "metaq.groups.sessions": ("MetaqSessionFactory",),
    "core.metaq.nodes": (
        "PartitionId",
        "StoredOffset",
    ),
    "core.metaq.ordering": ("OrderedPartitions",),
    "core.metaq.shares": ("ShareStrategy",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "DropPolicy",
    "Fetched",
    "FileOffsets",
    "LocalFileOffsets",
    "LocalTransaction",
    "MemoryOffsets",
    "MetaqClient",
    "MetaqConfig",
    "MetaqConsumer",
    "MetaqConsumerConfig",
    "MetaqError",
    "MetaqGroupConsumer",
    "MetaqGroupConsumerConfig",
    "MetaqGroupProducer",
    "MetaqMessage",
    "MetaqProducer",
    "MetaqSessionFactory",
    "OffsetStorage",
    "OffsetStore",
    "OnewayProducer",
    "OrderedPartitions",
    "OrderedProducer",
    "Partition",
    "PartitionId",
    "PutResult",
    "RecoverManager",
    "RejectionPolicy",
    "ShareStrategy",
    "SqlOffsets",
    "StoredOffset",
    "XaError",
    "XaResource",
    "Xid",
    "ZooKeeperOffsets",
]


def __getattr__(name: str) -> object:
    """Load what needs ZooKeeper's client, or is seldom used, when it is used."""
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(f"imago_client.{home}"), name)
    globals()[name] = value
    return value
