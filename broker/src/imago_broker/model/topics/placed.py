"""A shard's settings of a topic as its entry in the registry."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from imago_broker.model.registry.cluster import ShardQueues, TopicPlacement
from imago_broker.model.topics.declared import ANY_NAME, pattern_topic
from imago_broker.model.topics.sealing import without_seal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_broker.model.topics.topics import TopicConfig


def placement(config: TopicConfig, shard: int) -> TopicPlacement:
    """Return what the registry holds of a topic on one shard."""
    queues = ShardQueues(config.write_queues, config.read_queues, config.perm)
    return TopicPlacement(
        name=config.name,
        shards={shard: queues},
        sys_flag=config.sys_flag,
        order=config.order,
        dual=config.dual,
        # The attributes are the topic's on all its shards; whether it is sealed is this one's.
        attributes=without_seal(config.attributes),
    )


def pattern_placements(
    patterns: Mapping[str, Mapping[str, bool | int | float | str]], *, queues: int, shard: int
) -> list[TopicPlacement]:
    """Return how the patterns stand in MetaQ's tree: each as a topic that it makes."""
    return [
        replace(placement(pattern_topic(ANY_NAME, settings, queues=queues), shard), name=pattern)
        for pattern, settings in patterns.items()
    ]
