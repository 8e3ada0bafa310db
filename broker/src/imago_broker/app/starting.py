"""What each server process does first: its log, and a start that may be called off."""

from __future__ import annotations

import asyncio
import logging
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from imago_broker.app.log_lines import JsonLines

if TYPE_CHECKING:
    from collections.abc import Coroutine


TEXT = "%(asctime)s %(levelname)s %(name)s %(message)s"


def configure_logging(level: str, form: str) -> None:
    """Write the process's log to standard error, one line an event, as `text` or `json`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else logging.Formatter(TEXT))
    logging.basicConfig(level=level.upper(), handlers=[handler])


async def unless(stopped: asyncio.Event, start: Coroutine[Any, Any, object]) -> bool:
    """Have something started; it is called off, and False returned, when `stopped` is set first.

    What was begun is undone then: a start may wait for others who never come.
    """
    starting, stopping = asyncio.create_task(start), asyncio.create_task(stopped.wait())
    try:
        await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
        with suppress(asyncio.CancelledError):
            await starting
    finally:
        stopping.cancel()
    return not starting.cancelled()
