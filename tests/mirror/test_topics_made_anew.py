"""A topic is deleted and made again at one side, while a mirror runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.mirror.test_mirror_kills import stored

from imago_client import Message
from imago_client.blocking import Client
from imago_client.message_queue import MessageQueue
from imago_testing.clusters.mirrors import mirrored
from imago_testing.processes.servers import wait_until

if TYPE_CHECKING:
    from imago_testing.clusters.mirrors import Pair

pytestmark = pytest.mark.processes


def send(client: Client, topic: str, name: str, count: int) -> list[bytes]:
    producer = client.producer()
    bodies = [b"%b %d" % (name.encode(), number) for number in range(count)]
    for body in bodies:
        producer.send(Message(topic, body))
    return bodies


def bodies_of(client: Client, topic: str) -> list[bytes]:
    return [body for queue in stored(client, topic).values() for body, _ in queue]


def test_of_a_topic_that_is_made_again_at_the_source_each_message_comes_once(pair: Pair) -> None:
    with Client(pair.names[0]) as a, Client(pair.names[1]) as b:
        a.admin.create_topic("again", queues=1)
        first = send(a, "again", "first", 10)
        with mirrored(pair.folder, pair.names, "again", topics='["again"]') as mirror:
            mirror.wait_copied("again")
            wait_until(lambda: bodies_of(b, "again") == first, what="copied")
            a.admin.delete_topic("again")
            a.admin.create_topic("again", queues=1)
            second = send(a, "again", "second", 40)
            wait_until(lambda: second[-1] in bodies_of(b, "again"), what="copied again")
            last = send(a, "again", "last", 1)
            wait_until(lambda: bodies_of(b, "again")[-1:] == last, what="all copied")
        assert bodies_of(b, "again") == first + second + last


def test_a_group_misses_nothing_in_a_topic_that_was_made_again_at_the_target(pair: Pair) -> None:
    topics, groups = '["anew", "beside"]', '["billing"]'
    anew, beside = MessageQueue("anew", "shard-0", 0), MessageQueue("beside", "shard-0", 0)
    with Client(pair.names[0]) as a, Client(pair.names[1]) as b:
        here, there = a.pull_consumer("billing"), b.pull_consumer("billing")
        for topic in ("anew", "beside"):
            a.admin.create_topic(topic, queues=1)
            send(a, topic, "copied", 20)
        with mirrored(pair.folder, pair.names, "anew", topics=topics, groups=groups) as mirror:
            for topic in ("anew", "beside"):
                mirror.wait_copied(topic)
            here.commit(anew, 5)
            wait_until(lambda: there.committed(anew) == 5, what="the group moved")
            b.admin.delete_topic("anew")
            b.admin.create_topic("anew", queues=1)
            local = send(b, "anew", "local", 20)
            here.commit(anew, 20)
            last = send(a, "anew", "last", 1)
            wait_until(lambda: last[0] in bodies_of(b, "anew"), what="copied to the new one")
            here.commit(anew, 21)
            here.commit(beside, 20)
            wait_until(lambda: there.committed(beside) == 20, what="the group moved there")
        assert not there.committed(anew), f"it passed {local}"
