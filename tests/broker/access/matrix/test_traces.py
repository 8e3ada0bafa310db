"""Traces that clients send of themselves: every user may, of whom no rule says otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_broker.model.access.access import AccessKind, AccessRule, Operation, Resource
from imago_broker.model.access.users import User
from imago_broker.model.topics.topics import TopicConfig
from imago_broker.processors.rocketmq.access.access_hook import TRACE_TOPIC
from imago_broker.service.access.access_edits import Actor
from imago_testing.peers.remoting import RemotingPeer, send_ext
from imago_testing.peers.signing import call_signed
from imago_wire.remoting.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from imago_broker.app import Broker

BY = Actor("the tests", "nowhere")
ALL = frozenset(Operation)
READS = frozenset({Operation.SUBSCRIBE})


def rule(name: str, operations: frozenset[Operation] = ALL, *, allow: bool = True) -> AccessRule:
    resource = Resource(AccessKind.TOPIC, name.removesuffix("*"), prefix=name.endswith("*"))
    return AccessRule(resource, operations, (), allow)


DENIED_ALL = AccessRule(Resource(AccessKind.ANY, "", prefix=True), ALL, (), False)


@pytest.mark.parametrize(
    ("rules", "code"),
    [
        ([], 0),
        ([rule("orders*")], 0),
        ([rule("*", READS)], 0),
        ([rule(TRACE_TOPIC, allow=False)], ResponseCode.NO_PERMISSION),
        ([rule("RMQ_SYS*", allow=False)], ResponseCode.NO_PERMISSION),
        ([DENIED_ALL], ResponseCode.NO_PERMISSION),
        ([DENIED_ALL, rule(TRACE_TOPIC)], 0),
    ],
    ids=["none", "others", "reads", "denied", "prefix denied", "all denied", "more special"],
)
async def test_a_rule_about_traces_decides(
    broker: Broker, rules: list[AccessRule], code: int
) -> None:
    if broker.topics.get(TRACE_TOPIC) is None:
        made = TopicConfig(name=TRACE_TOPIC, read_queues=1, write_queues=1)
        broker.topics.create_or_update(made, sent_to=True)
    broker.core.access.put_account(User(name="ann", secret="secret-ann"), rules, BY)
    peer = await RemotingPeer.connect(broker.rocketmq_port)
    sent = await call_signed(
        peer,
        RequestCode.SEND_MESSAGE_V2,
        send_ext(TRACE_TOPIC, 0),
        b"a trace",
        user="ann",
        secret="secret-ann",
    )
    assert sent.code == code
    await peer.close()
