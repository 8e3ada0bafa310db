"""Gives nodes that are there already the rights that they are to have now."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from imago_broker.cluster.tree import NodeError, NoNodeError, TreeUnavailableError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

logger = logging.getLogger(__name__)

AT_ONCE: Final = 64
"""Nodes that are read together."""
AGAIN_SECONDS: Final = 5.0


@dataclass(slots=True)
class WalkResult:
    """What a walk over nodes has come to."""

    changed: int = 0
    """Nodes that had other rights."""
    refused: int = 0
    """Nodes whose rights are somebody else's to give; nothing below them is asked for."""
    problem: str = ""
    """Why the first of those was refused."""


class RightsWalk:
    """Walks what is below some nodes, and them."""

    def __init__(
        self,
        children: Callable[[str], Awaitable[Sequence[str]]],
        give: Callable[[str], Awaitable[bool]],
        *,
        word: str,
    ) -> None:
        """`give` gives one node its rights, and says whether it had others.

        `word`: what nodes are by that, in the log.
        """
        self._children = children
        self._give = give
        self._word = word

    async def walk(self, folders: Sequence[str], roots: Sequence[str]) -> WalkResult:
        """Walk what is below `roots`; of `folders` only they themselves."""
        result = WalkResult()
        await asyncio.gather(*(self._given(path, result) for path in folders))
        level = list(roots)
        while level:
            batch, level = level[:AT_ONCE], level[AT_ONCE:]
            for below in await asyncio.gather(*(self._one(path, result) for path in batch)):
                level += below
        return result

    async def in_time(self, folders: Sequence[str], roots: Sequence[str]) -> None:
        """Do so, again and again until the tree has answered all of it."""
        while True:
            try:
                result = await self.walk(folders, roots)
            except TreeUnavailableError:
                await asyncio.sleep(AGAIN_SECONDS)
                continue
            if result.changed:
                logger.info("%s nodes=%d", f"zookeeper_{self._word}", result.changed)
            if result.refused:
                logger.warning(
                    "%s nodes=%d reason=%s",
                    f"zookeeper_not_{self._word}",
                    result.refused,
                    result.problem,
                )
            return

    async def _one(self, path: str, result: WalkResult) -> list[str]:
        # First the rights: then nobody else makes a node between the list and them.
        if not await self._given(path, result):
            return []
        try:
            return [f"{path}/{name}" for name in await self._children(path)]
        except NoNodeError:
            return []

    async def _given(self, path: str, result: WalkResult) -> bool:
        """Whether the node is there, and has the rights that it is to have."""
        try:
            result.changed += await self._give(path)
        except NoNodeError:
            return False
        except NodeError as error:
            result.refused += 1
            result.problem = result.problem or f"{path}: {error}"
            return False
        return True
