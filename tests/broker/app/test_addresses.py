"""Where a broker listens, and what address it tells, with nothing but defaults and without them."""

from __future__ import annotations

import pytest

from imago_broker.app.member.identity import advertised_host
from imago_broker.app.ports.listeners import Ports
from imago_broker.config import load
from imago_broker.model.registry.cluster import BrokerRecord, ClusterView
from imago_testing.virtual.clocks import ManualClock


def _no_record() -> BrokerRecord:
    raise AssertionError("nobody is told of it")


@pytest.mark.parametrize(
    ("text", "bound", "told"),
    [
        ("", "127.0.0.1", "127.0.0.1"),
        ("[broker]\nbind = '::1'", "::1", "::1"),
        ("[broker]\nbind = '127.0.0.2'\nhost = 'localhost'", "127.0.0.2", "localhost"),
        ("[broker]\nbind = '0.0.0.0'\nhost = 'mq-1.example'", "0.0.0.0", "mq-1.example"),
    ],
)
def test_only_who_says_so_listens_to_other_machines(text: str, bound: str, told: str) -> None:
    config = load(text)
    ports = Ports(config, lambda: ClusterView(cluster="c"), _no_record, ManualClock())
    assert {each.host for each in ports.wanted} == {bound}
    assert ports.replication.host == bound
    assert advertised_host(config.broker.host, config.broker.bind) == told


def test_who_listens_to_all_tells_an_address_of_the_machine() -> None:
    assert advertised_host("", "0.0.0.0") not in ("", "0.0.0.0")
