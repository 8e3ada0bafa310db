"""A broker process with short patience, and witnesses: connections that must not be harmed."""

from __future__ import annotations

import json
import resource
import urllib.request
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import pytest

from imago_testing.peers.witness import TOPIC, Witness
from imago_testing.processes.broker import BrokerProcess, broker_process
from imago_testing.processes.certificates import Authority
from imago_testing.processes.servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

STALL_SECONDS = 2
"""How long the broker waits for the rest of a command, and for a peer that does not read."""
FILES = 12_000
"""That a process may open, for thousands of connections."""
SLACK_BYTES = 24 << 20
"""What the process may take besides: memory that its allocator keeps."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with _fed_broker(tmp_path_factory, {"limits": _stalls(STALL_SECONDS)}) as broker:
        yield broker


@pytest.fixture(scope="module")
def patient_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that cuts nobody off whom a busy machine keeps from writing on."""
    rocketmq = {"pull_hold_ms_max": 600_000, "light_queues": True}
    settings: dict[str, Mapping[str, object]] = {"limits": _stalls(600), "rocketmq": rocketmq}
    with _fed_broker(tmp_path_factory, settings) as broker:
        yield broker


@pytest.fixture
def secured_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with TLS, where one address has few places, and with files for thousands of peers;
    so has this process."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert before[1] == resource.RLIM_INFINITY or before[1] >= FILES
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], FILES), before[1]))
    pair = Authority(tmp_path_factory.mktemp("authority") / "files").issue("server")
    settings: dict[str, Mapping[str, object]] = {
        "tls": {"certificate_file": str(pair.certificate), "key_file": str(pair.key)},
        "limits": {"connections_per_address_max": 100},
    }
    try:
        with _fed_broker(tmp_path_factory, settings) as broker:
            yield broker
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def _stalls(seconds: int) -> Mapping[str, object]:
    return {"input_stall_seconds": seconds, "output_stall_seconds": seconds}


@contextmanager
def _fed_broker(
    tmp_path_factory: pytest.TempPathFactory, settings: Mapping[str, Mapping[str, object]]
) -> Iterator[BrokerProcess]:
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
