"""Priorities of messages: each has a queue of its own, and the highest one is read first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imago_broker.model.topics.attributes import MESSAGE_TYPE

if TYPE_CHECKING:
    from imago_broker.model.groups import GroupConfig
    from imago_broker.model.topics.topics import TopicConfig

FACTOR: Final = "priority.factor"
"""The attribute of a group that says how many of a hundred POPs go by priority; all else."""


def goes_by_priority(topic: TopicConfig, group: GroupConfig | None, turn: int) -> bool:
    """Return whether a group's POP reads the last queue first, and then those below."""
    if not has_priorities(topic):
        return False
    factor = "100" if group is None else group.attributes.get(FACTOR, "100")
    return not factor.isdecimal() or turn % 100 < int(factor[:4])


def has_priorities(topic: TopicConfig) -> bool:
    """Return whether the order of a topic's queues may be theirs."""
    return topic.attributes.get(MESSAGE_TYPE) == "PRIORITY"
