"""The public tree in which MetaQ clients look for brokers: what ours puts there, as a plan.

Below the root (`/meta`), for broker id i of a shard, topic t, N partitions:

```
brokers/ids/<i>                        persistent; the master's URL, for clients before 1.4.0
brokers/ids/<i>/master                 ephemeral; meta://host:port      (a slave r: slave<r+1>)
brokers/ids/<i>/master_config_checksum ephemeral; decimal unsigned CRC-32
brokers/topics/<t>/<i>-m               ephemeral; N, for clients before 1.4.3   (slave: <i>-s<r+1>)
brokers/topics-pub/<t>/<i>-m           ephemeral; {"numParts":N,"broker":"<i>-m"} if it takes puts
brokers/topics-sub/<t>/<i>-m           ephemeral; the same if it may be read    (slave: <i>-s<r+1>)
```

The JSON has exactly these two members in this order: the reader refuses a broker with any other.
Clients watch only the children of `topics-pub/<t>` and `topics-sub/<t>`, never data: a change of
N must delete the node and create it again, or nobody hears of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, TypeVar

from imago_broker.cluster.tree import Create, Delete, Operation
from imago_broker.model.registry.cluster import (
    PERM_READ,
    PERM_WRITE,
    BrokerRecord,
    Role,
    TopicPlacement,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

PUBLISH = "metaq.publish"
SUBSCRIBE = "metaq.subscribe"
"""Topic attributes; "false" hides the topic from producers or consumers."""

FOR_PRODUCERS, FOR_CONSUMERS = "topics-pub", "topics-sub"
TOPIC_BRANCHES = ("topics", FOR_PRODUCERS, FOR_CONSUMERS)
MASTER = "m"
"""What a master's name ends in."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class MetaqPaths:
    """Where things stand in the tree of one broker id."""

    root: str
    broker_id: int
    slave: int = -1
    """From 0 on: an original master has the broker id, and we are its slave of this number."""

    @property
    def brokers(self) -> str:
        return f"{self.root}/brokers"

    @property
    def broker(self) -> str:
        return f"{self.brokers}/ids/{self.broker_id}"

    @property
    def master(self) -> str:
        return f"{self.broker}/master"

    def branch(self, name: str) -> str:
        return f"{self.brokers}/{name}"

    def topic(self, branch: str, topic: str) -> str:
        return f"{self.brokers}/{branch}/{topic}"

    def master_nodes(self, topic: str) -> list[str]:
        """Where whoever is master offers a topic."""
        return [f"{self.topic(name, topic)}/{self.broker_id}-{MASTER}" for name in TOPIC_BRANCHES]

    def skeleton(self) -> list[tuple[str, bytes]]:
        """The persistent nodes that must exist, parents first."""
        parts = [part for part in self.root.split("/") if part]
        roots = ["/" + "/".join(parts[: end + 1]) for end in range(len(parts))]
        branches = [self.branch(name) for name in ("ids", *TOPIC_BRANCHES)]
        return [(path, b"") for path in (*roots, self.brokers, *branches, self.broker)]


def broker_nodes(paths: MetaqPaths, record: BrokerRecord, checksum: int) -> dict[str, bytes]:
    """Return the ephemeral nodes that announce the broker itself, in the order to write them."""
    url = record.metaq_url.encode()
    match record.role:
        case Role.MASTER if paths.slave >= 0:
            return {f"{paths.broker}/slave{paths.slave}": url}
        case Role.SLAVE if paths.slave >= 0:
            return {}
        case Role.MASTER:
            sum_path = f"{paths.broker}/master_config_checksum"
            return {paths.master: url, sum_path: str(checksum).encode()}
        case Role.SLAVE:
            return {f"{paths.broker}/slave{record.replica + 1}": url}
        case Role.ELECTING | Role.FENCED:
            return {}


def topic_nodes(
    paths: MetaqPaths, record: BrokerRecord, topics: Iterable[TopicPlacement]
) -> dict[str, bytes]:
    """Return the ephemeral nodes that offer the broker's partitions of these topics."""
    suffix = _suffix(paths, record)
    if suffix is None:
        return {}
    broker = f"{paths.broker_id}-{suffix}"
    nodes: dict[str, bytes] = {}
    for topic in topics:
        for branch, partitions in _partitions(topic, record.shard).items():
            if branch == FOR_PRODUCERS and suffix != MASTER:
                continue  # none reads it, but all would connect again when a slave comes or goes
            node = f"{paths.topic(branch, topic.name)}/{broker}"
            nodes[node] = _payload(branch, partitions, broker)
    return nodes


def parent_of(path: str) -> str:
    """Return the path of the node above."""
    return path.rpartition("/")[0]


def changes(
    written: Mapping[str, bytes], wanted: Mapping[str, bytes]
) -> Iterator[tuple[Operation, ...]]:
    """Yield the steps from what our session has written to what is wanted.

    One tuple a node; its operations belong into one transaction, so that a client never reads
    the moment between delete and create.
    """
    for path in written:
        if path not in wanted:
            yield (Delete(path),)
    for path, data in wanted.items():
        if path not in written:
            yield (Create(path, data, ephemeral=True),)
        elif written[path] != data:
            yield (Delete(path), Create(path, data, ephemeral=True))


def replacing(operations: Sequence[Operation]) -> list[Operation]:
    """Return the same operations for a tree in which every node to be made stands already."""
    deleted = {op.path for op in operations if isinstance(op, Delete)}
    changed: list[Operation] = []
    for op in operations:
        if isinstance(op, Create) and not op.ephemeral:
            continue  # a parent
        if isinstance(op, Create) and op.path not in deleted:
            changed.append(Delete(op.path))
        changed.append(op)
    return changed


def outcome(operations: Iterable[Operation]) -> dict[str, bytes | None]:
    """Return the data of each ephemeral node after these operations; None: no node."""
    nodes: dict[str, bytes | None] = {}
    for op in operations:
        if isinstance(op, Create) and op.ephemeral:
            nodes[op.path] = op.data
        elif isinstance(op, Delete):
            nodes[op.path] = None
    return nodes


def by_node(operations: Iterable[Operation]) -> Iterator[tuple[Operation, ...]]:
    """Group neighbouring operations on one node, which belong into one transaction."""
    for _, group in groupby(operations, key=lambda op: op.path):
        yield tuple(group)


def batches(steps: Iterable[tuple[T, ...]], size_max: int) -> Iterator[list[T]]:
    """Join steps into transactions of at most size_max operations, no step cut apart."""
    batch: list[T] = []
    for step in steps:
        if batch and len(batch) + len(step) > size_max:
            yield batch
            batch = []
        batch.extend(step)
    if batch:
        yield batch


def _suffix(paths: MetaqPaths, record: BrokerRecord) -> str | None:
    match record.role:
        case Role.MASTER if paths.slave >= 0:
            return f"s{paths.slave}"
        case Role.SLAVE if paths.slave >= 0:
            return None
        case Role.MASTER:
            return MASTER
        case Role.SLAVE:
            return f"s{record.replica + 1}"
        case Role.ELECTING | Role.FENCED:
            return None


def _partitions(topic: TopicPlacement, shard: int) -> dict[str, int]:
    queues = topic.shards.get(shard)
    if queues is None or not topic.dual:
        return {}
    writable = queues.perm & PERM_WRITE and topic.attributes.get(PUBLISH) != "false"
    readable = queues.perm & PERM_READ and topic.attributes.get(SUBSCRIBE) != "false"
    offered = {
        FOR_PRODUCERS: queues.write if writable else 0,
        FOR_CONSUMERS: queues.read if readable else 0,
    }
    # Old clients know one number for both directions: as many as either of them needs.
    offered["topics"] = max(offered.values())
    return {branch: count for branch, count in offered.items() if count}


def _payload(branch: str, partitions: int, broker: str) -> bytes:
    if branch == "topics":
        return str(partitions).encode()
    return f'{{"numParts":{partitions},"broker":"{broker}"}}'.encode()
