"""The original MetaQ client, by typed calls. Factories and consumers stop with their block."""

from __future__ import annotations

import contextlib
import itertools
from base64 import b64decode, b64encode
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from imago_testing.interop.backlogs import BacklogReading
from imago_testing.java.driver import CALL_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from imago_testing.java.driver import JavaDriver

TAKE_SECONDS = 60.0
_names = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Put:
    """A message to put; an absent attribute and an empty one differ."""

    body: bytes
    attribute: str | None = None

    def form(self, topic: str) -> dict[str, object]:
        form: dict[str, object] = {"topic": topic, "body": b64encode(self.body).decode()}
        return form if self.attribute is None else form | {"attribute": self.attribute}


@dataclass(frozen=True, slots=True, kw_only=True)
class PutResult:
    success: bool
    partition: str | None
    """<broker id>-<partition>"""
    offset: int
    error: str | None
    id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Got:
    """A message as a consumer saw it."""

    id: int
    topic: str
    body: bytes
    attribute: str | None
    partition: str | None
    """<broker id>-<partition>; the topic browser and the one-shot get leave it out."""

    @classmethod
    def of(cls, form: Mapping[str, Any]) -> Got:
        return cls(**dict(form) | {"body": b64decode(form["body"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """The answer of a one-shot get: whole messages out of `size` bytes."""

    messages: Sequence[Got]
    size: int
    next: int


@dataclass(frozen=True, slots=True)
class MetaqProducer:
    driver: JavaDriver
    name: str

    def _call(self, command: str, topic: str, messages: Sequence[Put]) -> Any:
        forms = [message.form(topic) for message in messages]
        return self.driver.call(f"producer.{command}", producer=self.name, messages=forms)

    def send(self, topic: str, messages: Sequence[Put]) -> list[PutResult]:
        return [PutResult(**form) for form in self._call("send", topic, messages)]

    def send_callback(self, topic: str, messages: Sequence[Put]) -> list[PutResult]:
        return [PutResult(**form) for form in self._call("send_callback", topic, messages)]

    def send_one_way(self, topic: str, messages: Sequence[Put]) -> None:
        self._call("send_one_way", topic, messages)


@dataclass(frozen=True, slots=True)
class MetaqTransactional:
    """A producer whose messages are in transactions; XA by the steps of a transaction manager."""

    driver: JavaDriver
    name: str

    def _call(self, command: str, **options: object) -> Any:
        return self.driver.call(command, producer=self.name, **options)

    def set_timeout(self, seconds: int) -> None:
        self._call("transaction.timeout", seconds=seconds)

    def begin(self) -> None:
        self._call("transaction.begin")

    def send(self, topic: str, messages: Sequence[Put]) -> list[PutResult]:
        forms = [message.form(topic) for message in messages]
        return [PutResult(**form) for form in self._call("transaction.send", messages=forms)]

    def commit(self) -> None:
        self._call("transaction.commit")

    def roll_back(self) -> None:
        self._call("transaction.rollback")

    def xa(self, step: str, xid: str, **options: object) -> Any:
        """Steps: start, end, fail, prepare, commit (option one_phase), rollback, forget."""
        return self._call(f"xa.{step}", xid=xid, **options)

    def set_xa_timeout(self, seconds: int) -> None:
        self._call("xa.timeout", seconds=seconds)

    def recover(self) -> list[str]:
        found: list[str] = self._call("xa.recover")
        return found


@dataclass(frozen=True, slots=True)
class MetaqConsumer:
    driver: JavaDriver
    name: str
    rest: list[Got] = field(default_factory=list)
    """After the block: what was delivered and not taken."""

    def take(self, count: int, *, seconds_max: float = TAKE_SECONDS) -> list[Got]:
        """Wait for `count` messages; return what has come since the last call."""
        timeout_ms = int(seconds_max * 1000)
        forms = self.driver.call(
            "consumer.take", name=self.name, count=count, timeout_ms=timeout_ms
        )
        return [Got.of(form) for form in forms]


@dataclass(frozen=True, slots=True)
class MetaqFactory:
    """A session factory: through ZooKeeper, or directly to one broker."""

    driver: JavaDriver
    name: str
    stops: bool = True
    """Not in direct mode: stopping raises inside the original client there."""

    @contextlib.contextmanager
    def producer(
        self, topics: Sequence[str], *, selector: str = "round-robin", **others: object
    ) -> Iterator[MetaqProducer]:
        """Selectors: round-robin, by-attribute, ordered-by-attribute. Option: default_topic."""
        options = {"factory": self.name, "topics": topics, "selector": selector, **others}
        with _handle(self.driver, "producer", self.stops, **options) as name:
            yield MetaqProducer(self.driver, name)

    @contextlib.contextmanager
    def transactional(
        self, topics: Sequence[str], *, xa: bool = False, qualifier: str | None = None
    ) -> Iterator[MetaqTransactional]:
        """`xa` needs a factory of the kind xa."""
        options: dict[str, object] = {"factory": self.name, "topics": topics, "xa": xa}
        if qualifier is not None:
            options["qualifier"] = qualifier
        with _handle(self.driver, "transaction", self.stops, **options) as name:
            yield MetaqTransactional(self.driver, name)

    @contextlib.contextmanager
    def consumer(
        self, topics: Sequence[str], group: str, **options: object
    ) -> Iterator[MetaqConsumer]:
        """Options: fetch_bytes, failures, retries_max, from_max, consistent_hash, commit_ms."""
        name = f"consumer-{next(_names)}"
        consumer = MetaqConsumer(self.driver, name)
        self.driver.call(
            "consumer.start", name=name, factory=self.name, topics=topics, group=group, **options
        )
        try:
            yield consumer
        finally:
            forms = self.driver.call("consumer.stop", name=name)
            consumer.rest.extend(Got.of(form) for form in forms)

    def get(self, topic: str, partition: str, offset: int, **options: object) -> Block | None:
        """One fetch; None where the client reports nothing. Option: bytes_max."""
        form = self.driver.call(
            "get", factory=self.name, group="one-shot", topic=topic, partition=partition,
            offset=offset, **options,
        )  # fmt: skip
        if form is None:
            return None
        return Block(**form | {"messages": [Got.of(each) for each in form["messages"]]})

    def read_backlog(
        self, topic: str, group: str, count: int, *, seconds_max: float = TAKE_SECONDS
    ) -> BacklogReading:
        """Have a new group read so many messages of all partitions; they are only counted."""
        started = self.driver.send(
            "backlog.read", factory=self.name, topic=topic, group=group, count=count,
            timeout_ms=int(seconds_max * 1000),
        )  # fmt: skip
        return BacklogReading(**started.result(seconds_max + CALL_SECONDS))

    def browse(self, topic: str) -> list[Got]:
        return [Got.of(form) for form in self.driver.call("browse", factory=self.name, topic=topic)]

    def partitions(self, topic: str) -> list[str]:
        found: list[str] = self.driver.call("factory.partitions", factory=self.name, topic=topic)
        return found

    def stats(self, item: str | None = None) -> dict[str, dict[str, str]]:
        """Broker address to its statistics."""
        found: dict[str, dict[str, str]]
        found = self.driver.call("factory.stats", factory=self.name, item=item)
        return found


@dataclass(frozen=True, slots=True)
class MetaqClient:
    """The client process and where its brokers are."""

    driver: JavaDriver
    zookeeper: str
    urls: Sequence[str]

    @contextlib.contextmanager
    def factory(self, kind: str = "simple", **options: object) -> Iterator[MetaqFactory]:
        """Kinds: simple, async, ordered (option partitions), broadcast, xa."""
        where = {"zookeeper": self.zookeeper}
        with _handle(self.driver, "factory", kind=kind, **where, **options) as name:
            yield MetaqFactory(self.driver, name)

    @contextlib.contextmanager
    def direct(self, url: str) -> Iterator[MetaqFactory]:
        """A factory that talks to one broker, without ZooKeeper."""
        with _handle(self.driver, "factory", False, kind="simple", url=url) as name:
            yield MetaqFactory(self.driver, name, stops=False)


@contextlib.contextmanager
def _handle(
    driver: JavaDriver, what: str, stops: bool = True, /, **options: object
) -> Iterator[str]:
    name = f"{what}-{next(_names)}"
    driver.call(f"{what}.start", name=name, **options)
    try:
        yield name
    finally:
        if stops:
            driver.call(f"{what}.stop", name=name)
