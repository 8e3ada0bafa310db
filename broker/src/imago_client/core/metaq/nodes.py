"""Requests to a tree of nodes as ZooKeeper keeps it, and the nodes that MetaQ's clients know.

An operation is a generator: it yields requests, whoever runs it sends the answers back. So clients
on asyncio and blocking ones run the same, and tests run it over a dictionary.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

from imago_client.errors import UsageError

DEFAULT_ROOT: Final = "/meta"
_META: Final = "meta://"


@dataclass(frozen=True, slots=True)
class ReadNode:
    """Read a node's data, answered with bytes; None: there is no such node."""

    path: str


@dataclass(frozen=True, slots=True)
class ListNode:
    """List a node's children, answered with their names; None: there is no such node.

    `watch`: tell the client when they change.
    """

    path: str
    watch: bool = False


@dataclass(frozen=True, slots=True)
class MakeNode:
    """Make a node and those above it, answered with whether it was not there before."""

    path: str
    data: bytes = b""
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class WriteNode:
    """Set a node's data, answered with whether there is such a node."""

    path: str
    data: bytes


@dataclass(frozen=True, slots=True)
class RemoveNode:
    """Delete a node, answered with whether there was one."""

    path: str


NodeRequest: TypeAlias = ReadNode | ListNode | MakeNode | WriteNode | RemoveNode
T = TypeVar("T")
NodeOperation: TypeAlias = Generator[NodeRequest, Any, T]


@dataclass(frozen=True, slots=True, order=True)
class PartitionId:
    """One partition of a topic, as all clients of the tree name it."""

    topic: str
    broker_id: int
    number: int

    @property
    def name(self) -> str:
        """Its node: `<broker id>-<partition>`."""
        return f"{self.broker_id}-{self.number}"


@dataclass(frozen=True, slots=True)
class StoredOffset:
    """How far a group is in a partition; the id is that of the last message before it, or -1."""

    position: int
    message_id: int = -1

    @property
    def record(self) -> str:
        """The text that the original's consumers store."""
        return f"{self.message_id}-{self.position}"

    @classmethod
    def parse(cls, record: str) -> StoredOffset | None:
        """Read a record, also those of before 1.4.0; None: it is none."""
        at = record.rfind("-")
        message_id, position = (record[:at], record[at + 1 :]) if at > 0 else ("-1", record)
        try:
            return cls(int(position), int(message_id))
        except ValueError:
            return None


@dataclass(frozen=True, slots=True)
class BrokerAddresses:
    """Who serves a broker id now."""

    master: str | None
    slaves: tuple[str, ...] = ()


class TreePaths:
    """Where MetaQ's clients and brokers write what."""

    def __init__(self, root: str = DEFAULT_ROOT) -> None:
        if not root.startswith("/") or root.endswith("/") or "//" in root:
            raise UsageError(f"zk_root: {root!r}, must be a path such as {DEFAULT_ROOT}")
        self.root = root

    @property
    def brokers(self) -> str:
        return f"{self.root}/brokers/ids"

    def subscribable(self, topic: str) -> str:
        return f"{self.root}/brokers/topics-sub/{topic}"

    def publishable(self, topic: str) -> str:
        return f"{self.root}/brokers/topics-pub/{topic}"

    def members(self, group: str) -> str:
        return f"{self.root}/consumers/{group}/ids"

    def owners(self, group: str, topic: str) -> str:
        return f"{self.root}/consumers/{group}/owners/{topic}"

    def owner(self, group: str, partition: PartitionId) -> str:
        return f"{self.owners(group, partition.topic)}/{partition.name}"

    def offset(self, group: str, partition: PartitionId) -> str:
        return f"{self.root}/consumers/{group}/offsets/{partition.topic}/{partition.name}"


def read_cluster(paths: TreePaths) -> NodeOperation[dict[int, BrokerAddresses]]:
    """Return who serves which broker id."""
    found: dict[int, BrokerAddresses] = {}
    names = yield ListNode(paths.brokers)
    for name in names or ():
        if not name.isdecimal():
            continue
        roles = yield ListNode(f"{paths.brokers}/{name}")
        master, slaves = None, []
        for role in sorted(roles or ()):
            if role != "master" and not role.startswith("slave"):
                continue
            data = yield ReadNode(f"{paths.brokers}/{name}/{role}")
            address = (data or b"").decode("utf-8", "replace").removeprefix(_META)
            if address and role == "master":
                master = address
            elif address:
                slaves.append(address)
        found[int(name)] = BrokerAddresses(master, tuple(slaves))
    return found


def read_offered(
    folder: str, topic: str, *, masters_only: bool
) -> NodeOperation[frozenset[PartitionId]]:
    """Return the partitions of a topic that brokers offer below `folder`, and watch it."""
    names = yield ListNode(folder, watch=True)
    if names is None:
        yield MakeNode(folder)  # else nothing could be watched
        names = yield ListNode(folder, watch=True)
    found: set[PartitionId] = set()
    for name in names or ():
        broker, _, role = name.partition("-")
        if not broker.isdecimal() or not role or (masters_only and role != "m"):
            continue
        data = yield ReadNode(f"{folder}/{name}")
        found.update(PartitionId(topic, int(broker), n) for n in range(_count(data)))
    return frozenset(found)


def _count(data: bytes | None) -> int:
    """Return how many partitions a broker's node of a topic tells; of bad data: none."""
    try:
        value = json.loads(data or b"")
        count = value["numParts"]
    except (ValueError, KeyError, TypeError):
        return 0
    return count if isinstance(count, int) else 0


def read_offset(
    paths: TreePaths, group: str, partition: PartitionId
) -> NodeOperation[StoredOffset | None]:
    """Return how far a group is in a partition."""
    data = yield ReadNode(paths.offset(group, partition))
    return StoredOffset.parse(data.decode("utf-8", "replace")) if data else None


def write_offset(
    paths: TreePaths, group: str, partition: PartitionId, offset: StoredOffset
) -> NodeOperation[None]:
    """Note how far a group is in a partition."""
    path, data = paths.offset(group, partition), offset.record.encode()
    while not (yield WriteNode(path, data)):
        if (yield MakeNode(path, data)):
            return
