"""Original RocketMQ pull and lite pull consumers: the reader chooses queue and offset."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_testing.interop.rocketmq import Outgoing, PullConsumer, Queue, RocketmqClient, Sent
from imago_testing.processes.servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

pytestmark = [pytest.mark.interop, pytest.mark.shows("pull")]
NEVER_COMMITTED = -1


def fill(
    rocketmq: RocketmqClient, topic: str, count: int, *, tags: Sequence[str | None] = (None,)
) -> tuple[Queue, list[Sent]]:
    """Put messages into the first queue of the topic."""
    messages = [
        Outgoing(body=f"{index}".encode(), tags=tags[index % len(tags)]) for index in range(count)
    ]
    with rocketmq.producer() as producer:
        queue = min(producer.queues(topic))
        sent = producer.send_to_queue(queue, messages)
    assert [each.offset for each in sent] == list(range(count))
    return queue, sent


def when_visible(puller: PullConsumer, queue: Queue, count: int) -> None:
    """4.9 acknowledges before its queues show a message: wait for the end to move."""
    wait_until(
        lambda: puller.bounds(queue)["max"] == count,
        seconds_max=60,
        what=f"{count} messages are visible",
    )


def test_pull_walks_a_queue_in_order(rocketmq: RocketmqClient, topic: str) -> None:
    queue, _ = fill(rocketmq, topic, 20)
    with rocketmq.pull() as puller:
        when_visible(puller, queue, 20)
        first = puller.pull(queue, 0, count_max=8)
        rest = puller.pull(queue, first.next, count_max=32)
        end = puller.pull(queue, rest.next)
    assert (first.status, first.next, first.min, first.max) == ("FOUND", 8, 0, 20)
    bodies = [each.body for each in [*first.messages, *rest.messages]]
    assert bodies == [f"{index}".encode() for index in range(20)]
    assert (end.status, end.next, end.messages) == ("NO_NEW_MSG", 20, [])


def test_pull_beyond_the_end_is_sent_back_to_the_end(rocketmq: RocketmqClient, topic: str) -> None:
    queue, _ = fill(rocketmq, topic, 5)
    with rocketmq.pull() as puller:
        when_visible(puller, queue, 5)
        beyond = puller.pull(queue, 1000)
    assert (beyond.status, beyond.next) == ("OFFSET_ILLEGAL", 5)


@pytest.mark.shows("filter")
def test_tags_are_filtered_and_the_next_offset_passes_what_did_not_match(
    rocketmq: RocketmqClient, topic: str
) -> None:
    queue, _ = fill(rocketmq, topic, 9, tags=["red", "green", "blue"])
    with rocketmq.pull() as puller:
        when_visible(puller, queue, 9)
        some = puller.pull(queue, 0, expression="red || blue")
        none = puller.pull(queue, 0, expression="yellow")
    assert [each.body for each in some.messages] == [b"0", b"2", b"3", b"5", b"6", b"8"]
    assert (some.status, some.next) == ("FOUND", 9)
    assert (none.status, none.next) == ("NO_MATCHED_MSG", 9)


@pytest.mark.both_clients
def test_waiting_pull_is_answered_when_a_message_arrives(
    rocketmq: RocketmqClient, topic: str
) -> None:
    with rocketmq.pull() as puller, rocketmq.producer() as producer:
        queue = min(puller.queues(topic))
        waiting = puller.wait(queue, 0)
        [sent] = producer.send_to_queue(queue, [Outgoing(body=b"at last")])
        # The broker would hold the request for 15 s; the answer comes because of the message.
        answer = waiting()
    assert (answer.status, answer.next) == ("FOUND", sent.offset + 1)
    assert [each.body for each in answer.messages] == [b"at last"]


@pytest.mark.both_clients
def test_bounds_and_search_by_time(rocketmq: RocketmqClient, topic: str) -> None:
    queue, _ = fill(rocketmq, topic, 10)
    with rocketmq.pull() as puller:
        when_visible(puller, queue, 10)
        messages = puller.pull(queue, 0).messages
        bounds = puller.bounds(queue)
        middle = messages[5].stored_ms
        found = puller.offset_at(queue, middle)
        before_all = puller.offset_at(queue, messages[0].stored_ms - 60_000)
        after_all = puller.offset_at(queue, messages[-1].stored_ms + 60_000)
    assert (bounds["min"], bounds["max"]) == (0, 10)
    assert bounds["earliest_ms"] == messages[0].stored_ms
    assert messages[found].stored_ms == middle
    assert before_all == 0
    # 4.9 answers the last message's offset here, 5 the end.
    assert after_all in {9, 10}


def test_committed_offset_is_kept_per_group_and_queue(
    rocketmq: RocketmqClient, topic: str, unique: Callable[[str], str]
) -> None:
    queue, _ = fill(rocketmq, topic, 5)
    group = unique("group")
    with rocketmq.pull(group) as puller:
        before = puller.committed(queue)

        def committed() -> bool:
            # One-way, and again and again in real life: a broker of version 5 ignores what comes
            # before the client's first heartbeat made the group known.
            puller.commit(queue, 3)
            return puller.committed(queue) == 3

        wait_until(committed, seconds_max=60, what="the commit is visible")
    rocketmq.settle()
    with rocketmq.pull(unique("other-group")) as other, rocketmq.pull(group) as again:
        assert other.committed(queue) == before
        assert again.committed(queue) == 3
    # A young queue starts a new group at 0 instead of saying that nothing is known.
    assert before in {NEVER_COMMITTED, 0}


@pytest.mark.both_clients
def test_lite_consumer_resumes_behind_what_it_committed(
    rocketmq: RocketmqClient, topic: str, unique: Callable[[str], str]
) -> None:
    group = unique("group")
    with rocketmq.producer() as producer:
        producer.send(topic, [Outgoing(body=f"{index}".encode()) for index in range(20)])
        with rocketmq.lite(group, topic=topic) as lite:
            first = lite.poll(20)
            lite.commit()
            assert sum(lite.committed(queue) for queue in producer.queues(topic)) == 20
        rocketmq.settle()
        producer.send(topic, [Outgoing(body=f"{index}".encode()) for index in range(20, 25)])
        with rocketmq.lite(group, topic=topic) as lite:
            second = lite.poll(5)
    assert sorted(int(each.body) for each in first) == list(range(20))
    assert sorted(int(each.body) for each in second) == list(range(20, 25))


def test_lite_consumer_with_assigned_queues_seeks(
    rocketmq: RocketmqClient, topic: str, unique: Callable[[str], str]
) -> None:
    queue, _ = fill(rocketmq, topic, 10)
    with rocketmq.lite(unique("group")) as lite:
        assert queue in lite.assign_all(topic)
        everything = lite.poll(10)
        # The broker holds the client's next pull at the end of the queue when it seeks back.
        lite.seek(queue, 6)
        again = lite.poll(4)
    assert [each.body for each in everything] == [f"{index}".encode() for index in range(10)]
    assert [each.body for each in again] == [b"6", b"7", b"8", b"9"]
