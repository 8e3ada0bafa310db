"""The registry of live clients: joining, leaving, falling silent."""

from __future__ import annotations

from typing import Any

import pytest

from imago_broker.service.groups.clients import (
    CLIENT_LIFE_MS,
    ClientLimits,
    ClientRegistry,
    ConnectedClient,
    TooManyGroupsError,
)
from imago_wire.remoting.bodies.client import (
    ConsumerData,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
)
from imago_wire.remoting.peer import Language


class FakeChannel:
    """A connection that only remembers that it was closed."""

    peer = "10.0.0.1:1"
    is_open = True

    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


def subscription(topic: str, text: str = "*", version: int = 1) -> SubscriptionData:
    return SubscriptionData(topic=topic, sub_string=text, sub_version=version)


def beat(
    registry: ClientRegistry,
    channel: Any,
    client_id: str,
    *subscriptions: SubscriptionData,
    now_ms: int = 0,
    user: str | None = None,
) -> None:
    consumer = ConsumerData(group_name="G", subscription_data_set=subscriptions)
    data = HeartbeatData(
        client_id=client_id,
        consumer_data_set=(consumer,),
        producer_data_set=(ProducerData(group_name="P"),),
    )
    registry.heartbeat(channel, data, Language.JAVA, 409, now_ms, user)


def anybody(_client: ConnectedClient, _topic: str) -> bool:
    return True


@pytest.fixture
def changes() -> list[str]:
    return []


@pytest.fixture
def registry(changes: list[str]) -> ClientRegistry:
    made = ClientRegistry(anybody, life_ms=100)
    made.on_group_change.append(lambda group: changes.append(",".join(group.client_ids)))
    return made


def test_group_changes_when_a_member_joins_and_not_when_it_only_lives(
    registry: ClientRegistry, changes: list[str]
) -> None:
    one, two = FakeChannel(), FakeChannel()
    for now_ms in (0, 10, 20):
        beat(registry, one, "one", subscription("T"), now_ms=now_ms)
    beat(registry, two, "two", subscription("T"), now_ms=30)
    assert changes == ["one", "one,two"]


def test_newer_subscription_replaces_and_an_older_one_does_not(
    registry: ClientRegistry, changes: list[str]
) -> None:
    one = FakeChannel()
    beat(registry, one, "one", subscription("T", "a", 5), subscription("U"))
    beat(registry, one, "one", subscription("T", "old", 4), subscription("U"))
    group = registry.consumers("G")
    assert group is not None
    assert group.subscriptions["T"].sub_string == "a"
    beat(registry, one, "one", subscription("T", "a", 6), subscription("U"))
    assert len(changes) == 1
    assert group.subscriptions["T"].sub_version == 6
    beat(registry, one, "one", subscription("T", "b", 7))
    assert len(changes) == 2
    assert set(group.subscriptions) == {"T"}
    assert registry.groups_of_topic("T") == ["G"]
    assert registry.groups_of_topic("U") == []


def test_closed_connection_leaves_every_group(registry: ClientRegistry, changes: list[str]) -> None:
    one, two = FakeChannel(), FakeChannel()
    beat(registry, one, "one")
    beat(registry, two, "two")
    registry.closed(one)  # type: ignore[arg-type]  # all that the registry needs of a channel
    assert changes[-1] == "two"
    assert len(registry.producers("P")) == 1
    registry.closed(two)  # type: ignore[arg-type]  # as above
    assert registry.consumers("G") is None
    assert registry.producer_groups() == {}


def produces(registry: ClientRegistry, client_id: str) -> Any:
    return registry.producer_channel(client_id)


def test_a_connection_produces_under_one_name_at_a_time(registry: ClientRegistry) -> None:
    """Or one connection could have any number of names kept, beyond its end."""
    one: Any = FakeChannel()
    two: Any = FakeChannel()
    for name in ("first", "second", "third"):
        beat(registry, one, name)
    assert produces(registry, "first") is None
    assert produces(registry, "third") is one
    beat(registry, two, "third")
    beat(registry, one, "fourth")
    assert produces(registry, "third") is two, "the name has another connection by now"
    registry.unregister(one, producer_group="P", consumer_group=None)
    assert produces(registry, "fourth") is None
    beat(registry, one, "fifth")
    registry.closed(one)
    assert produces(registry, "fifth") is None
    assert produces(registry, "third") is two


def test_name_of_a_users_client_stays_its_own_while_it_may_come_back() -> None:
    """Else somebody else would get the replies that it has asked for."""
    registry = ClientRegistry(anybody)
    first: Any = FakeChannel()
    again: Any = FakeChannel()
    other: Any = FakeChannel()
    beat(registry, first, "client", user="ann")
    beat(registry, other, "client", user="eve")
    assert produces(registry, "client") is first
    first.is_open = False
    registry.closed(first)
    beat(registry, other, "client", now_ms=CLIENT_LIFE_MS, user="eve")
    found = produces(registry, "client")
    assert found is first
    assert not found.is_open, "nobody gets what comes meanwhile"
    beat(registry, again, "client", now_ms=CLIENT_LIFE_MS, user="ann")
    assert produces(registry, "client") is again
    again.is_open = False
    registry.closed(again)
    registry.sweep(2 * CLIENT_LIFE_MS)
    assert produces(registry, "client") is again
    registry.sweep(2 * CLIENT_LIFE_MS + 1)
    assert produces(registry, "client") is None
    beat(registry, other, "client", now_ms=2 * CLIENT_LIFE_MS + 1, user="eve")
    assert produces(registry, "client") is other


def test_names_of_clients_that_left_are_not_kept_without_end() -> None:
    registry = ClientRegistry(anybody, ClientLimits(producer_groups_max=3))
    for number in range(10):
        channel: Any = FakeChannel()
        beat(registry, channel, f"client {number}", user="eve")
        channel.is_open = False
        registry.closed(channel)
        assert len(registry._producing) <= 3


def test_silent_client_is_forgotten_and_its_connection_closed(
    registry: ClientRegistry,
) -> None:
    one, two = FakeChannel(), FakeChannel()
    beat(registry, one, "one", now_ms=0)
    beat(registry, two, "two", now_ms=50)
    registry.sweep(100)
    assert not one.closed
    registry.sweep(101)
    assert (one.closed, two.closed) == (True, False)
    group = registry.consumers("G")
    assert group is not None
    assert group.client_ids == ["two"]


def test_heartbeat_without_end_is_refused() -> None:
    registry = ClientRegistry(
        anybody, ClientLimits(groups_per_client_max=3, topics_per_group_max=2)
    )
    data = HeartbeatData(
        client_id="c", producer_data_set=tuple(ProducerData(group_name=f"p{n}") for n in range(4))
    )
    channel: Any = FakeChannel()
    with pytest.raises(TooManyGroupsError):
        registry.heartbeat(channel, data, Language.JAVA, 409, 0)
    with pytest.raises(TooManyGroupsError):
        beat(registry, channel, "c", *(subscription(f"t{n}") for n in range(3)))
    assert registry.consumer_groups() == {}
    assert registry.producer_groups() == {}


def test_one_connection_cannot_join_ever_more_groups() -> None:
    registry = ClientRegistry(anybody, ClientLimits(groups_per_client_max=3))
    channel: Any = FakeChannel()

    def join(name: str) -> None:
        data = HeartbeatData(client_id="c", producer_data_set=(ProducerData(group_name=name),))
        registry.heartbeat(channel, data, Language.JAVA, 409, 0)

    for name in ("a", "b", "c", "a"):
        join(name)
    with pytest.raises(TooManyGroupsError):
        join("d")
    registry.unregister(channel, producer_group="a", consumer_group=None)
    join("d")


def test_what_all_clients_say_together_has_limits() -> None:
    registry = ClientRegistry(
        anybody,
        ClientLimits(memberships_max=5, producer_groups_max=2, subscription_bytes_max=4000),
    )
    channels = [FakeChannel() for _ in range(4)]
    beat(registry, channels[0], "a", subscription("T"))
    beat(registry, channels[1], "b", subscription("T"))
    with pytest.raises(TooManyGroupsError, match="memberships"):
        beat(registry, channels[2], "c", subscription("T"))
    assert registry.consumers("G").client_ids == ["a", "b"]  # type: ignore[union-attr]  # it is there
    beat(registry, channels[0], "a", subscription("T"))
    registry.closed(channels[1])  # type: ignore[arg-type]  # a fake
    beat(registry, channels[2], "c", subscription("T"))
    registry.closed(channels[0])  # type: ignore[arg-type]  # a fake
    registry.closed(channels[2])  # type: ignore[arg-type]  # a fake
    for name in ("P1", "P2"):
        _produces(registry, channels[0], name)
    with pytest.raises(TooManyGroupsError, match="producer groups"):
        _produces(registry, channels[0], "P3")
    registry.unregister(channels[0], producer_group="P1", consumer_group=None)  # type: ignore[arg-type]  # a fake
    _produces(registry, channels[0], "P3")
    registry.closed(channels[0])  # type: ignore[arg-type]  # a fake
    long = subscription("T", "x" * 3000)
    beat(registry, channels[0], "a", long)
    with pytest.raises(TooManyGroupsError, match="subscriptions"):
        beat(registry, channels[0], "a", subscription("T", "x" * 5000, 2))
    beat(registry, channels[0], "a", long)
    registry.closed(channels[0])  # type: ignore[arg-type]  # a fake
    assert registry.subscription_bytes == registry.memberships == 0


def _produces(registry: ClientRegistry, channel: Any, name: str) -> None:
    data = HeartbeatData(client_id="c", producer_data_set=(ProducerData(group_name=name),))
    registry.heartbeat(channel, data, Language.JAVA, 409, 0)
