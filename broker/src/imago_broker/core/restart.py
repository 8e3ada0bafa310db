"""What a restart of one broker would cost its shard at this moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from imago_broker.model.registry.cluster import BrokerRecord, ClusterView
    from imago_broker.model.registry.shard_status import LocalShardStatus

NO_MASTER_AFTER = "noMasterAfter"
BELOW_MIN_IN_SYNC = "belowMinInSync"
UNREPLICATED_BYTES = "unreplicatedBytes"
SINGLE_REPLICA = "singleReplica"


class RestartRisks(NamedTuple):
    """Risks by name, none if the broker may go; and how much of the log no other member has."""

    risks: tuple[str, ...]
    unreplicated_bytes: int


def risks(
    view: ClusterView,
    own: BrokerRecord,
    status: LocalShardStatus,
    *,
    log_end: int,
    least: int,
    replicas: int,
) -> RestartRisks:
    """Return what speaks against a restart now.

    `least`: in-sync members that puts need; `replicas`: members that the shard is to have. Where
    that is one, it has all it ever will on its own disk: nothing waits to be copied.
    """
    others = _others(view, own)
    in_sync = others_in_sync(view, own)
    leads = view.leads(own)
    found = []
    if leads and not in_sync:
        found.append(NO_MASTER_AFTER)
    if len(in_sync) < least:
        found.append(BELOW_MIN_IN_SYNC)
    copied = bool(others) or replicas > 1
    lacking = _unreplicated(status, log_end) if leads and copied else 0
    if lacking:
        found.append(UNREPLICATED_BYTES)
    if not others:
        found.append(SINGLE_REPLICA)
    return RestartRisks(tuple(found), lacking)


def others_in_sync(view: ClusterView, own: BrokerRecord) -> list[str]:
    """Return the uuids of the other members that live and have all that was acknowledged."""
    state = view.states.get(own.shard)
    live = {(member.uuid, member.incarnation) for member in _others(view, own)}
    return [member.uuid for member in state.in_sync if member in live] if state else []


def _others(view: ClusterView, own: BrokerRecord) -> list[BrokerRecord]:
    return [member for member in view.members(own.shard) if member.uuid != own.uuid]


def _unreplicated(status: LocalShardStatus, log_end: int) -> int:
    ends = [follower.end for follower in status.followers if follower.connected]
    return max(0, log_end - max(ends, default=0))
