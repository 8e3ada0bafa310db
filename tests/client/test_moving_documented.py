"""Every block of the page about moving from other clients runs as it stands."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import pytest

from imago_client import Client, Message

PAGE = Path(__file__).parents[2] / "docs" / "client-moving.md"
ADDRESS = "127.0.0.1:9876"
SECONDS_MAX = 60
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
BLOCKS = _BLOCK.findall(PAGE.read_text(encoding="utf-8"))


def test_blocks_are_found() -> None:
    assert len(BLOCKS) == 4


@pytest.mark.parametrize("number", range(len(BLOCKS)))
async def test_block_runs(number: int, client: Client, bootstrap: str, tmp_path: Path) -> None:
    await client.admin.create_topic("orders", queues=4)
    for _ in range(60):
        await client.producer().send(Message("orders", b"before"))
    assert ADDRESS in BLOCKS[number]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", "-c", BLOCKS[number].replace(ADDRESS, bootstrap)),
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(SECONDS_MAX):
        out, errors = await process.communicate()
    assert (process.returncode, errors) == (0, b"")
    assert out
