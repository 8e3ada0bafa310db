"""Reading MetaQ's public tree as a whole, whoever wrote it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from imago_broker.cluster.tree import NoNodeError
from imago_broker.core.metaq_tree_check import TreeNode

if TYPE_CHECKING:
    from imago_broker.cluster.tree import NodeTree

NODES_MAX: Final = 500_000
READS_AT_ONCE: Final = 64


async def read_tree(tree: NodeTree, root: str) -> dict[str, TreeNode]:
    """Return all nodes below the root by path, parents first; at most `NODES_MAX`."""
    found: dict[str, TreeNode] = {}
    level = [root]
    while level and len(found) < NODES_MAX:
        following: list[str] = []
        for start in range(0, len(level), READS_AT_ONCE):
            part = level[start : start + READS_AT_ONCE]
            read = await asyncio.gather(*(_read(tree, path) for path in part))
            for path, (node, names) in zip(part, read, strict=True):
                if node is not None:
                    found[path] = node
                    following += (f"{path}/{name}" for name in sorted(names))
        level = following[: NODES_MAX - len(found)]
    return found


async def _read(tree: NodeTree, path: str) -> tuple[TreeNode | None, list[str]]:
    node = await tree.get(path)
    if node is None:
        return None, []
    try:
        names = [] if node.owner else await tree.children(path)
    except NoNodeError:
        names = []
    return TreeNode(node.data.decode("utf-8", "replace"), bool(node.owner)), list(names)
