"""Tasks of consumers go on, whatever handlers, stores and brokers do to them."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest

from imago_client import Client, ConsumerConfig, Message, StartFrom
from imago_client.core.consuming import pulling
from imago_client.errors import ClientClosedError
from imago_client.metaq import MemoryOffsets, MetaqClient, MetaqConsumerConfig, MetaqMessage
from imago_client.supervision import Supervisor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from imago_client import ReceivedMessage
    from imago_client.metaq import Partition


def earliest(**settings: object) -> ConsumerConfig:
    return ConsumerConfig(group="g", start_from=StartFrom.EARLIEST, error_pause_s=0.05, **settings)  # type: ignore[arg-type]  # a table


def leak() -> None:
    """What a handler does that awaits a task which somebody cancelled."""
    raise asyncio.CancelledError


def cancel_oneself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


async def until(condition: Callable[[], bool]) -> None:
    """Return when something that nobody announces has come true."""
    async with asyncio.timeout(50):
        while not condition():  # noqa: ASYNC110 - nobody sets an event for it
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("harm", [leak, cancel_oneself])
@pytest.mark.parametrize("orderly", [False, True])
async def test_handler_that_is_cancelled_has_failed_and_its_queue_goes_on(
    client: Client, harm: Callable[[], None], *, orderly: bool
) -> None:
    await client.admin.create_topic("orders", queues=1)
    for body in (b"0", b"1", b"2"):
        await client.producer().send(Message("orders", body))
    done: list[bytes] = []
    harmed = 0

    async def handle(messages: Sequence[ReceivedMessage]) -> None:
        nonlocal harmed
        if messages[0].body == b"1" and harmed < 2:
            harmed += 1
            harm()
            await asyncio.sleep(0)
        done.extend(message.body for message in messages)

    config = earliest(orderly=orderly, suspend_s=0.01)
    async with client.push_consumer(config, ["orders"], handle) as consumer:
        await until(lambda: b"2" in done)
        await client.producer().send(Message("orders", b"3"))
        await until(lambda: b"3" in done)
        (queue,) = (one for one in consumer.queues if one.topic == "orders")
        await until(lambda: consumer.positions()[queue] == 4)
        assert consumer.stalled == 0
    if orderly:
        assert done == [b"0", b"1", b"2", b"3"]
    else:
        assert done == [b"0", b"2", b"3"]
        (retries,) = await client.pull_consumer("g").queues("%RETRY%g")
        assert harmed == 1, "it comes again in ten seconds"
        assert retries.topic == "%RETRY%g"


@pytest.mark.parametrize("orderly", [False, True])
async def test_reader_that_fails_unexpectedly_is_begun_again(
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    *,
    orderly: bool,
) -> None:
    await client.admin.create_topic("orders", queues=1)
    await client.producer().send(Message("orders", b"x"))
    done: list[bytes] = []
    real, failures = pulling.pull, 0

    def broken(*arguments: object) -> object:
        nonlocal failures
        if failures < 2:
            failures += 1
            raise KeyError("a defect")
        return real(*arguments)  # type: ignore[arg-type]  # passed on

    async def handle(messages: Sequence[ReceivedMessage]) -> None:
        done.extend(message.body for message in messages)

    monkeypatch.setattr(pulling, "pull", broken)
    async with client.push_consumer(earliest(orderly=orderly), ["orders"], handle) as consumer:
        await until(lambda: done == [b"x"])
        assert consumer.stalled == failures == 2
    assert "task_stalled" in caplog.text
    assert "a defect" in caplog.text


async def test_background_work_that_fails_unexpectedly_goes_on(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.admin.create_topic("orders", queues=1)

    async def handle(messages: Sequence[ReceivedMessage]) -> None:
        assert messages

    real, failures = pulling.commit, 0

    def broken(*arguments: object) -> object:
        nonlocal failures
        failures += 1
        if failures == 1:
            raise KeyError("a defect")
        return real(*arguments)  # type: ignore[arg-type]  # passed on

    monkeypatch.setattr(pulling, "commit", broken)
    async with client.push_consumer(earliest(commit_s=0.01), ["orders"], handle) as consumer:
        await until(lambda: failures > 3)
        assert consumer.stalled == 1


@pytest.fixture
async def metaq_orders(client: Client) -> None:
    await client.admin.create_topic("orders", queues=1)


@pytest.mark.usefixtures("metaq_orders")
@pytest.mark.parametrize("harm", [leak, cancel_oneself])
async def test_metaq_handler_that_is_cancelled_gets_its_message_again(
    metaq_server: str, harm: Callable[[], None]
) -> None:
    done: list[bytes] = []
    harmed = 0

    async def handle(message: MetaqMessage) -> None:
        nonlocal harmed
        if message.payload == b"1" and harmed < 2:
            harmed += 1
            harm()
            await asyncio.sleep(0)
        done.append(message.payload)

    config = MetaqConsumerConfig(group="g", delay_s_max=0.05)
    async with MetaqClient(metaq_server) as metaq:
        for payload in (b"0", b"1", b"2"):
            await metaq.producer().send("orders", payload, partition=0)
        async with metaq.consumer(config, ["orders"], handle):
            await until(lambda: done == [b"0", b"1", b"2"])


@pytest.mark.usefixtures("metaq_orders")
async def test_metaq_fetch_and_commit_survive_what_nobody_expected(
    metaq_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[bytes] = []
    saves = fetches = 0

    class Store(MemoryOffsets):
        def save(self, group: str, positions: Mapping[Partition, int]) -> None:
            nonlocal saves
            saves += 1
            if saves == 1:
                raise KeyError("a store of the caller's")
            super().save(group, positions)

    async def handle(message: MetaqMessage) -> None:
        done.append(message.payload)

    config = MetaqConsumerConfig(group="g", delay_s_max=0.05, commit_s=0.01)
    async with MetaqClient(metaq_server) as metaq:
        await metaq.producer().send("orders", b"x", partition=0)
        real = metaq.get

        async def get(*arguments: object, **more: object) -> object:
            nonlocal fetches
            fetches += 1
            if fetches == 1:
                raise KeyError("a defect")
            return await real(*arguments, **more)  # type: ignore[arg-type]  # passed on

        monkeypatch.setattr(metaq, "get", get)
        async with metaq.consumer(config, ["orders"], handle, offsets=Store()) as consumer:
            await until(lambda: done == [b"x"] and saves > 1)
            assert consumer.stalled == 2


async def test_end_of_the_program_ends_every_task_at_once() -> None:
    """As asyncio.run does it: all tasks are cancelled, and none may take that for a leak."""
    supervisor = Supervisor("g", pause_s=3600)
    before = asyncio.all_tasks()
    supervisor.start()

    async def wait() -> None:
        await asyncio.Event().wait()

    supervisor.keep(wait, "waits")
    await asyncio.sleep(0)
    started = asyncio.all_tasks() - before
    assert started
    for task in started:
        task.cancel()
    async with asyncio.timeout(50):
        await asyncio.wait(started)
    assert supervisor.stalled == 0


async def test_handler_that_is_cut_off_by_a_stop_is_said(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    await client.admin.create_topic("orders", queues=1)
    await client.producer().send(Message("orders", b"x"))
    began, ended = asyncio.Event(), asyncio.Event()

    async def handle(messages: Sequence[ReceivedMessage]) -> None:
        assert messages
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with client.push_consumer(earliest(drain_s=0.1), ["orders"], handle) as consumer:
        await began.wait()
    assert ended.is_set()
    assert consumer.stalled == 0, "it was the consumer's own cancellation"
    (warning,) = (one.getMessage() for one in caplog.records if one.msg.startswith("drain_overdue"))
    assert "tasks=1" in warning


async def test_leak_is_logged_counted_and_begun_again(caplog: pytest.LogCaptureFixture) -> None:
    supervisor = Supervisor("g", pause_s=0)
    supervisor.start()
    harms: list[Callable[[], object]] = [leak, cancel_oneself, lambda: int("x")]
    runs = 0

    async def work() -> None:
        nonlocal runs
        runs += 1
        if runs < 4:
            harms[runs - 1]()
        await asyncio.sleep(0)

    await asyncio.wait([supervisor.keep(work, "leaks").task])
    assert (runs, supervisor.stalled) == (4, 3)
    await supervisor.end()
    logged = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.getMessage().split()[0] for record in logged] == ["task_stalled"] * 3


async def test_closing_the_client_is_no_cancellation_for_who_waits_for_a_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def connect(address: str) -> None:
        assert address == "127.0.0.1:9"
        await asyncio.Event().wait()

    client = Client("127.0.0.1:9")
    monkeypatch.setattr(client._driver._connections, "_connect", connect)
    waiting = asyncio.create_task(client.admin.topics())
    await asyncio.sleep(0.05)
    await client.close()
    with pytest.raises(ClientClosedError):
        await waiting
