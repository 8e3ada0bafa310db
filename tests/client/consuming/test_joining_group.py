"""A member joins its group while a master is dead: whoever of the others knows it is enough."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

from imago_client.blocking.rocketmq.group import GroupConsumer
from imago_client.config import ConsumerConfig, ProducerConfig
from imago_client.core.consuming.membership import assignment, check_filters
from imago_client.core.consuming.subscriptions import Sql, subscribe
from imago_client.core.sending import transacting
from imago_client.errors import (
    BrokerError,
    ClientError,
    ConnectionLostError,
    RequestTimeoutError,
)
from imago_client.rocketmq.push.group_presence import GroupPresence
from imago_testing.peers.client_scripts import ScriptedServers, response
from imago_wire.remoting.bodies.client import GetConsumerListByGroupResponseBody
from imago_wire.remoting.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import Generator

    from imago_client.core.effects import Request
    from imago_wire.remoting.command import RemotingCommand

CONFIG = ConsumerConfig(group="g")
DEAD: list[ClientError] = [
    ConnectionLostError("a:1", "Connection refused"),
    RequestTimeoutError("a:1", 3.0),
]
"""A master that was killed, and one that hangs."""


class World(ScriptedServers):
    """Two shards; which of their masters do not answer, and why."""

    def __init__(self) -> None:
        super().__init__()
        self.dead: dict[str, Exception] = {}
        self.brokers = self._answer

    def _answer(self, request: Request) -> RemotingCommand | Exception:
        if error := self.dead.get(request.address):
            return error
        if request.code == RequestCode.GET_CONSUMER_LIST_BY_GROUP:
            members = GetConsumerListByGroupResponseBody(consumer_id_list=(self.state.client_id,))
            return response(body=members.encode())
        return response()

    def left(self) -> list[str]:
        """Return the brokers that this member has left."""
        return [request.address for request in self.asked(RequestCode.UNREGISTER_CLIENT)]


class Driver:
    """An asyncio driver over such a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.holds = False
        self.told = asyncio.Event()

    async def run(self, operation: Generator[Any, Any, Any]) -> Any:
        found = self._world.run(operation)
        if self.holds and self._world.asked(RequestCode.HEART_BEAT) and not self._world.left():
            self.told.set()
            await asyncio.Event().wait()
        return found


def presence(world: World) -> tuple[GroupPresence, Driver]:
    driver = Driver(world)
    subscriptions = {"orders": subscribe("orders", "*", 1)}
    return GroupPresence(world.state, cast("Any", driver), CONFIG, subscriptions), driver


def blocking(world: World) -> GroupConsumer:
    driver = cast("Any", world)
    return GroupConsumer(world.state, driver, CONFIG, {"orders": "*"}, lambda _: None)


@pytest.mark.parametrize("error", DEAD, ids=["killed", "hanging"])
async def test_it_joins_where_one_broker_takes_the_heart_beat(error: ClientError) -> None:
    for address in ("a:1", "b:1"):
        world = World()
        world.dead[address] = error
        await presence(world)[0].join()
        assert world.left() == []
        world = World()
        world.dead[address] = error
        member = blocking(world)
        member._beat()
        member._balance("orders")
        member.close()
        assert world.left() == ["a:1", "b:1"]


@pytest.mark.parametrize("error", DEAD, ids=["killed", "hanging"])
async def test_where_none_takes_it_that_is_said_and_the_group_is_left(error: ClientError) -> None:
    """A broker that hangs may take it later, and would keep queues for nobody."""
    world = World()
    world.dead = {"a:1": error, "b:1": error}
    with pytest.raises(type(error)):
        await presence(world)[0].join()
    assert world.left() == ["a:1", "b:1"]
    world = World()
    world.dead = {"a:1": error, "b:1": error}
    member = blocking(world)
    with pytest.raises(type(error)):
        member._beat()
    member.close()
    assert world.left() == ["a:1", "b:1"]


async def test_a_start_that_is_given_up_leaves_the_group() -> None:
    world = World()
    member, driver = presence(world)
    driver.holds = True
    joining = asyncio.create_task(member.join())
    await driver.told.wait()
    joining.cancel()
    with pytest.raises(asyncio.CancelledError):
        await joining
    assert world.left() == ["a:1", "b:1"]


def test_any_broker_that_lives_deals_out_the_queues_and_checks_filters() -> None:
    wanted = [subscribe("orders", Sql("price > 3"), 1)]
    for address in ("a:1", "b:1"):
        for error in DEAD:
            world = World()
            world.dead[address] = error
            for _ in range(8):  # which shard is asked first is chance
                mine = world.run(assignment(world.state, "g", "orders"))
                assert mine is not None
                assert len(mine) == 4
            world.run(check_filters(world.state, "g", wanted))
    world = World()
    world.dead = {"a:1": BrokerError("a:1", 23, "no such filter")}
    with pytest.raises(BrokerError, match="no such filter"):
        world.run(check_filters(world.state, "g", wanted))
    world.dead = {"a:1": DEAD[0], "b:1": DEAD[0]}
    with pytest.raises(ConnectionLostError):
        world.run(assignment(world.state, "g", "orders"))


def test_a_transactional_producer_tells_the_masters_that_live() -> None:
    world = World()
    world.dead["a:1"] = DEAD[0]
    beat = transacting.heartbeat(world.state, ProducerConfig(), ["orders"])
    assert world.run(beat) == [DEAD[0]]
    asked = [request.address for request in world.asked(RequestCode.HEART_BEAT)]
    assert asked == ["a:1", "b:1"]
