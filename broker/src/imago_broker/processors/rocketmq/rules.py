"""What RocketMQ's broker refuses, with its own codes and its own words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from imago_broker.model import names
from imago_broker.model.groups import GroupConfig
from imago_broker.model.topics.sealing import seal_of
from imago_broker.model.topics.topics import PERM_READ, TopicConfig
from imago_broker.processors.rocketmq.exchange import RequestError
from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from imago_broker.service.groups.groups import GroupService
    from imago_broker.service.serving_rules import ServingRules
    from imago_broker.service.topics.topics import TopicService

FAQ = "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
GROUP_SIZE_MAX = 120
_NAME = re.compile(r"[%|a-zA-Z0-9_-]+", re.ASCII)


def topic_problem(topic: str) -> str | None:
    """Return why RocketMQ would not make a topic of this name, in its words, or None."""
    if not topic or topic.isspace():
        return "The specified topic is blank."
    if not _NAME.fullmatch(topic):
        return "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    if len(topic) > names.topic_size_max(topic):
        return "The specified topic is longer than topic max length."
    return None


def group_problem(group: str) -> str | None:
    """Return why RocketMQ would not make a consumer group of this name, or None."""
    if not group or group.isspace():
        return "The specified group is blank."
    if len(group) > GROUP_SIZE_MAX:
        return "The specified group is longer than group max length."
    if not _NAME.fullmatch(group):
        return "The specified group contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    return None


def unknown_topic(topic: str) -> RequestError:
    """Return the refusal of a topic that does not exist."""
    return RequestError(
        ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!\n{FAQ}"
    )


def unknown_group(group: str) -> RequestError:
    """Return the refusal of a consumer group that does not exist."""
    return RequestError(
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {group}\n{FAQ}"
    )


def may_consume(name: str, group: GroupConfig | None) -> GroupConfig:
    """Return the settings of a group that may consume; refuse one that is not there or may not."""
    if group is None:
        raise unknown_group(name)
    if not group.consume_enable:
        raise forbidden(f"subscription group no permission, {name}")
    return group


def may_read(group: GroupConfig, topic: str) -> None:
    """Refuse a topic that is forbidden to a group."""
    if topic in group.forbidden_topics:
        raise forbidden(f"the consumer group[{group.name}] is forbidden for topic[{topic}]")


def invalid(remark: str) -> RequestError:
    """Return the refusal of a request that does not make sense."""
    return RequestError(ResponseCode.INVALID_PARAMETER, remark)


def require_not_own(topic: str, cluster: str) -> None:
    """Refuse to make, change or delete a topic that brokers have for themselves."""
    if names.own_problem(topic, cluster):
        raise invalid(f"The topic[{topic}] is conflict with system topic.")


def illegal_queue(topic: TopicConfig, queue_id: int, peer: str) -> RequestError:
    """Return the refusal of a queue that is not, or no more, among those that are read."""
    return invalid(
        f"queueId[{queue_id}] is illegal, topic:[{topic.name}] "
        f"topicConfig.readQueueNums:[{topic.read_queues}] consumer:[{peer}]"
    )


def forbidden(remark: str) -> RequestError:
    """Return the refusal of something that is not allowed."""
    return RequestError(ResponseCode.NO_PERMISSION, remark)


def topic_of(topics: TopicService, topic: str) -> TopicConfig:
    """Return a topic's settings, or refuse."""
    config = topics.get(topic)
    if config is None:
        raise unknown_topic(topic)
    return config


def taking_queues(topic: TopicConfig) -> int:
    """Return in how many queues, from 0 on, messages are put and found by readers; refuse none.

    Sealed topics of groups take what comes from the queues beside them that are read out.
    """
    seal = seal_of(topic)
    write = topic.write_queues if seal is None else seal.write_queues
    found = min(write, topic.read_queues)
    if found <= 0:
        raise forbidden(f"the topic[{topic.name}] has no queue that takes messages and is read")
    return found


def readable_topic(topics: TopicService, topic: str) -> TopicConfig:
    """Return the settings of a topic that may be read, or refuse."""
    config = topic_of(topics, topic)
    if not config.perm & PERM_READ:
        raise forbidden(f"the topic[{topic}] pulling message is forbidden")
    return config


class GroupRules:
    """Consumer groups, and topics of their own, as requests may name and make them."""

    def __init__(
        self, *, groups: GroupService, topics: TopicService, serving_rules: ServingRules
    ) -> None:
        self.groups = groups
        self.topics = topics
        self.serving_rules = serving_rules

    def require(self, group: str) -> GroupConfig:
        """Return a consumer group's settings, made now where that is allowed, or refuse.

        A member that does not lead makes nothing: it takes the group for one with the defaults.
        """
        config = self.groups.get(group)
        if config is None and group_problem(group) is None:
            if self.serving_rules.leads:
                config = self.groups.get_or_create(group)
            elif self.groups.auto_create_enabled:
                config = GroupConfig(name=group)
        if config is None:
            raise unknown_group(group)
        return config

    def retries(self, group: str) -> TopicConfig:
        """Return a group's retry topic for what it gives back; it takes that though it is sealed.

        Not on a shard that is on record as drained, which may go at any moment: consumers keep
        what they cannot give back, and try it again themselves.
        """
        name = names.retry_topic(group)
        if self.topics.intake.closed:
            raise forbidden(f"the topic[{name}] sending message is forbidden, its shard is drained")
        return self.own_topic(name)

    def own_topic(self, topic: str) -> TopicConfig:
        """Return a group's retry or dead-letter topic, made now if need be: one queue, readable."""
        config = self.topics.get(topic)
        if config is None:
            queues = 1
            group = topic.removeprefix(names.RETRY_PREFIX)
            settings = self.groups.get(group) if group != topic else None
            if settings is not None:
                queues = max(1, settings.retry_queues)
            config = self.topics.create_or_update(
                TopicConfig(name=topic, read_queues=queues, write_queues=queues)
            )
        return config
