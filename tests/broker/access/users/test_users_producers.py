"""Idempotent producers belong to users: nobody goes on with, or ends, those of somebody else."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.app import Broker
from imago_broker.model.access.access import AccessKind, AccessRule, Operation, Resource
from imago_broker.model.access.users import User
from imago_broker.model.topics.topics import TopicConfig
from imago_broker.processors.rocketmq.send.send import SendProcessor
from imago_broker.service.access.access_edits import Actor
from imago_testing.peers.remoting import RemotingPeer, send_ext
from imago_testing.peers.signing import call_signed
from imago_wire.record_format.sequences import Sequence, stored_property, user_tag, wire_properties
from imago_wire.records.record import make_entry
from imago_wire.remoting.codes import ResponseCode
from imago_wire.remoting.messages import BatchEntry, encode_batch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from imago_broker.config import BrokerConfig
    from imago_wire.remoting.command import RemotingCommand

BY = Actor("the tests", "nowhere")
P = "00000000deadbeef"
OK, FENCED = int(ResponseCode.SUCCESS), int(ResponseCode.IMAGO_PRODUCER_FENCED)


def numbered(number: int, epoch: int, way: str) -> str:
    parts = [f"UNIQ_KEY\x01{number:032d}\x02", wire_properties(Sequence(P, epoch, number))]
    return "".join(reversed(parts) if way == "careful" else parts)


class Senders:
    """Users that may send to the same topic, each with the same producer's id."""

    def __init__(self, broker: Broker, peer: RemotingPeer) -> None:
        self.broker, self.peer = broker, peer

    def have(self, user: str, *topics: str, addresses: str = "") -> None:
        access = self.broker.core.access
        rules = [
            AccessRule(Resource(AccessKind.TOPIC, topic), frozenset({Operation.PUBLISH}))
            for topic in topics
        ]
        if user != "anonymous":
            secret = f"secret-of-{user}"
            access.put_user(User(name=user, secret=secret, white_addresses=addresses), BY)
        access.set_rules(user, rules, BY)

    async def send(
        self, user: str, number: int, epoch: int = 0, *, topic: str = "T", way: str = "short"
    ) -> RemotingCommand:
        properties, body = numbered(number, epoch, way), b"%s %d" % (user.encode(), number)
        code, ext = 310, send_ext(topic, 0, properties)
        if way == "batch":
            code, ext = 320, send_ext(topic, 0, m="true")
            body = encode_batch([BatchEntry(body, properties.encode())])
        if user == "anonymous":
            return await self.peer.call(code, ext, body)
        return await call_signed(self.peer, code, ext, body, user=user, secret=f"secret-of-{user}")


@pytest.fixture
async def senders(broker: Broker) -> AsyncIterator[Senders]:
    for topic in ("T", "mals"):
        broker.topics.create_or_update(TopicConfig(name=topic, read_queues=1, write_queues=1))
    peer = await RemotingPeer.connect(broker.rocketmq_port)
    yield Senders(broker, peer)
    await peer.close()


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count what goes the slow path."""
    counted, send = Counter[str](), SendProcessor.send

    def serve(self: Any, exchange: Any) -> Any:
        counted["careful"] += 1
        return send(self, exchange)

    monkeypatch.setattr(SendProcessor, "send", serve)
    return counted


@pytest.mark.parametrize("others", ["eve", "anonymous"])
@pytest.mark.parametrize("way", ["short", "batch"])
async def test_another_users_messages_take_nobodys_place(
    served: Counter[str], senders: Senders, way: str, others: str
) -> None:
    senders.have("ann", "T")
    senders.have(others, "T")
    assert (await senders.send("ann", 0, way=way)).code == OK
    for number in range(4):
        assert (await senders.send(others, number, way=way)).code == OK
    before = served["careful"]
    answers = [await senders.send("ann", number, way=way) for number in (1, 2, 3, 2, 0)]
    assert [answer.code for answer in answers] == [OK] * 5
    assert served["careful"] == before, "the fast path"
    assert senders.broker.store.queue_range("T", 0)[1] == 8, "each once"
    assert [answers[1].ext, answers[4].ext["queueOffset"]] == [answers[3].ext, "0"]


async def test_another_user_fences_nobody(senders: Senders) -> None:
    senders.have("ann", "T")
    senders.have("mal", "mals")
    assert (await senders.send("ann", 0, 7)).code == OK
    assert (await senders.send("mal", 0, 10**17, topic="mals")).code == OK
    assert (await senders.send("ann", 1, 7)).code == OK
    assert (await senders.send("ann", 0, 8)).code == OK
    answer = await senders.send("ann", 2, 7)
    assert answer.code == FENCED
    assert f"producer {P}, queue T/0: epoch 7 is over" in (answer.remark or "")


async def test_both_ways_and_trusted_addresses_know_the_same_producer(
    served: Counter[str], senders: Senders
) -> None:
    access = senders.broker.core.access
    senders.have("ann", "T")
    places = []
    for number, changed in enumerate(["", "", "user", "all", ""]):
        senders.have("ann", "T", addresses="127.0.0.*" if changed == "user" else "")
        access.set_white_addresses(["127.0.0.1"] if changed == "all" else [], BY)
        for index, way in enumerate(("short", "batch", "careful")):
            answer = await senders.send("ann", 3 * number + index, way=way)
            assert answer.code == OK, answer.remark
            places.append(int(answer.ext["queueOffset"]))
    assert places == list(range(15))
    assert served["careful"] == 5


async def test_state_of_users_comes_back_and_goes_on_from_what_was_sent_without_one(
    senders: Senders, config: BrokerConfig
) -> None:
    """As when access control is turned on, by the broker of before or of now."""
    store = senders.broker.store
    entries = [
        make_entry(
            store.tail("T", 0), b"old", stored_property(Sequence(P, 3, number)),
            born_ms=1, born_host=store.config.store_host,
        )
        for number in range(2)
    ]  # fmt: skip
    store.append(entries, sequenced=True)
    for user in ("ann", "eve"):
        senders.have(user, "T")
    assert (await senders.send("ann", 0, 2)).code == FENCED
    for user, numbers in (("ann", (1, 2, 3)), ("eve", (2,))):
        for number in numbers:
            assert (await senders.send(user, number, 3)).code == OK
    assert store.queue_range("T", 0)[1] == 5
    before = store.producers.to_json()
    assert {name: state[0] for name, state in before} == {
        P: 3, P + user_tag("ann"): 3, P + user_tag("eve"): 3,
    }  # fmt: skip
    await senders.peer.close()
    await senders.broker.stop()
    again = Broker(config)
    await again.start()
    try:
        assert again.store.producers.to_json() == before
    finally:
        await again.stop()
