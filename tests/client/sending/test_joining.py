"""Sends to one queue that wait together: one request, and to each its own result or error."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pytest

from imago_client import (
    BrokerError,
    Client,
    ClientConfig,
    Message,
    MessageQueue,
    ProducerConfig,
    RequestTimeoutError,
    SendFailedError,
    SendResult,
    UsageError,
)
from imago_client.connections.admission import Admission
from imago_client.core.effects import Wait
from imago_client.core.lookup import find_route
from imago_client.core.sending import outgoing
from imago_client.rocketmq import joining
from imago_client.rocketmq.producer import Producer
from imago_testing.peers.client_scripts import ScriptedServers, response
from imago_wire.errors import LimitExceededError
from imago_wire.remoting import _sent_py
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.headers.send import SendMessageResponseHeader
from imago_wire.remoting.messages import decode_batch

if TYPE_CHECKING:
    from imago_client.core.effects import Effect, Operation, Request
    from imago_client.rocketmq.driver import Driver

T = TypeVar("T")
QUEUE = MessageQueue("orders", "a", 0)
BATCH = RequestCode.SEND_BATCH_MESSAGE


class SlowDriver:
    """Performs requests in a scripted world, each after some turns of the loop."""

    def __init__(self, world: ScriptedServers) -> None:
        self.world = world
        self.admission = Admission(count_max=1024, bytes_max=1 << 30)

    async def run(self, operation: Operation[T]) -> T:
        try:
            effect: Effect = next(operation)
            while True:
                for _ in range(3):
                    await asyncio.sleep(0)
                if isinstance(effect, Wait):
                    opened = asyncio.Event()
                    effect.gate.on_open(opened.set)
                    await opened.wait()
                answer = self.world._perform(effect)
                if isinstance(answer, Exception):
                    effect = operation.throw(answer)
                else:
                    effect = operation.send(answer)
        except StopIteration as stop:
            return cast("T", stop.value)
        finally:
            operation.close()


def bodies_of(request: Request) -> list[bytes]:
    if request.code == BATCH:
        return [entry.body for entry in decode_batch(request.body)]
    return [request.body]


class Store:
    """A broker that stores what it is sent, as far as it does not refuse it."""

    def __init__(self, refusal: int = int(ResponseCode.MESSAGE_ILLEGAL)) -> None:
        self.stored: list[bytes] = []
        self.requests: list[list[bytes]] = []
        self.refusal = refusal
        self.lost = 0
        """So many batches are not answered."""

    def __call__(self, request: Request) -> Any:
        bodies = bodies_of(request)
        self.requests.append(bodies)
        if len(bodies) > 1 and self.lost:
            self.lost -= 1
            return RequestTimeoutError(request.address, 0.1)
        if b"bad" in bodies:
            return response(self.refusal, remark="not this one")
        first = len(self.stored)
        self.stored += bodies
        ids = ",".join(f"{first + at:032X}" for at in range(len(bodies)))
        header = SendMessageResponseHeader(msg_id=ids, queue_id=0, queue_offset=first)
        return response(header=header)


def world_of(store: Store) -> ScriptedServers:
    world = ScriptedServers(shards={"a": "a:1"}, brokers=store)
    world.run(find_route(world.state, "orders"))
    return world


def producer_of(store: Store, config: ProducerConfig | None = None) -> Producer:
    world = world_of(store)
    driver = cast("Driver", SlowDriver(world))
    return Producer(world.state, driver, config or ProducerConfig())


async def send_all(producer: Producer, messages: list[Message]) -> list[SendResult | BaseException]:
    sends = (producer.send(message, queue=QUEUE) for message in messages)
    return await asyncio.gather(*sends, return_exceptions=True)


def numbered(count: int, size: int = 0) -> list[Message]:
    return [Message("orders", b"%d" % number + bytes(size)) for number in range(count)]


@pytest.mark.parametrize("idempotent", [False, True])
async def test_a_crowd_leaves_in_few_requests_and_each_gets_its_own_result(
    *, idempotent: bool
) -> None:
    store = Store()
    producer = producer_of(store, ProducerConfig(idempotent=idempotent))
    results = await send_all(producer, numbered(100))
    assert [len(bodies) for bodies in store.requests] == [1, 99]
    assert store.stored == [b"%d" % number for number in range(100)]
    found = [cast("SendResult", one) for one in results]
    assert [one.offset for one in found] == list(range(100))
    assert [one.stored_id for one in found] == [f"{number:032X}" for number in range(100)]
    assert len({one.message_id for one in found}) == 100


async def test_messages_to_light_queues_go_alone() -> None:
    """Brokers put no message of a batch into a light queue."""
    store = Store()
    producer = producer_of(store)
    light = [replace(one, properties={"INNER_MULTI_DISPATCH": "%LMQ%a"}) for one in numbered(20)]
    await send_all(producer, light)
    assert [len(bodies) for bodies in store.requests] == [1] * 20


async def test_one_after_the_other_go_alone_as_ever() -> None:
    store = Store()
    producer = producer_of(store)
    for message in numbered(3):
        await producer.send(message, queue=QUEUE)
    assert [len(bodies) for bodies in store.requests] == [1, 1, 1]


async def test_no_more_requests_than_the_limit_are_under_way_to_a_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(joining, "UNDER_WAY_MAX", 1)
    store = Store()
    producer = producer_of(store)

    async def late(number: int) -> SendResult:
        for _ in range(number):
            await asyncio.sleep(0)
        return await producer.send(Message("orders", b"%d" % number), queue=QUEUE)

    await asyncio.gather(*(late(number) for number in range(6)))
    assert len(store.requests) < 6
    assert store.stored == [b"%d" % number for number in range(6)]


@pytest.mark.parametrize("by", ["count", "bytes"])
async def test_requests_are_bounded(monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    config = ProducerConfig(joined_max=10 if by == "count" else 1000)
    if by == "bytes":
        monkeypatch.setattr(joining, "JOINED_BYTES_MAX", 2000)
    store = Store()
    await send_all(producer_of(store, config), numbered(40, size=1000 if by == "bytes" else 0))
    assert max(len(bodies) for bodies in store.requests) == (10 if by == "count" else 1)
    assert len(store.stored) == 40


async def test_with_joined_max_1_each_goes_alone() -> None:
    store = Store()
    await send_all(producer_of(store, ProducerConfig(joined_max=1)), numbered(20))
    assert [len(bodies) for bodies in store.requests] == [1] * 20


async def test_what_needs_a_request_of_its_own_has_one() -> None:
    store = Store()
    producer = producer_of(store, ProducerConfig(compress_over_bytes=100))
    alone = [Message("orders", b"later", delay_level=1), Message("orders", bytes(1000))]
    unsafe = [Message("orders", b"unsafe", wait_stored=False) for _ in range(2)]
    await send_all(producer, [*numbered(3), *alone, *unsafe])
    together = [bodies for bodies in store.requests if len(bodies) > 1]
    assert together == [[b"1", b"2"], [b"unsafe", b"unsafe"]]
    assert len(store.stored) == 7


@pytest.mark.parametrize("idempotent", [False, True])
async def test_a_refused_message_fails_alone(*, idempotent: bool) -> None:
    store = Store()
    producer = producer_of(store, ProducerConfig(idempotent=idempotent))
    results = await send_all(producer, [*numbered(5), Message("orders", b"bad"), *numbered(5)])
    failed = [at for at, one in enumerate(results) if isinstance(one, BaseException)]
    assert failed == [5]
    error = results[5]
    assert isinstance(error, BrokerError)
    assert error.code == ResponseCode.MESSAGE_ILLEGAL
    assert sorted(store.stored) == sorted([b"%d" % number for number in range(5)] * 2)


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("twin", ["compiled", "reference"])
async def test_a_message_that_is_too_large_fails_alone(
    monkeypatch: pytest.MonkeyPatch, twin: str, *, idempotent: bool
) -> None:
    """Each of its texts is short; an idempotent producer's numbers make it too large at the end."""
    if twin == "reference":
        monkeypatch.setattr(outgoing, "prepare_plain", _sent_py.prepare_plain)
        monkeypatch.setattr(outgoing, "encode_joined", _sent_py.encode_joined)
    store = Store()
    producer = producer_of(store, ProducerConfig(idempotent=idempotent))
    own = {f"n{at:02}": "v" * 1024 for at in range(16)}
    keys = ("k" * 1020,) * 15
    beside = 50 if idempotent else -1  # of a unique key of 32 characters
    used = sum(len(name) + 1026 for name in own) + len("UNIQ_KEY\x01\x02KEYS\x01\x02") + 32
    last = "k" * (32767 - beside - used - len(keys) * 1021)
    assert len(last) <= 1024
    large = Message("orders", b"large", keys=(*keys, last), properties=own)
    results = await send_all(producer, [*numbered(5), large, *numbered(5)])
    failed = [at for at, one in enumerate(results) if isinstance(one, BaseException)]
    assert failed == [5]
    assert isinstance(results[5], UsageError)
    assert store.stored == [b"%d" % number for number in range(5)] * 2


@pytest.mark.parametrize("idempotent", [False, True])
async def test_what_cannot_be_written_together_goes_alone(
    monkeypatch: pytest.MonkeyPatch, *, idempotent: bool
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise LimitExceededError("properties", size=2, size_max=1)

    monkeypatch.setattr(joining, "join", refuse)
    store = Store()
    results = await send_all(producer_of(store, ProducerConfig(idempotent=idempotent)), numbered(9))
    assert all(isinstance(one, SendResult) for one in results)
    assert [len(bodies) for bodies in store.requests] == [1] * 9


@pytest.mark.parametrize("parts", [("a", "0"), ("a", None), (["a"], 0)])
async def test_queues_of_other_kinds_are_refused(parts: Any) -> None:
    with pytest.raises(UsageError, match="a MessageQueue"):
        await producer_of(Store()).send(
            Message("orders", b""), queue=MessageQueue("orders", *parts)
        )


async def test_a_try_together_counts_among_the_tries_of_each() -> None:
    store = Store(refusal=int(ResponseCode.SYSTEM_ERROR))
    producer = producer_of(store, ProducerConfig(retries_max=1))
    messages = [*numbered(2), Message("orders", b"bad"), Message("orders", b"good")]
    results = await send_all(producer, messages)
    assert isinstance(results[2], SendFailedError)
    tries = [bodies for bodies in store.requests if b"bad" in bodies]
    assert [len(bodies) for bodies in tries] == [3, 1]
    assert sorted(store.stored) == [b"0", b"1", b"good"]


async def test_a_lost_answer_is_tried_again_by_each() -> None:
    store = Store()
    store.lost = 1
    results = await send_all(producer_of(store), numbered(4))
    assert all(isinstance(one, SendResult) for one in results)
    assert [len(bodies) for bodies in store.requests] == [1, 3, 1, 1, 1]


@pytest.mark.parametrize("turns", range(8))
async def test_giving_one_up_gives_up_no_other(turns: int) -> None:
    store = Store()
    producer = producer_of(store)
    sends = [asyncio.create_task(producer.send(message, queue=QUEUE)) for message in numbered(10)]
    for _ in range(turns):
        await asyncio.sleep(0)
    sends[0].cancel()
    sends[4].cancel()
    results = await asyncio.gather(*sends, return_exceptions=True)
    assert sum(isinstance(one, SendResult) for one in results) >= 8
    again = await send_all(producer, numbered(3))  # nothing is held for ever
    assert all(isinstance(one, SendResult) for one in again)
    assert producer._joining._busy == {}
    assert not producer._joining.tasks


async def test_what_is_submitted_is_under_way_at_once_and_ends_before_its_client(
    client: Client, bootstrap: str
) -> None:
    await client.admin.create_topic("orders", queues=1)
    async with Client(ClientConfig(bootstrap=(bootstrap,), sends_max=3)) as submitting:
        producer = submitting.producer()
        tasks = [await producer.submit(message) for message in numbered(40)]
        assert sum(not task.done() for task in tasks) <= 3, "no more than there is room for"
        with pytest.raises(UsageError, match="a Message"):
            await producer.submit(cast("Message", b"bare"))
        last = await producer.submit(Message("orders", b"last"))
        assert not last.done()
    assert [task.result().offset for task in [*tasks, last]] == list(range(41))


async def test_the_rotation_over_queues_stays(client: Client) -> None:
    await client.admin.create_topic("orders", queues=4)
    producer = client.producer()
    results = await asyncio.gather(*(producer.send(message) for message in numbered(40)))
    by_queue = [sum(one.queue.queue_id == number for one in results) for number in range(4)]
    assert by_queue == [10] * 4
    reader = client.pull_consumer("g")
    for one in results[:8]:
        found = next((await reader.pull(one.queue, one.offset)).messages())
        assert (found.message_id, found.stored_id) == (one.message_id, one.stored_id)
