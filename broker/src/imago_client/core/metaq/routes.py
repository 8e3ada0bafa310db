"""Where a producer's messages go: the partitions of published topics, and how one is chosen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from imago_client.core.metaq.nodes import (
    BrokerAddresses,
    NodeOperation,
    PartitionId,
    TreePaths,
    read_cluster,
    read_offered,
)
from imago_client.errors import NoRouteError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

PartitionSelector: TypeAlias = Callable[[str, Sequence[PartitionId], bytes], PartitionId]
"""(topic, its partitions, the message's payload) → one of them."""


@dataclass(slots=True)
class PublishedRoutes:
    """The partitions of topics whose masters are there, as one look at the tree found them."""

    partitions: Mapping[str, tuple[PartitionId, ...]] = field(default_factory=dict)
    addresses: Mapping[int, str] = field(default_factory=dict)

    def of(self, topic: str, default_topic: str | None = None) -> tuple[PartitionId, ...]:
        """Return a topic's partitions, sorted by broker and number, or those of the default topic,
        under its own name. NoRouteError: there are none."""
        found = self.partitions.get(topic)
        if not found and default_topic is not None:
            others = self.partitions.get(default_topic, ())
            found = tuple(PartitionId(topic, each.broker_id, each.number) for each in others)
        if not found:
            raise NoRouteError(topic, "no master in MetaQ's tree offers a partition of it")
        return found

    def address(self, partition: PartitionId) -> str | None:
        """Return the master that takes a partition's messages; None: none does at the moment."""
        offered = partition in self.partitions.get(partition.topic, ())
        return self.addresses.get(partition.broker_id) if offered else None

    def broker_with_all(self, topics: Sequence[str], choose: Callable[[Sequence[int]], int]) -> str:
        """Return the address of one broker that has them all, as a transaction needs."""
        brokers = set.intersection(*({each.broker_id for each in self.of(one)} for one in topics))
        if not brokers:
            raise UsageError(
                f"topics {', '.join(topics)}: no one broker has them all, as a transaction needs"
            )
        return self.addresses[choose(sorted(brokers))]


def read_routes(paths: TreePaths, topics: Iterable[str]) -> NodeOperation[PublishedRoutes]:
    """Return where the messages of some topics may go, and watch that."""
    offered = {}
    for topic in topics:
        offered[topic] = yield from read_offered(paths.publishable(topic), topic, masters_only=True)
    cluster: dict[int, BrokerAddresses] = yield from read_cluster(paths)
    masters = {number: each.master for number, each in cluster.items() if each.master is not None}
    return PublishedRoutes(
        {
            topic: tuple(sorted(each for each in found if each.broker_id in masters))
            for topic, found in offered.items()
        },
        masters,
    )


class PartitionRotation:
    """The original's choice: the first message of a topic goes to its second partition."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def __call__(
        self, topic: str, partitions: Sequence[PartitionId], payload: bytes
    ) -> PartitionId:
        del payload
        count = self._counts[topic] = self._counts.get(topic, 0) + 1
        return partitions[count % len(partitions)]
