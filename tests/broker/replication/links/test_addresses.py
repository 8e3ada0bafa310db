"""Where a member may call from: what its registration says, looked up."""

from __future__ import annotations

import asyncio
import socket
from ipaddress import ip_address
from typing import Any

import pytest

from imago_broker.config.sections.cluster_sections import ReplicationSection
from imago_broker.model.registry.cluster import BrokerRecord
from imago_broker.replication.links.addresses import KNOWN_MS, Addresses, own_addresses


class Clock:
    def __init__(self) -> None:
        self.ms = 0

    def __call__(self) -> int:
        return self.ms


@pytest.mark.parametrize(
    ("peer", "host", "fits"),
    [
        ("10.0.0.5", "10.0.0.5", True),
        ("10.0.0.6", "10.0.0.5", False),
        ("::ffff:10.0.0.5", "10.0.0.5", True),
        ("fe80::1%eth0", "fe80::1", True),
        # a machine that calls an address of its own loopback does so from the first one
        ("127.0.0.1", "127.0.1.1", True),
        ("127.0.0.2", "127.0.0.1", False),
        ("127.0.0.1", "10.0.0.5", False),
        ("unknown", "10.0.0.5", False),
        # a network that translates addresses
        ("192.168.7.9", "10.0.0.5", True),
    ],
)
async def test_addresses_are_compared(peer: str, host: str, fits: bool) -> None:
    addresses = Addresses("192.168.7.0/24", now_ms=Clock())
    assert (addresses.problem(peer, host) is None) is fits


@pytest.mark.parametrize(
    ("peer", "own", "fits"),
    [
        # a pod that was started again, whose name still stands for its former address
        ("10.0.0.6", ("10.0.0.6", "fd00::6"), True),
        ("fd00::6", ("10.0.0.6", "fd00::6"), True),
        ("10.0.0.7", ("10.0.0.6",), False),
        ("127.0.0.1", ("127.0.0.1",), False),
        ("10.0.0.6", ("nonsense",), False),
    ],
)
async def test_a_machine_may_call_from_every_address_that_it_has(
    peer: str, own: tuple[str, ...], fits: bool
) -> None:
    addresses = Addresses("", now_ms=Clock())
    assert (addresses.problem(peer, "10.0.0.5", own) is None) is fits


def test_own_addresses_are_seen_by_others() -> None:
    for text in own_addresses():
        address = ip_address(text)
        assert not address.is_loopback
        assert not address.is_link_local


async def test_names_are_looked_up_and_again_when_they_move(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = ["10.1.0.5"]

    async def look_up(*_: Any, **__: Any) -> list[Any]:
        if not found:
            raise socket.gaierror("no such name")
        return [(0, 0, 0, "", (address, 0)) for address in found]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", look_up, raising=False)
    clock = Clock()
    addresses = Addresses("", now_ms=clock)

    async def problem(peer: str) -> str | None:
        for _ in range(3):
            await asyncio.sleep(0)
        return addresses.problem(peer, "pod-1.brokers")

    assert "being looked up" in (addresses.problem("10.1.0.5", "pod-1.brokers") or "")
    assert await problem("10.1.0.5") is None
    found[:] = ["10.1.0.9"]
    assert "registered at pod-1.brokers (10.1.0.5)" in (await problem("10.1.0.9") or "")
    assert await problem("10.1.0.9") is None, "a pod that moved has its new address soon"
    found.clear()
    clock.ms = KNOWN_MS
    assert await problem("10.1.0.9") is None
    assert await problem("10.1.0.7") is None, "no name service: the ids have to do"


def test_what_is_no_network_is_refused() -> None:
    with pytest.raises(ValueError, match=r"peer_networks: '10\.0\.0/8'"):
        ReplicationSection(peer_networks="10.0.0.0/8, 10.0.0/8")


def member_at(host: str, *addresses: str) -> BrokerRecord:
    return BrokerRecord(
        shard=0,
        uuid=host,
        host=host,
        metaq=0,
        rocketmq=0,
        fast=0,
        replication=1,
        admin=0,
        broker_name="b",
        addresses=addresses,
    )


async def test_addresses_of_members_are_known_before_they_say_anything() -> None:
    near = member_at("127.0.0.1")
    far = member_at("10.0.0.5", "10.9.0.5")
    addresses = Addresses("192.168.7.0/24", now_ms=Clock())
    assert addresses.includes("127.0.0.1", [near, far])
    assert addresses.includes("10.0.0.5", [far])
    assert addresses.includes("10.9.0.5", [far])
    assert addresses.includes("192.168.7.9", [])
    assert not addresses.includes("127.0.0.1", [far])
    assert not addresses.includes("10.0.0.6", [near, far])
    assert not addresses.includes("unknown", [near, far])
