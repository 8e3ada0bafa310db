"""How messages come to handlers: workers as needed, answers in bulk, values without bodies."""

from __future__ import annotations

import asyncio
import copy
import pickle
from typing import TYPE_CHECKING, cast

import pytest

from imago_client import Client, ConsumerConfig, Message, StartFrom, batches, blocking
from imago_client.core.consuming import pulling
from imago_client.rocketmq.push.handler_pool import HandlerPool
from imago_client.supervision import Supervisor
from imago_wire.remoting.headers.pull import PullMessageRequestHeader

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from imago_client import ReceivedMessage
    from imago_client.core.consuming.process_queue import ProcessQueue
    from imago_client.rocketmq.push.queue_reader import QueueFetcher


class Acting:
    """Stands for what reads a queue: has `act` called with the number of a batch."""

    stopped = paused = False

    def __init__(self, act: Callable[[int], Awaitable[None]]) -> None:
        self._act = act

    async def call_handler(self, batch: list[int]) -> None:
        await self._act(batch[0])

    def finish(self, _process: object, _batch: list[int]) -> None:
        pass


def put(pool: HandlerPool, reader: Acting, number: int) -> None:
    process, batch = cast("ProcessQueue", None), cast("list[ReceivedMessage]", [number])
    pool.put((cast("QueueFetcher", reader), process, batch))


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_quick_handlers_share_a_worker_and_slow_ones_get_as_many_as_may_run() -> None:
    tasks = Supervisor("g", pause_s=0.01)
    tasks.start()
    pool = HandlerPool(tasks, 3)
    seen: list[int] = []
    running, most = 0, 0
    go_on = asyncio.Event()

    async def quick(number: int) -> None:
        seen.append(number)

    async def slow(number: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await go_on.wait()
        running -= 1
        seen.append(number)

    for number in range(50):
        put(pool, Acting(quick), number)
    await settle()
    assert seen == list(range(50))
    assert pool._workers <= 2
    seen.clear()
    for number in range(10):
        put(pool, Acting(slow), number)
    await settle()
    assert (running, pool.waiting_count) == (3, 7)
    go_on.set()
    await settle()
    assert (sorted(seen), most) == (list(range(10)), 3)
    pool.close()
    await tasks.end(50)


async def test_batches_of_a_queue_that_is_given_up_are_not_begun() -> None:
    tasks = Supervisor("g", pause_s=0.01)
    tasks.start()
    pool = HandlerPool(tasks, 1)
    seen: list[int] = []

    async def note(number: int) -> None:
        seen.append(number)

    given, kept = Acting(note), Acting(note)
    put(pool, given, 1)
    put(pool, kept, 2)
    given.stopped = True
    await settle()
    assert seen == [2]
    pool.close()
    put(pool, kept, 3)
    await tasks.end(50)
    assert seen == [2]


async def test_a_worker_that_is_cancelled_from_outside_begins_its_batch_again() -> None:
    tasks = Supervisor("g", pause_s=0.01)
    tasks.start()
    pool = HandlerPool(tasks, 1)
    begun: list[int] = []
    done = asyncio.Event()

    async def act(number: int) -> None:
        begun.append(number)
        if len(begun) == 1:
            raise asyncio.CancelledError
        done.set()

    put(pool, Acting(act), 7)
    async with asyncio.timeout(50):
        await done.wait()
    assert (begun, tasks.stalled) == ([7, 7], 1)
    pool.close()
    await tasks.end(50)


async def fill(client: Client, count: int) -> None:
    await client.admin.create_topic("orders", queues=1)
    messages = [Message("orders", b"%d" % number, tags="t") for number in range(count)]
    for batch in batches(messages):
        await client.producer().send_batch(batch)


@pytest.mark.parametrize("usual", [32, 1000])
async def test_members_read_in_bulk_where_they_may_ask_for_more_than_usual(
    client: Client, monkeypatch: pytest.MonkeyPatch, usual: int
) -> None:
    monkeypatch.setattr(pulling, "USUAL_MESSAGES_MAX", usual)
    kinds: set[type] = set()
    real = pulling._pull_header

    def watched(asked: pulling.PullArguments) -> PullMessageRequestHeader:
        made = real(asked)
        kinds.add(type(made))
        return made

    monkeypatch.setattr(pulling, "_pull_header", watched)
    await fill(client, 200)
    seen: list[bytes] = []
    done = asyncio.Event()

    async def handle(messages: list[ReceivedMessage]) -> None:
        seen.extend(message.body for message in messages)
        if len(seen) == 200:
            done.set()

    config = ConsumerConfig(group="g", start_from=StartFrom.EARLIEST, concurrency=1)
    async with client.push_consumer(config, ["orders"], handle), asyncio.timeout(50):
        await done.wait()
    assert seen == [b"%d" % number for number in range(200)]
    bulk = pulling.BulkPullRequestHeader
    assert kinds == {bulk if usual == 32 else PullMessageRequestHeader}


async def test_poll_gives_no_more_than_asked_and_loses_none(client: Client, bootstrap: str) -> None:
    await fill(client, 50)

    def read() -> list[int]:
        config = ConsumerConfig(group="b", start_from=StartFrom.EARLIEST)
        with blocking.Client(bootstrap) as one, one.group_consumer(config, ["orders"]) as member:
            found = [member.poll(50.0, messages_max=20) for _ in range(3)]
            member.commit()
        assert [m.body for part in found for m in part] == [b"%d" % n for n in range(50)]
        return [len(part) for part in found]

    assert await asyncio.to_thread(read) == [20, 20, 10]


async def test_messages_are_values_that_show_no_bodies(client: Client) -> None:
    await client.admin.create_topic("orders", queues=1)
    sent = await client.producer().send(Message("orders", b"secret" * 9, tags="t", keys=("k1",)))
    reader = client.pull_consumer("g")
    message, again = [
        next((await reader.pull(sent.queue, sent.offset)).messages()) for _ in range(2)
    ]
    assert repr(message) == f"ReceivedMessage({sent.queue}@0, topic='orders', tags='t'," + (
        " keys=('k1',), body=<54 bytes>)"
    )
    assert (message.tags, message.keys, message.message_id) == ("t", ("k1",), sent.message_id)
    assert message.decoded is None, "nothing of that needs the whole record"
    assert message.stored_id == sent.stored_id
    copies = [again, pickle.loads(pickle.dumps(message)), copy.deepcopy(message)]
    assert all(one == message and hash(one) == hash(message) for one in copies)
    pulled = await reader.pull(sent.queue, sent.offset)
    for shown in (pulled, message.stored, Message("orders", b"secret")):
        assert "secret" not in repr(shown)
