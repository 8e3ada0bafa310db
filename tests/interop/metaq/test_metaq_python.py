"""The Python client and the original Java client in one group: partitions, offsets, browsers."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Any, Self

import pytest

from imago_client.blocking.metaq_sessions import MetaqSessionFactory as BlockingFactory
from imago_client.metaq import (
    MetaqConfig,
    MetaqGroupConsumerConfig,
    MetaqSessionFactory,
    ShareStrategy,
)
from imago_testing.interop.metaq import Got, MetaqClient
from imago_testing.interop.sharing import (
    Numbered,
    committed,
    numbers,
    puts,
    wait_for_owners,
    zookeeper,
)
from imago_testing.processes.servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from imago_client.metaq import MetaqMessage

STORED_HEADER = 20
pytestmark = [pytest.mark.interop, pytest.mark.shows("group")]


def config(metaq: MetaqClient) -> MetaqConfig:
    return MetaqConfig(zookeeper=metaq.zookeeper, rebalance_pause_s=0.2)


class PythonConsumer:
    """A member of a group in a thread of its own, on asyncio or blocking."""

    def __init__(
        self, metaq: MetaqClient, topic: str, group: str, *, blocking: bool, **more: Any
    ) -> None:
        self._servers, self._topic = config(metaq), topic
        self._config = MetaqGroupConsumerConfig(group=group, delay_s_max=0.2, commit_s=0.2, **more)
        self._found: list[Got] = []
        self._ended, self._started = threading.Event(), threading.Event()
        self._failed: BaseException | None = None
        self._thread = threading.Thread(
            target=self._run, args=(self._poll if blocking else self._consume,), daemon=True
        )

    def take(self, count: int) -> list[Got]:
        """Wait for so many messages; return what has come since the last call."""
        wait_until(lambda: len(self._found) >= count, seconds_max=60, what=f"{count} messages")
        found, self._found = self._found, []
        return found

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        if self._failed is not None:
            raise self._failed

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self._failed = error
        finally:
            self._started.set()

    def _take(self, message: MetaqMessage) -> None:
        partition = f"{message.partition.broker_id}-{message.partition.number}"
        topic, payload = message.partition.topic, message.payload
        self._found.append(
            Got(
                id=message.message_id,
                topic=topic,
                body=payload,
                attribute=message.attribute,
                partition=partition,
            )
        )

    def _poll(self) -> None:
        with (
            BlockingFactory(self._servers) as factory,
            factory.consumer(self._config, [self._topic]) as consumer,
        ):
            self._started.set()
            while not self._ended.is_set():
                for message in consumer.poll(0.05):
                    self._take(message)
            consumer.commit()

    def _consume(self) -> None:
        async def handle(message: MetaqMessage) -> None:
            self._take(message)

        async def main() -> None:
            async with (
                MetaqSessionFactory(self._servers) as factory,
                factory.consumer(self._config).subscribe(self._topic, handle),
            ):
                self._started.set()
                await asyncio.to_thread(self._ended.wait)

        asyncio.run(main())


@contextlib.contextmanager
def python_producer(metaq: MetaqClient, topic: str) -> Iterator[Numbered]:
    """Numbered messages through our own producer."""
    with BlockingFactory(config(metaq)) as factory:
        producer = factory.producer()

        def send(name: str, messages: list[Any]) -> None:
            for each in messages:
                producer.send(name, each.body)

        yield Numbered(send, topic)


@pytest.mark.parametrize(
    ("strategy", "blocking"),
    [(ShareStrategy.DEFAULT, False), (ShareStrategy.CONSIST, False), (ShareStrategy.DEFAULT, True)],
    ids=["default", "consistent", "default-blocking"],
)
def test_java_and_python_share_a_group_as_members_come_and_go(
    metaq: MetaqClient,
    metaq_topic: str,
    unique: Callable[[str], str],
    strategy: ShareStrategy,
    blocking: bool,
) -> None:
    """Nothing is lost over joins and leaves of either; each partition has one reader."""
    group, consistent = unique("g"), strategy is ShareStrategy.CONSIST
    java = {"consistent_hash": consistent}
    ours: dict[str, Any] = {"strategy": strategy, "blocking": blocking}
    with (
        metaq.factory() as factory,
        python_producer(metaq, metaq_topic) as sent,
        contextlib.ExitStack() as stack,
    ):
        partitions = set(factory.partitions(metaq_topic))
        even = not consistent  # the hash may give one of two nothing at all
        first = stack.enter_context(factory.consumer([metaq_topic], group, **java))
        wait_for_owners(sent, [first], partitions)
        with PythonConsumer(metaq, metaq_topic, group, **ours) as second:
            wait_for_owners(sent, [first, second], partitions, even=even)
        sent.found += second.take(0)
        wait_for_owners(sent, [first], partitions)
        with PythonConsumer(metaq, metaq_topic, group, **ours) as stays:
            wait_for_owners(sent, [first, stays], partitions, even=even)
            stack.close()
            sent.found += first.rest
            wait_for_owners(sent, [stays], partitions)
            wait_until(
                lambda: sent.has_all(stays.take(0)),
                seconds_max=60,
                what="every message has arrived",
            )


def test_offsets_that_one_stored_are_read_by_the_other(
    metaq: MetaqClient, metaq_topic: str, unique: Callable[[str], str]
) -> None:
    group = unique("g")
    with (
        zookeeper(metaq.zookeeper) as tree,
        metaq.factory() as factory,
        factory.producer([metaq_topic]) as producer,
    ):

        def commits(ends: dict[str, int]) -> None:
            wait_until(
                lambda: committed(tree, group, metaq_topic) == ends,
                seconds_max=60,
                what=f"the offsets in ZooKeeper are {ends}",
            )

        def send(first: int, last: int) -> dict[str, int]:
            results = producer.send(metaq_topic, puts(first, last))
            return {str(each.partition): each.offset + STORED_HEADER + 2 for each in results}

        ends = send(10, 30)
        with factory.consumer([metaq_topic], group) as java:
            assert numbers(java.take(20)) == list(range(10, 30))
            commits(ends)
        ends |= send(30, 50)
        with PythonConsumer(metaq, metaq_topic, group, blocking=False) as python:
            assert numbers(python.take(20)) == list(range(30, 50))
            commits(ends)
        assert python.take(0) == []
        ends |= send(50, 70)
        with factory.consumer([metaq_topic], group) as java:
            assert numbers(java.take(20)) == list(range(50, 70))
            commits(ends)
        send(70, 90)
        with PythonConsumer(metaq, metaq_topic, group, blocking=True) as python:
            assert numbers(python.take(20)) == list(range(70, 90))
        assert python.take(0) == []


def test_python_browses_and_counts_what_java_has_put(metaq: MetaqClient, metaq_topic: str) -> None:
    with metaq.factory() as factory, factory.producer([metaq_topic]) as producer:
        producer.send(metaq_topic, puts(0, 50))
        names = sorted(factory.partitions(metaq_topic))
    with BlockingFactory(config(metaq)) as ours:
        found = [int(each.payload) for each in ours.browse(metaq_topic, size_max=100)]
        offered = [f"{each.broker_id}-{each.number}" for each in ours.partitions(metaq_topic)]
        counts = [each["message_count"] for each in ours.stats(metaq_topic).values()]
    assert sorted(found) == list(range(50))
    assert sorted(offered) == names
    assert sum(map(int, counts)) == 50
