"""Routes, clusters and lists of topics, computed from one snapshot of the registry."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from imago_broker.core.away import away
from imago_broker.model.registry.cluster import PERM_WRITE, shard_name
from imago_broker.model.topics.static_topics import NAMESPACE, key_of
from imago_wire.remoting.bodies.route import (
    MASTER_ID,
    BrokerData,
    ClusterInfo,
    MissingShardData,
    QueueData,
    TopicList,
    TopicRouteData,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from imago_broker.model.registry.cluster import BrokerRecord, ClusterView

ORDER_NAMESPACE = "ORDER_TOPIC_CONFIG"
UNIT = 0x1
UNIT_SUBSCRIPTION = 0x2
ANSWERS_MAX = 20_000
"""Routes that are kept; one takes some 500 bytes."""


def route(
    view: ClusterView, topic: str, *, with_order: bool, acting_master: bool, placed: bool = False
) -> TopicRouteData | None:
    """Return where a topic's queues are; None when no live broker has it.

    `acting_master`: write the member that clients of 5.x know and others do not. `placed`: tell of
    shards without a live broker too; the originals would try to read such queues.
    """
    queues = tuple(_queues_of(view, topic, placed=placed))
    if not queues:
        return None
    names = {queue.broker_name for queue in queues}
    flag = False if acting_master else None
    return TopicRouteData(
        broker_datas=tuple(data for data in _brokers(view, flag) if data.broker_name in names),
        queue_datas=queues,
        order_topic_conf=view.kv.get(ORDER_NAMESPACE, {}).get(topic) if with_order else None,
        topic_queue_mapping_by_broker=_static(view, topic, names),
    )


class Answers:
    """Routes as clients get them, kept while the registry's snapshot is the same one.

    Thousands of clients ask for every topic of theirs again and again, and seldom anything changes.
    """

    def __init__(self) -> None:
        self._view: ClusterView | None = None
        self._known: dict[tuple[str, bool, bool, bool, bool], bytes] = {}

    def __len__(self) -> int:
        return len(self._known)

    def route(
        self,
        view: ClusterView,
        topic: str,
        *,
        with_order: bool,
        acting_master: bool,
        standard: bool,
        placed: bool = False,
    ) -> bytes | None:
        """Return `route` encoded, with bare broker ids unless `standard`; None likewise."""
        if view is not self._view:
            self._view = view
            self._known.clear()
        key = (topic, with_order, acting_master, standard, placed)
        body = self._known.get(key)
        if body is None:
            found = route(
                view, topic, with_order=with_order, acting_master=acting_master, placed=placed
            )
            if found is None:
                return None  # not kept: there is no end of names that nobody has
            body = found.encode(standard=standard)
            if len(self._known) >= ANSWERS_MAX:
                self._known.clear()
            self._known[key] = body
        return body


def _static(view: ClusterView, topic: str, brokers: Iterable[str]) -> dict[str, Any] | None:
    """Return which queues of a static topic its brokers have; None: it is none."""
    told = view.kv.get(NAMESPACE)
    if not told:
        return None
    texts = ((broker, told.get(key_of(topic, broker))) for broker in sorted(brokers))
    return {broker: _parsed(text) for broker, text in texts if text is not None} or None


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None  # a tool has changed it


def cluster_info(view: ClusterView, *, placed: bool = False) -> ClusterInfo:
    """Return all brokers by name, and the broker names of each cluster.

    `placed`: name the shards, too, that nobody leads now.
    """
    clusters: dict[str, list[str]] = defaultdict(list)
    brokers = {}
    for data in _brokers(view, None):
        brokers[data.broker_name] = data
        clusters[data.cluster].append(data.broker_name)
    return ClusterInfo(
        broker_addr_table=brokers,
        cluster_addr_table={name: tuple(found) for name, found in clusters.items()},
        imago_missing=_missing(view) if placed else None,
        imago_metaq=_metaq(view) if placed else None,
    )


def _metaq(view: ClusterView) -> dict[str, dict[int, str]]:
    """Return the addresses for MetaQ's clients of all members that have one."""
    found: dict[str, dict[int, str]] = defaultdict(dict)
    for broker in view.brokers:
        if broker.metaq or broker.client_metaq:
            address = broker.metaq_url.removeprefix("meta://")
            found[broker.broker_name][_broker_id(view, broker)] = address
    return dict(found)


def _missing(view: ClusterView) -> tuple[MissingShardData, ...]:
    prefix = _name_prefix(view)
    return tuple(
        MissingShardData(
            broker_name=prefix + shard_name(each.shard), since=each.since_ms, why=each.why
        )
        for each in away(view)
    )


def all_topics(view: ClusterView, *, placed: bool = False) -> TopicList:
    """Return the names of all topics; `placed`: also of those that no live broker has."""
    found = _topics(view, lambda _: True)
    if not placed:
        return found
    return TopicList(topic_list=tuple(dict.fromkeys((*view.topics, *found.topic_list))))


def topics_of_cluster(view: ClusterView, cluster: str) -> TopicList:
    """Return the topics that have a queue in a cluster; none for an unknown one."""
    brokers = {data.broker_name for data in _brokers(view, None) if data.cluster == cluster}
    return _topics(view, lambda queue: queue.broker_name in brokers)


def topics_by_flag(view: ClusterView, wanted: int, unwanted: int = 0) -> TopicList:
    """Return the topics whose system flag has all the wanted bits and none of the others."""
    return _topics(
        view,
        lambda queue: (
            queue.topic_sys_flag & wanted == wanted and not queue.topic_sys_flag & unwanted
        ),
    )


def system_topics(view: ClusterView) -> TopicList:
    """Return the names of clusters and brokers, and one broker that knows its own topics."""
    brokers = list(_brokers(view, None))
    named = dict.fromkeys(name for data in brokers for name in (data.cluster, data.broker_name))
    address = next((address for data in brokers for address in data.broker_addrs.values()), None)
    return TopicList(topic_list=tuple(named), broker_addr=address)


def topic_count(view: ClusterView, broker_name: str) -> int:
    """Return how many topics a broker name has."""
    return len({name for name, queue in _queues(view) if queue.broker_name == broker_name})


def members(view: ClusterView, broker_name: str) -> BrokerData | None:
    """Return the addresses of a broker name's live members."""
    for data in _brokers(view, None):
        if data.broker_name == broker_name:
            return data
    return None


def is_own(view: ClusterView, broker_name: str) -> bool:
    """Whether a broker name belongs to one of our shards."""
    return any(broker.broker_name == broker_name for broker in view.brokers)


def _topics(view: ClusterView, wanted: Callable[[QueueData], bool]) -> TopicList:
    names = dict.fromkeys(name for name, queue in _queues(view) if wanted(queue))
    return TopicList(topic_list=tuple(names))


def _queues(view: ClusterView) -> Iterator[tuple[str, QueueData]]:
    """Yield every topic's queues on every live broker name, ours first."""
    names = dict.fromkeys(view.topics)
    for broker in view.foreign:
        names.update(dict.fromkeys(broker.topics))
    for name in names:
        for queue in _queues_of(view, name):
            yield name, queue


def _queues_of(view: ClusterView, topic: str, *, placed: bool = False) -> Iterator[QueueData]:
    """Yield one topic's queues on every live broker name, ours first; `placed`: dead ones too."""
    placement = view.topics.get(topic)
    if placement is not None:
        names = {broker.shard: broker.broker_name for broker in view.brokers}
        if placed:
            prefix = _name_prefix(view)
            names = {shard: f"{prefix}shard-{shard}" for shard in placement.shards} | names
        for shard, queues in sorted(placement.shards.items()):
            if shard in names:
                yield QueueData(
                    broker_name=names[shard],
                    perm=_perm(view, names[shard], queues.perm),
                    read_queue_nums=queues.read,
                    write_queue_nums=queues.write,
                    topic_sys_flag=placement.sys_flag,
                )
    masters_first = sorted(view.foreign, key=lambda broker: broker.broker_id)
    seen: set[str] = set()
    for broker in masters_first:
        config = broker.topics.get(topic)
        if config is not None and broker.broker_name not in seen:
            seen.add(broker.broker_name)
            yield QueueData(
                broker_name=broker.broker_name,
                perm=_perm(view, broker.broker_name, _number(config.get("perm"), 6)),
                read_queue_nums=_number(config.get("readQueueNums"), 0),
                write_queue_nums=_number(config.get("writeQueueNums"), 0),
                topic_sys_flag=_number(config.get("topicSysFlag"), 0),
            )


def _name_prefix(view: ClusterView) -> str:
    """Return what all our broker names begin with, as the live ones show it."""
    for broker in view.brokers:
        return broker.broker_name.removesuffix(f"shard-{broker.shard}")
    return ""


def _number(value: object, default: int) -> int:
    return value if isinstance(value, int) else default


def _perm(view: ClusterView, broker_name: str, perm: int) -> int:
    return perm & ~PERM_WRITE if broker_name in view.wiped else perm


def _brokers(view: ClusterView, acting_master: bool | None) -> Iterator[BrokerData]:
    """Yield the live members of every broker name, ours first."""
    for shard in view.shards():
        own = view.members(shard)
        yield BrokerData(
            cluster=view.cluster,
            broker_name=own[0].broker_name,
            broker_addrs={_broker_id(view, broker): broker.rocketmq_address for broker in own},
            enable_acting_master=acting_master,
        )
    foreign: dict[tuple[str, str], dict[int, str]] = defaultdict(dict)
    for broker in view.foreign:
        foreign[broker.cluster, broker.broker_name][broker.broker_id] = broker.address
    for (cluster, name), addresses in foreign.items():
        yield BrokerData(
            cluster=cluster,
            broker_name=name,
            broker_addrs=addresses,
            enable_acting_master=acting_master,
        )


def _broker_id(view: ClusterView, broker: BrokerRecord) -> int:
    """Return RocketMQ's broker id: 0 for the master, the replica's number and 1 for others.

    Members that are no masters are listed whether or not they serve reads: consumers must
    heart-beat to whoever becomes the next master.
    """
    return MASTER_ID if view.leads(broker) else broker.replica + 1
