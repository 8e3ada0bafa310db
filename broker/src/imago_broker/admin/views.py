"""Values of the broker as the JSON that the admin interface answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from imago_wire import properties as names

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from imago_broker.model.cluster import BrokerRecord, ClusterView
    from imago_broker.model.groups import GroupConfig
    from imago_broker.model.topics import TopicConfig
    from imago_log.damage import DamagedRange
    from imago_wire.record import StoredMessage

TEXT_CHARS_MAX = 2000


def topic(config: TopicConfig, default_level: str) -> dict[str, Any]:
    """One topic's settings."""
    return {
        "name": config.name,
        "queues": config.write_queues,
        "writeQueues": config.write_queues,
        "readQueues": config.read_queues,
        "perm": config.perm,
        "order": config.order,
        "acknowledgement": config.acknowledgement or default_level,
        "dialects": "metaq,rocketmq" if config.dual else "rocketmq",
        "materialised": config.materialised,
        "retentionMs": config.retention_ms,
        "attributes": dict(config.attributes),
    }


def queue(
    number: int, offsets: tuple[int, int], positions: tuple[int, int] | None, last_ms: int | None
) -> dict[str, Any]:
    """One queue's bounds: queue offsets, MetaQ positions (-1 where there are none)."""
    first, end = positions or (-1, -1)
    return {
        "queue": number,
        "minOffset": offsets[0],
        "maxOffset": offsets[1],
        "minPosition": first,
        "maxPosition": end,
        "lastStoreTime": last_ms,
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


def progress(number: int, committed: int, end: int) -> dict[str, int]:
    return {"queue": number, "offset": committed, "end": end, "lag": max(0, end - committed)}


def group(config: GroupConfig | None, name: str) -> dict[str, Any]:
    """A group's settings; a group that only has offsets shows the defaults."""
    return {"name": name} | (config.to_json() if config else {})


def message(stored: StoredMessage) -> dict[str, Any]:
    """One message for people: text where the body is text, else its size alone."""
    shown = stored.properties
    try:
        text: str | None = stored.body.decode()[:TEXT_CHARS_MAX]
    except UnicodeDecodeError:
        text = None
    return {
        "topic": stored.topic,
        "queue": stored.queue_id,
        "offset": stored.queue_offset,
        "id": stored.offset_message_id,
        "position": int(shown.get(names.METAQ_POS, "-1"), 16),
        "logOffset": stored.physical_offset,
        "storeTime": stored.store_ms,
        "bornTime": stored.born_ms,
        "tags": shown.get(names.TAGS),
        "keys": shown.get(names.KEYS),
        "size": len(stored.body),
        "text": text,
        "properties": {k: v for k, v in shown.items() if not k.startswith("__")},
    }


def member(record: BrokerRecord) -> dict[str, Any]:
    """One registered broker, with its addresses as clients reach them."""
    return {
        "uuid": record.uuid,
        "replica": record.replica,
        "role": str(record.role),
        "incarnation": record.incarnation,
        "metaq": f"{record.host}:{record.metaq}",
        "rocketmq": f"{record.host}:{record.rocketmq}",
        "fast": f"{record.host}:{record.fast}",
        "replication": f"{record.host}:{record.replication}",
        "admin": f"http://{record.host}:{record.admin}",
    }


def cluster(
    view: ClusterView, *, own_shard: int, epoch: int, connected: bool, in_sync: Sequence[str]
) -> dict[str, Any]:
    """All shards at one glance. The epoch and in-sync set are known for the own shard only."""
    shards = []
    for number in view.shards():
        master = view.master(number)
        mine = number == own_shard
        shards.append(
            {
                "id": number,
                "name": f"shard-{number}",
                "master": master.uuid if master else None,
                "epoch": epoch if mine else None,
                "inSync": list(in_sync) if mine else None,
                "members": [member(record) for record in view.members(number)],
                "drained": False,
            }
        )
    return {
        "cluster": view.cluster,
        "clusterId": view.cluster_id,
        "zooKeeperConnected": connected,
        "operatorEpoch": 0,
        "refused": dict(view.refused),
        "shards": shards,
    }


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
