"""A locked queue is handled by one member at a time, also while it goes from one to another."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from imago_client import Client, ConsumerConfig, Message, ResetTo, StartFrom

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator, Sequence

    import pytest

    from imago_client import MessageQueue, ReceivedMessage
    from imago_client.rocketmq.push.push_consumer import PushConsumer


def in_order(**settings: object) -> ConsumerConfig:
    """Return settings of a member that balances often."""
    defaults = {"rebalance_s": 0.1, "error_pause_s": 0.05, "suspend_s": 0.01}
    return ConsumerConfig(
        group="g", start_from=StartFrom.EARLIEST, orderly=True, **(defaults | settings)  # type: ignore[arg-type]  # a table
    )  # fmt: skip


class Watched:
    """Handlers of several members that note which queue is handled by whom, and when twice."""

    def __init__(self) -> None:
        self.running: dict[MessageQueue, str] = {}
        self.twice: list[str] = []
        self.done: list[tuple[str, int, bytes]] = []
        self.go_on = asyncio.Event()

    def handler(self, member: str) -> Callable[[Sequence[ReceivedMessage]], object]:
        async def handle(messages: Sequence[ReceivedMessage]) -> None:
            (message,) = messages
            queue = message.queue
            if queue in self.running:
                self.twice.append(f"{queue}: {member} beside {self.running[queue]}")
            self.running[queue] = member
            try:
                await self.go_on.wait()
            finally:
                self.running.pop(queue, None)
            self.done.append((member, queue.queue_id, message.body))

        return handle


async def until(condition: Callable[[], bool]) -> None:
    """Return when something that nobody announces has come true."""
    async with asyncio.timeout(50):
        while not condition():  # noqa: ASYNC110 - nobody sets an event for it
            await asyncio.sleep(0.02)


def of_topic(consumer: PushConsumer) -> list[int]:
    return [queue.queue_id for queue in consumer.queues if queue.topic == "orders"]


@asynccontextmanager
async def two_members(
    client: Client, bootstrap: str, watched: Watched, config: ConsumerConfig
) -> AsyncIterator[PushConsumer]:
    """The second joins when the first handles a message of each of two queues."""
    await client.admin.create_topic("orders", queues=2)
    producer = client.producer()
    queues = await producer.queues("orders")
    for number in range(6):
        message = Message("orders", b"%d" % number)
        await producer.send(message, queue=queues[number % len(queues)])
    first = client.push_consumer(config, ["orders"], watched.handler("first"))  # type: ignore[arg-type]  # async
    async with Client(bootstrap) as other, first:
        await until(lambda: len(watched.running) == 2)
        second = other.push_consumer(config, ["orders"], watched.handler("second"))  # type: ignore[arg-type]  # async
        async with second:
            await until(lambda: len(of_topic(first)) == 1)
            yield second


async def test_queue_changes_hands_when_its_handler_has_ended(
    client: Client, bootstrap: str
) -> None:
    watched = Watched()
    async with two_members(client, bootstrap, watched, in_order(lock_s=0.1)) as second:
        await asyncio.sleep(1.0)  # time enough for the second to ask for the lock many times
        assert watched.twice == []
        watched.go_on.set()
        await until(lambda: len(of_topic(second)) == 1)
        await until(lambda: len(watched.done) == 6)
    assert watched.twice == []
    assert {member for member, _, _ in watched.done} == {"first", "second"}
    for queue in (0, 1):
        bodies = [body for _, number, body in watched.done if number == queue]
        assert bodies == sorted(bodies), "each once, in order"


async def test_handler_that_does_not_end_holds_its_queue_only_so_long(
    client: Client, bootstrap: str, caplog: pytest.LogCaptureFixture
) -> None:
    watched = Watched()
    config = in_order(release_s=0.3, drain_s=0.1)
    async with two_members(client, bootstrap, watched, config) as second:
        await until(lambda: len(of_topic(second)) == 1)
        await until(lambda: bool(watched.twice))
        watched.go_on.set()
    (warning, *_) = (one.getMessage() for one in caplog.records if "release_overdue" in one.msg)
    assert "orders/shard-0/" in warning
    assert "release_s" in warning


async def test_reset_waits_for_the_handler_too(client: Client) -> None:
    await client.admin.create_topic("orders", queues=1)
    await client.producer().send(Message("orders", b"0"))
    watched = Watched()
    async with client.push_consumer(in_order(), ["orders"], watched.handler("first")):  # type: ignore[arg-type]  # async
        await until(lambda: len(watched.running) == 1)
        await client.admin.reset_group("g", "orders", ResetTo.EARLIEST)
        await asyncio.sleep(0.5)
        watched.go_on.set()
        await until(lambda: len(watched.done) == 2)
    assert watched.twice == []


async def test_renewed_locks_leave_a_queue_that_was_begun_meanwhile(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    from imago_client.core.consuming import membership

    await client.admin.create_topic("orders", queues=1)
    watched = Watched()
    watched.go_on.set()
    consumer = client.push_consumer(in_order(), ["orders"], watched.handler("first"))  # type: ignore[arg-type]  # async
    async with consumer:
        await until(lambda: of_topic(consumer) == [0])
        assigned = consumer._assigned
        readers, assigned._readers = assigned._readers, {}

        def lock(*arguments: object) -> Generator[object, object, set[object]]:
            assert arguments
            assigned._readers = readers
            yield from ()
            return set()

        with monkeypatch.context() as patched:
            patched.setattr(membership, "lock", lock)
            await assigned.renew_locks()
        assert all(reader.locked for reader in readers.values())
