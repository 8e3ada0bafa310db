"""Requests of every code by chance, on the ports that speak RocketMQ: each is answered."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from imago_testing.peers.generated import storm

if TYPE_CHECKING:
    from imago_testing.processes.broker import BrokerProcess

pytestmark = [
    pytest.mark.processes,
    pytest.mark.common_passwords,  # users get names and numbers as passwords
    pytest.mark.timeout(1800),
]
CONNECTIONS = 4


@pytest.mark.parametrize(
    ("port", "count"),
    [
        ("rocketmq", 4_000),
        ("fast", 4_000),  # the same table as `rocketmq`: a look at its listener is enough
        ("namesrv", 4_000),
        pytest.param("rocketmq", 50_000, marks=pytest.mark.full),
        pytest.param("namesrv", 50_000, marks=pytest.mark.full),
    ],
)
async def test_every_request_is_answered(
    patient_broker: BrokerProcess, port: str, count: int
) -> None:
    """The fixture looks for traces in the log."""
    number = getattr(patient_broker, port)
    async with asyncio.TaskGroup() as tasks:
        for seed in range(CONNECTIONS):
            rng = random.Random(f"{port} {seed}")
            tasks.create_task(storm(number, rng, count // CONNECTIONS))
    assert patient_broker.alive, patient_broker.server.log_tail()
