"""The small rules of the clients: balance, commits, ids, routes, subscriptions."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imago_client.config import ClientConfig, ConsumerConfig, ProducerConfig, parse_addresses
from imago_client.core.consuming.allocation import allocate_averagely
from imago_client.core.consuming.subscriptions import subscribe
from imago_client.core.effects import Request
from imago_client.core.lookup import find_route
from imago_client.core.routing import topic_route
from imago_client.core.sending.selection import RoundRobin, queue_for_key
from imago_client.core.unique_ids import UniqueKeys
from imago_client.errors import ConnectionLostError, NoRouteError, UsageError
from imago_client.message_queue import MessageQueue
from imago_client.metaq import MetaqConfig
from imago_testing.peers.client_scripts import ScriptedServers
from imago_wire.remoting.bodies.route import BrokerData, QueueData, TopicRouteData


def queues(count: int) -> list[MessageQueue]:
    return [MessageQueue("t", "s", queue_id) for queue_id in range(count)]


@given(st.integers(0, 40), st.integers(1, 12))
def test_members_share_all_queues_and_none_twice(queue_count: int, member_count: int) -> None:
    members = [f"m{index:02}" for index in range(member_count)]
    shares = [allocate_averagely(member, members, queues(queue_count)) for member in members]
    assert [queue for share in shares for queue in share] == queues(queue_count)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_first_members_take_the_rest_as_the_original_clients_do() -> None:
    members = ["c", "a", "b"]
    shares = [allocate_averagely(member, members, queues(8)) for member in ("a", "b", "c")]
    assert [[queue.queue_id for queue in share] for share in shares] == [
        [0, 1, 2],
        [3, 4, 5],
        [6, 7],
    ]


def test_member_that_is_not_listed_gets_nothing() -> None:
    assert allocate_averagely("x", ["a"], queues(4)) == []


def test_round_robin_keeps_away_from_a_failed_shard_unless_it_is_the_only_one() -> None:
    two = [MessageQueue("t", "a", 0), MessageQueue("t", "b", 0)]
    rotation = RoundRobin()
    assert [rotation.pick(two, avoid="a").shard for _ in range(3)] == ["b", "b", "b"]
    assert RoundRobin().pick(two[:1], avoid="a").shard == "a"


@pytest.mark.parametrize(("key", "index"), [("", 0), ("a", 1), ("TagA", 2598919 % 4)])
def test_key_picks_the_queue_by_the_java_hash(key: str, index: int) -> None:
    assert queue_for_key(key, queues(4)).queue_id == index


def test_unique_keys_have_the_shape_of_the_original_and_never_repeat() -> None:
    now_ms = int(datetime(2026, 3, 1, 0, 0, 1, tzinfo=UTC).timestamp() * 1000)
    keys = UniqueKeys(
        address=bytes([127, 0, 0, 1]),
        process_id=lambda: 1,
        number=0x18B4AAC2,
    )
    first = keys.next_key(now_ms)
    assert first == "7F000001000118B4AAC2" + "000003E8" + "0000"
    assert len({first, *(keys.next_key(now_ms) for _ in range(70_000))}) == 70_001
    assert keys.next_key(now_ms)[20:28] == "000003E9", "the counter is full: a millisecond ahead"
    assert keys.next_key(now_ms - 1)[20:28] == "000003E9", "the clock went back"
    assert keys.next_key(now_ms + 5)[20:] == "000003ED" + "0000"


def test_unique_keys_differ_after_a_fork() -> None:
    process_id = [1]
    keys = UniqueKeys(address=bytes(4), process_id=lambda: process_id[0], number=0)
    before = keys.next_key(0)
    process_id[0] = 2
    assert keys.next_key(0)[8:12] == "0002"
    assert before[8:12] == "0001"


def test_route_takes_permissions_masters_and_counts_into_account() -> None:
    data = TopicRouteData(
        broker_datas=(
            BrokerData(broker_name="rw", broker_addrs={0: "a:1", 1: "b:1"}),
            BrokerData(broker_name="slave-only", broker_addrs={2: "c:1"}),
            BrokerData(broker_name="sealed", broker_addrs={0: "d:1"}),
        ),
        queue_datas=(
            QueueData(broker_name="rw", perm=6, read_queue_nums=2, write_queue_nums=1),
            QueueData(broker_name="slave-only", perm=6, read_queue_nums=1, write_queue_nums=1),
            QueueData(broker_name="sealed", perm=4, read_queue_nums=1, write_queue_nums=1),
            QueueData(broker_name="dead", perm=6, read_queue_nums=1, write_queue_nums=1),
        ),
    )
    route = topic_route("t", data)
    assert [str(queue) for queue in route.write_queues] == [
        "t/dead/0",
        "t/rw/0",
        "t/slave-only/0",
    ]
    assert [str(queue) for queue in route.led_queues] == ["t/rw/0"]
    assert [str(queue) for queue in route.lost_queues] == ["t/dead/0"]
    assert [str(queue) for queue in route.read_queues] == [
        "t/rw/0",
        "t/rw/1",
        "t/sealed/0",
        "t/slave-only/0",
    ]
    assert route.reader("rw", 1) == "b:1"
    assert route.reader("slave-only") == "c:1"
    assert route.masters() == ["a:1", "d:1"]
    with pytest.raises(NoRouteError, match="no live master"):
        route.master("slave-only")


def test_route_is_remembered_until_it_is_old_or_dropped() -> None:
    world = ScriptedServers()
    world.run(find_route(world.state, "orders"))
    world.run(find_route(world.state, "orders"))
    assert len(world.seen) == 1
    world.state.drop_route("orders")
    world.run(find_route(world.state, "orders"))
    assert len(world.seen) == 2
    world.now_s += 31
    world.run(find_route(world.state, "orders"))
    assert len(world.seen) == 3


def test_old_route_serves_while_no_name_server_answers() -> None:
    world = ScriptedServers()
    route = world.run(find_route(world.state, "orders"))
    world.state.drop_route("orders")
    operation = find_route(world.state, "orders")
    effects = [next(operation), operation.throw(ConnectionLostError("ns", "refused"))]
    with pytest.raises(StopIteration) as stop:
        operation.throw(ConnectionLostError("ns", "refused"))
    assert stop.value.value == route
    assert {one.address for one in effects if isinstance(one, Request)} == {"ns:1", "ns:2"}


@pytest.mark.parametrize(
    ("expression", "tags"),
    [("*", set()), ("", set()), ("a", {"a"}), (" a || b ||", {"a", "b"})],
)
def test_tag_expressions(expression: str, tags: set[str]) -> None:
    subscription = subscribe("t", expression, 1)
    assert subscription.tags == tags
    assert subscription.accepts("a") is (not tags or "a" in tags)
    assert subscription.accepts(None) is (not tags)


@pytest.mark.parametrize("expression", ["|| ||", " ", "\t", " || ", "||"])
def test_expression_without_a_tag_is_refused(expression: str) -> None:
    with pytest.raises(UsageError, match="joined with"):
        subscribe("t", expression, 1)


def test_addresses_are_checked_when_a_client_is_made() -> None:
    assert parse_addresses("a:1; b:2,") == ("a:1", "b:2")
    for wrong in ("", "a", "a:", ":1", "a:x", "a:70000"):
        with pytest.raises(UsageError, match="bootstrap"):
            ClientConfig.of(wrong)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: ClientConfig(bootstrap=("a:1",), connect_timeout_s=0), "connect_timeout_s"),
        (lambda: ClientConfig(bootstrap="a:1"), "bootstrap: 'a:1', must be a tuple"),  # type: ignore[arg-type]
        (lambda: ClientConfig(bootstrap=(("a", 1),)), "must be a tuple"),  # type: ignore[arg-type]
        (lambda: ClientConfig(bootstrap=("a",)), "bootstrap: 'a' is not host:port"),
        (lambda: MetaqConfig(servers="a:1"), "servers: 'a:1', must be a tuple"),  # type: ignore[arg-type]
        (lambda: ProducerConfig(retries_max=-1), "retries_max"),
        (lambda: ProducerConfig(group="a b"), "producer group"),
        (lambda: ConsumerConfig(group="g", concurrency=0), "concurrency"),
        (lambda: ConsumerConfig(group="g", reconsume_times_max=-1), "reconsume_times_max"),
    ],
)
def test_impossible_settings_name_themselves(make: object, name: str) -> None:
    with pytest.raises(UsageError, match=name):
        make()  # type: ignore[operator]  # a table of constructors
