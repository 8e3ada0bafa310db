"""The broker's own settings in RocketMQ's JSON, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.model.groups import GroupConfig
from imago_broker.processors.rocketmq import rules
from imago_wire.remoting.bodies.config import SubscriptionGroupConfig
from imago_wire.remoting.bodies.config import TopicConfig as TopicConfigBody
from imago_wire.remoting.peer import Version

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_broker.model.topics.topics import TopicConfig


def topic_body(config: TopicConfig, version: int) -> TopicConfigBody:
    """Return a topic's settings as a client of this version reads them."""
    return TopicConfigBody(
        attributes=dict(config.attributes) if version >= Version.V5_0_0 else None,
        order=config.order,
        perm=config.perm,
        read_queue_nums=config.read_queues,
        topic_filter_type=config.filter_type,
        topic_name=config.name,
        topic_sys_flag=config.sys_flag,
        write_queue_nums=config.write_queues,
    )


def group_body(config: GroupConfig, version: int) -> SubscriptionGroupConfig:
    """Return a group's settings as a client of this version reads them."""
    modern = version >= Version.V5_0_0
    return SubscriptionGroupConfig(
        attributes=dict(config.attributes) if modern else None,
        broker_id=config.broker_id,
        consume_broadcast_enable=config.consume_broadcast_enable,
        consume_enable=config.consume_enable,
        consume_from_min_enable=config.consume_from_min_enable,
        consume_message_orderly=config.consume_message_orderly if modern else None,
        consume_timeout_minute=config.consume_timeout_minute if modern else None,
        group_name=config.name,
        group_retry_policy={"type": "CUSTOMIZED"} if modern else None,
        group_sys_flag=config.group_sys_flag if modern else None,
        notify_consumer_ids_changed_enable=config.notify_consumer_ids_changed_enable,
        retry_max_times=config.retry_max_times,
        retry_queue_nums=config.retry_queues,
        which_broker_when_consume_slowly=config.which_broker_when_consume_slowly,
    )


def group_config(body: SubscriptionGroupConfig) -> GroupConfig:
    """Return what a tool wants a group to be; refuse names and numbers that cannot be."""
    if problem := rules.group_problem(body.group_name):
        raise rules.invalid(problem)
    said = {
        "consume_enable": body.consume_enable,
        "consume_from_min_enable": body.consume_from_min_enable,
        "consume_broadcast_enable": body.consume_broadcast_enable,
        "consume_message_orderly": body.consume_message_orderly,
        "retry_queues": body.retry_queue_nums,
        "retry_max_times": body.retry_max_times,
        "broker_id": body.broker_id,
        "which_broker_when_consume_slowly": body.which_broker_when_consume_slowly,
        "notify_consumer_ids_changed_enable": body.notify_consumer_ids_changed_enable,
        "group_sys_flag": body.group_sys_flag,
        "consume_timeout_minute": body.consume_timeout_minute,
        "attributes": body.attributes,
    }
    try:
        # What a tool before 5 does not know is as in a new group.
        return GroupConfig.said({"name": body.group_name} | _without_none(said))
    except ValueError as error:
        raise rules.invalid(str(error)) from None


def _without_none(said: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in said.items() if value is not None}


def altered_attributes(current: Mapping[str, str], changes: Mapping[str, str]) -> dict[str, str]:
    """Return a group's attributes after changes as RocketMQ 5's tools send them.

    Names begin with `+` or `-` there; a plain one is set, too. What is not named stays.
    """
    attributes = dict(current)
    for name, value in changes.items():
        if name.startswith("-"):
            attributes.pop(name[1:], None)
        else:
            attributes[name.removeprefix("+")] = value
    return attributes


def changed_attributes(current: Mapping[str, str], changes: str | None) -> dict[str, str]:
    """Return attributes after `+name=value,-name` changes, as RocketMQ 5's tools write them."""
    attributes = dict(current)
    for change in (changes or "").split(","):
        word = change.strip()
        if not word:
            continue
        name, equals, value = word[1:].partition("=")
        if word[0] == "+" and name and equals:
            attributes[name] = value
        elif word[0] == "-" and name and not equals:
            attributes.pop(name, None)
        else:
            raise rules.invalid(f"attribute change {word[:64]!r}: must be +name=value or -name")
    return attributes
