"""Who gets a place when places are few: one caller never has all of them."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest

from imago_broker.app.ports.member_addresses import MemberAddresses
from imago_broker.model.registry.cluster import BrokerRecord, ClusterView
from imago_broker.server.connection_places import (
    FEW,
    KNOWN_KEPT,
    KeptPlaces,
    Place,
    Places,
    Port,
    source_of,
)
from imago_broker.server.listener import Listener, ListenerLimits
from imago_broker.server.refusals import Refusals
from imago_broker.server.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable

STRANGER = "198.51.100.7"
OTHER = "198.51.100.8"
MEMBER = "10.0.0.5"
LOOPBACK = "127.0.0.1"
ANY = Port(0)


def fill(places: Places, address: str, port: Port = ANY) -> list[Place]:
    """Take places until one is refused."""
    taken: list[Place] = []
    while isinstance(place := places.take(address, port), Place):
        taken.append(place)
    return taken


def got(place: Place | str) -> bool:
    return isinstance(place, Place)


def of_members(*addresses: str) -> Callable[[str], bool]:
    return lambda peer: peer in addresses


def record(host: str, *addresses: str) -> BrokerRecord:
    return BrokerRecord(
        shard=0,
        uuid="u",
        host=host,
        metaq=1,
        rocketmq=2,
        fast=3,
        replication=4,
        admin=5,
        broker_name="shard-0",
        addresses=addresses,
    )


def test_one_address_leaves_the_last_eighth_to_others() -> None:
    places = Places(800)
    assert len(fill(places, STRANGER)) == 700
    assert len(fill(places, OTHER)) == FEW, "who has few gets of the rest"
    assert got(places.take("198.51.100.9", ANY))


def test_one_address_leaves_the_last_eighth_of_each_port_to_others() -> None:
    places = Places()
    for taken, admitted in ((0, True), (699, True), (700, False)):
        while places.held(STRANGER) < FEW:
            places.take(STRANGER, ANY)
        assert got(places.take(STRANGER, Port(taken, 800))) is admitted
        assert got(places.take(OTHER, Port(taken, 800)))
    assert places.take(OTHER, Port(800, 800)) == "all places are taken"


def test_an_address_is_counted_over_all_ports_and_leaves_what_it_had() -> None:
    places = Places(per_address_max=3)
    taken = fill(places, STRANGER)
    assert len(taken) == 3
    assert places.take(STRANGER, Port(0, 10)) == "limits.connections_per_address_max=3"
    places.leave(taken.pop())
    assert places.held(STRANGER) == 2
    assert got(places.take(STRANGER, Port(5, 10)))
    assert got(places.take(OTHER, ANY))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8::1", "2001:db8::ffff:2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.2", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
        ("::1", "::2", False),
        ("10.0.0.1", "10.0.0.2", False),
        ("", "", True),
    ],
)
def test_a_network_of_ipv6_is_one_address(one: str, other: str, same: bool) -> None:
    assert (source_of(one) == source_of(other)) is same


def test_members_are_not_held_to_what_one_address_may_have() -> None:
    places = Places(800, per_address_max=3, is_member=of_members(MEMBER))
    assert len(fill(places, MEMBER)) == 800 + min(KNOWN_KEPT, 100) // 2


@pytest.mark.parametrize("known", [LOOPBACK, "::1", "::ffff:127.0.0.1", MEMBER])
def test_the_machine_and_members_get_in_when_strangers_have_everything(known: str) -> None:
    places = Places(800, is_member=of_members(MEMBER))
    for number in range(100):
        fill(places, f"198.51.100.{number}")
    assert places.taken == 800
    assert not got(places.take(STRANGER, ANY))
    kept = fill(places, known)
    assert len(kept) == 50, "half of those kept"
    for place in kept:
        places.leave(place)
    assert places.taken == 800
    assert got(places.take(known, ANY))


def test_only_members_go_beyond_what_a_port_takes() -> None:
    places = Places(800, is_member=of_members(MEMBER))
    full = Port(20, 20)
    assert not got(places.take(STRANGER, full))
    assert not got(places.take(LOOPBACK, full))
    assert got(places.take(MEMBER, full))


def test_the_machine_itself_may_have_all_places_of_a_port() -> None:
    places = Places(800)
    assert all(got(places.take(LOOPBACK, Port(taken, 100))) for taken in range(100))


def test_a_port_has_places_of_its_own_for_whoever_calls_there() -> None:
    places = Places(10, per_address_max=5)
    fill(places, STRANGER), fill(places, OTHER)
    admin = Port(0, 10, KeptPlaces(4))
    mine = fill(places, STRANGER, admin)
    assert len(mine) == 2, "half of them at most"
    assert len(fill(places, OTHER, admin)) == 2
    assert not got(places.take("198.51.100.9", admin))
    places.leave(mine[0])
    assert got(places.take("198.51.100.9", admin))


def test_own_connections_take_places_and_no_address() -> None:
    places = Places(2, per_address_max=1)
    assert places.take_own()
    assert places.take_own()
    assert not places.take_own()
    assert not got(places.take(OTHER, ANY))
    places.leave_own()
    assert got(places.take(OTHER, ANY))


def test_members_are_known_by_registered_addresses_and_never_by_loopback() -> None:
    views = [ClusterView(cluster="c")]
    is_member = MemberAddresses(lambda: views[0])
    assert not is_member(MEMBER)
    views[0] = ClusterView(
        cluster="c", brokers=(record("b0.example", MEMBER, "2001:db8::5"), record("127.0.0.1"))
    )
    assert is_member(MEMBER)
    assert is_member(f"::ffff:{MEMBER}")
    assert is_member("2001:db8::5")
    assert not any(map(is_member, (LOOPBACK, "::1", OTHER, "", "b0.example")))


def test_refusals_are_a_line_a_second(caplog: pytest.LogCaptureFixture) -> None:
    refusals = Refusals()
    with caplog.at_level(logging.WARNING):
        for number in range(1000):
            refusals.note("full", port=1, peer=f"p{number}", held=2)
        assert [each.getMessage() for each in caplog.records] == [
            "connection_refused count=1 port=1 peer=p0 held=2 reason=full"
        ]
        refusals.say()
        assert caplog.records[1].getMessage() == (
            "connection_refused count=999 port=1 peer=p999 held=2 reason=full"
        )
        refusals.say()
        refusals.say()
        assert len(caplog.records) == 2
        refusals.note("full", port=1, peer="q", held=2)
        assert len(caplog.records) == 3
    assert refusals.count == 1001


class Silent(Session):
    """Says nothing."""


async def admitted(listener: Listener, count: int) -> tuple[list[asyncio.StreamWriter], int]:
    """Connect so many times; return the connections and how many of them were closed at once."""
    opened = [await asyncio.open_connection(LOOPBACK, listener.port) for _ in range(count)]
    async with asyncio.timeout(50):
        while listener.connections + listener.refused < count:  # noqa: ASYNC110  nothing tells
            await asyncio.sleep(0.001)
        ends = [asyncio.ensure_future(reader.read(1)) for reader, _ in opened]
        while sum(end.done() for end in ends) < listener.refused:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    closed = sum(end.done() for end in ends)
    for end in ends:
        end.cancel()
    await asyncio.gather(*ends, return_exceptions=True)
    return [writer for _, writer in opened], closed


async def test_listeners_of_one_process_count_an_address_together() -> None:
    places = Places(per_address_max=4, known_kept=0)
    listeners = [
        Listener(LOOPBACK, 0, Silent, ListenerLimits(), places=places, places_kept=kept)
        for kept in (0, 0, 2)
    ]
    writers: list[asyncio.StreamWriter] = []
    try:
        refused = []
        for listener in listeners:
            await listener.start()
            opened, closed = await admitted(listener, 3)
            writers += opened
            refused.append(closed)
        assert refused == [0, 2, 2], "the last port keeps two places, one of them for each address"
        assert [each.refused for each in listeners] == refused
        assert places.held(LOOPBACK) == 4
    finally:
        for writer in writers:
            writer.close()
        for listener in listeners:
            await listener.stop()
    assert places.taken == places.held(LOOPBACK) == 0
