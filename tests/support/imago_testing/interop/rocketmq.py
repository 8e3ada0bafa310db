"""An original RocketMQ client, by typed calls. Consumers and producers stop with their block."""

from __future__ import annotations

import contextlib
import itertools
from base64 import b64decode, b64encode
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from imago_testing.interop.backlogs import BacklogReading
from imago_testing.java.driver import CALL_SECONDS
from imago_testing.processes.servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from concurrent.futures import Future

    from imago_testing.java.driver import JavaDriver

TAKE_SECONDS = 60.0
"""Clients share queues out anew every 20 seconds."""
_names = itertools.count(1)


@dataclass(frozen=True, slots=True, order=True)
class Queue:
    topic: str
    broker: str
    queue: int

    @classmethod
    def of(cls, form: Mapping[str, Any]) -> Queue:
        return cls(form["topic"], form["broker"], form["queue"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A message to send."""

    body: bytes
    tags: str | None = None
    keys: str | None = None
    delay_level: int | None = None
    deliver_ms: int | None = None
    flag: int = 0
    properties: Mapping[str, str] = field(default_factory=dict)

    def form(self, topic: str) -> dict[str, object]:
        form = {name: value for name, value in asdict(self).items() if value is not None}
        return form | {"topic": topic, "body": b64encode(self.body).decode()}


@dataclass(frozen=True, slots=True)
class Sent:
    """What the producer returned."""

    status: str
    id: str
    offset_id: str
    queue: Queue
    offset: int
    recall_handle: str | None = None

    @classmethod
    def of(cls, form: Mapping[str, Any]) -> Sent:
        where = (form["offset_id"], Queue.of(form), form["offset"])
        return cls(form["status"], form["id"], *where, form["recall_handle"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A message as a consumer or a query saw it."""

    id: str
    queue: Queue
    offset: int
    body: bytes
    tags: str | None
    keys: str | None
    flag: int
    sys_flag: int
    reconsumed: int
    born_ms: int
    stored_ms: int
    physical_offset: int
    properties: Mapping[str, str]
    succeeds: bool = True
    """Whether the listener was told to accept this delivery."""

    @classmethod
    def of(cls, form: Mapping[str, Any]) -> Received:
        rest = {name: form[name] for name in form if name not in {"topic", "broker"}}
        return cls(**rest | {"queue": Queue.of(form), "body": b64decode(form["body"])})


@dataclass(frozen=True, slots=True)
class Pulled:
    """One answer of a pull."""

    status: str
    next: int
    min: int
    max: int
    messages: Sequence[Received]

    @classmethod
    def of(cls, form: dict[str, Any]) -> Pulled:
        return cls(**form | {"messages": [Received.of(each) for each in form["messages"]]})


def received(forms: Sequence[Mapping[str, Any]]) -> list[Received]:
    return [Received.of(form) for form in forms]


@dataclass(frozen=True, slots=True)
class Producer:
    driver: JavaDriver
    name: str

    def _call(self, command: str, where: str, messages: Sequence[Outgoing], **more: object) -> Any:
        forms = [message.form(where) for message in messages]
        return self.driver.call(command, producer=self.name, messages=forms, **more)

    def send(self, topic: str, messages: Sequence[Outgoing]) -> list[Sent]:
        return [Sent.of(form) for form in self._call("producer.send", topic, messages)]

    def send_to_queue(self, queue: Queue, messages: Sequence[Outgoing]) -> list[Sent]:
        forms = self._call("producer.send_to_queue", queue.topic, messages, **asdict(queue))
        return [Sent.of(form) for form in forms]

    def send_by_hash(self, topic: str, messages: Sequence[Outgoing]) -> list[Sent]:
        """Messages of equal keys go to the same queue."""
        return [Sent.of(form) for form in self._call("producer.send_by_hash", topic, messages)]

    def send_async(self, topic: str, messages: Sequence[Outgoing]) -> list[Sent]:
        return [Sent.of(form) for form in self._call("producer.send_async", topic, messages)]

    def try_async(self, topic: str, messages: Sequence[Outgoing]) -> list[Sent | str]:
        """The same where some may fail: what was wrong in the place of each that did."""
        forms = self._call("producer.try_async", topic, messages)
        return [form if isinstance(form, str) else Sent.of(form) for form in forms]

    def send_one_way(self, topic: str, messages: Sequence[Outgoing]) -> None:
        self._call("producer.send_one_way", topic, messages)

    def send_batch(self, topic: str, messages: Sequence[Outgoing]) -> Sent:
        return Sent.of(self._call("producer.send_batch", topic, messages))

    def recall(self, topic: str, handle: str) -> str:
        """Take a message back; return its id."""
        answer = self.driver.call("producer.recall", producer=self.name, topic=topic, handle=handle)
        return str(answer)

    def request(
        self, topic: str, message: Outgoing, *, seconds_max: float = TAKE_SECONDS
    ) -> Callable[[], Received]:
        """Send a request; call the result for its reply."""
        future = self.driver.send(
            "producer.request",
            producer=self.name,
            messages=[message.form(topic)],
            timeout_ms=int(seconds_max * 1000),
        )
        return lambda: Received.of(future.result(CALL_SECONDS))

    def reply(self, request: Received, body: bytes) -> Sent:
        """Reply to a request as its consumer does."""
        form = self.driver.call(
            "producer.reply",
            producer=self.name,
            request=dict(request.properties),
            body=b64encode(body).decode(),
        )
        return Sent.of(form)

    def queues(self, topic: str) -> list[Queue]:
        forms = self.driver.call("producer.queues", producer=self.name, topic=topic)
        return [Queue.of(form) for form in forms]


@dataclass(frozen=True, slots=True)
class TransactionProducer:
    driver: JavaDriver
    name: str

    def send(self, topic: str, messages: Sequence[Outgoing], state: str) -> list[Sent]:
        """Send in transactions that all end so: COMMIT_MESSAGE, ROLLBACK_MESSAGE, UNKNOW."""
        forms = [message.form(topic) for message in messages]
        sent = self.driver.call(
            "transactions.send", producer=self.name, messages=forms, state=state
        )
        return [Sent.of(form) for form in sent]

    def decide(self, keys: str, state: str) -> None:
        """Say this from now on when the broker asks about messages with these keys."""
        self.driver.call("transactions.decide", producer=self.name, keys=keys, state=state)

    def checks(self, count: int, *, seconds_max: float = TAKE_SECONDS) -> list[Received]:
        """Wait for `count` checks; return the messages that the broker asked about."""
        timeout_ms = int(seconds_max * 1000)
        return received(
            self.driver.call(
                "transactions.checks", producer=self.name, count=count, timeout_ms=timeout_ms
            )
        )


@dataclass(frozen=True, slots=True)
class PushConsumer:
    driver: JavaDriver
    name: str

    def take(self, count: int, *, seconds_max: float = TAKE_SECONDS) -> list[Received]:
        """Wait for `count` messages; return what has come since the last call."""
        timeout_ms = int(seconds_max * 1000)
        return received(
            self.driver.call("push.take", name=self.name, count=count, timeout_ms=timeout_ms)
        )

    def assigned(self) -> set[Queue]:
        return {Queue.of(form) for form in self.driver.call("push.assigned", name=self.name)}


@dataclass(frozen=True, slots=True)
class PullConsumer:
    driver: JavaDriver
    name: str

    def _call(self, command: str, queue: Queue, **more: object) -> Any:
        return self.driver.call(f"pull.{command}", consumer=self.name, **asdict(queue), **more)

    def queues(self, topic: str) -> list[Queue]:
        forms = self.driver.call("pull.queues", consumer=self.name, topic=topic)
        return [Queue.of(form) for form in forms]

    def find_brokers(self, topic: str) -> None:
        self.driver.call("pull.find_brokers", consumer=self.name, topic=topic)

    def pull(
        self, queue: Queue, offset: int, *, count_max: int = 32, expression: str = "*"
    ) -> Pulled:
        return Pulled.of(
            self._call("pull", queue, offset=offset, count_max=count_max, expression=expression)
        )

    def wait(self, queue: Queue, offset: int, *, expression: str = "*") -> Callable[[], Pulled]:
        """Start a pull that the broker holds until something arrives; call the result for it."""
        arguments = asdict(queue) | {"offset": offset, "expression": expression}
        future = self.driver.send("pull.wait", consumer=self.name, **arguments)
        return lambda: Pulled.of(future.result(CALL_SECONDS))

    def read_back(self, sent: Sent, *, expression: str = "*") -> Received:
        """The message that was sent. 4.9 acknowledges before its queues show a message."""
        return self.wait(sent.queue, sent.offset, expression=expression)().messages[0]

    def drain(self, topic: str, count: int) -> list[Received]:
        """All messages of the topic, queue by queue, once there are `count` or more."""
        found: list[Received] = []

        def all_there() -> bool:
            found[:] = self.stored(topic)
            return len(found) >= count

        wait_until(all_there, seconds_max=TAKE_SECONDS, what=f"{count} messages in {topic}")
        return found

    def stored(self, topic: str) -> list[Received]:
        """What is in the topic now, queue by queue, each from its first offset to its end."""
        found: list[Received] = []
        for queue in sorted(self.queues(topic)):
            answer = self.pull(queue, 0)
            while answer.status == "FOUND":
                found += answer.messages
                answer = self.pull(queue, answer.next)
        return found

    def bounds(self, queue: Queue) -> dict[str, int]:
        """min, max and earliest_ms."""
        bounds: dict[str, int] = self._call("bounds", queue)
        return bounds

    def offset_at(self, queue: Queue, ms: int) -> int:
        return int(self._call("offset_at", queue, ms=ms))

    def commit(self, queue: Queue, offset: int) -> None:
        self._call("commit", queue, offset=offset)

    def committed(self, queue: Queue) -> int:
        return int(self._call("committed", queue))


@dataclass(frozen=True, slots=True)
class LiteConsumer:
    driver: JavaDriver
    name: str

    def poll(self, count: int, *, seconds_max: float = TAKE_SECONDS) -> list[Received]:
        timeout_ms = int(seconds_max * 1000)
        return received(
            self.driver.call("lite.poll", consumer=self.name, count=count, timeout_ms=timeout_ms)
        )

    def assign_all(self, topic: str) -> list[Queue]:
        forms = self.driver.call("lite.assign_all", consumer=self.name, topic=topic)
        return [Queue.of(form) for form in forms]

    def seek(self, queue: Queue, offset: int) -> None:
        self.driver.call("lite.seek", consumer=self.name, **asdict(queue), offset=offset)

    def commit(self) -> None:
        self.driver.call("lite.commit", consumer=self.name)

    def committed(self, queue: Queue) -> int:
        return int(self.driver.call("lite.committed", consumer=self.name, **asdict(queue)))


@dataclass(frozen=True, slots=True)
class Admin:
    """Calls of the administration client; forms are as the driver writes them."""

    driver: JavaDriver
    name: str

    def call(self, command: str, **arguments: object) -> Any:
        prefix = "" if "." in command else "admin."
        return self.driver.call(prefix + command, admin=self.name, **arguments)

    def masters(self) -> dict[str, str]:
        """Broker name to address of its master."""
        brokers = self.call("cluster")["brokers"]
        return {name: addresses["0"] for name, addresses in brokers.items()}

    def create_topic(self, topic: str, *, queues: int = 4, perm: int = 6) -> None:
        """On every master."""
        for address in self.masters().values():
            self.call("create_topic", topic=topic, address=address, queues=queues, perm=perm)

    def by_key(self, topic: str, key: str, **limits: int) -> list[Received]:
        return received(self.call("query.by_key", topic=topic, key=key, **limits))

    def by_id(self, topic: str, message_id: str) -> Received:
        return Received.of(self.call("query.by_id", topic=topic, id=message_id))


@dataclass(frozen=True, slots=True)
class RocketmqClient:
    """One client version against one name service."""

    version: int
    driver: JavaDriver
    namesrv: str
    _stopping: list[Future[Any]] = field(default_factory=list)

    @contextlib.contextmanager
    def _handle(self, kind: str, **options: object) -> Iterator[str]:
        name = f"{kind}-{next(_names)}"
        self.driver.call(f"{kind}.start", name=name, namesrv=self.namesrv, **options)
        try:
            yield name
        finally:
            # Stopping takes up to 3 s inside the client: the next steps need not wait for it.
            self._stopping.append(self.driver.send(f"{kind}.stop", name=name))

    def settle(self) -> None:
        """Wait until all that has left its block is stopped; consumers have committed then."""
        while self._stopping:
            self._stopping.pop().result(CALL_SECONDS)

    @contextlib.contextmanager
    def producer(self, group: str = "interop-producer", **options: object) -> Iterator[Producer]:
        """Options: retries, compress_over, compression (ZLIB, LZ4, ZSTD)."""
        with self._handle("producer", group=group, **options) as name:
            yield Producer(self.driver, name)

    @contextlib.contextmanager
    def transactions(self, group: str) -> Iterator[TransactionProducer]:
        with self._handle("transactions", group=group) as name:
            yield TransactionProducer(self.driver, name)

    @contextlib.contextmanager
    def push(self, topic: str, group: str, **options: object) -> Iterator[PushConsumer]:
        """Options: expression, sql, model, orderly, from, failures, reconsume_max, dealt_out …"""
        with self._handle("push", topic=topic, group=group, **options) as name:
            yield PushConsumer(self.driver, name)

    def read_backlog(
        self,
        topic: str,
        group: str,
        count: int,
        *,
        seconds_max: float = TAKE_SECONDS,
        **settings: int,
    ) -> BacklogReading:
        """Have a new group read so many messages of all queues; they are only counted.

        Settings: pull_batch, threads, consume_batch, cached (a queue); else the client's own.
        """
        started = self.driver.send(
            "backlog.read", namesrv=self.namesrv, topic=topic, group=group, count=count,
            timeout_ms=int(seconds_max * 1000), **settings,
        )  # fmt: skip
        return BacklogReading(**started.result(seconds_max + CALL_SECONDS))

    @contextlib.contextmanager
    def pull(self, group: str = "interop-puller") -> Iterator[PullConsumer]:
        with self._handle("pull", group=group) as name:
            yield PullConsumer(self.driver, name)

    @contextlib.contextmanager
    def lite(self, group: str, **options: object) -> Iterator[LiteConsumer]:
        """Options: topic, expression or sql to subscribe; without, queues are assigned by hand."""
        with self._handle("lite", group=group, **options) as name:
            yield LiteConsumer(self.driver, name)

    @contextlib.contextmanager
    def admin(self) -> Iterator[Admin]:
        with self._handle("admin") as name:
            yield Admin(self.driver, name)
