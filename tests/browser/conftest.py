"""A cluster to look at."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from imago_cli.clusters.admin_http import ask
from imago_client import Message, ResetTo
from imago_client.blocking import Client
from imago_testing.processes.ports import free_port_block
from imago_testing.processes.up import Up, up

if TYPE_CHECKING:
    from collections.abc import Iterator

MESSAGES = 20
HOSTILE = "<img src=x onerror=alert(1)>"
BODY = json.dumps({"n": 12345678901234567890, "evil": HOSTILE}).encode()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """Two shards with hostile messages on both, and a group that has read nothing."""
    options = ["--shards", "2", "--port-base", str(free_port_block(40)), "--no-restart"]
    options += ["--set", "zookeeper.session_timeout_ms=2000"]
    with up(tmp_path_factory.mktemp("two") / "data", *options) as running:
        with Client(running.ready["namesrv"]) as client:
            client.admin.create_topic("orders", queues=1)
            client.admin.create_topic("idle", queues=2)
            producer = client.producer()
            for number in range(MESSAGES):
                told = {HOSTILE[1:4]: HOSTILE, "number": str(number)}
                producer.send(Message("orders", BODY, keys=(f"k{number}",), properties=told))
            producer.send(Message("orders", b"\xff\x00\x01", keys=("binary",)))
            client.admin.reset_group("billing", "orders", ResetTo.EARLIEST)
            producer.send(Message("idle", b"later", keys=("remind",), delay_ms=3_600_000))
            client.admin.create_topic("%DLQ%payer", queues=1)
            client.admin.create_topic("%RETRY%payer", queues=1)
            client.admin.reset_group("payer", "%RETRY%payer", ResetTo.EARLIEST)
            producer.send(Message("%DLQ%payer", b"given up"))
        admin = str(running.ready["brokers"][0]["admin"])
        rule = {"resource": {"type": "Topic", "name": "orders"}, "operations": ["publish"]}
        ask(admin, "/admin/v1/users/ann", {"rules": [rule], "enabled": True}, method="PUT")
        token = {"note": "Sun, the first", "expiresSeconds": 3600}
        ask(admin, "/admin/v1/users/ann/tokens", token)
        limit = {"quotas": {"producerBytesPerSecond": 1000}}
        ask(admin, "/admin/v1/quotas/user:ann", limit, method="PUT")
        yield running
