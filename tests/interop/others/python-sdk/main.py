"""RocketMQ 5's Python SDK, as its own documentation uses it: prints what became of each story."""

from __future__ import annotations

import itertools
import json
import os
import sys
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    LitePushConsumer,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)
from rocketmq.grpc_protocol import FilterType

if TYPE_CHECKING:
    from collections.abc import Callable

WAIT_SECONDS = 100.0
TLS = {"tls_enable": True} if sys.argv[4:] == ["tls"] else {}


def made(topic: str, body: str, **said: Any) -> Message:
    message = Message()
    message.topic, message.body = topic, body.encode()
    for name, value in said.items():
        setattr(message, name, value)
    return message


class Heir(TransactionChecker):  # type: ignore[misc]  # installed where it runs alone
    """Commits what it is asked about."""

    def check(self, _: Message) -> Any:
        return TransactionResolution.COMMIT


class Reader:
    """A simple consumer, which acknowledges what it gets unless told otherwise."""

    def __init__(self, config: ClientConfiguration, group: str, topic: str, *of: Any) -> None:
        self.consumer = SimpleConsumer(
            config, group, {topic: FilterExpression(*of)}, await_duration=5, **TLS
        )
        self.consumer.startup()

    def read(self, count: int, *, invisible: int = 20, ack: bool = True) -> list[Message]:
        found: list[Message] = []
        until = time.monotonic() + WAIT_SECONDS
        while len(found) < count and time.monotonic() < until:
            try:
                got = self.consumer.receive(min(32, count), invisible)
            except Exception as error:
                print(error, file=sys.stderr)
                time.sleep(1)
                continue
            for message in got:
                if ack:
                    self.consumer.ack(message)
                found.append(message)
        return found

    def close(self) -> None:
        self.consumer.shutdown()


def bodies(messages: list[Message]) -> list[str]:
    return [message.body.decode() for message in messages]


def normal(config: ClientConfiguration, topic: str) -> dict[str, Any]:
    producer = Producer(config, (topic,), **TLS)
    producer.startup()
    for number in range(10):
        tag = "odd" if number % 2 else "even"
        message = made(topic, f"n{number}", tag=tag, keys=f"k{number}")
        message.add_property("colour", "red")
        producer.send(message)
    reader = Reader(config, f"{topic}-all", topic)
    found = reader.read(10)
    odd = Reader(config, f"{topic}-odd", topic, "odd")
    some = odd.read(5)
    wanted = ("colour = 'red' AND TAGS = 'odd'", FilterType.SQL)
    queried = Reader(config, f"{topic}-sql", topic, *wanted)
    same = queried.read(5)
    first = next(each for each in found if each.body == b"n1")
    for each in (reader, odd, queried):
        each.close()
    producer.shutdown()
    return {
        "bodies": sorted(bodies(found)),
        "odd": sorted(bodies(some)),
        "sql": sorted(bodies(same)),
        "tag": first.tag,
        "keys": sorted(first.keys),
        "properties": dict(first.properties),
        "attempt": first.delivery_attempt,
    }


def fifo(config: ClientConfiguration, topic: str) -> dict[str, Any]:
    producer = Producer(config, (topic,), **TLS)
    producer.startup()
    for number in range(12):
        producer.send(made(topic, f"f{number}", message_group=f"g{number % 3}"))
    reader = Reader(config, f"{topic}-ordered", topic)
    found = bodies(reader.read(12))
    reader.close()
    producer.shutdown()
    return {
        str(group): [each for each in found if int(each[1:]) % 3 == group] for group in range(3)
    }


def delay(config: ClientConfiguration, topic: str) -> dict[str, Any]:
    producer = Producer(config, (topic,), **TLS)
    producer.startup()
    reader = Reader(config, f"{topic}-late", topic)
    due = time.time() + 8
    producer.send(made(topic, "late", delivery_timestamp=int(due)))
    taken = producer.send(made(topic, "recalled", delivery_timestamp=int(due)))
    producer.recall_message(topic, taken.recall_handle)
    found = reader.read(1)
    arrived = time.time()
    more = []
    try:
        more = reader.consumer.receive(1, 20)
    except Exception as error:
        print(error, file=sys.stderr)
    reader.close()
    producer.shutdown()
    return {"bodies": bodies(found), "early": arrived < due - 2, "more": bodies(more or [])}


def transaction(config: ClientConfiguration, topic: str) -> dict[str, Any]:
    producer = Producer(config, (topic,), checker=Heir(), **TLS)
    producer.startup()
    for how in ("commit", "rollback", "orphan"):
        begun = producer.begin_transaction()
        producer.send(made(topic, how), begun)
        if how != "orphan":
            getattr(begun, how)()
    reader = Reader(config, f"{topic}-done", topic)
    found = bodies(reader.read(2))
    reader.close()
    producer.shutdown()
    return {"bodies": sorted(found)}


def push(config: ClientConfiguration, topic: str) -> dict[str, Any]:
    """A push consumer that fails once with one message."""
    producer = Producer(config, (topic,), **TLS)
    producer.startup()
    for number in range(5):
        producer.send(made(topic, f"p{number}"))
    producer.shutdown()
    return {"seen": sorted(pushed(config, f"{topic}-push", topic, "p0", 6))}


def stubborn(config: ClientConfiguration, topic: str) -> dict[str, Any]:
    """A push consumer of an ordered group that fails once with the first message."""
    producer = Producer(config, (topic,), **TLS)
    producer.startup()
    for number in range(3):
        producer.send(made(topic, f"s{number}", message_group="one"))
    producer.shutdown()
    return {"seen": pushed(config, f"{topic}-stubborn", topic, "s0", 4)}


def pushed(
    config: ClientConfiguration, group: str, topic: str, failing: str, count: int
) -> list[str]:
    """Return what a push consumer has seen, in order; one message fails the first time."""
    consumer, seen = pushing(config, group, topic, lambda body, first: body == failing and first)
    wait_for(seen, count)
    consumer.shutdown()
    return seen


def pushing(
    config: ClientConfiguration, group: str, topic: str, fails: Callable[[str, bool], bool]
) -> tuple[PushConsumer, list[str]]:
    """Return a push consumer, and what it sees; `fails` is told a body, and whether it is new."""
    lock, seen = threading.Lock(), list[str]()

    class Listener(MessageListener):  # type: ignore[misc]  # the same
        def consume(self, message: Message) -> Any:
            with lock:
                body = message.body.decode()
                failed = fails(body, not any(each.split()[0] == body for each in seen))
                seen.append(f"{body} {message.delivery_attempt}")
            return ConsumeResult.FAILURE if failed else ConsumeResult.SUCCESS

    consumer = PushConsumer(config, group, Listener(), {topic: FilterExpression()}, **TLS)
    consumer.startup()
    return consumer, seen


def letters(config: ClientConfiguration, topic: str) -> dict[str, Any]:
    """A push consumer that always fails: its group gives the message up."""
    producer = Producer(config, (topic,), **TLS)
    producer.startup()
    producer.send(made(topic, "dead"))
    producer.shutdown()
    group = f"{topic}-letters"
    consumer, seen = pushing(config, group, topic, lambda _, __: True)
    wait_for(seen, 2)
    reader = Reader(config, f"{topic}-dead", f"%DLQ%{group}")
    found = bodies(reader.read(1))
    reader.close()
    consumer.shutdown()
    return {"dead": found, "seen": seen}


def again(config: ClientConfiguration, topic: str) -> dict[str, Any]:
    """What is not acknowledged comes again, and its first handle counts no more."""
    producer = Producer(config, (topic,), **TLS)
    producer.startup()
    producer.send(made(topic, "twice"))
    reader = Reader(config, f"{topic}-again", topic)
    first = reader.read(1, invisible=10, ack=False)[0]
    reader.consumer.change_invisible_duration(first, 10)
    second = reader.read(1, invisible=20)[0]
    reader.close()
    producer.shutdown()
    return {"attempts": [first.delivery_attempt, second.delivery_attempt]}


def urgent(config: ClientConfiguration, topic: str) -> dict[str, Any]:
    """Messages of priorities, the lowest one sent first."""
    producer = Producer(config, (topic,), **TLS)
    producer.startup()
    for priority in range(1, 4):
        producer.send(made(topic, f"u{priority}", priority=priority))
    reader = Reader(config, f"{topic}-urgent", topic)
    found = bodies(reader.read(3))
    reader.close()
    producer.shutdown()
    return {"bodies": found}


def chats(config: ClientConfiguration, topic: str) -> dict[str, Any]:
    """A push consumer of two lite topics, which gives one of them up."""
    seen: list[tuple[str, str]] = []

    class Listener(MessageListener):  # type: ignore[misc]  # the same
        def consume(self, message: Message) -> Any:
            seen.append((message.lite_topic, message.body.decode()))
            return ConsumeResult.SUCCESS

    producer = Producer(config, (topic,), **TLS)
    producer.startup()
    consumer = LitePushConsumer(config, f"{topic}-chats", topic, Listener(), **TLS)
    consumer.startup()
    for name in ("ann", "bob"):
        consumer.subscribe_lite(name)
    said(producer, topic, "ann a0", "ann a1", "bob b0", "eve e0")
    wait_for(seen, 3)
    consumer.unsubscribe_lite("bob")
    said(producer, topic, "bob b1", "ann a2")
    wait_for(seen, 4)
    consumer.shutdown()
    producer.shutdown()
    return {name: sorted(body for of, body in seen if of == name) for name, _ in seen}


def said(producer: Producer, topic: str, *words: str) -> None:
    for each in words:
        lite_topic, body = each.split()
        producer.send(made(topic, body, lite_topic=lite_topic))


def wait_for(seen: list[Any], count: int) -> None:
    until = time.monotonic() + WAIT_SECONDS
    while len(seen) < count and time.monotonic() < until:
        time.sleep(0.05)


def send(config: ClientConfiguration, topic: str) -> dict[str, Any]:
    """Send one message, or say why not."""
    try:
        producer = Producer(config, (topic,), **TLS)
        producer.startup()
        producer.send(made(topic, "sent"))
        producer.shutdown()
    except Exception as error:
        return {"refused": str(error)}
    return {"sent": 1}


def read(config: ClientConfiguration, topic: str) -> dict[str, Any]:
    """Read what others have sent."""
    reader = Reader(config, f"{topic}-others", topic)
    found = reader.read(4)
    reader.close()
    return {"bodies": sorted(bodies(found))}


class Steady:
    """Sends and receives until standard input ends, whatever becomes of brokers meanwhile."""

    def __init__(self, config: ClientConfiguration, topic: str) -> None:
        self.config, self.topic, self.stop = config, topic, threading.Event()
        self.sent: list[str] = []
        self.seen: set[str] = set()
        self.again: list[str] = []
        self.faults: Counter[str] = Counter()

    def tried(self, what: str, call: Callable[..., Any], *arguments: Any) -> tuple[bool, Any]:
        """Return whether a call went well, and what it returned."""
        try:
            return True, call(*arguments)
        except Exception as error:
            self.faults[f"{what} {type(error).__name__}"] += 1
            time.sleep(0.1)
            return False, None

    def wait(self) -> None:
        sys.stdin.read()
        self.stop.set()

    def send(self) -> None:
        producer = Producer(self.config, (self.topic,), **TLS)
        producer.startup()
        for number in itertools.count():
            if self.stop.is_set():
                return
            well, _ = self.tried("send", producer.send, made(self.topic, f"t{number}"))
            if well:
                self.sent.append(f"t{number}")
                if len(self.sent) % 20 == 0:
                    print(len(self.sent), flush=True)
                time.sleep(0.01)

    def read(self, sending: threading.Thread) -> None:
        """Receive and acknowledge until all that was sent was seen, and nothing comes any more."""
        consumer = Reader(self.config, f"{self.topic}-readers", self.topic).consumer
        done, until = set[str](), float("inf")
        while time.monotonic() < until:
            if self.stop.is_set() and until == float("inf"):
                sending.join()
                until = time.monotonic() + WAIT_SECONDS
            well, got = self.tried("receive", consumer.receive, 32, 20)
            if well and not got and self.stop.is_set() and self.seen.issuperset(self.sent):
                return
            for message in got or ():
                self.take(consumer, message, done)

    def take(self, consumer: SimpleConsumer, message: Message, done: set[str]) -> None:
        """Acknowledge one. `done`: the records that are; what was sent twice has two."""
        body, record = message.body.decode(), message.receipt_handle.rpartition(" ")[2]
        self.seen.add(body)
        if record in done:
            self.again.append(body)
        well, _ = self.tried("ack", consumer.ack, message)
        if well:
            done.add(record)


def steady(config: ClientConfiguration, topic: str) -> dict[str, Any]:
    """Send and receive until standard input ends; say what was lost, and what came again."""
    told = Steady(config, topic)
    sending = threading.Thread(target=told.send)
    sending.start()
    threading.Thread(target=told.wait, daemon=True).start()
    told.read(sending)
    lost = sorted(set(told.sent) - told.seen)
    return {"sent": len(told.sent), "lost": lost, "again": told.again, "faults": told.faults}


STORIES = (
    normal, fifo, delay, transaction, push, stubborn, again, letters, urgent, chats, send, read,
    steady,
)  # fmt: skip


def main() -> None:
    story, endpoints, topic, *user = sys.argv[1:]
    credentials = [*user, os.environ["SDK_PASSWORD"]] if user and not TLS else []
    serve = next(each for each in STORIES if each.__name__ == story)
    config = ClientConfiguration(endpoints, Credentials(*credentials))
    print(json.dumps(serve(config, topic)), flush=True)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    __import__("os")._exit(0)  # its threads outlive their clients
