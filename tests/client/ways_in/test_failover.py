"""Reads, offsets and retries when the master of a shard has changed, or is being sought."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_client.config import ProducerConfig
from imago_client.core.consuming import pulling
from imago_client.core.consuming.subscriptions import ALL, subscribe
from imago_client.core.sending import recalling, transacting
from imago_client.core.sending.transacting import Decision
from imago_client.errors import (
    BrokerError,
    ConnectionLostError,
    NoMasterError,
    NoRouteError,
    RequestTimeoutError,
)
from imago_client.message_queue import MessageQueue
from imago_client.messages import PullStatus, SendResult, SendStatus
from imago_testing.peers.client_scripts import ScriptedServers, in_turn, response
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.headers.pull import GetMaxOffsetResponseHeader, PullMessageResponseHeader
from imago_wire.remoting.texts.handles import RecallHandle

if TYPE_CHECKING:
    from imago_client.core.effects import Request
    from imago_client.received import Pulled
    from imago_wire.remoting.command import RemotingCommand

QUEUE = MessageQueue("orders", "a", 0)
NOT_HERE = response(ResponseCode.SERVICE_NOT_AVAILABLE, remark="not the master")
STOPPING = response(ResponseCode.GO_AWAY, remark="please go away")


def pull_answer(code: int = ResponseCode.PULL_NOT_FOUND, *, suggested: int = 0) -> RemotingCommand:
    return response(
        code,
        PullMessageResponseHeader(
            suggest_which_broker_id=suggested, next_begin_offset=5, min_offset=0, max_offset=5
        ),
    )


def redirect() -> RemotingCommand:
    answer = pull_answer(ResponseCode.PULL_RETRY_IMMEDIATELY)
    answer.ext["imagoNotMaster"] = "true"
    return answer


def pull(world: ScriptedServers, *, read_from: int = 0) -> Pulled:
    subscription = subscribe("orders", ALL, 1)
    asked = pulling.PullArguments(
        group="g", queue=QUEUE, offset=5, subscription=subscription, read_from=read_from
    )
    return world.run(pulling.pull(world.state, asked))


def addresses(world: ScriptedServers, code: int = RequestCode.PULL_MESSAGE) -> list[str]:
    return [request.address for request in world.asked(code)]


@pytest.mark.parametrize(
    "failure", [redirect(), NOT_HERE, STOPPING, ConnectionLostError("a:1", "reset")]
)
def test_pull_goes_to_the_next_master_by_a_route_read_anew(
    failure: RemotingCommand | Exception,
) -> None:
    world = ScriptedServers(shards={"a": "a:1"})

    def changing(request: Request) -> RemotingCommand | Exception:
        world.shards["a"] = "new:1"
        return pull_answer() if request.address == "new:1" else failure

    world.brokers = changing
    assert pull(world).status is PullStatus.NO_NEW_MESSAGE
    assert addresses(world) == ["a:1", "new:1"]
    assert world.pauses == []


@pytest.mark.parametrize(
    "failure",
    [
        NOT_HERE,
        response(ResponseCode.SLAVE_NOT_AVAILABLE, remark="Message store is slave mode"),
        ConnectionLostError("a:1", "refused"),
    ],
)
@pytest.mark.parametrize("asks", ["end", "recall"])
def test_transactions_are_ended_and_messages_taken_back_at_the_next_master(
    asks: str, failure: RemotingCommand | Exception
) -> None:
    world = ScriptedServers(shards={"a": "a:1"})

    def changing(request: Request) -> RemotingCommand | Exception:
        world.shards["a"] = "new:1"
        return response() if request.address == "new:1" else failure

    world.brokers = changing
    if asks == "end":
        sent = SendResult(SendStatus.OK, QUEUE, 3, "id", "7F0000010000271F0000000000000005")
        world.run(transacting.end(world.state, ProducerConfig(), sent, Decision.COMMIT))
        code = RequestCode.END_TRANSACTION
    else:
        handle = str(RecallHandle("orders", "a", 5000, "id"))
        assert world.run(recalling.recall(world.state, ProducerConfig(), handle)) == "id"
        code = RequestCode.RECALL_MESSAGE
    assert addresses(world, code) == ["a:1", "new:1"]


def test_master_is_looked_for_with_growing_pauses_until_the_time_is_up() -> None:
    world = ScriptedServers(shards={"a": "a:1"}, brokers=lambda _: NOT_HERE)
    with pytest.raises(BrokerError, match="not the master"):
        world.run(pulling.max_offset(world.state, QUEUE))
    assert world.pauses[:5] == [0.05, 0.1, 0.2, 0.4, 0.8]
    assert max(world.pauses) == 1.0
    assert 10.0 <= sum(world.pauses) < 11.5


def test_shard_without_a_master_is_waited_for() -> None:
    world = ScriptedServers(shards={"a": "a:1"})
    answer = response(0, GetMaxOffsetResponseHeader(offset=9))
    world.brokers = lambda _: answer
    assert world.run(pulling.max_offset(world.state, QUEUE)) == 9
    world.state.drop_route("orders")
    world.shards = {"b": "b:1"}
    with pytest.raises(NoMasterError, match="no queues on shard a, only on b"):
        world.run(pulling.max_offset(world.state, QUEUE))
    assert sum(world.pauses) >= 10.0


@pytest.mark.parametrize(
    "failure",
    [RequestTimeoutError("a:1", 3.0), response(ResponseCode.NO_PERMISSION)],
)
def test_errors_that_no_change_of_master_explains_are_raised_at_once(
    failure: RemotingCommand | Exception,
) -> None:
    world = ScriptedServers(brokers=in_turn([failure]))
    with pytest.raises((RequestTimeoutError, BrokerError)):
        pull(world)
    assert world.pauses == []


def test_unknown_topic_is_an_error_at_once() -> None:
    world = ScriptedServers(topics=set())
    with pytest.raises(NoRouteError):
        pull(world)
    assert world.pauses == []


def test_suggested_member_is_asked_and_left_when_it_has_no_more() -> None:
    world = ScriptedServers(shards={"a": "a:1"})
    world.slaves = {"a": {3: "slave:1"}}
    world.brokers = in_turn([pull_answer(ResponseCode.SUCCESS, suggested=3), redirect(), NOT_HERE])
    assert pull(world).read_from == 3
    world.brokers = in_turn([redirect(), pull_answer()])
    assert pull(world, read_from=3).read_from == 0
    assert addresses(world) == ["a:1", "slave:1", "a:1"]
