"""QueryRoute and QueryAssignment: which brokers have a topic's queues, and where they listen."""

from __future__ import annotations

import ipaddress
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from imago_broker.model.registry.cluster import PERM_READ, PERM_WRITE
from imago_broker.model.topics.attributes import MESSAGE_TYPE
from imago_broker.processors.grpc.calls import CallError
from imago_broker.processors.grpc.checks import group_name, topic_name
from imago_broker.processors.grpc.sending import type_of_topic
from imago_wire.grpc.codes import SdkCode
from imago_wire.grpc.messages import AddressScheme, MessageType, Permission, make

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from imago_broker.model.registry.cluster import ClusterView
    from imago_broker.model.registry.seen import Viewed
    from imago_broker.processors.grpc.calls import Call
    from imago_broker.service.groups.groups import GroupService
    from imago_broker.service.topics.topics import TopicService

QUEUES_MAX = 4096
"""Of one answer, over all brokers: clients hold an object each."""
_MIXED = (MessageType.NORMAL, MessageType.FIFO, MessageType.DELAY, MessageType.TRANSACTION)
ANY_QUEUE = -1


class Here(NamedTuple):
    """This broker, as clients reach it."""

    name: str
    host: str
    port: int


class _Place(NamedTuple):
    broker: Here
    read: int
    write: int
    perm: int


class RouteCalls:
    """Where things are."""

    def __init__(
        self,
        registry: Viewed,
        topics: TopicService,
        groups: GroupService,
        here: Callable[[], Here],
        leads: Callable[[], bool],
    ) -> None:
        self._registry, self._topics, self._groups = registry, topics, groups
        self._here, self._leads = here, leads

    def route(self, call: Call, request: Any) -> None:
        """QueryRoute: the queues of all shards whose master is there."""
        topic = topic_name(request.topic)
        places = list(self._places(topic))
        if not places:
            raise CallError(
                SdkCode.TOPIC_NOT_FOUND,
                f"there is no topic {topic}, and no SDK makes one: imago topic create {topic}",
            )
        types = _types(self.type_of(topic))
        queues = []
        for place, count in zip(places, _shares(places), strict=True):
            broker = _broker(place.broker)
            for queue_id, permission in enumerate(islice(_permissions(place), count)):
                queues.append(
                    make(
                        "MessageQueue",
                        topic=request.topic,
                        id=queue_id,
                        permission=int(permission),
                        broker=broker,
                        accept_message_types=types,
                    )
                )
        call.answer(message_queues=queues)

    def assignment(self, call: Call, request: Any) -> None:
        """QueryAssignment: the same for all of a group, as POP shares the messages."""
        topic, group = topic_name(request.topic), group_name(request.group)
        known = self._groups.get(group)
        in_order = known is not None and known.consume_message_orderly
        found = []
        for place in self._places(topic):
            if not place.perm & PERM_READ or not place.read:
                continue
            each = in_order and self.type_of(topic) != "LITE"
            ids = range(min(place.read, QUEUES_MAX)) if each else (ANY_QUEUE,)
            for queue_id in ids:
                queue = make(
                    "MessageQueue",
                    topic=request.topic,
                    id=queue_id,
                    permission=int(Permission.READ_WRITE),
                    broker=_broker(place.broker),
                )
                found.append(make("Assignment", message_queue=queue))
        if not found:
            if self._topics.get(topic) is None and not list(self._places(topic)):
                raise CallError(SdkCode.TOPIC_NOT_FOUND, f"there is no topic {topic}")
            raise CallError(SdkCode.FORBIDDEN, "no readable queue")
        call.answer(assignments=found)

    def brokers_of(self, topic: str) -> Iterator[str]:
        """Yield the names of the brokers that have a topic's queues."""
        return (place.broker.name for place in self._places(topic))

    def type_of(self, topic: str) -> str:
        """Return what a topic takes, as its shards have published it where this one has it not."""
        config, placement = self._topics.get(topic), self._registry.view().topics.get(topic)
        if config is None and placement is not None:
            return placement.attributes.get(MESSAGE_TYPE, "NORMAL")
        return type_of_topic(config)

    def _places(self, topic: str) -> Iterator[_Place]:
        """Yield where a topic is, this broker by what it knows itself."""
        here, config = self._here(), self._topics.get(topic)
        view = self._registry.view()
        own_told = False
        for place in _told(view, topic):
            own = place.broker.name == here.name
            own_told = own_told or own
            yield place._replace(broker=here) if own and here.host and self._leads() else place
        if not own_told and here.host and config is not None and self._leads():
            # Not published yet, or to nobody: its retries and dead letters are.
            yield _Place(here, config.read_queues, config.write_queues, config.perm)


def _told(view: ClusterView, topic: str) -> Iterator[_Place]:
    placement = view.topics.get(topic)
    if placement is None:
        return
    for shard, queues in sorted(placement.shards.items()):
        master = view.master(shard)
        if master is None or not master.grpc:
            continue
        perm = queues.perm & ~PERM_WRITE if master.broker_name in view.wiped else queues.perm
        broker = Here(
            master.broker_name,
            master.client_host or master.host,
            master.client_grpc or master.grpc,
        )
        yield _Place(broker, queues.read, queues.write, perm)


def _broker(here: Here) -> Any:
    address = make("Address", host=here.host, port=here.port)
    endpoints = make("Endpoints", scheme=int(_scheme(here.host)), addresses=[address])
    return make("Broker", name=here.name, id=0, endpoints=endpoints)


def _scheme(host: str) -> AddressScheme:
    try:
        version = ipaddress.ip_address(host).version
    except ValueError:
        return AddressScheme.DOMAIN_NAME
    return AddressScheme.IPV4 if version == 4 else AddressScheme.IPV6


def _permissions(place: _Place) -> Iterator[Permission]:
    """Yield the permission of each queue, in the order in which clients number them."""
    reads = place.read if place.perm & PERM_READ else 0
    writes = place.write if place.perm & PERM_WRITE else 0
    both = min(reads, writes)
    if not reads and not writes:
        yield from [Permission.NONE] * max(1, place.read, place.write)
        return
    yield from [Permission.READ] * (reads - both)
    yield from [Permission.WRITE] * (writes - both)
    yield from [Permission.READ_WRITE] * both


def _shares(places: Sequence[_Place]) -> list[int]:
    """Return how many queues of each place are told: no shard is left out where all are too many.

    Who has fewer than its part leaves the rest to the others.
    """
    counts = [max(1, place.read, place.write) for place in places]
    told, left = [0] * len(counts), QUEUES_MAX
    smallest_first = sorted(range(len(counts)), key=counts.__getitem__)
    for done, index in enumerate(smallest_first):
        told[index] = min(counts[index], max(1, left // (len(counts) - done)))
        left -= told[index]
    return told


def _types(told: str) -> list[int]:
    if told == "MIXED":
        return [int(each) for each in _MIXED]
    known = MessageType.__members__.get(told, MessageType.UNSPECIFIED)
    return [int(known)]
