"""A whole broker with access control in this process."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from imago_broker.app import Broker
from imago_testing.peers.admin import broker_config

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from imago_broker.config import BrokerConfig


@pytest.fixture
def config(tmp_path: Path) -> BrokerConfig:
    base = broker_config(tmp_path)
    return replace(
        base,
        store=replace(base.store, segment_bytes_max=32 << 20),
        acl=replace(base.acl, enabled=True),
    )


@pytest.fixture
async def broker(config: BrokerConfig) -> AsyncIterator[Broker]:
    running = Broker(config)
    await running.start()
    try:
        yield running
    finally:
        await running.stop()
