"""Who may ask a fenced member, which knows no users."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import aiohttp
import pytest

from imago_broker.app.ports.fence import FenceMark, held
from imago_testing.clusters.brokers import loopback_config
from imago_testing.processes.ports import free_port_block
from imago_testing.virtual.clocks import ManualClock

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("acl", [True, False])
async def test_being_on_this_machine_is_no_right_with_access_control(
    tmp_path: Path, *, acl: bool
) -> None:
    (tmp_path / "token").write_text("sesame")
    port, clock, stopped = free_port_block(1), ManualClock(), asyncio.Event()
    config = loopback_config(
        tmp_path / "data",
        f"acl.enabled={str(acl).lower()}",
        f"admin.token_file={tmp_path}/token",
        f"admin.port={port}",
    )
    (tmp_path / "data").mkdir()
    FenceMark(config.broker.data_dir, clock).set("its disk clicks")
    serving = asyncio.create_task(held(config, clock, stopped))
    right = {"Authorization": "Bearer sesame"}
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session, asyncio.timeout(50):

        async def code(method: str, path: str, headers: dict[str, str]) -> int:
            async with session.request(method, path, headers=headers) as answer:
                return answer.status

        while True:
            try:
                assert await code("GET", "/healthz", {}) == 200
                break
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.02)
        assert await code("GET", "/admin/v1/status", {}) == (401 if acl else 200)
        assert await code("GET", "/admin/v1/status", right) == 200
        if acl:
            assert await code("DELETE", "/admin/v1/fence", {}) == 401
            assert FenceMark(config.broker.data_dir, clock).said() is not None
        assert await code("DELETE", "/admin/v1/fence", right if acl else {}) == 200
        assert await serving
