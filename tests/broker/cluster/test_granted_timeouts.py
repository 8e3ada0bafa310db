"""Every server that may open a session is asked what it grants."""

from __future__ import annotations

import asyncio
import struct
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from imago_broker.cluster.session import granted_timeouts
from imago_broker.cluster.session.granted_timeouts import Grants
from imago_broker.cluster.tree import TreeConfigurationError
from imago_testing.processes.ports import free_port_block

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

WANTED_MS = 6000


@asynccontextmanager
async def server(granted_ms: int, port: int = 0) -> AsyncIterator[int]:
    """A server that grants so much."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(4 + 45)
        grant = struct.pack(">iiqi16s?", 0, granted_ms, 0x1234, 16, bytes(16), False)
        writer.write(struct.pack(">i", len(grant)) + grant)
        await reader.readexactly(12)
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", port)
    async with listening:
        yield listening.sockets[0].getsockname()[1]


@pytest.mark.parametrize("right_first", [True, False])
async def test_one_wrong_server_of_several_is_an_error(right_first: bool) -> None:
    async with server(WANTED_MS) as right, server(4000) as wrong:
        ports = (right, wrong) if right_first else (wrong, right)
        grants = Grants([("127.0.0.1", port) for port in ports], wanted_ms=WANTED_MS)
        with pytest.raises(TreeConfigurationError, match=rf"{wrong} grants sessions of 4000 ms"):
            await grants.first()


async def test_a_server_is_used_once_it_has_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(granted_timeouts, "LATER_SECONDS", 0.01)
    async with AsyncExitStack() as stack:
        right = await stack.enter_async_context(server(WANTED_MS))
        late = free_port_block(2)
        wrong = late + 1
        servers = [("127.0.0.1", port) for port in (late, right, wrong)]
        grants = Grants(servers, wanted_ms=WANTED_MS)
        await grants.first()
        assert grants.approved == [servers[1]]
        found = asyncio.Event()
        asking = asyncio.create_task(grants.others(found.set))
        await stack.enter_async_context(server(4000, wrong))
        await stack.enter_async_context(server(WANTED_MS, late))
        async with asyncio.timeout(50):
            await found.wait()
        assert grants.approved == servers[:2], "in the order they were named; the third not"
        asking.cancel()
