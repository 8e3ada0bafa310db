"""A member of a MetaQ group: how it joins, sees the others, takes its share and leaves.

Several members change the tree at once, Java's and ours: what one look finds may be past when the
next request is answered. So a member owns what its own node below `owners` says, takes nothing that
another still owns, and gives up before it takes; whoever could not take all tries again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from imago_client.core.metaq.nodes import (
    BrokerAddresses,
    ListNode,
    MakeNode,
    PartitionId,
    ReadNode,
    RemoveNode,
    WriteNode,
    read_cluster,
    read_offered,
)
from imago_client.core.metaq.shares import ShareStrategy, share

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from imago_client.core.metaq.nodes import NodeOperation, TreePaths


@dataclass(frozen=True, slots=True)
class GroupView:
    """What one read of the tree found."""

    wanted: frozenset[PartitionId] = frozenset()
    """The share of this member."""
    offered: frozenset[PartitionId] = frozenset()
    """All partitions of its topics."""
    cluster: Mapping[int, BrokerAddresses] = field(default_factory=dict)


class TreeMember:
    """One consumer id of a group, and the topics that it subscribes to."""

    def __init__(
        self,
        paths: TreePaths,
        group: str,
        consumer_id: str,
        topics: Iterable[str],
        strategy: ShareStrategy,
    ) -> None:
        self.group = group
        self.name = f"{group}_{consumer_id}"
        self.topics = tuple(topics)
        self._paths, self._strategy = paths, strategy
        self._own = f"{paths.members(group)}/{self.name}"

    def join(self) -> NodeOperation[None]:
        """Tell the others that it is there."""
        topics = ",".join(self.topics).encode()
        while not (yield MakeNode(self._own, topics, ephemeral=True)):
            if (yield WriteNode(self._own, topics)):
                return

    def look(self) -> NodeOperation[GroupView]:
        """Return the share of this member, and who serves it; watch what both depend on."""
        paths = self._paths
        members: dict[str, list[str]] = {topic: [] for topic in self.topics}
        for name in (yield ListNode(paths.members(self.group), watch=True)) or ():
            data = yield ReadNode(f"{paths.members(self.group)}/{name}")
            for topic in (data or b"").decode("utf-8", "replace").split(","):
                if topic in members:
                    members[topic].append(name)
        wanted: set[PartitionId] = set()
        everything: set[PartitionId] = set()
        for topic in self.topics:
            offered = yield from read_offered(paths.subscribable(topic), topic, masters_only=False)
            everything |= offered
            named = {partition.name: partition for partition in offered}
            mine = share(self._strategy, self.name, members[topic], list(named))
            wanted.update(named[name] for name in mine)
        cluster = yield from read_cluster(paths)
        return GroupView(frozenset(wanted), frozenset(everything), cluster)

    def release(self, partitions: Iterable[PartitionId]) -> NodeOperation[None]:
        """Let others take partitions; what another owns by now stays his."""
        for partition in partitions:
            path = self._paths.owner(self.group, partition)
            if (yield ReadNode(path)) == self.name.encode():
                yield RemoveNode(path)

    def claim(self, partitions: Iterable[PartitionId]) -> NodeOperation[frozenset[PartitionId]]:
        """Take partitions; return those that are this member's now: others still have the rest."""
        taken = set()
        for partition in sorted(partitions):
            path = self._paths.owner(self.group, partition)
            made = yield MakeNode(path, self.name.encode(), ephemeral=True)
            if made or (yield ReadNode(path)) == self.name.encode():
                taken.add(partition)
        return frozenset(taken)

    def leave(self) -> NodeOperation[None]:
        """Give up all that stands in the tree under this member's name."""
        for topic in self.topics:
            folder = self._paths.owners(self.group, topic)
            for name in (yield ListNode(folder)) or ():
                if (yield ReadNode(f"{folder}/{name}")) == self.name.encode():
                    yield RemoveNode(f"{folder}/{name}")
        yield RemoveNode(self._own)
