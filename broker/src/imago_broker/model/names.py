"""Names of topics and groups: what is allowed, what is reserved.

A topic's name becomes the name of a folder, so the rule is a list of allowed characters and
never a list of forbidden ones. It is RocketMQ's (letters, digits, ``%|_-``) plus the dot,
which MetaQ users have in their topics; a name never starts with a dot.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

from imago_wire import system_topics
from imago_wire.errors import WrongError
from imago_wire.record_format.references import LITE_PREFIX, lite_parent
from imago_wire.system_topics import REPLY_TOPIC_SUFFIX, SYSTEM_TOPICS

TOPIC_SIZE_MAX = 127
PREFIXED_TOPIC_SIZE_MAX = 255
"""Of topics whose names hold another: retries and dead letters of a group, lite topics."""
GROUP_SIZE_MAX = 255
RETRYING_GROUP_SIZE_MAX = PREFIXED_TOPIC_SIZE_MAX - len("%RETRY%")
"""Of a group with settings: what its consumers give back is put into a topic of its own."""
WORD_SIZE_MAX = 255
"""Of names that clients make up without a rule of ours: client ids, groups of producers."""
SUBSCRIPTION_SIZE_MAX = 32 << 10
"""Of what a consumer wants of one topic: an expression, its tags, their hashes."""
FOREIGN_TOPIC_SIZE_MAX = len("%RETRY%") + GROUP_SIZE_MAX
"""Of topics of brokers that are not ours: the retry topic of the longest group."""
KV_VALUE_SIZE_MAX = 32 << 10
"""Of a setting of the name service: an order configuration of a thousand brokers."""
KV_KEYS_MAX = 10_000
KV_NAMESPACES_MAX = 256
"""Of the name service's settings, which are one node of the registry."""
PARTITIONS_MAX = 65536
"""Queue numbers have 32 bits on the wire; a topic with more queues than this is a mistake."""

RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
DEFAULT_TOPIC = "TBW102"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
META_TOPIC = "IMAGO_META"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
"""Messages of transactions whose outcome is open, or was."""
TRANSACTION_MARK_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
"""How they ended."""
GIVEN_UP_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
"""Messages of transactions about which producers were asked too often."""

OWN_GROUPS = frozenset({"IMAGO_CLI"})
"""Groups that our commands read as: they keep no offsets, so they are no one's to look after."""

_NAME = re.compile(r"[%|A-Za-z0-9_-][%|A-Za-z0-9_.-]*", re.ASCII)

SYSTEM_TOPIC_PREFIX = "rmq_sys_"
TIMER_TOPIC = "rmq_sys_wheel_timer"
"""Where messages wait that are to be delivered at a time of their own."""
METAQ_PREPARED_TOPIC = "rmq_sys_metaq_prepared"
"""Messages of MetaQ's transactions that were prepared, or that end in one step."""
METAQ_OUTCOME_TOPIC = "rmq_sys_metaq_outcomes"
"""How they ended."""
PARKING_TOPICS = frozenset({SCHEDULE_TOPIC, TIMER_TOPIC})
"""Where messages wait that belong to other topics."""

WITHHELD_TOPICS = PARKING_TOPICS | {
    META_TOPIC,
    HALF_TOPIC,
    TRANSACTION_MARK_TOPIC,
    METAQ_PREPARED_TOPIC,
    METAQ_OUTCOME_TOPIC,
}
"""Whose records no consumer was given to work on: those of others that wait, and the broker's."""

BROKERS_ALONE = WITHHELD_TOPICS | {"OFFSET_MOVED_EVENT", "SELF_TEST_TOPIC"}
"""Topics that only the broker writes and reads. What is in any other one was a client's, or is
meant for one: it is not the broker's to forget, whatever the topic is called."""

CLOSED_TO_SENDERS = BROKERS_ALONE | {GIVEN_UP_TOPIC}
"""System topics into which no client may put."""


def said_text(said: Mapping[str, object], key: str) -> str:
    """Return a text that an object of JSON has by this key; ValueError where it has none."""
    value = said.get(key)
    if not isinstance(value, str):
        raise WrongError(f"{key}: {value!r:.60}, must be a text")
    return value


def topic_size_max(name: str) -> int:
    """Return how many bytes a topic of this kind of name may have."""
    prefixed = name.startswith((RETRY_PREFIX, DLQ_PREFIX, LITE_PREFIX))
    return PREFIXED_TOPIC_SIZE_MAX if prefixed else TOPIC_SIZE_MAX


def topic_problem(name: str) -> str | None:
    """Return why a topic may not have this name, or None when it may."""
    if not name:
        return "the topic has no name"
    if len(name) > topic_size_max(name):
        return f"the topic's name has {len(name)} characters, at most {topic_size_max(name)}"
    if not _NAME.fullmatch(name.replace("$", "-") if lite_parent(name) else name):
        return "a topic's name consists of letters, digits and %|_-. and starts with no dot"
    return None


def group_problem(name: str) -> str | None:
    """Return why a group may not have this name, or None when it may."""
    if not name:
        return "the group has no name"
    if len(name) > GROUP_SIZE_MAX:
        return f"the group's name has {len(name)} characters, at most {GROUP_SIZE_MAX}"
    if not _NAME.fullmatch(name):
        return "a group's name consists of letters, digits and %|_-. and starts with no dot"
    return None


def retrying_problem(group: str) -> str | None:
    """Return why a group of this name cannot have messages tried again, or None when it can."""
    return group_problem(group) or (
        topic_problem(retry_topic(group))
        and f"the group's name has {len(group)} characters, at most {RETRYING_GROUP_SIZE_MAX}"
        " where its messages are to be tried again"
    )


def word_problem(what: str, word: str) -> str | None:
    """Return why nothing of this name is kept, or None: it is short, and can be printed."""
    if len(word) > WORD_SIZE_MAX:
        return f"the {what} has {len(word)} characters, at most {WORD_SIZE_MAX}"
    if not word.isprintable():
        return f"the {what} has characters that cannot be printed"
    return None


def shown(word: str) -> str:
    """Return a name as an answer may repeat it."""
    return word if len(word) <= WORD_SIZE_MAX else f"{word[:WORD_SIZE_MAX]}…"


def is_system(name: str, cluster: str) -> bool:
    """Return whether brokers of this cluster have made the topic for themselves."""
    return system_topics.is_system(name, (cluster,))


def on_every_shard(name: str, cluster: str) -> bool:
    """Return whether each shard makes this topic, into which clients put, for itself."""
    return name in (DEFAULT_TOPIC, reply_topic(cluster))


def is_reserved(name: str) -> bool:
    """Return whether RocketMQ has no tool make, change or delete a topic of this name."""
    return name in SYSTEM_TOPICS or name.startswith(SYSTEM_TOPIC_PREFIX)


def looks_own(name: str) -> bool:
    """Return whether a topic of this name was never one of MetaQ's clients.

    By looks alone, as its records were written: what is in the log already does not change.
    """
    return is_reserved(name) or name.endswith(REPLY_TOPIC_SUFFIX)


def own_problem(name: str, cluster: str, *, sent_to: bool = False) -> str | None:
    """Return why nobody may make or change a topic of this name, or None when somebody may.

    `sent_to`: it is made by a message that is sent to it, or opened as it is on another shard.
    """
    if sent_to:
        own = name in BROKERS_ALONE or on_every_shard(name, cluster)
    else:
        own = is_reserved(name) or is_system(name, cluster)
    return "it is the broker's own, which makes it as it has to be" if own else None


def is_derived(name: str) -> bool:
    """Return whether the topic belongs to a group: its retries or its dead letters."""
    return name.startswith((RETRY_PREFIX, DLQ_PREFIX))


def retry_topic(group: str) -> str:
    """Return the topic in which a group's failed messages wait for another try."""
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    """Return the topic of the messages that a group gave up."""
    return DLQ_PREFIX + group


def reply_topic(cluster: str) -> str:
    """Return the topic to which consumers send their replies to requests."""
    return system_topics.reply_topic(cluster)
