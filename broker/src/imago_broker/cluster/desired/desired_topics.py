"""The topics that our shard wants in the registry, and what of them is not written yet."""

from __future__ import annotations

from collections import ChainMap, defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING

from imago_broker.model.registry.cluster import TopicPlacement

if TYPE_CHECKING:
    from collections.abc import Iterable

    from imago_broker.cluster.znodes import Paths

ENDED_MAX = 1000
"""Topics that are remembered after their end; those of the last moments matter."""

Bucket = Mapping[str, TopicPlacement]
"""Topics of one node of the registry, by name."""


def topic_key(name: str) -> str:
    """Key of a topic among what is wanted and what failed."""
    return f"topic {name}"


class DesiredTopics:
    """What a pass has to write: placements in the registry, offers in MetaQ's tree."""

    def __init__(self, paths: Paths) -> None:
        self.placements: dict[str, TopicPlacement] = {}
        """Our entries, by topic."""
        self.patterns: dict[str, TopicPlacement] = {}
        """What MetaQ's clients are offered by pattern: in their tree, and nowhere else."""
        self._paths = paths
        self._unplaced: set[str] = set()
        self._unoffered: dict[str, None] = {}
        self._ended: dict[str, None] = {}
        """Topics that ended while we did not lead: a former master may have left their nodes."""
        self._names_in: defaultdict[str, set[str]] = defaultdict(set)
        self._buckets_seen: dict[str, Bucket] = {}

    @property
    def keys(self) -> list[str]:
        """Keys of all that are wanted."""
        return [topic_key(name) for name in self.placements]

    def want(self, placements: Iterable[TopicPlacement]) -> list[str]:
        """Want our entry of these topics; return the keys to wait for."""
        names = []
        for placement in placements:
            self.placements[placement.name] = placement
            self._names_in[self._paths.bucket(placement.name)].add(placement.name)
            names.append(placement.name)
        return self._touch(names)

    def want_none(self, names: Iterable[str]) -> list[str]:
        """Want no entry of ours for these topics; return the keys to wait for."""
        names = list(names)
        for name in names:
            if self.placements.pop(name, None):
                self._ended[name] = None
            self._names_in[self._paths.bucket(name)].discard(name)
        for name in list(self._ended)[:-ENDED_MAX]:
            del self._ended[name]
        return self._touch(names)

    def offer_patterns(self, patterns: Iterable[TopicPlacement]) -> list[str]:
        """Offer these patterns and no others; return the keys to wait for."""
        wanted = {pattern.name: pattern for pattern in patterns}
        touched = {
            name
            for name in self.patterns.keys() | wanted.keys()
            if self.patterns.get(name) != wanted.get(name)
        }
        self._ended.update(dict.fromkeys(self.patterns.keys() - wanted.keys()))
        self.patterns = wanted
        self.put_back(unoffered=sorted(touched))
        return [topic_key(name) for name in sorted(touched)]

    @property
    def offers(self) -> Mapping[str, TopicPlacement]:
        """All that MetaQ's tree shows of us, by name."""
        return ChainMap(self.placements, self.patterns)

    def clear(self) -> None:
        """Want none; leave the registry as it is."""
        self.patterns.clear()
        self.placements.clear()
        self._names_in.clear()
        self._unplaced.clear()
        self._unoffered.clear()

    def find_missing(self, buckets: Mapping[str, Bucket], shard: int) -> bool:
        """Place again what was read without our entry; returns whether there is any.

        `buckets`: the topic nodes by path; unchanged ones are the objects of the last call.
        """
        missing: set[str] = set()
        for path, names in self._names_in.items():
            topics = buckets.get(path, {})
            if topics is self._buckets_seen.get(path):
                continue
            self._buckets_seen[path] = topics
            for name in names:
                seen, wanted = topics.get(name), self.placements[name]
                if seen is None or seen.shards.get(shard) != wanted.shards[shard]:
                    missing.add(name)
        self._unplaced |= missing
        return bool(missing)

    def begin_session(self) -> None:
        """Write everything again: by another session, or under a node that was deleted."""
        self._unplaced |= self.placements.keys()
        self._offer_all()

    def begin_role(self) -> None:
        """Write everything again, what has ended included: only a master says where topics are."""
        self._unplaced |= self.placements.keys() | self._ended.keys()
        self._offer_all()

    def take(self) -> tuple[set[str], dict[str, None]]:
        """Take out what is to be placed and to be offered; what changes meanwhile stays."""
        unplaced, self._unplaced = self._unplaced, set()
        unoffered, self._unoffered = self._unoffered, {}
        return unplaced, unoffered

    def put_back(self, *, unplaced: Iterable[str] = (), unoffered: Iterable[str] = ()) -> None:
        """Have the next pass write what this one did not."""
        self._unplaced.update(unplaced)
        self._unoffered.update(dict.fromkeys(unoffered))

    def _offer_all(self) -> None:
        self._unoffered.update(dict.fromkeys((*self.placements, *self.patterns)))
        self._unoffered |= self._ended

    def _touch(self, names: list[str]) -> list[str]:
        self.put_back(unplaced=names, unoffered=names)
        return [topic_key(name) for name in names]
