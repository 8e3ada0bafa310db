"""Bodies of the name service: routes, clusters, lists of topics, tables of text."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from imago_wire.remoting.bodies.fields import Body, body

MASTER_ID = 0
"""The broker id that producers send to; every other id is a slave."""


@body
class BrokerData(Body):
    """One broker name: the address of each of its members, by broker id."""

    broker_addrs: Mapping[int, str]
    broker_name: str
    cluster: str = ""
    enable_acting_master: bool | None = None
    zone_name: str | None = None


@body
class QueueData(Body):
    """A topic's queues on one broker name. `perm`: 4 read, 2 write, 1 inherit."""

    broker_name: str
    perm: int
    read_queue_nums: int
    topic_sys_flag: int = 0
    write_queue_nums: int


@body
class TopicRouteData(Body):
    """Where the queues of a topic are.

    Written with bare broker ids for old clients; `encode(standard=True)` for clients from 4.9.4
    on and those that ask for it.
    """

    broker_datas: tuple[BrokerData, ...] = ()
    filter_server_table: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    order_topic_conf: str | None = None
    queue_datas: tuple[QueueData, ...] = ()
    topic_queue_mapping_by_broker: Mapping[str, Any] | None = None


@body
class MissingShardData(Body):
    """A shard of ours that nobody leads now, and since when at the latest (epoch ms)."""

    broker_name: str
    since: int | None = None
    why: str = ""


@body
class ClusterInfo(Body):
    """All brokers by name, and the broker names of each cluster. Always written with bare ids."""

    broker_addr_table: Mapping[str, BrokerData] = field(default_factory=dict)
    cluster_addr_table: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    imago_missing: tuple[MissingShardData, ...] | None = None
    """Told, as what follows, to our own clients, which ask for it."""
    imago_metaq: Mapping[str, Mapping[int, str]] | None = None
    """Where members serve MetaQ's clients, by broker name and broker id."""


@body
class TopicList(Body):
    broker_addr: str | None = None
    topic_list: tuple[str, ...] = ()


@body
class KvTable(Body):
    """Text to text: a namespace's entries, a broker's runtime information."""

    table: Mapping[str, str] = field(default_factory=dict)


@body
class BrokerMemberGroup(Body):
    broker_addrs: Mapping[int, str] = field(default_factory=dict)
    broker_name: str
    cluster: str


@body
class GetBrokerMemberGroupResponseBody(Body):
    broker_member_group: BrokerMemberGroup | None = None
