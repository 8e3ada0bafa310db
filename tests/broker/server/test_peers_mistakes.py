"""What a peer does wrong on the admin port is one line of the log; our mistakes keep a trace."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from typing import Any

import pytest
from aiohttp import web

from imago_broker.core.budget import InputBudget, OutputBudget
from imago_broker.server.http_session import HttpSession, PeersMistakes


@pytest.mark.parametrize(
    ("error", "theirs"),
    [
        (ConnectionResetError("gone"), True),
        (RuntimeError("Connection closed."), True),
        (RuntimeError("something else"), False),
        (ValueError("ours"), False),
    ],
)
def test_only_what_a_peer_did_loses_its_trace(error: Exception, theirs: bool) -> None:
    try:
        raise error
    except type(error):
        said = sys.exc_info()
    record = logging.LogRecord("aiohttp.server", logging.ERROR, "x", 1, "failed", ("p",), said)
    assert PeersMistakes().filter(record)
    assert (record.exc_info is None, record.levelno == logging.INFO) == (theirs, theirs)


class GoneTransport(asyncio.Transport):
    """A connection whose peer has left already."""

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        del high, low

    def is_closing(self) -> bool:
        return True

    def close(self) -> None: ...

    abort = pause_reading = resume_reading = close


async def test_a_connection_that_ends_as_it_begins_is_no_mistake_of_ours() -> None:
    loop, mistakes = asyncio.get_running_loop(), list[dict[str, Any]]()
    loop.set_exception_handler(lambda _, what: mistakes.append(what))
    runner = web.AppRunner(web.Application())
    await runner.setup()
    try:
        assert runner.server is not None
        session = HttpSession(
            runner.server(),
            stall_ms=1000,
            output_stall_ms=1000,
            budget=OutputBudget(1 << 20),
            input_budget=InputBudget(1 << 20),
        )
        session.connection_made(GoneTransport())
        session.connection_lost(None)
        for _ in range(5):
            await asyncio.sleep(0)
    finally:
        await runner.cleanup()
    del session
    gc.collect()
    await asyncio.sleep(0)
    assert mistakes == []
