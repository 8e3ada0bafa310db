"""`imago up` with TLS on all ports of clients and members: nothing is to be read on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_broker.replication.member_tls import member_uri
from imago_client import Message
from imago_client.blocking import Client
from imago_client.config import ClientConfig, parse_addresses
from imago_testing.processes.capture import Capture
from imago_testing.processes.certificates import LOOPBACK, Authority
from imago_testing.processes.ports import free_port_block
from imago_testing.processes.up import up

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]

BODIES = 1000
PORTS = 30
ENFORCED = ("tls.mode=enforcing", "tls.replication=enforcing", "tls.client_auth=required")


def test_nothing_of_a_pair_is_to_be_read_on_the_way(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    pair = authority.issue("member", hosts=f"{LOOPBACK},URI:{member_uri('imago', 0)}")
    files = (f"certificate_file={pair.certificate}", f"key_file={pair.key}")
    wanted = [*(f"tls.{file}" for file in files), f"tls.ca_file={authority.file}", *ENFORCED]
    options = [part for one in wanted for part in ("--set", one)]
    bodies = [b"marked-%04d" % number for number in range(BODIES)]
    base = free_port_block(PORTS)
    with up(tmp_path / "data", "--replicas", "2", "--port-base", str(base), *options) as running:
        config = ClientConfig(
            bootstrap=parse_addresses(running.ready["namesrv"]),
            tls_ca_file=str(authority.file),
            tls_certificate_file=str(pair.certificate),
            tls_key_file=str(pair.key),
        )
        with Capture(*range(base, base + PORTS)) as capture, Client(config) as client:
            client.admin.create_topic("orders", queues=1)
            producer = client.producer()
            for body in bodies:
                producer.send(Message("orders", body))
            consumer = client.pull_consumer("readers")
            (queue,) = consumer.queues("orders")
            read, at = list[bytes](), 0
            while at < BODIES:
                found = consumer.pull(queue, at)
                read += [message.body for message in found.messages()]
                at = found.next_offset
        assert read == bodies
    assert capture.lost == 0
    assert len(capture.data) > 3 * BODIES * 100, "to the leader, to the follower, to the reader"
    assert not [body for body in bodies if body in capture.data]
