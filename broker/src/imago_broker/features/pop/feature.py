"""POP as it plugs in: its request codes with their rights, its metrics, and when it works."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from imago_broker.features.feature import Feature
from imago_broker.features.pop.assignments import AssignmentProcessor
from imago_broker.features.pop.giving import PopParts
from imago_broker.features.pop.lite_topics.requests import LiteProcessor
from imago_broker.features.pop.lite_topics.wants import LiteSubscriptions
from imago_broker.features.pop.pop_requests import PopProcessor
from imago_broker.features.pop.reading import PopReader
from imago_broker.features.pop.receipts import ReceiptProcessor
from imago_broker.features.pop.renewals import PushRenewals
from imago_broker.features.pop.request_modes import RequestModes
from imago_broker.features.pop.service import PopService
from imago_broker.features.pop.short_pops import ShortPops
from imago_broker.features.pop.waiting import PopWaiting
from imago_broker.metrics import counter, gauge
from imago_broker.model.access.access import READ, SHOW
from imago_broker.processors.rocketmq.access.rights import both, cluster, consume, group, topic
from imago_broker.processors.rocketmq.installed import Installed
from imago_broker.processors.rocketmq.needs import ALTER, SUBSCRIBE, of_group, of_topic
from imago_broker.processors.rocketmq.rows import Row
from imago_broker.service.access.throttling import Direction
from imago_broker.service.serving_rules import Asks
from imago_wire.remoting.bodies.lite import LiteSubscriptionCtlRequestBody
from imago_wire.remoting.bodies.pop import (
    BatchAckMessageRequestBody,
    QueryAssignmentRequestBody,
    SetMessageRequestModeRequestBody,
)
from imago_wire.remoting.codes import RequestCode as Code

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from imago_broker.features.pop.lite_topics.wants import LiteClient
    from imago_broker.metrics import Sample
    from imago_broker.model.access.access import Need
    from imago_broker.model.topics.topics import TopicConfig
    from imago_broker.processors.rocketmq.access.rights import Asked, Right
    from imago_broker.processors.rocketmq.assembly import RocketmqAssembly


def _batch_ack(asked: Asked) -> Iterable[Need]:
    for ack in BatchAckMessageRequestBody.decode(asked.command.body).acks:
        yield of_group(ack.consumer_group, SUBSCRIBE)
        yield of_topic(ack.topic, SUBSCRIBE)


def _lite_subscriptions(asked: Asked) -> Iterable[Need]:
    told = LiteSubscriptionCtlRequestBody.decode(asked.command.body).subscription_set
    for group_name, topic_name in {(each.group, each.topic) for each in told}:
        yield of_group(group_name, SUBSCRIBE)
        yield of_topic(topic_name, SUBSCRIBE)


def _assignment(asked: Asked) -> Iterable[Need]:
    body = QueryAssignmentRequestBody.decode(asked.command.body)
    yield of_group(body.consumer_group, READ)
    yield of_topic(body.topic, READ)


def _request_mode(asked: Asked) -> Iterable[Need]:
    body = SetMessageRequestModeRequestBody.decode(asked.command.body)
    yield of_group(body.consumer_group, ALTER)


RIGHTS: Final[Mapping[int, Right]] = MappingProxyType(
    {
        Code.POP_MESSAGE: consume,
        Code.POP_LITE_MESSAGE: consume,
        Code.LITE_SUBSCRIPTION_CTL: _lite_subscriptions,
        Code.PEEK_MESSAGE: consume,
        Code.NOTIFICATION: consume,
        Code.POLLING_INFO: both(topic(READ), group(READ)),
        Code.ACK_MESSAGE: consume,
        Code.BATCH_ACK_MESSAGE: _batch_ack,
        Code.CHANGE_MESSAGE_INVISIBLETIME: consume,
        Code.QUERY_ASSIGNMENT: _assignment,
        Code.SET_MESSAGE_REQUEST_MODE: _request_mode,
        Code.GET_ALL_MESSAGE_REQUEST_MODE: cluster(SHOW),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PopServices:
    """What POP is made of in one broker."""

    service: PopService
    reader: PopReader
    waiting: PopWaiting
    modes: RequestModes
    lite: LiteSubscriptions
    parts: PopParts
    popping: PopProcessor
    receipts: ReceiptProcessor
    short: ShortPops
    renewals: PushRenewals


def install(parts: RocketmqAssembly) -> Installed:
    """Make it, and connect it with what the broker has anyway."""
    pop = _services(parts)

    def start() -> None:
        pop.service.start()
        pop.renewals.start()

    def stop() -> None:
        pop.renewals.stop()
        pop.lite.clear()
        pop.service.stop()

    return Installed(
        parts=pop,
        rows=_rows(parts, pop),
        samples=_samples(pop.service, pop.waiting, pop.lite),
        start=start,
        stop=stop,
        release=pop.waiting.release_all,
        arrived=pop.waiting.arrived,
        log_shortened=pop.service.log_shortened,
    )


def _services(assembly: RocketmqAssembly) -> PopServices:
    broker, memory, registry = assembly.broker, assembly.delivery.memory, assembly.clients.registry
    service = PopService(broker.messages, broker.offsets, loop=broker.loop)
    waiting = PopWaiting(broker.loop, broker.clock)
    service.on_stop.append(waiting.release_all)
    service.awaited_room.on_room.append(waiting.look_again)
    broker.offsets.on_set.append(waiting.look_again)
    broker.messages.on_arrival(waiting.arrived)
    broker.groups.on_closed.append(waiting.group_closed)
    broker.topics.on_change.append(lambda name, _config: waiting.topic_changed(name))
    modes = RequestModes(broker.store)
    broker.offsets.on_forgotten.append(modes.forget)

    def topic_changed(name: str, config: TopicConfig | None) -> None:
        if config is None:
            modes.forget_topic(name)

    broker.topics.on_change.append(topic_changed)
    broker.messages.light.on_gone.append(waiting.light_queue_gone)

    def tell_out(told: Mapping[LiteClient, Sequence[str]]) -> None:
        for name in {client[0] for client in told}:
            known = registry.consumers(name)
            for member in () if known is None else known.members.values():
                names = {"consumerGroup": name, "clientId": member.client_id}
                for queue in told.get((name, member.client_id), ()):
                    lite = {"liteTopic": queue.rpartition("$")[2]}
                    member.channel.notify(Code.NOTIFY_UNSUBSCRIBE_LITE, names | lite)

    lite = LiteSubscriptions(
        broker.groups,
        broker.offsets,
        broker.store,
        broker.clock,
        there=broker.messages.light,
        tell_out=tell_out,
    )
    waiting.for_lite(lite)
    parts = PopParts(
        pops=service,
        reader=PopReader(broker.store, service, first_in_memory=memory.holds_first),
        waiting=waiting,
        topics=broker.topics,
        groups=broker.groups,
        clock=broker.clock,
        traffic=assembly.delivery.traffic,
    )
    popping = PopProcessor(
        parts,
        group_rules=assembly.names.group_rules,
        selector=assembly.delivery.selector,
        resets=assembly.clients.resets,
        budget=broker.budget,
        identity=assembly.identity,
    )
    return PopServices(
        service=service,
        reader=parts.reader,
        waiting=waiting,
        modes=modes,
        lite=lite,
        parts=parts,
        popping=popping,
        short=ShortPops(parts, popping),
        renewals=PushRenewals(service, waiting, broker.clock),
        receipts=ReceiptProcessor(
            store=broker.store,
            topics=broker.topics,
            pops=service,
            waiting=waiting,
            clock=broker.clock,
        ),
    )


def _rows(parts: RocketmqAssembly, pop: PopServices) -> list[Row]:
    lanes = parts.lanes
    popping, receipt = pop.popping, pop.receipts
    lite = LiteProcessor(pop.parts, popping, pop.lite)
    assignment = AssignmentProcessor(
        modes=pop.modes,
        topics=parts.broker.topics,
        groups=parts.broker.groups,
        clients=parts.clients.registry,
        registry=parts.broker.registry,
        identity=parts.identity,
    )
    return [
        Row(Code.POP_MESSAGE, popping.pop, lanes.pull, Asks.CHANGE, fast=False, filtered=True),
        Row(Code.POP_LITE_MESSAGE, lite.pop, lanes.pull, Asks.CHANGE, fast=False),
        Row(Code.LITE_SUBSCRIPTION_CTL, lite.sync, lanes.client, Asks.CHANGE),
        Row(Code.PEEK_MESSAGE, popping.peek, lanes.pull, Asks.CHANGE, fast=False),
        Row(Code.NOTIFICATION, popping.notify, lanes.pull, Asks.CHANGE, fast=False),
        Row(Code.POLLING_INFO, popping.polling_info, lanes.client, Asks.CHANGE, fast=False),
        Row(Code.ACK_MESSAGE, receipt.acknowledge, lanes.client, Asks.CHANGE),
        Row(Code.BATCH_ACK_MESSAGE, receipt.acknowledge_batch, lanes.client, Asks.CHANGE),
        Row(Code.CHANGE_MESSAGE_INVISIBLETIME, receipt.postpone, lanes.client, Asks.CHANGE),
        Row(Code.QUERY_ASSIGNMENT, assignment.query, lanes.client, Asks.MEMBER),
        Row(
            Code.SET_MESSAGE_REQUEST_MODE,
            assignment.set_mode,
            lanes.admin,
            Asks.CHANGE,
            replicated=True,
        ),
        Row(
            Code.GET_ALL_MESSAGE_REQUEST_MODE,
            assignment.all_modes,
            lanes.admin,
            Asks.STATE,
            replicated=True,
        ),
    ]


def _samples(pops: PopService, waiting: PopWaiting, lite: LiteSubscriptions) -> list[Sample]:
    counts = pops.counts
    return [
        gauge("pop_out", "Messages that were popped and not acknowledged.", lambda: pops.out),
        gauge("pop_waiting", "POPs that wait for a message.", lambda: len(waiting)),
        gauge("lite_subscriptions", "Lite topics that clients want.", lambda: lite.count),
        counter("pop_handed_out", "Messages popped.", lambda: counts.handed_out),
        counter("pop_again", "Popped messages that had been popped before.", lambda: counts.again),
        counter(
            "pop_acknowledged",
            "Popped messages that were acknowledged.",
            lambda: counts.acknowledged,
        ),
        counter("pop_void", "POP receipts that did not count any more.", lambda: counts.void),
        counter("pop_lost", "Popped messages gone before they were done.", lambda: counts.lost),
    ]


POP: Final = Feature(
    rights=RIGHTS,
    limited=MappingProxyType(
        {
            Code.POP_MESSAGE: Direction.CONSUMER,
            Code.POP_LITE_MESSAGE: Direction.CONSUMER,
            Code.PEEK_MESSAGE: Direction.CONSUMER,
        }
    ),
    install=install,
)
