"""The registry as last read: nodes in, snapshots out.

Every node that matters is read once and then again only when its watch fired. A node whose
content cannot be understood keeps its last good content, and is named in the log and in the
snapshot; it is read again when somebody changes it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Generic, TypeVar

from imago_broker.cluster import znodes
from imago_broker.cluster.edits.shard_record import decode_shard
from imago_broker.cluster.edits.state_node import decode_state
from imago_broker.cluster.tree import NoNodeError
from imago_broker.model.registry.cluster import BrokerRecord, ClusterView, ForeignBroker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from imago_broker.cluster.tree import Node, NodeTree
    from imago_broker.cluster.znodes import Paths
    from imago_broker.model.registry.cluster import TopicPlacement

logger = logging.getLogger(__name__)

READS_AT_ONCE = 16
"""Few enough that decoding them holds up the event loop for a few milliseconds only."""

T = TypeVar("T")


def _epoch_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(slots=True)
class _Shelf(Generic[T]):
    """Last good contents of nodes of one kind, by path."""

    decode: Callable[[str, Node], T]
    good: dict[str, T] = field(default_factory=dict)

    def take(self, path: str, node: Node | None) -> None:
        """Keep what the node holds; GarbageError keeps what was there before."""
        if node is None:
            self.good.pop(path, None)
        else:
            self.good[path] = self.decode(path, node)


class Mirror:
    """Reads the registry of one cluster and holds the last `ClusterView` of it."""

    def __init__(
        self, paths: Paths, tree: NodeTree, *, epoch_ms: Callable[[], int] = _epoch_ms
    ) -> None:
        self._paths = paths
        self._tree = tree
        self._epoch_ms = epoch_ms
        self._identity = _Shelf(lambda path, node: znodes.decode_identity(path, node.data))
        self._topics = _Shelf(lambda path, node: znodes.decode_topics(path, node.data))
        self._kv = _Shelf(lambda path, node: znodes.decode_kv(path, node.data))
        self._wiped = _Shelf(lambda path, node: znodes.decode_wiped(path, node.data))
        self._brokers = _Shelf(
            lambda path, node: znodes.decode_broker(path, node.data, node.created)
        )
        self._foreign = _Shelf(lambda path, node: znodes.decode_foreign(path, node.data))
        self._shards = _Shelf(lambda path, node: decode_shard(path, node.data))
        self._states = _Shelf(decode_state)
        self._operator = _Shelf(lambda path, node: znodes.decode_epoch(path, node.data))
        self._refused: dict[str, str] = {}
        self._view = ClusterView(cluster=paths.cluster)

    @property
    def view(self) -> ClusterView:
        """The last snapshot."""
        return self._view

    @property
    def buckets(self) -> Mapping[str, Mapping[str, TopicPlacement]]:
        """Topics by the node they stand in; a node that is read again is a new object."""
        return self._topics.good

    def state_paths(self) -> set[str]:
        """States of the shards that are known."""
        return {f"{path}/state" for path in self._shards.good}

    def everything(self) -> set[str]:
        """Paths to read after a connection was lost: any watch may have been missed."""
        fixed = {self._paths.identity, self._paths.kv, self._paths.wiped, self._paths.operator}
        folders = {self._paths.brokers, self._paths.foreigners, self._paths.shards}
        known = {*self._brokers.good, *self._foreign.good, *self._refused}
        known |= _with_states(self._shards.good)
        return fixed | set(self._paths.buckets()) | folders | known

    async def refresh(self, dirty: Iterable[str]) -> bool:
        """Read these nodes again; return whether the view is another one now.

        TreeUnavailableError leaves the view as it was: the caller reads the same nodes again.
        """
        dirty = set(dirty)
        states = await self._expand(dirty, self._paths.shards, _with_states)
        states |= {path for path in dirty if path.startswith(f"{self._paths.shards}/")}
        await self._read(states)
        if any(path.endswith("/state") for path in states):
            # Who is there is never older than who leads, or a leader may seem to be missing.
            dirty |= {self._paths.brokers, *self._brokers.good}
        others = dirty - states
        for folder in (self._paths.brokers, self._paths.foreigners):
            others |= await self._expand(others, folder, set)
        await self._read(others)
        return self._rebuild()

    async def _expand(
        self, dirty: set[str], folder: str, nodes: Callable[[set[str]], set[str]]
    ) -> set[str]:
        """Replace a folder by its nodes that are new or gone."""
        if folder not in dirty:
            return set()
        dirty.remove(folder)
        return nodes(await self._list(folder))

    async def _list(self, folder: str) -> set[str]:
        """Return the nodes of a folder that are new or gone."""
        try:
            names = await self._tree.children(folder, watch=True)
        except NoNodeError:
            names = ()
            # A missing folder is watched by asking for its data, and for nothing else.
            await self._tree.get(folder, watch=True)
        now = {f"{folder}/{name}" for name in names}
        shelved = (*self._brokers.good, *self._foreign.good, *self._shards.good, *self._refused)
        return now ^ {path for path in shelved if path.rpartition("/")[0] == folder}

    async def _read(self, paths: set[str]) -> None:
        ordered = sorted(paths)
        for start in range(0, len(ordered), READS_AT_ONCE):
            part = ordered[start : start + READS_AT_ONCE]
            nodes = await asyncio.gather(*(self._tree.get(path, watch=True) for path in part))
            for path, node in zip(part, nodes, strict=True):
                self._take(path, node)

    def _take(self, path: str, node: Node | None) -> None:
        self._refused.pop(path, None)
        try:
            self._taker(path)(path, node)
        except znodes.GarbageError as error:
            self._refused[path] = error.reason
            logger.warning("registry_node_refused path=%s reason=%s", path, error.reason)

    def _taker(self, path: str) -> Callable[[str, Node | None], None]:
        fixed: dict[str, Callable[[str, Node | None], None]] = {
            self._paths.identity: self._identity.take,
            self._paths.kv: self._kv.take,
            self._paths.wiped: self._wiped.take,
            self._paths.operator: self._operator.take,
            self._paths.brokers: self._brokers.take,
            self._paths.foreigners: self._foreign.take,
            self._paths.shards: self._shards.take,
        }
        folder = path.rpartition("/")[0]
        if folder.startswith(f"{self._paths.shards}/"):
            return self._states.take
        return fixed.get(path) or fixed.get(folder, self._topics.take)

    def _rebuild(self) -> bool:
        brokers = sorted(self._brokers.good.values(), key=_broker_order)
        identities = list(self._identity.good.values())
        shards = _by_shard(self._shards.good, -1)
        kv = self._kv.good.get(self._paths.kv, {})
        before = self._view
        now = replace(
            before,
            cluster_id=identities[0].cluster_id if identities else "",
            feature_level=identities[0].feature_level if identities else before.feature_level,
            brokers=tuple(brokers),
            states=MappingProxyType(_by_shard(self._states.good, -2)),
            known=MappingProxyType({n: shard.replicas() for n, shard in shards.items()}),
            cordoned=frozenset(n for n, shard in shards.items() if shard.cordoned),
            draining=frozenset(n for n, shard in shards.items() if shard.drain),
            staying=frozenset(n for n, shard in shards.items() if shard.drain and shard.stays),
            drained=frozenset(n for n, shard in shards.items() if shard.drained),
            operator_epoch=self._operator.good.get(self._paths.operator, 0),
            topics=self._merged_topics(before.topics),
            kv=MappingProxyType(kv),
            wiped=self._wiped.good.get(self._paths.wiped, frozenset()),
            foreign=_newest(self._foreign.good),
            refused=MappingProxyType(dict(self._refused)),
        )
        if now == before:
            return False
        self._view = replace(now, version=before.version + 1, away_since=self._away_since(now))
        return True

    def _away_since(self, now: ClusterView) -> Mapping[int, int]:
        """When each shard was first seen without its master: the registry itself does not say."""
        known, this_ms = self._view.away_since, self._epoch_ms()
        return MappingProxyType({shard: known.get(shard, this_ms) for shard in now.away()})

    def _merged_topics(self, before: Mapping[str, TopicPlacement]) -> Mapping[str, TopicPlacement]:
        merged: dict[str, TopicPlacement] = {}
        for bucket in self._topics.good.values():
            merged.update(bucket)
        return before if merged == before else MappingProxyType(merged)


def _with_states(shards: Iterable[str]) -> set[str]:
    return {path for shard in shards for path in (shard, f"{shard}/state")}


def _by_shard(nodes: Mapping[str, T], part: int) -> dict[int, T]:
    """Nodes by the shard's number, which is one part of the path. The decoder has read it."""
    return dict(sorted((int(path.split("/")[part]), node) for path, node in nodes.items()))


def _broker_order(broker: BrokerRecord) -> tuple[int, int]:
    return (broker.shard, broker.replica)


def _newest(nodes: Mapping[str, ForeignBroker]) -> tuple[ForeignBroker, ...]:
    """One entry a broker: it registers with every name service, each keeps a node of its own."""
    by_key: dict[tuple[str, str, int], ForeignBroker] = {}
    for path in sorted(nodes):
        broker = nodes[path]
        known = by_key.get(broker.key)
        if known is None or _data_version(broker) > _data_version(known):
            by_key[broker.key] = broker
    return tuple(by_key[key] for key in sorted(by_key))


def _data_version(broker: ForeignBroker) -> tuple[float, float, float]:
    """RocketMQ's DataVersion, comparable: state version, time, counter."""
    members = ("stateVersion", "timestamp", "counter")
    values = [broker.data_version.get(member) for member in members]
    first, second, third = (v if isinstance(v, int | float) else 0 for v in values)
    return (first, second, third)
