"""An admin port that closes answers what was asked; connections that ask nothing end at once."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import aiohttp
from aiohttp import web

from imago_broker.core.budget import InputBudget, OutputBudget
from imago_broker.server.http_session import HttpSession
from imago_testing.clusters.brokers import running_broker
from imago_testing.clusters.shard_brokers import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    import pytest

SECONDS_MAX = 50.0


@asynccontextmanager
async def serving(
    answer: Callable[[web.Request], Awaitable[web.Response]],
) -> AsyncIterator[tuple[str, list[HttpSession]]]:
    """Serve one route; yield its address and the sessions, which nobody sweeps."""
    sessions: list[HttpSession] = []
    application = web.Application()
    application.router.add_get("/", answer)
    runner = web.AppRunner(application)
    await runner.setup()

    def session() -> HttpSession:
        assert runner.server is not None
        made = HttpSession(
            runner.server(),
            stall_ms=1000,
            output_stall_ms=1000,
            budget=OutputBudget(1 << 20),
            input_budget=InputBudget(1 << 20),
        )
        sessions.append(made)
        return made

    server = await asyncio.get_running_loop().create_server(session, "127.0.0.1", 0)
    try:
        host, port = server.sockets[0].getsockname()
        yield f"http://{host}:{port}/", sessions
    finally:
        server.close()
        await runner.cleanup()


async def test_a_connection_that_was_kept_alive_ends_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_broker(tmp_path) as broker, aiohttp.ClientSession() as client:
        url = f"http://127.0.0.1:{broker.ports.admin_port}/healthz"
        async with client.get(url) as answer:
            assert answer.status == 200
        await broker.stop()
    assert "drain_incomplete" not in caplog.text


async def test_a_connection_on_which_nothing_was_asked_ends_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_broker(tmp_path) as broker:
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.ports.admin_port)
        await broker.stop()
        assert await asyncio.wait_for(reader.read(), SECONDS_MAX) == b""
        writer.close()
    assert "drain_incomplete" not in caplog.text


async def test_what_was_asked_is_answered_whole_first() -> None:
    asked, may_answer, body = asyncio.Event(), asyncio.Event(), "x" * (4 << 20)

    async def answer(_: web.Request) -> web.Response:
        asked.set()
        await may_answer.wait()
        return web.Response(text=body)

    async with serving(answer) as (url, sessions), aiohttp.ClientSession() as client:
        asking = asyncio.create_task(client.get(url))
        await asyncio.wait_for(asked.wait(), SECONDS_MAX)
        for session in sessions:
            session.drain()
        await asyncio.sleep(0)
        assert not asking.done()
        may_answer.set()
        async with await asyncio.wait_for(asking, SECONDS_MAX) as found:
            assert await found.text() == body
        await until(sessions[0].transport.is_closing)
