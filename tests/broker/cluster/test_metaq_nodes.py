"""Reading MetaQ's tree: in pieces, and whole or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from imago_broker.cluster.metaq_tree import metaq_nodes
from imago_broker.cluster.metaq_tree.metaq_nodes import read_tree
from imago_broker.cluster.tree import Node, NoNodeError
from imago_broker.errors import BrokerError

if TYPE_CHECKING:
    from imago_broker.cluster.tree import NodeTree

PATHS = [
    "/meta",
    *(f"/meta/t{n}" for n in range(5)),
    *(f"/meta/t{n}/{m}" for n in range(5) for m in range(3)),
]


class Tree:
    """A tree of nodes; how many are read at the same time is counted."""

    def __init__(self) -> None:
        self.at_once = self.most = 0

    async def get(self, path: str) -> Node | None:
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        return Node(path.encode(), 0, created=1, owner=0) if path in PATHS else None

    async def children(self, path: str) -> tuple[str, ...]:
        self.at_once -= 1
        below = [other for other in PATHS if other.rpartition("/")[0] == path]
        if path == "/meta/t3":
            raise NoNodeError(path)  # gone since
        return tuple(sorted(other.rpartition("/")[2] for other in below))


@pytest.mark.parametrize("at_once", [1, 2, 64])
async def test_a_tree_is_read_in_pieces(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metaq_nodes, "READS_AT_ONCE", at_once)
    tree = Tree()
    found = await read_tree(cast("NodeTree", tree), "/meta")
    assert sorted(found) == sorted(path for path in PATHS if not path.startswith("/meta/t3/"))
    assert tree.most <= at_once
    assert {node.data for node in found.values()} == set(found)


async def test_a_tree_that_is_too_large_is_not_read_in_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A part of it would look like a tree in which nodes are missing."""
    count = len(PATHS) - 3
    monkeypatch.setattr(metaq_nodes, "NODES_MAX", count)
    assert len(await read_tree(cast("NodeTree", Tree()), "/meta")) == count
    monkeypatch.setattr(metaq_nodes, "NODES_MAX", count - 1)
    with pytest.raises(BrokerError, match=f"more than {count - 1} nodes are below /meta"):
        await read_tree(cast("NodeTree", Tree()), "/meta")
