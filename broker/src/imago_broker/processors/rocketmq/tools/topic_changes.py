"""Changes of topics as our own clients ask for them: looked at here, where they are made.

RocketMQ's tools name every setting of a topic each time, and get what they name. Our clients say
what they mean: a new topic, or one setting of a topic that there is; what they leave out is kept.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from imago_broker.errors import HidesMessagesError, TopicExistsError
from imago_broker.model.topics.attributes import unknown_problem
from imago_broker.model.topics.sealing import seal_of, without_seal
from imago_broker.model.topics.topics import perm_problem
from imago_broker.processors.rocketmq import rules
from imago_broker.processors.rocketmq.exchange import OK, Reply, RequestError
from imago_wire.remoting.codes import ResponseCode
from imago_wire.remoting.headers.imago import (
    PERM,
    QUEUES,
    ChangeTopicRequestHeader,
    ChangeTopicResponseHeader,
    TopicChange,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_broker.model.topics.topics import TopicConfig
    from imago_broker.service.topics.topics import TopicService


def change(
    topics: TopicService,
    asked: ChangeTopicRequestHeader,
    whole: TopicConfig,
    current: TopicConfig | None,
) -> Reply:
    """Make or alter a topic. `whole`: the settings as if all that was sent had been named."""
    if current is None and asked.imago_change != TopicChange.ALTER and topics.intake.cordoned:
        text = f"topic {whole.name}: this shard is cordoned and takes no new topics"
        raise RequestError(ResponseCode.IMAGO_CORDONED, text)
    if problem := _said_problem(asked, whole, current):
        raise rules.invalid(f"topic {whole.name}: {problem}")
    try:
        wanted = _wanted(asked, whole, current)
        hidden = topics.hidden_by(wanted)
        topics.create_or_update(wanted, hide_messages=asked.imago_hide_messages)
    except TopicExistsError as error:
        raise RequestError(ResponseCode.IMAGO_TOPIC_EXISTS, str(error)) from None
    except HidesMessagesError as error:
        ext = ChangeTopicResponseHeader(imago_hidden=error.messages).to_ext()
        raise RequestError(ResponseCode.IMAGO_HIDES_MESSAGES, str(error), ext=ext) from None
    return replace(OK, ext=ChangeTopicResponseHeader(imago_hidden=hidden).to_ext())


def _said_problem(
    asked: ChangeTopicRequestHeader, whole: TopicConfig, current: TopicConfig | None
) -> str | None:
    had = current.attributes if current is not None else {}
    said = [name for name, value in whole.attributes.items() if had.get(name) != value]
    if PERM in _named(asked) and (problem := perm_problem(whole.perm)):
        return problem
    return unknown_problem(said)


def _named(asked: ChangeTopicRequestHeader) -> frozenset[str]:
    return frozenset((asked.imago_named or "").split(","))


def _wanted(
    asked: ChangeTopicRequestHeader, whole: TopicConfig, current: TopicConfig | None
) -> TopicConfig:
    named = _named(asked)
    change = asked.imago_change
    if change == TopicChange.ALTER:
        if current is None:
            raise rules.unknown_topic(whole.name)
        return _altered(current, whole, named)
    if change not in (TopicChange.CREATE, TopicChange.ENSURE):
        raise rules.invalid(f"imagoChange {(change or '')[:64]!r} is unknown")
    if current is None:
        return whole
    if change == TopicChange.CREATE:
        raise TopicExistsError(f"the topic {whole.name} exists already")
    if other := ", ".join(_differences(current, whole, named)):
        raise TopicExistsError(f"the topic {whole.name} exists already, with {other}")
    return current


def _altered(current: TopicConfig, whole: TopicConfig, named: frozenset[str]) -> TopicConfig:
    altered = replace(current, attributes=whole.attributes)
    if QUEUES in named:
        altered = replace(altered, read_queues=whole.read_queues, write_queues=whole.write_queues)
    return replace(altered, perm=whole.perm) if PERM in named else altered


def _differences(current: TopicConfig, whole: TopicConfig, named: frozenset[str]) -> Iterator[str]:
    """Yield the named settings that the topic has otherwise, as it has them."""
    # Of a sealed topic the queues and the permission are those of its shards that are open.
    if seal_of(current) is None:
        queues = (current.write_queues, current.read_queues)
        if QUEUES in named and queues != (whole.write_queues, whole.read_queues):
            same = len(set(queues)) == 1
            yield (
                f"{queues[0]} queues" if same else f"{queues[0]} write and {queues[1]} read queues"
            )
        if PERM in named and current.perm != whole.perm:
            yield f"perm {current.perm}"
    has = without_seal(current.attributes)
    for name, value in without_seal(whole.attributes).items():
        if has.get(name) != value:
            yield f"{name}={has[name]}" if name in has else f"no {name}"
