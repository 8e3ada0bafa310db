"""The topics that a broker makes for itself."""

from __future__ import annotations

from imago_broker.model import names
from imago_broker.model.topics.topics import PERM_INHERIT, PERM_READ_WRITE, TopicConfig

DELAY_LEVELS_MAX = 18
"""Queues in which messages of a level wait; one more is for what was delivered."""
TIMER_BUCKETS = 1024
"""Queues in which timers wait, by when they are due; one more is for what has fired."""


def system_topics(cluster: str, default_queues: int) -> list[TopicConfig]:
    """Return what a leader's log has to have; without a cluster's name nothing for its replies."""
    topics = [
        TopicConfig(
            name=names.DEFAULT_TOPIC,
            read_queues=default_queues,
            write_queues=default_queues,
            perm=PERM_READ_WRITE | PERM_INHERIT,
        ),
        _with_queues(names.SCHEDULE_TOPIC, DELAY_LEVELS_MAX + 1),
        _with_queues(names.TIMER_TOPIC, TIMER_BUCKETS + 1),
        own_topic("SELF_TEST_TOPIC"),
    ]
    replies = names.reply_topic(cluster)
    if cluster and names.topic_problem(replies) is None:  # else no topic can have that name
        topics.append(own_topic(replies))
    return topics


def own_topic(name: str) -> TopicConfig:
    """Return what any other topic is that a broker makes for itself, once it needs it."""
    return _with_queues(name, 1)


def _with_queues(name: str, count: int) -> TopicConfig:
    return TopicConfig(name=name, read_queues=count, write_queues=count)
