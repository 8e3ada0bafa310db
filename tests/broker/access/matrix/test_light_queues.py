"""Rights to light queues: to the topic, and to each light queue that a message names."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from imago_broker.model.access.access import AccessKind, AccessRule, Operation, Resource
from imago_broker.model.access.users import User
from imago_broker.model.topics.topics import TopicConfig
from imago_broker.service.access.access_edits import Actor
from imago_testing.peers.remoting import RemotingPeer, pull_ext, send_ext
from imago_testing.peers.signing import call_signed
from imago_wire.remoting.codes import ResponseCode
from imago_wire.remoting.messages import decode_messages

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from imago_broker.app import Broker
    from imago_broker.config import BrokerConfig
    from imago_wire.remoting.command import RemotingCommand

BY, SECRET = Actor("the tests", "nowhere"), "secret-of-tester"
OK, DENIED = ResponseCode.SUCCESS, ResponseCode.NO_PERMISSION
MINE, OTHERS = "%LMQ%mine", "%LMQ%others"


@pytest.fixture
def config(config: BrokerConfig) -> BrokerConfig:
    return replace(config, rocketmq=replace(config.rocketmq, light_queues=True))


def rule(kind: AccessKind, name: str, *operations: Operation) -> AccessRule:
    return AccessRule(Resource(kind, name), frozenset(operations))


@pytest.fixture
async def peer(broker: Broker) -> AsyncIterator[RemotingPeer]:
    """A user who may put into one topic and one light queue, and read that one."""
    broker.core.access.put_user(User(name="tester", secret=SECRET), BY)
    broker.core.access.set_rules(
        "tester",
        [
            rule(AccessKind.TOPIC, "orders", Operation.PUBLISH),
            rule(AccessKind.TOPIC, MINE, Operation.PUBLISH, Operation.SUBSCRIBE),
            rule(AccessKind.GROUP, "readers", Operation.SUBSCRIBE),
        ],
        BY,
    )
    broker.topics.create_or_update(TopicConfig(name="orders", read_queues=1, write_queues=1))
    peer = await RemotingPeer.connect(broker.rocketmq_port)
    yield peer
    await peer.close()


async def put(peer: RemotingPeer, names: str, wait: str = "") -> RemotingCommand:
    properties = f"UNIQ_KEY\x01{'0' * 32}\x02{wait}INNER_MULTI_DISPATCH\x01{names}\x02"
    return await call_signed(
        peer, 310, send_ext("orders", properties=properties), b"x", user="tester", secret=SECRET
    )


async def pull(peer: RemotingPeer, topic: str) -> RemotingCommand:
    ext = pull_ext(topic, consumerGroup="readers")
    return await call_signed(peer, 11, ext, user="tester", secret=SECRET)


@pytest.mark.parametrize("wait", ["", "DELAY\x011\x02", "TRAN_MSG\x01true\x02PGROUP\x01p\x02"])
async def test_nobody_puts_into_a_light_queue_of_others(
    peer: RemotingPeer, broker: Broker, wait: str
) -> None:
    assert (await put(peer, MINE)).code == OK
    for names in (OTHERS, f"{MINE},{OTHERS}"):
        refused = await put(peer, names, wait)
        assert refused.code == DENIED
        assert OTHERS in (refused.remark or "")
    assert (await put(peer, MINE)).code == OK
    assert broker.store.queue_range(MINE, 0) == (0, 2)
    assert OTHERS not in broker.core.messages.light


async def test_reading_needs_a_right_to_the_light_queue_alone(peer: RemotingPeer) -> None:
    await put(peer, MINE)
    found = await pull(peer, MINE)
    assert [message.topic for message in decode_messages(found.body)] == ["orders"]
    assert (await pull(peer, OTHERS)).code == DENIED
    assert (await pull(peer, "orders")).code == DENIED


async def test_names_count_where_light_queues_are_on(peer: RemotingPeer, broker: Broker) -> None:
    broker.core.messages.light.enabled = False
    assert (await put(peer, OTHERS)).code == OK
    broker.core.messages.light.enabled = True
    assert (await put(peer, OTHERS)).code == DENIED


async def test_name_that_a_header_hides_puts_into_no_light_queue(
    peer: RemotingPeer, broker: Broker
) -> None:
    """The mark of a message that may be dispatched is the broker's own."""
    mark = "__IMAGO_LIGHT\x011\x02DELAY\x011\x02"
    assert (await put(peer, OTHERS, mark)).code == DENIED
    assert (await put(peer, MINE, mark)).code == OK
    assert broker.core.messages.light.pending == 0
