"""A whole broker in this process, and an HTTP client of its admin port."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import aiohttp
import pytest

from imago_broker.app import Broker
from imago_testing.clusters.shard_pair import Pair, running_pair
from imago_testing.peers.admin import Admin, broker_config

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    config = broker_config(tmp_path)
    small = replace(config.store, segment_bytes_max=8 << 20)
    running = Broker(replace(config, store=small))
    await running.start()
    try:
        yield running
    finally:
        await running.stop()


@pytest.fixture
async def admin(broker: Broker) -> AsyncIterator[Admin]:
    async with aiohttp.ClientSession() as session:
        yield Admin(session, broker)


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    async with running_pair(tmp_path) as running:
        yield running
