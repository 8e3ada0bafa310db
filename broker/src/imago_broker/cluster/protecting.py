"""Gives nodes that were made without rights those that they are to have now."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from imago_broker.cluster.tree import NodeError, NoNodeError, TreeUnavailableError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

logger = logging.getLogger(__name__)

AT_ONCE: Final = 64
"""Nodes that are read together."""
AGAIN_SECONDS: Final = 5.0


async def protect(
    roots: Sequence[str],
    children: Callable[[str], Awaitable[Sequence[str]]],
    give: Callable[[str], Awaitable[bool]],
) -> int:
    """Walk what is below some nodes, and them; return how many had other rights.

    `give` gives one node its rights, and says whether it had others.
    """
    changed, level = 0, list(roots)
    while level:
        batch, level = level[:AT_ONCE], level[AT_ONCE:]
        found = await asyncio.gather(*(_one(path, children, give) for path in batch))
        for given, below in found:
            changed += given
            level += below
    return changed


async def protect_in_time(
    roots: Sequence[str],
    children: Callable[[str], Awaitable[Sequence[str]]],
    give: Callable[[str], Awaitable[bool]],
) -> None:
    """Do so, again and again until the tree has answered all of it."""
    while True:
        try:
            changed = await protect(roots, children, give)
        except TreeUnavailableError:
            await asyncio.sleep(AGAIN_SECONDS)
        except NodeError as error:
            logger.warning("zookeeper_not_protected reason=%s", error)
            return
        else:
            if changed:
                logger.info("zookeeper_protected nodes=%d", changed)
            return


async def _one(
    path: str,
    children: Callable[[str], Awaitable[Sequence[str]]],
    give: Callable[[str], Awaitable[bool]],
) -> tuple[bool, list[str]]:
    try:
        below = await children(path)
        given = await give(path)
    except NoNodeError:
        return False, []
    return given, [f"{path}/{name}" for name in below]
