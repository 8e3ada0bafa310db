"""Which queue a message goes to, and what happens when a send fails."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from imago_client.config import ProducerConfig
from imago_client.core.sending.outgoing import prepare, prepare_batch
from imago_client.core.sending.sending import Rotations, send, send_oneway
from imago_client.core.state import LISTED_AGE_MAX_S
from imago_client.errors import (
    BrokerError,
    ConnectionLostError,
    NoRouteError,
    RequestTimeoutError,
    SendFailedError,
)
from imago_client.message_queue import MessageQueue
from imago_client.messages import Message, SendStatus
from imago_testing.peers.client_scripts import Answer, ScriptedServers, in_turn, response
from imago_wire.record_format.tags import java_hash
from imago_wire.remoting.bodies.route import TopicList
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.headers.send import SendMessageResponseHeader

if TYPE_CHECKING:
    from imago_client.core.effects import Effect, Operation, Request
    from imago_client.messages import SendResult
    from imago_wire.remoting.command import RemotingCommand

CONFIG = ProducerConfig()


def stored(code: int = 0, queue_id: int = 1) -> RemotingCommand:
    return response(code, SendMessageResponseHeader(msg_id="AB", queue_id=queue_id, queue_offset=5))


def sending(
    world: ScriptedServers,
    message: Message,
    config: ProducerConfig = CONFIG,
    queue: MessageQueue | None = None,
) -> Operation[SendResult]:
    return send(world.state, config, Rotations(0), prepare(world.state, config, message), queue)


def shards_tried(world: ScriptedServers) -> list[str]:
    return [request.address for request in world.asked(RequestCode.SEND_MESSAGE_V2)]


def test_send_returns_what_the_broker_acknowledged() -> None:
    world = ScriptedServers(brokers=lambda _: stored(queue_id=1))
    result = world.run(sending(world, Message("orders", b"x")))
    assert (result.status, result.offset, result.stored_id) == (SendStatus.OK, 5, "AB")
    assert result.queue == MessageQueue("orders", "a", 1)
    assert len(result.message_id) == 32


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ResponseCode.FLUSH_DISK_TIMEOUT, SendStatus.FLUSH_DISK_TIMEOUT),
        (ResponseCode.SLAVE_NOT_AVAILABLE, SendStatus.SLAVE_NOT_AVAILABLE),
        (ResponseCode.FLUSH_SLAVE_TIMEOUT, SendStatus.FLUSH_SLAVE_TIMEOUT),
    ],
)
def test_late_flush_or_replication_still_means_stored(code: int, status: SendStatus) -> None:
    world = ScriptedServers(brokers=lambda _: stored(code))
    assert world.run(sending(world, Message("orders", b"x"))).status is status
    assert len(shards_tried(world)) == 1


def test_late_replication_is_tried_elsewhere_when_asked_and_reported_when_nothing_helps() -> None:
    world = ScriptedServers(brokers=lambda _: stored(ResponseCode.SLAVE_NOT_AVAILABLE))
    config = ProducerConfig(retry_when_not_stored_ok=True)
    result = world.run(sending(world, Message("orders", b"x"), config))
    assert result.status is SendStatus.SLAVE_NOT_AVAILABLE
    assert shards_tried(world) == ["a:1", "b:1", "a:1"]


def test_messages_go_round_all_queues_of_all_shards() -> None:
    world = ScriptedServers(brokers=lambda _: stored())
    rotations = Rotations(0)
    for _ in range(4):
        outgoing = prepare(world.state, CONFIG, Message("orders", b"x"))
        world.run(send(world.state, CONFIG, rotations, outgoing))
    requests = world.asked(RequestCode.SEND_MESSAGE_V2)
    places = [(one.address, one.header.to_ext()["e"]) for one in requests if one.header]
    assert places == [("a:1", "0"), ("a:1", "1"), ("b:1", "0"), ("b:1", "1")]


@pytest.mark.parametrize(
    "failure",
    [
        response(ResponseCode.SYSTEM_ERROR, remark="broken"),
        response(ResponseCode.SYSTEM_BUSY),
        response(ResponseCode.SERVICE_NOT_AVAILABLE),
        response(ResponseCode.NO_PERMISSION),
        response(ResponseCode.TOPIC_NOT_EXIST),
        response(ResponseCode.GO_AWAY),
        ConnectionLostError("a:1", "reset"),
        RequestTimeoutError("a:1", 3.0),
    ],
)
def test_failed_send_is_tried_on_another_shard_by_a_route_read_anew(
    failure: RemotingCommand | Exception,
) -> None:
    world = ScriptedServers(brokers=in_turn([failure, stored()]))
    world.run(sending(world, Message("orders", b"x")))
    assert shards_tried(world) == ["a:1", "b:1"]
    assert len(world.asked(RequestCode.GET_ROUTEINFO_BY_TOPIC)) == 2
    assert world.pauses == []


def test_refusal_that_would_come_again_is_raised_at_once() -> None:
    world = ScriptedServers(
        brokers=lambda _: response(ResponseCode.MESSAGE_ILLEGAL, remark="too large")
    )
    with pytest.raises(BrokerError, match="code 13: too large"):
        world.run(sending(world, Message("orders", b"x")))
    assert len(shards_tried(world)) == 1


def test_send_gives_up_after_the_tries_and_names_every_cause() -> None:
    world = ScriptedServers(brokers=lambda request: ConnectionLostError(request.address, "reset"))
    with pytest.raises(SendFailedError, match="in 3 tries") as caught:
        world.run(sending(world, Message("orders", b"x")))
    assert [str(cause)[:3] for cause in caught.value.causes] == ["a:1", "b:1", "a:1"]


def test_send_gives_up_when_its_time_is_over_however_many_tries_are_left() -> None:
    world = ScriptedServers()

    def late(_: object) -> Exception:
        world.now_s += 2.0
        return RequestTimeoutError("a:1", 2.0)

    world.brokers = late
    with pytest.raises(SendFailedError, match="in 2 tries"):
        world.run(sending(world, Message("orders", b"x"), ProducerConfig(retries_max=9)))


def test_only_shard_is_tried_again_after_a_growing_pause_for_as_long_as_there_is_time() -> None:
    world = ScriptedServers(
        shards={"a": "a:1"}, brokers=lambda _: ConnectionLostError("a:1", "reset")
    )
    with pytest.raises(SendFailedError):
        world.run(sending(world, Message("orders", b"x"), ProducerConfig(retries_max=1)))
    assert world.pauses[:2] == [0.1, 0.2]
    assert set(world.pauses[2:]) == {0.3}, "a new master is found soon"
    assert sum(world.pauses) == pytest.approx(world.state.config.failover_timeout_s, abs=0.4)


def test_busy_shard_is_not_pressed_more_often_than_asked() -> None:
    busy = response(ResponseCode.SYSTEM_BUSY)
    world = ScriptedServers(shards={"a": "a:1"}, brokers=lambda _: busy)
    with pytest.raises(SendFailedError, match="in 3 tries"):
        world.run(sending(world, Message("orders", b"x")))


def test_next_master_of_the_only_shard_is_found() -> None:
    world = ScriptedServers(shards={"a": "a:1"})

    def changing(request: Request) -> RemotingCommand:
        if world.now_s > 1000.5:
            world.shards["a"] = "new:1"
        if request.address == "new:1":
            return stored()
        return response(ResponseCode.SERVICE_NOT_AVAILABLE, remark="not the master")

    world.brokers = changing
    world.run(sending(world, Message("orders", b"x"), ProducerConfig(retries_max=1)))
    assert shards_tried(world)[-2:] == ["a:1", "new:1"]


@pytest.mark.parametrize("shards", [{"a": "a:1"}, {"a": "a:1", "b": "b:1"}])
def test_message_waits_for_an_election_where_no_shard_is_led(shards: dict[str, str]) -> None:
    world = Electing(shards=dict(shards), placed=set(shards))

    def stopped(request: Request) -> RemotingCommand | Exception:
        if request.address == "a:9":
            return stored()
        world.shards.clear()
        return ConnectionLostError(request.address, "reset")

    world.brokers = stopped
    world.masters_at[world.now_s + 8.0] = ("a", "a:9")  # its session has to end first
    world.run(sending(world, Message("orders", b"x"), ProducerConfig(retries_max=1)))
    assert shards_tried(world)[-1] == "a:9"


def test_message_is_given_up_when_no_shard_gets_a_master_and_says_so() -> None:
    world = ScriptedServers(shards={}, placed={"a", "b"})
    with pytest.raises(SendFailedError, match="shards a, b have no live master"):
        world.run(sending(world, Message("orders", b"x")))
    assert sum(world.pauses) == pytest.approx(world.state.config.failover_timeout_s, abs=0.4)


def test_ordering_key_picks_the_queue_of_the_java_client_and_keeps_it_on_retry() -> None:
    world = ScriptedServers(brokers=in_turn([ConnectionLostError("?", "reset"), stored()]))
    key = "order-17"
    world.run(sending(world, Message("orders", b"x", ordering_key=key)))
    queues = [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    shard, queue_id = queues[abs(java_hash(key)) % 4]
    requests = world.asked(RequestCode.SEND_MESSAGE_V2)
    assert [one.address for one in requests] == [f"{shard}:1"] * 2
    assert {one.header.to_ext()["e"] for one in requests if one.header} == {str(queue_id)}


def test_given_queue_is_used() -> None:
    world = ScriptedServers(brokers=lambda _: stored())
    world.run(sending(world, Message("orders", b"x"), queue=MessageQueue("orders", "b", 1)))
    assert shards_tried(world) == ["b:1"]


def test_unknown_topic_is_sent_to_where_its_first_message_creates_it() -> None:
    world = ScriptedServers(topics={"TBW102"}, brokers=lambda _: stored())
    world.run(sending(world, Message("new", b"x")))
    (request,) = world.asked(RequestCode.SEND_MESSAGE_V2)
    assert request.header is not None
    ext = request.header.to_ext()
    assert (ext["b"], ext["c"], ext["d"]) == ("new", "TBW102", "4")


def test_topic_that_nobody_serves_or_creates_is_an_error_at_once() -> None:
    world = ScriptedServers(topics=set())
    with pytest.raises(NoRouteError, match="imago topic create new"):
        world.run(sending(world, Message("new", b"x")))
    assert world.pauses == []


def test_the_topic_that_was_probably_meant_is_named_and_looked_for_at_times() -> None:
    listed = TopicList(topic_list=("orders", "%RETRY%ordres", "invoices")).encode()
    world = ScriptedServers(topics=set(), brokers=lambda _: response(body=listed))
    for _ in range(3):
        with pytest.raises(NoRouteError, match=r"did you mean orders\? Else `imago cluster"):
            world.run(sending(world, Message("ordres", b"x")))
    assert len(world.asked(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)) == 1
    with pytest.raises(NoRouteError) as raised:
        world.run(sending(world, Message("payments", b"x")))
    assert "did you mean" not in str(raised.value)
    world.now_s += LISTED_AGE_MAX_S
    with pytest.raises(NoRouteError):
        world.run(sending(world, Message("ordres", b"x")))
    assert len(world.asked(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)) == 2


@pytest.mark.parametrize("answer", [response(code=16), response(body=b"no list")])
def test_who_may_not_see_the_topics_is_told_of_the_unknown_one_all_the_same(
    answer: RemotingCommand,
) -> None:
    world = ScriptedServers(topics=set(), brokers=lambda _: answer)
    with pytest.raises(NoRouteError, match=r"no broker that is up has it; `imago cluster"):
        world.run(sending(world, Message("ordres", b"x")))


def test_a_topic_whose_brokers_are_all_down_is_not_told_as_a_new_one() -> None:
    world = ScriptedServers(brokers=lambda _: stored())
    world.run(sending(world, Message("orders", b"x")))
    world.topics.clear()
    world.state.drop_route("orders")
    with pytest.raises(SendFailedError) as failed:
        world.run(sending(world, Message("orders", b"x")))
    assert "it comes back with its brokers" in str(failed.value.__cause__ or failed.value)
    assert "topic create" not in str(failed.value)


def test_topic_that_vanished_is_waited_for() -> None:
    world = ScriptedServers(brokers=in_turn([ConnectionLostError("a:1", "reset"), stored()]))
    operation = sending(world, Message("orders", b"x"))
    answer = world.brokers

    def vanish_once(request: object) -> RemotingCommand | Exception:
        world.topics = set()
        return answer(request)  # type: ignore[arg-type]  # handed through unchanged

    world.brokers = vanish_once
    with pytest.raises(SendFailedError):
        world.run(operation)
    assert world.pauses == [0.2, 0.3]


def test_oneway_send_asks_for_nothing() -> None:
    world = ScriptedServers()
    outgoing = prepare(world.state, CONFIG, Message("orders", b"x"))
    target = world.run(send_oneway(world.state, CONFIG, Rotations(0), outgoing))
    assert target == MessageQueue("orders", "a", 0)
    (told,) = world.told()
    assert (told.address, told.code, told.body) == ("a:1", RequestCode.SEND_MESSAGE_V2, b"x")


def test_batch_travels_as_one_request() -> None:
    world = ScriptedServers(brokers=lambda _: stored())
    outgoing = prepare_batch(
        world.state, CONFIG, [Message("orders", b"x"), Message("orders", b"y")]
    )
    world.run(send(world.state, CONFIG, Rotations(0), outgoing))
    (request,) = world.asked(RequestCode.SEND_BATCH_MESSAGE)
    assert request.header is not None
    assert request.header.to_ext()["m"] == "true"


@dataclass
class Electing(ScriptedServers):
    """A world in which shards get their masters when it is time."""

    masters_at: dict[float, tuple[str, str]] = field(default_factory=dict)

    def _perform(self, effect: Effect) -> Answer | None:
        for when, (shard, address) in self.masters_at.items():
            if when <= self.now_s:
                self.shards[shard] = address
        return super()._perform(effect)


def keys_by_shard(world: ScriptedServers, count: int) -> dict[str, str]:
    """Send a message of each of so many ordering keys; return which master each one reached."""
    found = {}
    for number in range(count):
        key = f"key-{number}"
        before = len(shards_tried(world))
        world.run(sending(world, Message("orders", b"x", ordering_key=key)))
        found[key] = shards_tried(world)[before:][-1]
    return found


@pytest.mark.parametrize("followers", [{}, {"b": {2: "b:2"}}])
def test_ordering_keys_stay_while_a_shard_elects(followers: dict[str, dict[int, str]]) -> None:
    """Neither a shard whose followers elect nor one without any member gives its keys away."""
    world = Electing(brokers=lambda _: stored(), placed={"a", "b"})
    before = keys_by_shard(world, 100)
    assert set(before.values()) == {"a:1", "b:1"}
    del world.shards["b"]
    world.slaves = followers
    world.state.drop_route("orders")
    began = world.now_s
    for key, shard in before.items():
        if shard == "a:1":
            message = Message("orders", b"x", ordering_key=key)
            assert world.run(sending(world, message)).queue.shard == "a"
    assert world.now_s == began
    (waiting, *_) = (key for key, shard in before.items() if shard == "b:1")
    world.masters_at[began + 5.0] = ("b", "b:9")  # an election takes longer than one try
    result = world.run(sending(world, Message("orders", b"x", ordering_key=waiting)))
    assert result.queue.shard == "b"
    assert shards_tried(world)[-1] == "b:9"


def test_pinned_message_is_given_up_when_no_master_comes() -> None:
    world = ScriptedServers(shards={"a": "a:1"}, placed={"b"}, brokers=lambda _: stored())
    queue = MessageQueue("orders", "b", 1)
    with pytest.raises(SendFailedError, match="shard b has no live master") as caught:
        world.run(sending(world, Message("orders", b"x"), queue=queue))
    assert "topic create" not in str(caught.value), "it exists"
    assert sum(world.pauses) == pytest.approx(world.state.config.failover_timeout_s, abs=0.4)


def test_messages_without_a_key_go_round_the_queues_that_have_a_master() -> None:
    world = ScriptedServers(shards={"a": "a:1"}, placed={"b"}, brokers=lambda _: stored())
    rotations = Rotations(0)
    for _ in range(4):
        outgoing = prepare(world.state, CONFIG, Message("orders", b"x"))
        world.run(send(world.state, CONFIG, rotations, outgoing))
    assert shards_tried(world) == ["a:1"] * 4
    assert world.pauses == []
