"""Small safe edits of the tree: make sure, compare and set, claim.

Each looks before it acts and looks again when somebody else was faster. After an unanswered
operation nobody knows whether it was done, so none of them is repeated blindly: the caller asks
for the same edit again, which finds what the lost operation left.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from imago_broker.cluster.tree import (
    OPERATIONS_MAX,
    BadVersionError,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    SetData,
    TreeUnavailableError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from imago_broker.cluster.tree import Node, NodeTree, Operation

TRIES_MAX = 100
"""Each try is lost only to another writer's success, so this many mean that something is wrong."""

_RACES = (BadVersionError, NodeExistsError, NoNodeError)


async def ensure(tree: NodeTree, nodes: Sequence[tuple[str, bytes]]) -> None:
    """Create the persistent nodes that are missing; parents stand before children."""
    found = await asyncio.gather(*(tree.get(path) for path, _ in nodes))
    missing = [
        Create(path, data) for (path, data), node in zip(nodes, found, strict=True) if node is None
    ]
    for start in range(0, len(missing), OPERATIONS_MAX):
        batch = missing[start : start + OPERATIONS_MAX]
        try:
            await tree.commit(batch)
        except NodeExistsError:
            await _create_each(tree, batch)


async def _create_each(tree: NodeTree, nodes: Sequence[Create]) -> None:
    for node in nodes:
        try:
            await tree.commit([node])
        except NodeExistsError:
            continue


async def change(tree: NodeTree, path: str, edit: Callable[[bytes | None], bytes | None]) -> bool:
    """Compare and set: edit gets the data, or None for a missing node, and returns the new data.

    Returning None leaves the node as it is. Returns whether the node was written.
    """
    for _ in range(TRIES_MAX):
        node = await tree.get(path)
        data = edit(node.data if node else None)
        if data is None or (node and node.data == data):
            return False
        write = SetData(path, data, node.version) if node else Create(path, data)
        try:
            await tree.commit([write])
        except _RACES:
            continue
        return True
    raise TreeUnavailableError(f"{path}: changed by others {TRIES_MAX} times while we tried")


async def claim(tree: NodeTree, path: str, data: bytes) -> Node:
    """Make an ephemeral node of our session hold this data, and return it.

    A node of another session at this path is replaced: the caller has made sure that it may be.
    """
    for _ in range(TRIES_MAX):
        node = await tree.get(path)
        if node and node.owner == tree.session_id and node.data == data:
            return node
        try:
            await tree.commit(taking(path, data, node, tree.session_id))
        except _RACES:
            continue
    raise TreeUnavailableError(f"{path}: taken by others {TRIES_MAX} times while we tried")


async def drop(tree: NodeTree, path: str) -> None:
    """Delete a node if it is an ephemeral one of our session."""
    node = await tree.get(path)
    if node and node.owner == tree.session_id:
        try:
            await tree.commit([Delete(path, node.version)])
        except NoNodeError:
            return


def taking(path: str, data: bytes, node: Node | None, session_id: int) -> list[Operation]:
    """Return the transaction that makes an ephemeral node ours, given what stands there."""
    if node is None:
        return [Create(path, data, ephemeral=True)]
    if node.owner == session_id:
        return [SetData(path, data, node.version)]
    return [Delete(path, node.version), Create(path, data, ephemeral=True)]
