"""Original producers of transactions: committed, rolled back, undecided until they are asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_testing.interop.rocketmq import Outgoing, Received, RocketmqClient
from imago_testing.processes.servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.interop, pytest.mark.shows("transactions")]
COMMIT, ROLLBACK, UNKNOWN = "COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW"
CHECK_SECONDS = 200.0
"""An original broker of 4.9 looks once a minute."""


@pytest.mark.both_clients
def test_committed_messages_arrive_and_rolled_back_ones_never(
    rocketmq: RocketmqClient, topic: str
) -> None:
    kept = [Outgoing(body=b"kept %d" % n, keys=f"k{n}", tags="t") for n in range(5)]
    dropped = [Outgoing(body=b"dropped %d" % n, keys=f"d{n}") for n in range(5)]
    with rocketmq.transactions(f"{topic}-p") as producer, rocketmq.pull() as puller:
        producer.send(topic, dropped, ROLLBACK)
        sent = producer.send(topic, kept, COMMIT)
        producer.send(topic, [Outgoing(body=b"open", keys="open")], UNKNOWN)
        found = puller.drain(topic, len(kept))
    assert {each.status for each in sent} == {"SEND_OK"}
    assert sorted(each.body for each in found) == sorted(each.body for each in kept)
    assert {each.tags for each in found} == {"t"}
    assert {each.id for each in found} == {each.id for each in sent}


@pytest.mark.both_clients
def test_undecided_producer_is_asked_and_its_answer_counts(
    rocketmq: RocketmqClient, topic: str
) -> None:
    with rocketmq.transactions(f"{topic}-p") as producer, rocketmq.pull() as puller:
        [yes] = producer.send(topic, [Outgoing(body=b"yes", keys="yes")], UNKNOWN)
        producer.send(topic, [Outgoing(body=b"no", keys="no")], UNKNOWN)
        # Whoever is asked before this does not know either, however late it is.
        assert puller.stored(topic) == []
        producer.decide("yes", COMMIT)
        producer.decide("no", ROLLBACK)
        asked: list[Received] = []

        def both_asked() -> bool:
            # Who answers late is asked again.
            asked.extend(producer.checks(0, seconds_max=0))
            return {each.body for each in asked} == {b"no", b"yes"}

        wait_until(both_asked, seconds_max=CHECK_SECONDS, what="checks of both messages")
        # An answer from before the decision is followed by another check.
        wait_until(
            lambda: bool(puller.stored(topic)), seconds_max=CHECK_SECONDS, what="what is committed"
        )
        [found] = puller.stored(topic)
    assert {each.queue.topic for each in asked} == {topic}
    assert (found.body, found.id, found.queue) == (b"yes", yes.id, yes.queue)


@pytest.mark.both_clients
def test_consumer_takes_what_is_committed_once(
    rocketmq: RocketmqClient, topic: str, unique: Callable[[str], str]
) -> None:
    outgoing = [Outgoing(body=b"%d" % n) for n in range(20)]
    with (
        rocketmq.transactions(f"{topic}-p") as producer,
        rocketmq.push(topic, unique("group")) as consumer,
    ):
        producer.send(topic, outgoing, COMMIT)
        taken = consumer.take(len(outgoing))
        assert consumer.take(1, seconds_max=2) == []
    assert sorted(each.body for each in taken) == sorted(each.body for each in outgoing)
