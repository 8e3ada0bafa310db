"""Changes of nodes that many processes share: each from the content that stands to the next one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from imago_broker.cluster import znodes
from imago_broker.cluster.edits.shard_record import ShardRecord, decode_shard, encode_shard
from imago_broker.model import names
from imago_broker.model.registry.cluster import shard_name
from imago_broker.ports import CoordinatorConflictError, UnknownShardError
from imago_wire.errors import WrongError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from imago_broker.cluster.znodes import Paths
    from imago_broker.model.registry.cluster import BrokerRecord, ClusterView, TopicPlacement

Edit = Callable[[bytes | None], bytes | None]
"""From a node's content, None where there is no node, to the new one; None: leave it."""


def putting(paths: Paths, namespace: str, key: str, value: str | None) -> Edit:
    """Set a name service setting, or with None remove it."""

    def edit(data: bytes | None) -> bytes:
        kv = znodes.decode_kv(paths.kv, data) if data is not None else {}
        entries = kv.setdefault(namespace, {})
        if value is None:
            entries.pop(key, None)
        else:
            if key not in entries:
                _check_count("keys", sum(map(len, kv.values())), names.KV_KEYS_MAX)
            if not entries:
                _check_count("namespaces", len(kv) - 1, names.KV_NAMESPACES_MAX)
            entries[key] = value
        return znodes.encode_kv({name: kept for name, kept in kv.items() if kept})

    return edit


def wiping(paths: Paths, broker_name: str, wiped: bool) -> Edit:
    """Take a shard's write permission out of routes, or give it back."""

    def edit(data: bytes | None) -> bytes:
        names = znodes.decode_wiped(paths.wiped, data) if data is not None else frozenset[str]()
        return znodes.encode_wiped(names | {broker_name} if wiped else names - {broker_name})

    return edit


def marking(paths: Paths, shard: int, cordoned: bool | None, drained: bool | None) -> Edit:
    """Mark a shard; None leaves a mark as it is."""
    path = paths.shard(shard)

    def edit(data: bytes | None) -> bytes:
        record = _known(path, shard, data)
        return encode_shard(
            replace(
                record,
                cordoned=record.cordoned if cordoned is None else cordoned,
                drained=record.drained if drained is None else drained,
            )
        )

    return edit


def draining(paths: Paths, shard: int, request_id: str, *, move: bool) -> Edit:
    """Have a shard's topics moved away, or only closed, and no new ones come."""
    path = paths.shard(shard)

    def edit(data: bytes | None) -> bytes:
        record = _known(path, shard, data)
        if request_id == record.undrained:
            raise CoordinatorConflictError(f"drain {request_id!r:.130} was taken back since")
        if record.drain:
            if record.stays == move:
                raise CoordinatorConflictError(f"shard-{shard} is being drained in another way")
            return encode_shard(replace(record, cordoned=True))
        return encode_shard(replace(record, cordoned=True, drain=request_id, stays=not move))

    return edit


def undraining(paths: Paths, shard: int) -> Edit:
    """Have a shard's topics come back, and new ones too."""
    path = paths.shard(shard)

    def edit(data: bytes | None) -> bytes:
        record = _known(path, shard, data)
        ended = record.drain or record.undrained
        after = replace(record, cordoned=False, drained=False, drain="", stays=False)
        return encode_shard(replace(after, undrained=ended))

    return edit


def noting_drained(paths: Paths, shard: int, drained: bool) -> Edit:
    """Note whether something is left on a shard that is being drained; of no other."""
    path = paths.shard(shard)

    def edit(data: bytes | None) -> bytes | None:
        record = _known(path, shard, data)
        return encode_shard(replace(record, drained=drained)) if record.drain else None

    return edit


def fencing(paths: Paths, shard: int, uuid: str, others: Collection[str], least: int) -> Edit:
    """Note that a member is to serve nobody, where so many of the others go on."""
    path = paths.shard(shard)

    def edit(data: bytes | None) -> bytes:
        record = _known(path, shard, data)
        gone = sorted(record.fenced.intersection(others))
        if len(others) - len(gone) < least:
            text = f"{', '.join(gone)}: fenced as well" if gone else "too few are in sync"
            raise CoordinatorConflictError(text)
        return encode_shard(replace(record, fenced=record.fenced | {uuid}))

    return edit


def unfencing(paths: Paths, shard: int, uuid: str) -> Edit:
    """Take that back."""
    path = paths.shard(shard)

    def edit(data: bytes | None) -> bytes:
        record = _known(path, shard, data)
        return encode_shard(replace(record, fenced=record.fenced - {uuid}))

    return edit


def leaving(path: str, shard: int) -> Callable[[bytes | None], bytes | None]:
    """Take a shard's entries out of one node of topics."""

    def edit(data: bytes | None) -> bytes | None:
        before = znodes.decode_topics(path, data) if data is not None else {}
        after = {
            name: replace(topic, shards={n: q for n, q in topic.shards.items() if n != shard})
            for name, topic in before.items()
        }
        after = {name: topic for name, topic in after.items() if topic.shards}
        return None if after == before else znodes.encode_topics(after)

    return edit


def _known(path: str, shard: int, data: bytes | None) -> ShardRecord:
    if data is None:
        raise UnknownShardError(f"there has never been a {shard_name(shard)}, or it is gone")
    return decode_shard(path, data)


def raising(paths: Paths, epoch: int) -> Edit:
    """Raise the operator's fence."""

    def edit(data: bytes | None) -> bytes | None:
        stands = znodes.decode_epoch(paths.operator, data) if data is not None else 0
        if stands > epoch:
            raise CoordinatorConflictError(f"operator epoch {epoch}: {stands} is in force already")
        return None if data is not None and stands == epoch else znodes.encode_epoch(epoch)

    return edit


def levelling(paths: Paths, level: int) -> Edit:
    """Raise the cluster's feature level; a higher one stays."""

    def edit(data: bytes | None) -> bytes | None:
        stands = znodes.decode_identity(paths.identity, data or b"")
        if level <= stands.feature_level:
            return None
        return znodes.encode_identity(replace(stands, feature_level=level))

    return edit


def surplus(
    view: ClusterView, registered: BrokerRecord | None, placements: Sequence[TopicPlacement]
) -> list[str]:
    """Return topics on record for the shards of these placements that are not among them."""
    shards = {shard for placement in placements for shard in placement.shards}
    if registered is not None:
        shards.add(registered.shard)
    kept = {placement.name for placement in placements}
    topics = view.topics
    return [n for n, topic in topics.items() if n not in kept and shards & topic.shards.keys()]


def _check_count(what: str, count: int, count_max: int) -> None:
    """ValueError: there is no room for one more."""
    if count >= count_max:
        raise WrongError(f"the name service has {count} {what} of settings, at most {count_max}")
