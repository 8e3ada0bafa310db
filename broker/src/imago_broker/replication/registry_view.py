"""The registry's view of a shard in the terms of the state machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.core.shard.events import ViewSeen
from imago_broker.core.shard.reconcile import last_epoch
from imago_broker.core.shard.values import Log, MemberInfo
from imago_broker.model.registry.cluster import Role
from imago_broker.model.registry.shard import ShardState

if TYPE_CHECKING:
    from imago_broker.model.registry.cluster import ClusterView
    from imago_log.store import MessageStore


def log_of(store: MessageStore) -> Log:
    """Return the extent of a store's log."""
    return Log(
        store.log_start, store.log_end, store.epochs, store.high_watermark, damaged=store.damaged
    )


def log_position(store: MessageStore) -> tuple[int, int]:
    """Return the epoch of the log's last byte, 0 for an empty log, and the log's end."""
    log = log_of(store)
    return last_epoch(log), log.end


def view_seen(view: ClusterView, shard: int, log: Log, ticket: int) -> ViewSeen:
    """Return what a view says of a shard; see `ViewSeen` for the order of its parts."""
    live = {
        record.uuid: MemberInfo(
            incarnation=record.incarnation,
            replica=record.replica,
            unclean=record.unclean,
            log_epoch=record.log_epoch,
            log_end=record.log_end,
            damaged=record.damaged,
            full=record.full,
            crowded=record.crowded,
            epoch_seen=record.epoch_seen,
            standing=record.role is Role.ELECTING,
            leads=record.role is Role.MASTER,
        )
        for record in view.members(shard)
    }
    known = frozenset(view.members_known(shard))
    return ViewSeen(view.states.get(shard) or ShardState(), live, known, log, ticket)
