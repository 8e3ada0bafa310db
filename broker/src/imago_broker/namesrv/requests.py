"""The name service's answers to clients and tools."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from imago_broker.model import names
from imago_broker.model.pipelines import NAMESPACE as PIPELINES
from imago_broker.namesrv import name_settings, pipelines, routes
from imago_broker.processors.rocketmq.exchange import Exchange, Reply, RequestError
from imago_broker.processors.rocketmq.rules import FAQ
from imago_wire.remoting.bodies.route import (
    BrokerMemberGroup,
    GetBrokerMemberGroupResponseBody,
    KvTable,
    TopicRouteData,
)
from imago_wire.remoting.codes import ResponseCode
from imago_wire.remoting.headers.namesrv import (
    AddWritePermOfBrokerRequestHeader,
    DeleteKVConfigRequestHeader,
    DeleteTopicFromNamesrvRequestHeader,
    GetBrokerMemberGroupRequestHeader,
    GetKVConfigRequestHeader,
    GetKVListByNamespaceRequestHeader,
    GetRouteInfoRequestHeader,
    GetTopicsByClusterRequestHeader,
    PutKVConfigRequestHeader,
    RegisterTopicRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
)
from imago_wire.remoting.peer import Version
from imago_wire.remoting.texts.properties_text import decode_properties_text, encode_properties_text

if TYPE_CHECKING:
    from imago_broker.model.registry.seen import Viewed
    from imago_broker.namesrv.delayed_answers import Later
    from imago_broker.namesrv.foreign import ForeignBrokers
    from imago_broker.namesrv.name_settings import NameSettings
    from imago_broker.ports import PipelineRecords, Registry, SharedMarks

PLACED_FIELD = "imagoPlaced"
"""Asks for the queues and topics of shards without a live broker, too, and for those shards: our
own clients use it."""


@dataclass(slots=True, kw_only=True, eq=False)
class NameProcessor:
    """The request codes of clients and tools."""

    settings: NameSettings
    registry: Registry
    marks: SharedMarks
    pipeline_records: PipelineRecords
    foreign: ForeignBrokers
    later: Later
    seen: Viewed
    """The registry as those see it who are answered."""
    _answers: routes.Answers = field(default_factory=routes.Answers, init=False)

    def route(self, exchange: Exchange) -> Reply:
        """GET_ROUTEINFO_BY_TOPIC, in standard JSON for those that want it, else in fastjson's."""
        header = GetRouteInfoRequestHeader.from_ext(exchange.ext)
        version = exchange.command.version
        body = self._answers.route(
            self.seen.view(),
            header.topic,
            with_order=self.settings.allows(name_settings.ORDER),
            acting_master=version >= Version.V5_0_0,
            standard=version >= Version.V4_9_4 or bool(header.accept_standard_json_only),
            placed=_wants_placed(exchange),
        )
        if body is None:
            raise RequestError(
                ResponseCode.TOPIC_NOT_EXIST,
                "No topic route info in name server for the topic: "
                f"{names.shown(header.topic)}\n{FAQ}",
            )
        return Reply(body=body)

    def cluster_info(self, exchange: Exchange) -> Reply:
        """GET_BROKER_CLUSTER_INFO: always with bare broker ids, as the originals write it."""
        found = routes.cluster_info(self.seen.view(), placed=_wants_placed(exchange))
        return Reply(body=found.encode())

    def member_group(self, exchange: Exchange) -> Reply:
        """GET_BROKER_MEMBER_GROUP of 5.x: the live members of a broker name."""
        header = GetBrokerMemberGroupRequestHeader.from_ext(exchange.ext)
        data = routes.members(self.seen.view(), header.broker_name)
        addresses = data.broker_addrs if data is not None else {}
        group = BrokerMemberGroup(
            broker_addrs=addresses,
            broker_name=names.shown(header.broker_name),
            cluster=names.shown(header.cluster_name),
        )
        return Reply(body=GetBrokerMemberGroupResponseBody(broker_member_group=group).encode())

    def all_topics(self, exchange: Exchange) -> Reply:
        """GET_ALL_TOPIC_LIST_FROM_NAMESERVER."""
        self._allow(name_settings.ALL_TOPICS)
        found = routes.all_topics(self.seen.view(), placed=_wants_placed(exchange))
        return Reply(body=found.encode())

    def topics_of_cluster(self, exchange: Exchange) -> Reply:
        """GET_TOPICS_BY_CLUSTER: an unknown cluster has none."""
        self._allow(name_settings.TOPICS)
        header = GetTopicsByClusterRequestHeader.from_ext(exchange.ext)
        found = routes.topics_of_cluster(self.seen.view(), header.cluster)
        return Reply(body=found.encode())

    def system_topics(self, _: Exchange) -> Reply:
        """GET_SYSTEM_TOPIC_LIST_FROM_NS."""
        self._allow(name_settings.TOPICS)
        return Reply(body=routes.system_topics(self.seen.view()).encode())

    def unit_topics(self, _: Exchange) -> Reply:
        """GET_UNIT_TOPIC_LIST."""
        self._allow(name_settings.TOPICS)
        return Reply(body=routes.topics_by_flag(self.seen.view(), routes.UNIT).encode())

    def unit_subscription_topics(self, _: Exchange) -> Reply:
        """GET_HAS_UNIT_SUB_TOPIC_LIST."""
        self._allow(name_settings.TOPICS)
        view = self.seen.view()
        return Reply(body=routes.topics_by_flag(view, routes.UNIT_SUBSCRIPTION).encode())

    def ununit_subscription_topics(self, _: Exchange) -> Reply:
        """GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST."""
        self._allow(name_settings.TOPICS)
        view = self.seen.view()
        found = routes.topics_by_flag(view, routes.UNIT_SUBSCRIPTION, routes.UNIT)
        return Reply(body=found.encode())

    def _allow(self, name: str) -> None:
        if not self.settings.allows(name):
            raise RequestError(ResponseCode.SYSTEM_ERROR, "disable")

    def delete_topic(self, exchange: Exchange) -> Reply | None:
        """DELETE_TOPIC_IN_NAMESRV: our brokers take their own topics out when they delete them, and
        have done so when they answer."""
        header = DeleteTopicFromNamesrvRequestHeader.from_ext(exchange.ext)

        async def drop() -> None:
            for broker in self.foreign.drop_topic(header.topic, header.cluster_name):
                await self.registry.put_foreign(broker)
            await self.registry.read_topic(header.topic)

        self.later.answer(exchange, drop(), Reply)
        return None

    def wipe_write(self, exchange: Exchange) -> Reply | None:
        """WIPE_WRITE_PERM_OF_BROKER: producers shall not find the broker any more."""
        header = WipeWritePermOfBrokerRequestHeader.from_ext(exchange.ext)
        return self._set_wiped(exchange, header.broker_name, True, "wipeTopicCount")

    def add_write(self, exchange: Exchange) -> Reply | None:
        """ADD_WRITE_PERM_OF_BROKER: producers may find it again."""
        header = AddWritePermOfBrokerRequestHeader.from_ext(exchange.ext)
        return self._set_wiped(exchange, header.broker_name, False, "addTopicCount")

    def _set_wiped(
        self, exchange: Exchange, broker_name: str, wiped: bool, counted: str
    ) -> Reply | None:
        count = routes.topic_count(self.seen.view(), broker_name)
        reply = Reply(ext={counted: str(count)})
        if not count:
            return reply
        self.later.answer(exchange, self.marks.set_write_wiped(broker_name, wiped), lambda: reply)
        return None

    def put_kv(self, exchange: Exchange) -> Reply | None:
        """PUT_KV_CONFIG."""
        if not exchange.ext.get("namespace") or not exchange.ext.get("key"):
            raise RequestError(ResponseCode.SYSTEM_ERROR, "namespace or key is null")
        header = PutKVConfigRequestHeader.from_ext(exchange.ext)
        if header.namespace == PIPELINES:
            noted = pipelines.note(self.pipeline_records, header.key, header.value)
            self.later.answer_with(exchange, noted)
            return None
        if problem := _kv_problem(header):
            raise RequestError(ResponseCode.SYSTEM_ERROR, problem)
        work = self.marks.put_kv(header.namespace, header.key, header.value)
        self.later.answer(exchange, work, Reply)
        return None

    def get_kv(self, exchange: Exchange) -> Reply | None:
        """GET_KV_CONFIG."""
        header = GetKVConfigRequestHeader.from_ext(exchange.ext)
        if header.namespace == PIPELINES:
            self.later.answer_with(exchange, pipelines.tell(self.pipeline_records, header.key))
            return None
        value = self.seen.view().kv.get(header.namespace, {}).get(header.key)
        if value is None:
            raise RequestError(
                ResponseCode.QUERY_NOT_FOUND,
                f"No config item, Namespace: {names.shown(header.namespace)}"
                f" Key: {names.shown(header.key)}",
            )
        return Reply(ext={"value": value})

    def delete_kv(self, exchange: Exchange) -> Reply | None:
        """DELETE_KV_CONFIG."""
        header = DeleteKVConfigRequestHeader.from_ext(exchange.ext)
        if header.namespace == PIPELINES:
            raise RequestError(ResponseCode.NO_PERMISSION, "a fence is never taken away")
        work = self.marks.put_kv(header.namespace, header.key, None)
        self.later.answer(exchange, work, Reply)
        return None

    def list_kv(self, exchange: Exchange) -> Reply:
        """GET_KVLIST_BY_NAMESPACE."""
        header = GetKVListByNamespaceRequestHeader.from_ext(exchange.ext)
        table = self.seen.view().kv.get(header.namespace)
        if not table:
            raise RequestError(
                ResponseCode.QUERY_NOT_FOUND,
                f"No config item, Namespace: {names.shown(header.namespace)}",
            )
        return Reply(body=KvTable(table=dict(table)).encode())

    def get_settings(self, _: Exchange) -> Reply:
        """GET_NAMESRV_CONFIG."""
        return Reply(body=encode_properties_text(self.settings.entries()))

    def set_settings(self, exchange: Exchange) -> Reply:
        """UPDATE_NAMESRV_CONFIG."""
        self.settings.change(decode_properties_text(exchange.command.body))
        return Reply()

    def register_topic(self, exchange: Exchange) -> Reply | None:
        """REGISTER_TOPIC_IN_NAMESRV: queues of a topic on foreign brokers, told by hand."""
        header = RegisterTopicRequestHeader.from_ext(exchange.ext)
        route = TopicRouteData.decode(exchange.command.body)
        view = self.registry.view()
        for queues in route.queue_datas:
            if routes.is_own(view, queues.broker_name):
                raise RequestError(
                    ResponseCode.SYSTEM_ERROR,
                    f"{names.shown(queues.broker_name)} is one of this cluster's own brokers: have"
                    " it create the topic",
                )

        async def put() -> None:
            for broker in self.foreign.with_topic(header.topic, route.queue_datas):
                await self.registry.put_foreign(broker)

        self.later.answer(exchange, put(), Reply)
        return None


def _kv_problem(header: PutKVConfigRequestHeader) -> str | None:
    """Return why a setting is not taken, or None."""
    problem = names.word_problem("namespace", header.namespace)
    if problem := problem or names.word_problem("key", header.key):
        return problem
    if (size := len(header.value)) > names.KV_VALUE_SIZE_MAX:
        return f"the value has {size} characters, at most {names.KV_VALUE_SIZE_MAX}"
    return None


def _wants_placed(exchange: Exchange) -> bool:
    return exchange.ext.get(PLACED_FIELD) == "true"
