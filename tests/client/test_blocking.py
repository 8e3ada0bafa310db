"""The blocking clients against a broker, and against servers that misbehave."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import socket
import threading
import warnings
from typing import TYPE_CHECKING, Any, Self

import pytest

from imago_client import (
    BrokerError,
    ClientClosedError,
    ClientConfig,
    ConnectionLostError,
    ConsumerConfig,
    Message,
    ProducerConfig,
    PullStatus,
    RequestTimeoutError,
    SendFailedError,
    StartFrom,
)
from imago_client.blocking import Client
from imago_client.blocking.faces import completed
from imago_client.blocking.rocketmq import scan
from imago_client.blocking.rocketmq.connection import BlockingConnection
from imago_client.blocking.rocketmq.scan import ScanLimits
from imago_client.core.consuming import pulling
from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from imago_client import ReceivedMessage
    from imago_client.blocking.rocketmq.group import GroupConsumer


def test_what_waits_for_an_event_loop_is_no_blocking_call() -> None:
    with pytest.raises(RuntimeError, match="waits for an event loop"):
        completed(asyncio.sleep(0))


async def test_produce_scan_and_administer(bootstrap: str) -> None:
    def work() -> None:
        with Client(bootstrap) as client:
            client.admin.create_topic("orders", queues=1)
            bodies = [bytes([number % 256]) * 500 for number in range(2000)]
            client.producer().send_batch([Message("orders", body) for body in bodies])
            consumer = client.pull_consumer("g")
            (queue,) = consumer.queues("orders")
            pieces = list(consumer.scan(queue, 0, 2000, ScanLimits(piece_bytes=256 << 10)))
            found = [message.body for piece in pieces for message in piece.messages()]
            assert len(pieces) > 2
            assert found == bodies
            assert [one.max_offset for one in client.admin.topic_bounds("orders")] == [2000]

    await asyncio.to_thread(work)


async def test_scan_ends_with_what_it_could_not_find(bootstrap: str) -> None:
    def work() -> None:
        with Client(bootstrap) as client:
            client.admin.create_topic("orders", queues=1)
            client.producer().send_batch([Message("orders", b"x")] * 3)
            consumer = client.pull_consumer("g")
            (queue,) = consumer.queues("orders")
            *_, last = consumer.scan(queue, 0, 10)
            assert (last.status, last.max_offset) == (PullStatus.NO_NEW_MESSAGE, 3)
            (only,) = consumer.scan(queue, 7, 10)
            assert (only.status, only.next_offset) == (PullStatus.OFFSET_ILLEGAL, 3)

    await asyncio.to_thread(work)


@pytest.mark.parametrize(
    ("piece_bytes", "asked"),
    [(256 << 10, [256 << 10, 128 << 10, 64 << 10, 64 << 10]), (4 << 10, [4 << 10] * 4)],
)
async def test_a_busy_broker_is_asked_for_less_and_never_for_more(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch, piece_bytes: int, asked: list[int]
) -> None:
    sizes: list[int] = []
    read, request = pulling.read_pulled, pulling.pull_request

    def busy_at_first(*arguments: Any) -> Any:
        if len(sizes) < 4:
            raise BrokerError("127.0.0.1:1", ResponseCode.SYSTEM_BUSY, "busy")
        return read(*arguments)

    def noted(state: Any, arguments: Any) -> Any:
        sizes.append(arguments.bulk_bytes)
        return request(state, arguments)

    monkeypatch.setattr(pulling, "read_pulled", busy_at_first)
    monkeypatch.setattr(pulling, "pull_request", noted)
    monkeypatch.setattr(scan, "_PAUSE_S", 0.0)

    def work() -> None:
        with Client(bootstrap) as client:
            client.admin.create_topic("orders", queues=1)
            client.producer().send(Message("orders", b"x"))
            consumer = client.pull_consumer("g")
            (queue,) = consumer.queues("orders")
            (piece,) = consumer.scan(queue, 0, 1, ScanLimits(piece_bytes=piece_bytes))
            assert [message.body for message in piece.messages()] == [b"x"]

    await asyncio.to_thread(work)
    assert sizes == asked


async def test_scan_that_is_given_up_leaves_a_usable_client(bootstrap: str) -> None:
    def work() -> None:
        with Client(bootstrap) as client:
            client.admin.create_topic("orders", queues=1)
            client.producer().send_batch([Message("orders", bytes(1000))] * 1000)
            consumer = client.pull_consumer("g")
            (queue,) = consumer.queues("orders")
            for _ in consumer.scan(queue, 0, 1000, ScanLimits(piece_bytes=64 << 10)):
                break
            assert consumer.max_offset(queue) == 1000
            assert consumer.pull(queue, 999).next_offset == 1000

    await asyncio.to_thread(work)


async def test_child_process_uses_connections_of_its_own(bootstrap: str) -> None:
    def work() -> bytes:
        with Client(bootstrap) as client:
            client.admin.create_topic("orders", queues=1)
            producer = client.producer()
            producer.send(Message("orders", b"parent"))
            reader, writer = os.pipe()
            with warnings.catch_warnings():
                # From 3.12 on Python warns of threads; the child only uses this client and ends.
                warnings.simplefilter("ignore", DeprecationWarning)
                child = os.fork()
            if child == 0:
                status = 1
                try:
                    sent = producer.send(Message("orders", b"child"))
                    os.write(writer, pickle.dumps(sent.offset))
                    status = 0
                finally:
                    os._exit(status)
            os.close(writer)
            with os.fdopen(reader, "rb") as answer:
                offset = pickle.loads(answer.read())
            assert os.waitpid(child, 0)[1] == 0
            assert offset == 1
            return b"%d" % producer.send(Message("orders", b"parent again")).offset

    assert await asyncio.to_thread(work) == b"2"


async def test_idle_connection_is_used_again_and_a_left_one_is_not(bootstrap: str) -> None:
    def work() -> None:
        config = ClientConfig.of(bootstrap)
        with BlockingConnectionProbe(bootstrap, config) as connection:
            connection.used_at -= 2.0  # idle long enough to be looked at
            assert connection.is_usable()
            connection.used_at -= config.idle_s_max
            assert not connection.is_usable()

    await asyncio.to_thread(work)


def test_connection_that_the_server_left_is_not_used(
    server: Callable[[Callable[[socket.socket], None]], str],
) -> None:
    left = threading.Event()

    def leave(connection: socket.socket) -> None:
        connection.shutdown(socket.SHUT_RDWR)
        left.set()

    address = server(leave)
    with BlockingConnectionProbe(address, ClientConfig.of(address)) as connection:
        assert left.wait(10)
        connection.used_at -= 2.0
        assert not connection.is_usable()


class BlockingConnectionProbe(BlockingConnection):
    """A connection that closes at the end of a block."""

    def __init__(self, address: str, config: ClientConfig) -> None:
        super().__init__(address, config, lambda *_: None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


async def test_group_is_shared_by_polling_members_and_goes_on_after_them(bootstrap: str) -> None:
    def work() -> None:
        config = ConsumerConfig(group="g", start_from=StartFrom.EARLIEST)
        with Client(bootstrap) as one, Client(bootstrap) as two:
            one.admin.create_topic("orders", queues=2)
            first, second = (each.group_consumer(config, ["orders"]) for each in (one, two))
            while not of_orders(first) == of_orders(second) == 1:
                first.poll(0)
                second.poll(0)
            one.producer().send_batch([Message("orders", b"x")] * 10, queue=first.queues[-1])
            one.producer().send_batch([Message("orders", b"y")] * 10, queue=second.queues[-1])
            got = [polled(each, 10) for each in (first, second)]
            assert {message.body for message in got[0]} == {b"x"}
            assert {message.body for message in got[1]} == {b"y"}
            first.commit()
        # The second did not commit what it got last: the group gets it again.
        with Client(bootstrap) as later:
            again = polled(later.group_consumer(config, ["orders"]), 10)
            assert [message.body for message in again] == [b"y"] * 10

    await asyncio.to_thread(work)


def of_orders(consumer: GroupConsumer) -> int:
    return sum(queue.topic == "orders" for queue in consumer.queues)


def polled(consumer: GroupConsumer, count: int) -> list[ReceivedMessage]:
    found: list[ReceivedMessage] = []
    for _ in range(100):
        found += consumer.poll(0.2)
        if len(found) >= count:
            return found
    raise AssertionError(f"{len(found)} messages came, {count} were sent")


@pytest.mark.processes  # its delay is ten seconds long
async def test_message_handed_back_comes_again(bootstrap: str) -> None:
    def work() -> None:
        with Client(bootstrap) as client:
            client.admin.create_topic("orders", queues=1)
            client.producer().send(Message("orders", b"x"))
            config = ConsumerConfig(group="g", start_from=StartFrom.EARLIEST)
            with client.group_consumer(config, {"orders": "*"}) as consumer:
                (message,) = polled(consumer, 1)
                consumer.retry(message, delay_level=1)
                (again,) = polled(consumer, 1)
                assert (again.body, again.topic, again.reconsume_times) == (b"x", "orders", 1)

    await asyncio.to_thread(work)


def test_group_that_reaches_nobody_says_so() -> None:
    with Client("127.0.0.1:1") as client, pytest.raises(ConnectionLostError):
        client.group_consumer("g", ["orders"]).poll()


def test_nothing_is_opened_before_the_first_call() -> None:
    with Client("127.0.0.1:1") as client:
        client.producer()
        client.pull_consumer("g")


def test_unreachable_name_service_is_named() -> None:
    config = ClientConfig(bootstrap=("127.0.0.1:1",), connect_timeout_s=1.0)
    with Client(config) as client, pytest.raises(ConnectionLostError, match=r"127\.0\.0\.1:1"):
        client.pull_consumer("g").queues("orders")


def test_closed_client_says_so() -> None:
    client = Client("127.0.0.1:1")
    client.close()
    with pytest.raises(ClientClosedError):
        client.pull_consumer("g").queues("orders")


@pytest.fixture
def server() -> Iterator[Callable[[Callable[[socket.socket], None]], str]]:
    """Serve one connection at a time with a function, in a thread; return the address."""
    listener = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []
    held: list[socket.socket] = []

    def start(serve: Callable[[socket.socket], None]) -> str:
        def loop() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                held.append(connection)
                serve(connection)

        threads.append(threading.Thread(target=loop))
        threads[-1].start()
        return f"127.0.0.1:{listener.getsockname()[1]}"

    yield start
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    for thread in threads:
        thread.join()
    for connection in held:
        connection.close()


def test_silent_server_is_a_time_out(
    server: Callable[[Callable[[socket.socket], None]], str],
) -> None:
    address = server(lambda _: None)
    config = ClientConfig(bootstrap=(address,), request_timeout_s=0.05)
    with Client(config) as client, pytest.raises(RequestTimeoutError, match=r"0\.05 s"):
        client.pull_consumer("g").queues("orders")


@pytest.mark.parametrize(
    "answer",
    [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00\x00\x00\x05\x07\x00\x00\x01x"],
    ids=["closes", "speaks http", "unknown header form"],
)
def test_wrong_server_is_an_error_that_names_it(
    server: Callable[[Callable[[socket.socket], None]], str], answer: bytes
) -> None:
    def serve(connection: socket.socket) -> None:
        connection.recv(1 << 16)
        connection.sendall(answer)
        with contextlib.suppress(OSError):  # the client may have gone first
            connection.shutdown(socket.SHUT_RDWR)

    address = server(serve)
    with Client(address) as client, pytest.raises(ConnectionLostError, match=address):
        client.pull_consumer("g").queues("orders")


def test_send_without_any_server_gives_up_in_time() -> None:
    config = ClientConfig(bootstrap=("127.0.0.1:1",), connect_timeout_s=1.0)
    with Client(config) as client, pytest.raises(SendFailedError, match="3 tries"):
        client.producer(ProducerConfig(send_timeout_s=1.0)).send(Message("orders", b"x"))
