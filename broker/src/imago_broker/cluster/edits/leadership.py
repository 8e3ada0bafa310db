"""Changing a shard's state node: compare and set, by a registered broker only."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from imago_broker.cluster.edits.edits import TRIES_MAX
from imago_broker.cluster.edits.state_node import encode_state
from imago_broker.cluster.tree import (
    BadVersionError,
    Check,
    Create,
    NodeExistsError,
    NoNodeError,
    Operation,
    SetData,
    TreeUnavailableError,
)
from imago_broker.cluster.znodes import decode_broker, encode_broker
from imago_broker.model.registry.cluster import Role
from imago_broker.model.registry.shard import NOT_CREATED, Member
from imago_broker.ports import CoordinatorConflictError

if TYPE_CHECKING:
    from imago_broker.cluster.tree import Node, NodeTree
    from imago_broker.cluster.znodes import Paths
    from imago_broker.model.registry.cluster import BrokerRecord
    from imago_broker.model.registry.shard import ShardState


async def change(
    tree: NodeTree, paths: Paths, state: ShardState, record: BrokerRecord
) -> ShardState:
    """Write the successor of the state whose version it holds; return it with its own version.

    The record is the one that this life of ours has registered: one transaction makes sure that
    it stands, and that it says that we lead where the state says so. CoordinatorConflictError when
    it does not stand, or when another was faster.
    """
    own = paths.broker(record.shard, record.replica)
    path, data = paths.state(record.shard), encode_state(state)
    write: Operation = SetData(path, data, state.version)
    if state.version == NOT_CREATED:
        write = Create(path, data)
    for _ in range(TRIES_MAX):
        node = await tree.get(own)
        ours = node is not None and node.owner == tree.session_id
        if node is None or not ours or node.created != record.incarnation:
            raise CoordinatorConflictError(f"{own}: this life's registration is gone")
        try:
            await tree.commit([_ours(own, node, state, record), write])
        except (BadVersionError, NoNodeError, NodeExistsError) as error:
            if str(error) == own:
                continue  # our record was written meanwhile: a new role, or it is gone
            raise CoordinatorConflictError(f"{path}: changed by another member") from error
        return replace(state, version=state.version + 1)
    raise TreeUnavailableError(f"{own}: changed {TRIES_MAX} times while we wrote {path}")


def _ours(own: str, node: Node, state: ShardState, record: BrokerRecord) -> Operation:
    """Return what makes sure of our registration.

    Should the state be deleted, who leads is told by registrations alone.
    """
    if not state.leads(Member(record.uuid, record.incarnation)):
        return Check(own, node.version)
    told = decode_broker(own, node.data, node.created)
    if (told.role, told.epoch_seen) == (Role.MASTER, state.epoch):
        return Check(own, node.version)
    leads = replace(record, role=Role.MASTER, epoch_seen=state.epoch)
    return SetData(own, encode_broker(leads), node.version)
