"""`imago up` with TLS on all ports of clients and members: nothing is to be read on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_broker.replication.links.member_tls import member_uri
from imago_cli.clusters.admin_http import ask
from imago_cli.exits import CommandError
from imago_client import Message
from imago_client.blocking import Client
from imago_client.config import ClientConfig, parse_addresses
from imago_testing.processes.capture import Capture
from imago_testing.processes.certificates import LOOPBACK, Authority, Pair
from imago_testing.processes.ports import free_port_block
from imago_testing.processes.up import up

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.processes]

BODIES = 1000
PORTS = 30
ENFORCED = ("tls.mode=enforcing", "tls.replication=enforcing", "tls.client_auth=required")


def told_over_https(
    admin: str, authority: Authority, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands about shards trust and show what the environment names."""
    with pytest.raises(CommandError, match="no admin interface answers at https"):
        ask(admin, "/admin/v1/cluster")
    monkeypatch.setenv("IMAGO_TLS_CA", str(authority.file))
    monkeypatch.setenv("IMAGO_TLS_CERTIFICATE", str(pair.certificate))
    monkeypatch.setenv("IMAGO_TLS_KEY", str(pair.key))
    (shard,) = ask(admin, "/admin/v1/cluster")["shards"]
    assert len(shard["members"]) == 2


@pytest.mark.full
def test_nothing_of_a_pair_is_to_be_read_on_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        admin = running.ready["brokers"][0]["admin"].replace("http:", "https:")
        told_over_https(admin, authority, pair, monkeypatch)
    assert capture.lost == 0
    assert len(capture.data) > 3 * BODIES * 100, "to the leader, to the follower, to the reader"
    assert not [body for body in bodies if body in capture.data]
