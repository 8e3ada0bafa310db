"""A broker in the test's process, and clients of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_client import Client
from imago_testing.clusters.brokers import running_broker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from imago_broker.app import Broker


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running_broker(tmp_path) as running:
        yield running


@pytest.fixture
def bootstrap(broker: Broker) -> str:
    return f"127.0.0.1:{broker.ports.namesrv_port}"


@pytest.fixture
def metaq_server(broker: Broker) -> str:
    return f"127.0.0.1:{broker.metaq_port}"


@pytest.fixture
async def client(bootstrap: str) -> AsyncIterator[Client]:
    async with Client(bootstrap) as made:
        yield made
