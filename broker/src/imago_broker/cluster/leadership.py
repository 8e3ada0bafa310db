"""Changing a shard's state node: compare and set, by a registered broker only."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from imago_broker.cluster.edits import TRIES_MAX
from imago_broker.cluster.state_node import encode_state
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
from imago_broker.model.shard import NOT_CREATED
from imago_broker.ports import CoordinatorConflictError

if TYPE_CHECKING:
    from imago_broker.cluster.tree import NodeTree
    from imago_broker.cluster.znodes import Paths
    from imago_broker.model.cluster import BrokerRecord
    from imago_broker.model.shard import ShardState


async def change(
    tree: NodeTree, paths: Paths, state: ShardState, record: BrokerRecord
) -> ShardState:
    """Write the successor of the state whose version it holds; return it with its own version.

    The record is the one that this life of ours has registered: one transaction makes sure that
    it stands. CoordinatorConflictError when it does not, or when another was faster.
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
            await tree.commit([Check(own, node.version), write])
        except (BadVersionError, NoNodeError, NodeExistsError) as error:
            if str(error) == own:
                continue  # our record was written meanwhile: a new role, or it is gone
            raise CoordinatorConflictError(f"{path}: changed by another member") from error
        return replace(state, version=state.version + 1)
    raise TreeUnavailableError(f"{own}: changed {TRIES_MAX} times while we wrote {path}")
