"""A broker process with short patience, and witnesses: connections that must not be harmed."""

from __future__ import annotations

import json
import urllib.request
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import pytest

from imago_testing.peers.witness import TOPIC, Witness
from imago_testing.processes.broker import BrokerProcess, broker_process
from imago_testing.processes.servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

STALL_SECONDS = 2
"""How long the broker waits for the rest of a command, and for a peer that does not read."""
SLACK_BYTES = 24 << 20
"""What the process may take besides: memory that its allocator keeps."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with _fed_broker(tmp_path_factory, STALL_SECONDS) as broker:
        yield broker


@pytest.fixture(scope="module")
def patient_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that cuts nobody off whom a busy machine keeps from writing on."""
    with _fed_broker(tmp_path_factory, 600, {"pull_hold_ms_max": 600_000}) as broker:
        yield broker


@contextmanager
def _fed_broker(
    tmp_path_factory: pytest.TempPathFactory,
    stall_seconds: int,
    rocketmq: Mapping[str, object] | None = None,
) -> Iterator[BrokerProcess]:
    settings: dict[str, Mapping[str, object]] = {
        "limits": {"input_stall_seconds": stall_seconds, "output_stall_seconds": stall_seconds},
        "rocketmq": rocketmq or {},
    }
    with broker_process(tmp_path_factory.mktemp("broker"), settings) as broker:
        request = urllib.request.Request(
            f"http://127.0.0.1:{broker.admin}/admin/v1/topics/{TOPIC}",
            data=json.dumps({"queues": 2}).encode(),
            method="PUT",
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert answer.status == 201
        yield broker
        assert broker.alive, broker.server.log_tail()
    # No input may lead to an exception that nobody expected.
    assert "Traceback" not in broker.log_text()


@pytest.fixture(scope="module")
def witness(broker: BrokerProcess) -> Iterator[Witness]:
    with closing(Witness.of(broker)) as witness:
        wait_until(witness.has_route, seconds_max=60, what=f"{TOPIC} has a route")
        witness.unharmed()
        yield witness
        witness.unharmed()


@pytest.fixture
def harmless(broker: BrokerProcess, witness: Witness) -> Iterator[None]:
    """Around a test: the witnesses work before and after, and the process did not grow much."""
    witness.unharmed()
    before = broker.resident_bytes()
    yield
    witness.unharmed()
    assert broker.resident_bytes() - before <= SLACK_BYTES
