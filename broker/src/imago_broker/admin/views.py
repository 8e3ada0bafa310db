"""Values of the broker as the JSON that the admin interface answers."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any, NamedTuple

from imago_broker.core.explain import Explanation, explain
from imago_broker.model.registry.cluster import Role
from imago_broker.model.topics.sealing import seal_of
from imago_wire.record_format import properties as names
from imago_wire.records.record import host_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from imago_broker.model.groups import GroupConfig
    from imago_broker.model.registry.cluster import BrokerRecord, ClusterView
    from imago_broker.model.registry.shard import Election
    from imago_broker.model.registry.shard_status import FollowerStatus
    from imago_broker.model.topics.topics import TopicConfig
    from imago_log.lifecycle.forced import ForcedRange
    from imago_log.results import DamagedRange
    from imago_wire.records.record import StoredMessage

TEXT_CHARS_MAX = 2000


class MemberLag(NamedTuple):
    """How far a member is behind its leader."""

    lag_bytes: int | None = None
    lag_ms: int | None = None
    stalled: str = ""
    """Why its copy stands still; "" where it does not."""


Lags = dict[str, MemberLag]
"""By uuid, of the members that are known of."""


class MasterSays(NamedTuple):
    """What the registry does not have of a shard, and its master knows, as it is shown."""

    drain: Any = None
    """What is left while it is drained."""
    deleted_for_room: Any = None
    tier: Any = None
    """What of it is in a bucket; None: nothing ever."""


UNKNOWN = MasterSays()


def topic(config: TopicConfig, default_level: str) -> dict[str, Any]:
    """One topic's settings."""
    return {
        "name": config.name,
        "queues": config.write_queues,
        "writeQueues": config.write_queues,
        "readQueues": config.read_queues,
        "perm": config.perm,
        "sealed": seal_of(config) is not None,
        "order": config.order,
        "acknowledgement": config.acknowledgement or default_level,
        "dialects": "metaq,rocketmq" if config.dual else "rocketmq",
        "materialised": config.materialised,
        "retentionMs": config.retention_ms,
        "attributes": dict(config.attributes),
    }


def queue(
    number: int,
    offsets: tuple[int, int],
    positions: tuple[int, int] | None,
    last_ms: int | None,
    size: int,
) -> dict[str, Any]:
    """One queue's bounds: queue offsets, MetaQ positions (-1 where there are none), bytes."""
    first, end = positions or (-1, -1)
    return {
        "queue": number,
        "minOffset": offsets[0],
        "maxOffset": offsets[1],
        "minPosition": first,
        "maxPosition": end,
        "lastStoreTime": last_ms,
        "sizeBytes": size,
    }


def damage(ranges: Iterable[DamagedRange]) -> list[dict[str, Any]]:
    """Parts of the log that are out of service."""
    return [
        {
            "from": found.start,
            "to": found.end,
            "file": str(found.path),
            "position": found.position,
            "since": found.since_ms,
            "reason": found.reason,
        }
        for found in ranges
    ]


def deleted_for_room(went: ForcedRange | None) -> dict[str, int] | None:
    """Log offsets that went last before they had expired; null: nothing did."""
    if went is None:
        return None
    return {"from": went.start, "to": went.end, "messages": went.messages, "at": went.at_ms}


def progress(number: int, committed: int, end: int) -> dict[str, int]:
    return {"queue": number, "offset": committed, "end": end, "lag": max(0, end - committed)}


def group(config: GroupConfig | None, name: str) -> dict[str, Any]:
    """A group's settings; a group that only has offsets shows the defaults."""
    return {"name": name} | (config.to_json() if config else {})


def message(stored: StoredMessage, *, whole: bool = False) -> dict[str, Any]:
    """One message for people: text where the body is text, else its size alone.

    `whole`: also its body as it is, in base64.
    """
    shown = stored.properties
    body = {"body": b64encode(stored.body).decode()} if whole else {}
    try:
        text: str | None = stored.body.decode()[:TEXT_CHARS_MAX]
    except UnicodeDecodeError:
        text = None
    return {
        "topic": stored.topic,
        "queue": stored.queue_id,
        "offset": stored.queue_offset,
        "id": stored.offset_message_id,
        "uniqueId": shown.get(names.UNIQ_KEY),
        "position": int(shown.get(names.METAQ_POS, "-1"), 16),
        "logOffset": stored.physical_offset,
        "storeTime": stored.store_ms,
        "bornTime": stored.born_ms,
        "bornHost": host_text(stored.born_host),
        "tags": shown.get(names.TAGS),
        "keys": shown.get(names.KEYS),
        "size": len(stored.body),
        "text": text,
        "properties": {k: v for k, v in shown.items() if not k.startswith("__")},
    } | body


def member(record: BrokerRecord) -> dict[str, Any]:
    """One registered broker, with its addresses as clients reach them."""
    return {
        "uuid": record.uuid,
        "replica": record.replica,
        "slot": record.slot if record.slot >= 0 else record.replica,
        "zone": record.zone,
        "role": str(record.role),
        "incarnation": record.incarnation,
        "address": record.host,
        "unclean": record.unclean,
        "logEpoch": record.log_epoch,
        "logEnd": record.log_end,
        "damaged": record.damaged,
        "full": record.full,
        "crowded": record.crowded,
        "problem": record.problem,
        "featureLevel": record.feature_level,
        "metaq": record.metaq_url.removeprefix("meta://"),
        "rocketmq": record.rocketmq_address,
        "grpc": record.grpc_address,
        "fast": f"{record.host}:{record.fast}",
        "replication": f"{record.host}:{record.replication}",
        "admin": f"http://{record.host}:{record.admin}",
    }


def cluster(
    view: ClusterView,
    *,
    connected: bool,
    lags: Lags,
    least: int,
    replicas: int,
    said: Mapping[int, MasterSays],
) -> dict[str, Any]:
    """All shards at one glance.

    `replicas`: members that each is to have; `lags`: how far members are behind; `said`: what
    masters know of their shards, of those that answer.
    """
    return {
        "cluster": view.cluster,
        "clusterId": view.cluster_id,
        "zooKeeperConnected": connected,
        "operatorEpoch": view.operator_epoch,
        "featureLevel": view.feature_level,
        "replicas": replicas,
        "minInSync": least,
        "refused": dict(view.refused),
        "shards": [
            shard(view, number, lags, least=least, said=said.get(number, UNKNOWN))
            for number in all_shards(view)
        ],
    }


def all_shards(view: ClusterView) -> list[int]:
    """Every shard that ever had a member."""
    return sorted({*view.shards(), *view.known})


def shard(
    view: ClusterView, number: int, lags: Lags, *, least: int, said: MasterSays
) -> dict[str, Any]:
    """One shard; epoch and in-sync set are null where it has no state."""
    master, state = view.master(number), view.states.get(number)
    live = {record.uuid: record.incarnation for record in view.members(number)}
    # A member that has come back is another life, which joins only once it holds everything.
    in_sync = (
        None
        if state is None
        else [
            member.uuid
            for member in state.in_sync
            if live.get(member.uuid, member.incarnation) == member.incarnation
        ]
    )
    shown = []
    for record in view.members(number):
        lag = lags.get(record.uuid, MemberLag())
        shown.append(
            member(record)
            | {
                "role": str(Role.MASTER if view.leads(record) else _other(record)),
                # A shard without a state has one member, which holds everything.
                "inSync": view.leads(record) if in_sync is None else record.uuid in in_sync,
                "lagBytes": lag.lag_bytes,
                "lagMs": lag.lag_ms,
                "stalled": lag.stalled,
            }
        )
    stalled = {each["uuid"]: each["stalled"] for each in shown if each["stalled"]}
    return {
        "id": number,
        "name": f"shard-{number}",
        "master": master.uuid if master else None,
        "epoch": state.epoch if state else None,
        "inSync": in_sync,
        "unclean": state.unclean if state else False,
        "cause": state.cause if state else None,
        "members": shown,
        "known": dict(view.members_known(number)),
        "cordoned": number in view.cordoned,
        "draining": number in view.draining,
        "drained": number in view.drained,
        "drain": said.drain if number in view.draining else None,
        "deletedForRoom": said.deleted_for_room,
        "tier": said.tier,
        "explain": explanation(explain(view, number, least=least, stalled=stalled)),
        "elections": [election(one) for one in reversed(state.history)] if state else [],
    }


def explanation(said: Explanation) -> dict[str, str]:
    """Why a shard is led by whom it is, or not."""
    return {"why": said.why, "waitsFor": said.waits_for, "next": said.next}


def election(one: Election) -> dict[str, Any]:
    """One change of leadership."""
    return {
        "epoch": one.epoch,
        "leader": one.leader,
        "at": one.at_ms,
        "cause": one.cause,
        "unclean": one.unclean,
    }


def follower(status: FollowerStatus) -> dict[str, Any]:
    """A member as its leader sees it."""
    return {
        "uuid": status.uuid,
        "incarnation": status.incarnation,
        "connected": status.connected,
        "end": status.end,
        "durable": status.durable,
        "lagBytes": status.lag_bytes,
        "lagMs": status.lag_ms,
        "stalled": status.stalled,
    }


def _other(record: BrokerRecord) -> Role:
    """A registration that says master, of a broker that does not lead, is late."""
    return Role.SLAVE if record.role is Role.MASTER else record.role


def group_topics(
    committed: Mapping[str, Mapping[int, int]], ends: Mapping[tuple[str, int], int]
) -> dict[str, list[dict[str, int]]]:
    """Progress of a group by topic and queue."""
    return {
        name: [
            progress(number, at, ends.get((name, number), at)) for number, at in sorted(q.items())
        ]
        for name, q in sorted(committed.items())
    }
