"""Interceptors and counters of both faces, and what shows them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from imago_client import (
    Client,
    ClientConfig,
    ClientCounters,
    ConsumerConfig,
    Interceptor,
    Message,
    ProducerConfig,
    UsageError,
    blocking,
)
from imago_client.core.sending.outgoing import prepare, prepare_batch
from imago_client.observing.prometheus import CountersCollector
from imago_client.observing.watch import Watch
from imago_testing.peers.client_scripts import ScriptedServers
from imago_wire.remoting.messages import decode_batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_client import ReceivedMessage

CONFIG = ProducerConfig()


class Marking(Interceptor):
    """Writes into each message that it was there, and down what it is called with."""

    def __init__(self) -> None:
        self.called: list[tuple[object, ...]] = []

    def before_send(self, message: Message) -> Message:
        return replace(message, properties={**message.properties, "mark": "1"})

    def after_receive(self, group: str, messages: Sequence[ReceivedMessage]) -> None:
        self.called.append(("received", group, *(message.body for message in messages)))

    def before_handle(self, group: str, messages: Sequence[ReceivedMessage]) -> object:
        self.called.append(("begins", group))
        return messages[0].body

    def after_handle(self, begun: object, error: BaseException | None) -> None:
        self.called.append(("ended", begun, type(error)))


class Failing(Interceptor):
    """Fails wherever it is called."""

    def before_send(self, message: Message) -> Message:
        raise ValueError(message.topic)

    def after_receive(self, group: str, messages: Sequence[ReceivedMessage]) -> None:
        raise ValueError(group, messages)

    def before_handle(self, group: str, messages: Sequence[ReceivedMessage]) -> object:
        raise ValueError(group, messages)

    def after_handle(self, begun: object, error: BaseException | None) -> None:
        raise ValueError(begun, error)


class Wrong(Interceptor):
    """Returns a text."""

    def before_send(self, message: Message) -> Message:
        return cast("Message", message.topic)


def state_with(*interceptors: Interceptor) -> Any:
    state = ScriptedServers().state
    state.watch = Watch(interceptors)
    return state


def test_messages_are_sent_as_interceptors_return_them() -> None:
    state = state_with(Marking())
    alone = prepare(state, CONFIG, Message("orders", b"x"))
    assert "mark\x011\x02" in alone.properties
    batch = prepare_batch(state, CONFIG, [Message("orders", b"x")] * 2)
    assert all(b"mark\x011\x02" in entry.properties for entry in decode_batch(batch.body))


def test_what_an_interceptor_raises_or_returns_wrongly_stops_the_send() -> None:
    with pytest.raises(ValueError, match="orders"):
        prepare(state_with(Failing()), CONFIG, Message("orders", b"x"))
    with pytest.raises(UsageError, match="before_send of Wrong: 'orders', must be a Message"):
        prepare(state_with(Wrong()), CONFIG, Message("orders", b"x"))
    with pytest.raises(UsageError, match="message: None"):
        prepare(state_with(Marking()), CONFIG, cast("Message", None))


@pytest.mark.parametrize("wrong", [Marking(), [Marking()], (Marking,), (1,)])
def test_interceptors_are_a_tuple_of_objects(wrong: Any) -> None:
    with pytest.raises(UsageError, match=r"interceptors: .*, must be"):
        ClientConfig(bootstrap=("127.0.0.1:9876",), interceptors=wrong)


async def test_handlers_and_polls_are_seen_and_counted(client: Client, bootstrap: str) -> None:
    await client.admin.create_topic("orders", queues=1)
    marking, failing = Marking(), Failing()
    failing.before_send = lambda message: message  # type: ignore[method-assign]  # it fails otherwise
    settings = ClientConfig(bootstrap=(bootstrap,), interceptors=(failing, marking))
    handled = asyncio.Event()

    async def handle(messages: list[ReceivedMessage]) -> None:
        assert messages[0].properties["mark"] == "1"
        handled.set()
        raise ValueError("mine")

    async with Client(settings) as watched:
        await watched.producer().send(Message("orders", b"one"))
        await asyncio.gather(*(watched.producer().send(Message("orders", b"x")) for _ in range(4)))
        config = ConsumerConfig(group="g", start_from="earliest", batch_messages_max=9)
        async with watched.push_consumer(config, ["orders"], handle), asyncio.timeout(50):
            await handled.wait()
        counted = watched.counters
        assert isinstance(counted, ClientCounters)
        assert (counted.sent, counted.received, counted.send_tries_failed) == (5, 5, 0)
        assert counted.handlers_failed >= 1
        assert counted.handed_back == 5
        assert counted.received_bytes > counted.sent_bytes >= 7
        registry = CollectorRegistry()
        registry.register(CountersCollector(watched, {"app": "billing"}))
        shown = generate_latest(registry).decode()
        assert 'imago_client_sent_total{app="billing"} 5.0' in shown
    assert marking.called[0][:3] == ("received", "g", b"one")
    assert marking.called[1:3] == [("begins", "g"), ("ended", b"one", ValueError)]


async def test_the_blocking_client_counts_and_shows_the_same(
    client: Client, bootstrap: str
) -> None:
    await client.admin.create_topic("orders", queues=1)
    marking = Marking()

    def use() -> tuple[int, int]:
        settings = ClientConfig(bootstrap=(bootstrap,), interceptors=(marking,))
        config = ConsumerConfig(group="g", start_from="earliest")
        with blocking.Client(settings) as watched:
            watched.producer().send(Message("orders", b"one"))
            with watched.group_consumer(config, ["orders"]) as consumer:
                [message] = consumer.poll(50)
            assert message.properties["mark"] == "1"
            return watched.counters.sent, watched.counters.received

    assert await asyncio.to_thread(use) == (1, 1)
    assert marking.called == [("received", "g", b"one")]
