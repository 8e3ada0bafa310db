"""Reading MetaQ's public tree, from any writer: as a whole, and what a master says."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final

from imago_broker.cluster.metaq_tree.metaq_tree import FOR_CONSUMERS, MASTER
from imago_broker.cluster.tree import NoNodeError
from imago_broker.core.metaq.metaq_tree_check import TreeNode
from imago_broker.errors import BrokerError
from imago_broker.model.metaq_tree import MetaqMaster

if TYPE_CHECKING:
    from imago_broker.cluster.metaq_tree.metaq_tree import MetaqPaths
    from imago_broker.cluster.tree import NodeTree

NODES_MAX: Final = 500_000
READS_AT_ONCE: Final = 64
_PARTITIONS: Final = re.compile(r'"numParts"\s*:\s*(\d{1,9})')
"""The members are in any order: anybody may have written it."""


async def read_tree(tree: NodeTree, root: str) -> dict[str, TreeNode]:
    """Return all nodes below the root by path, parents first.

    BrokerError: they are more than `NODES_MAX`; a part of them would look like a broken tree.
    """
    found: dict[str, TreeNode] = {}
    level = [root]
    while level:
        if len(found) + len(level) > NODES_MAX:
            raise BrokerError(f"more than {NODES_MAX:,} nodes are below {root}")
        following: list[str] = []
        for start in range(0, len(level), READS_AT_ONCE):
            part = level[start : start + READS_AT_ONCE]
            read = await asyncio.gather(*(_read(tree, path) for path in part))
            for path, (node, names) in zip(part, read, strict=True):
                if node is not None:
                    found[path] = node
                    following += (f"{path}/{name}" for name in sorted(names))
        level = following
    return found


async def read_master(tree: NodeTree, paths: MetaqPaths) -> MetaqMaster | None:
    """Return the master of a broker id with its topics; None: none is registered."""
    master = await tree.get(paths.master)
    if master is None:
        return None
    checksum = await tree.get(f"{paths.broker}/master_config_checksum")
    try:
        names = await tree.children(paths.branch(FOR_CONSUMERS))
    except NoNodeError:
        names = ()
    partitions: dict[str, int] = {}
    for start in range(0, len(names), READS_AT_ONCE):
        part = names[start : start + READS_AT_ONCE]
        node = f"{paths.broker_id}-{MASTER}"
        offered = [f"{paths.topic(FOR_CONSUMERS, name)}/{node}" for name in part]
        for name, found in zip(part, await asyncio.gather(*map(tree.get, offered)), strict=True):
            told = _PARTITIONS.search("" if found is None else found.data.decode("latin-1"))
            if told is not None:
                partitions[name] = int(told[1])
    return MetaqMaster(
        url=master.data.decode("utf-8", "replace"),
        checksum="" if checksum is None else checksum.data.decode("utf-8", "replace"),
        partitions=partitions,
    )


async def _read(tree: NodeTree, path: str) -> tuple[TreeNode | None, list[str]]:
    node = await tree.get(path)
    if node is None:
        return None, []
    try:
        names = [] if node.owner else await tree.children(path)
    except NoNodeError:
        names = []
    return TreeNode(node.data.decode("utf-8", "replace"), bool(node.owner)), list(names)
