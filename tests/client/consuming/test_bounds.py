"""Where all queues of a topic begin and end, in a few requests; without I/O."""

from __future__ import annotations

import struct

import pytest

from imago_client.core.consuming.pulling import (
    BoundsRequestHeader,
    EndResponseHeader,
    shard_bounds,
)
from imago_client.core.effects import Request
from imago_client.errors import AnswerError
from imago_client.messages import ShardBounds
from imago_testing.peers.client_scripts import ScriptedServers, response
from imago_wire.remoting.codes import RequestCode, ResponseCode

QUEUES = [(number, 10 * number) for number in range(5)]
PAGE = 2


def servers(
    *, incarnations: list[int] | None = None, body: bytes | None = None, code: int = 0
) -> ScriptedServers:
    """Return a broker that says two queues at a time; `incarnations`: one an answer, then 7."""

    def answers(request: Request) -> object:
        assert request.code == RequestCode.GET_MAX_OFFSET
        assert isinstance(request.header, BoundsRequestHeader)
        first = request.header.queue_id
        made = incarnations.pop(0) if incarnations else 7
        packed = b"".join(struct.pack(">qq", *one) for one in QUEUES[first : first + PAGE])
        header = EndResponseHeader(
            offset=3, imago_incarnation=made, imago_topic_id=9, imago_cluster_id="c"
        )
        return response(code, header, body=packed if body is None else body)

    return ScriptedServers(shards={"a": "a:1"}, brokers=answers)  # type: ignore[arg-type]


def asked(world: ScriptedServers) -> int:
    return sum(isinstance(one, Request) and one.address == "a:1" for one in world.seen)


@pytest.mark.parametrize(
    ("count", "found", "requests"), [(1, 2, 1), (2, 2, 1), (3, 4, 2), (5, 5, 3), (99, 5, 4)]
)
def test_it_goes_on_until_it_has_all_that_were_asked_for(
    count: int, found: int, requests: int
) -> None:
    world = servers()
    told = world.run(shard_bounds(world.state, "orders", "a", count))
    assert told == ShardBounds(tuple(QUEUES[:found]), 7, 9, "c")
    assert asked(world) == requests


def test_answers_of_two_topics_of_one_name_are_not_mixed() -> None:
    world = servers(incarnations=[6])
    told = world.run(shard_bounds(world.state, "orders", "a", 5))
    assert told == ShardBounds(tuple(QUEUES), 7, 9, "c")
    assert asked(world) == 5


def test_a_broker_that_does_not_know_the_question_is_asked_queue_by_queue() -> None:
    for world in (servers(body=b""), servers(code=ResponseCode.NOT_LEADER_FOR_QUEUE)):
        assert world.run(shard_bounds(world.state, "orders", "a", 5)) is None
        assert asked(world) == 1


def test_a_torn_answer_is_refused() -> None:
    world = servers(body=bytes(17))
    with pytest.raises(AnswerError, match="16 bytes"):
        world.run(shard_bounds(world.state, "orders", "a", 5))
