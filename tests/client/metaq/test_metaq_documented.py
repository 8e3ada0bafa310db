"""Every Python block of the pages that needs a ZooKeeper runs as it stands."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from imago_testing.clusters.brokers import running_broker
from imago_testing.processes.zookeeper import running_zookeeper

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ROOT = Path(__file__).parents[3]
ADDRESS = "127.0.0.1:2181"
SECONDS_MAX = 60
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
BLOCKS = [
    pytest.param(match[1], id=f"{path.name}:{text.count(chr(10), 0, match.start(1)) + 1}")
    for path in sorted((ROOT / "docs").rglob("*.md"))
    for text in [path.read_text(encoding="utf-8")]
    for match in _BLOCK.finditer(text)
    if ADDRESS in match[1]
]
pytestmark = [pytest.mark.zookeeper]


@pytest.fixture
async def zookeeper(tmp_path: Path) -> AsyncIterator[str]:
    with running_zookeeper(tmp_path / "zookeeper") as server:
        topics = ("topics.orders.queues=8", "topics.refunds.queues=8")
        at = f"zookeeper.connect={server.address}"
        async with running_broker(tmp_path / "data", at, *topics):
            yield server.address


def test_blocks_are_found() -> None:
    assert len(BLOCKS) >= 7


@pytest.mark.parametrize("block", BLOCKS)
async def test_block_runs(block: str, zookeeper: str, tmp_path: Path) -> None:
    setup = (
        "from imago_client.blocking.metaq_sessions import MetaqSessionFactory\n"
        f'with MetaqSessionFactory("{zookeeper}") as factory:\n'
        '    factory.producer().send("orders", b"before")\n'
    )
    for code in (setup, block.replace(ADDRESS, zookeeper)):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-W", "error", "-c", code),
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(SECONDS_MAX):
            said, complained = await process.communicate()
        text = complained.decode()
        assert process.returncode == 0, text + said.decode()
        assert "Warning" not in text
