"""Several tasks of one kind at once, whose first error is the error of all."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


async def side_by_side(work: Callable[[], Coroutine[Any, Any, None]], count: int) -> None:
    """Run so many; the first error stops the others, and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(count):
                tasks.create_task(work())
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
