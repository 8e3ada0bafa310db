"""The client's producer of transactions with a broker: commit, rollback, checks, repeats."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from imago_client import BrokerError, Client, Decision, Message, UsageError
from imago_client.blocking import Client as BlockingClient
from imago_testing.clusters.brokers import running_broker
from imago_testing.processes.servers import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from imago_broker.app import Broker
    from imago_client import ReceivedMessage


CHECKS_AT_ONCE = (
    "rocketmq.transaction_timeout_ms=0",
    "rocketmq.transaction_check_interval_ms=20",
)


async def never(message: ReceivedMessage) -> Decision:
    raise AssertionError(f"asked about {message.body!r}")


def bodies(broker: Broker) -> list[bytes]:
    store, found = broker.store, []
    for queue in range(8):
        found += [
            body
            for body in (b"kept", b"dropped", b"asked")
            if body in store.read("T", queue, 0, messages_max=100, bytes_max=1 << 20).body
        ]
    return found


async def test_committed_message_is_delivered_and_a_rolled_back_one_not(
    client: Client, broker: Broker
) -> None:
    async with client.transaction_producer("P", never) as producer:
        kept = await producer.begin(Message("T", b"kept", tags="a"))
        dropped = await producer.begin(Message("T", b"dropped"))
        assert bodies(broker) == []
        await kept.commit()
        await kept.commit()
        await dropped.rollback()
        with pytest.raises(BrokerError, match="was rolled back"):
            await dropped.commit()
    assert bodies(broker) == [b"kept"]
    assert broker.rocketmq.transactions.service.counts.committed == 1


async def test_checker_decides_about_what_was_left_open(tmp_path: Path) -> None:
    asked: list[bytes] = []

    async def checker(message: ReceivedMessage) -> Decision:
        asked.append(message.body)
        if len(asked) == 1:
            raise RuntimeError("no database")
        if len(asked) == 2:
            return True  # type: ignore[return-value]  # no decision: asked again
        return Decision.UNKNOWN if len(asked) == 3 else Decision.COMMIT

    async with (
        running_broker(tmp_path, *CHECKS_AT_ONCE) as broker,
        Client(f"127.0.0.1:{broker.ports.namesrv_port}") as client,
        client.transaction_producer("P", checker) as producer,
    ):
        await producer.begin(Message("T", b"asked"))
        await asyncio.to_thread(
            wait_until, lambda: bodies(broker) != [], seconds_max=50, what="the message is there"
        )
        assert bodies(broker) == [b"asked"]
        assert set(asked) == {b"asked"}


async def test_group_has_one_producer_in_a_client(client: Client) -> None:
    async with client.transaction_producer("P", never):
        with pytest.raises(UsageError, match="has a producer of it already"):
            client.transaction_producer("P", never)
    client.transaction_producer("P", never)


def blocking_never(message: ReceivedMessage) -> Decision:
    raise AssertionError(f"asked about {message.body!r}")


async def test_blocking_producer_commits_and_rolls_back(bootstrap: str, broker: Broker) -> None:
    def work() -> None:
        with (
            BlockingClient(bootstrap) as client,
            client.transaction_producer("P", blocking_never) as producer,
        ):
            kept = producer.begin(Message("T", b"kept", tags="a"))
            dropped = producer.begin(Message("T", b"dropped"))
            assert bodies(broker) == []
            kept.commit()
            kept.commit()
            dropped.rollback()
            with pytest.raises(BrokerError, match="was rolled back"):
                dropped.commit()
            with pytest.raises(UsageError, match="has a producer of it already"):
                client.transaction_producer("P", blocking_never)

    await asyncio.to_thread(work)
    assert bodies(broker) == [b"kept"]
    assert broker.rocketmq.transactions.service.counts.committed == 1


async def test_blocking_checker_decides_while_its_producer_polls(tmp_path: Path) -> None:
    asked: list[bytes] = []

    def checker(message: ReceivedMessage) -> Decision:
        asked.append(message.body)
        if len(asked) == 1:
            raise RuntimeError("no database")
        if len(asked) == 2:
            return True  # type: ignore[return-value]  # no decision: asked again
        return Decision.UNKNOWN if len(asked) == 3 else Decision.COMMIT

    def work(broker: Broker) -> None:
        with (
            BlockingClient(f"127.0.0.1:{broker.ports.namesrv_port}") as client,
            client.transaction_producer("P", checker) as producer,
        ):
            assert producer.poll(0.01) == 0  # nobody to hear yet
            producer.begin(Message("T", b"asked"))
            assert asked == []  # no call but poll asks the checker
            assert producer.poll(50) == 1
            assert set(asked) == {b"asked"}
            wait_until(
                lambda: bodies(broker) == [b"asked"], seconds_max=50, what="the message is there"
            )

    async with running_broker(tmp_path, *CHECKS_AT_ONCE) as broker:
        await asyncio.to_thread(work, broker)


async def test_blocking_producer_is_asked_again_after_its_connections_were_lost(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path, *CHECKS_AT_ONCE) as broker:
        loop, counts = asyncio.get_running_loop(), broker.rocketmq.transactions.service.counts

        async def drop_connections() -> None:
            for session in broker.ports.rocketmq.sessions:
                session.transport.abort()

        def work() -> None:
            with (
                BlockingClient(f"127.0.0.1:{broker.ports.namesrv_port}") as client,
                client.transaction_producer("P", lambda _: Decision.ROLLBACK) as producer,
            ):
                producer.begin(Message("T", b"asked"))
                asyncio.run_coroutine_threadsafe(drop_connections(), loop).result(50)

                def is_dropped() -> bool:
                    """Who was asked before the loss answers in vain, and is asked again."""
                    producer.poll(1)
                    return counts.rolled_back == 1

                wait_until(is_dropped, seconds_max=50, what="it is dropped")

        await asyncio.to_thread(work)
        assert bodies(broker) == []


async def test_checker_that_is_no_coroutine_is_refused(client: Client) -> None:
    def decide(_: ReceivedMessage) -> Decision:
        return Decision.COMMIT

    with pytest.raises(UsageError, match=r"checker: .* is not an `async def`"):
        client.transaction_producer("P", decide)  # type: ignore[arg-type]  # as untyped callers
