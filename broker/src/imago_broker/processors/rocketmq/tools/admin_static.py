"""Static topics as `mqadmin updateStaticTopic` and `remappingStaticTopic` make them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.model.topics.static_topics import StaticMapping
from imago_broker.model.topics.topics import TopicConfig
from imago_broker.processors.rocketmq import rules
from imago_broker.processors.rocketmq.exchange import OK, Exchange, Reply, RequestError
from imago_wire.errors import WrongError, in_our_words
from imago_wire.remoting import fastjson
from imago_wire.remoting.codes import ResponseCode
from imago_wire.remoting.headers.admin import CreateTopicRequestHeader

if TYPE_CHECKING:
    from imago_broker.processors.rocketmq.identity import RocketmqIdentity
    from imago_broker.service.topics.static_topics import StaticTopics
    from imago_broker.service.topics.topics import TopicService


class StaticTopicAdmin:
    """UPDATE_AND_CREATE_STATIC_TOPIC."""

    def __init__(
        self,
        static_topics: StaticTopics,
        *,
        topics: TopicService,
        identity: RocketmqIdentity,
    ) -> None:
        self._statics, self._topics, self._identity = static_topics, topics, identity

    def update(self, exchange: Exchange) -> Reply:
        """Make or change the broker's own queues, then the mapping of global ones to them."""
        header = CreateTopicRequestHeader.from_ext(exchange.ext)
        try:
            told = StaticMapping.from_json(fastjson.parse(exchange.command.body))
            self._check(header.topic, told)
            known = self._statics.get(header.topic)
            mapping = told.after(known, force=header.force)
            config = self._config(header)
        except ValueError as error:
            remark = in_our_words(error)
            raise RequestError(ResponseCode.SYSTEM_ERROR, remark) from None
        if not mapping.hosted and self._topics.get(header.topic) is None:
            return OK  # tools tell all brokers; this one has nothing of it
        self._topics.create_or_update(config, hide_messages=True)
        self._statics.set(mapping)
        self._topics.handles.forget(header.topic)
        return OK

    def _check(self, topic: str, told: StaticMapping) -> None:
        if problem := rules.topic_problem(topic):
            raise rules.invalid(problem)
        rules.require_not_own(topic, self._topics.cluster)
        if told.topic != topic:
            raise WrongError(f"the mapping is one of topic {told.topic[:64]!r}")
        own = self._identity.broker_name
        if told.broker != own:
            raise WrongError(f"the mapping is one of broker {told.broker[:64]!r}, this is {own}")

    def _config(self, header: CreateTopicRequestHeader) -> TopicConfig:
        known = self._topics.get(header.topic)
        return TopicConfig(
            name=header.topic,
            read_queues=header.read_queue_nums,
            write_queues=header.write_queue_nums,
            perm=header.perm,
            filter_type=header.topic_filter_type,
            sys_flag=header.topic_sys_flag or 0,
            order=known.order if known else False,
            attributes=known.attributes if known else {},
        )
