"""Calls that block, out of the event loop's way."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")


class Apart(Protocol):
    """Has a call done, in another thread or at once."""

    async def __call__(self, call: Callable[P, T], *args: P.args, **named: P.kwargs) -> T: ...


async def in_thread(call: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
    """Have a call done in another thread; who is cancelled meanwhile goes when it is done.

    So nothing is written any more once whoever had it written is gone.
    """
    task = asyncio.ensure_future(asyncio.to_thread(call, *args, **named))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()
        raise
