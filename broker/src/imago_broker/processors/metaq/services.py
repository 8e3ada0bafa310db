"""What the MetaQ processors stand on, put together once by the broker's assembly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from imago_broker.config.sections import MetaqSection
    from imago_broker.core.budget import OutputBudget
    from imago_broker.metrics import MetaqCounters
    from imago_broker.ports import Clock
    from imago_broker.processors.metaq.realtime import RealTimeStatistics
    from imago_broker.service.messages import MessageService
    from imago_broker.service.serving_rules import ServingRules
    from imago_broker.service.topics import TopicService
    from imago_log.results import FileSlice
    from imago_log.store import MessageStore


class Peer(Protocol):
    """A connection as the processors see it. Nothing they call writes to the socket."""

    born_host: bytes
    """Its address and port as records hold them."""
    finishing: bool
    """Whether no further request is to be served."""
    puts: int
    """Puts, counted by reads, that have no answer yet."""

    def stored(self, answers: bytes) -> None:
        """Write the answers to successful puts now."""

    def reply(self, *parts: bytes) -> None:
        """Add an answer to the next write; the parts follow each other."""

    def reply_file(self, head: bytes, data: FileSlice) -> None:
        """Write an answer whose body is part of a file, after everything that was added."""

    @property
    def held(self) -> bool:
        """Whether nothing more is worked on until `go_on`."""
        ...

    def hold_back(self) -> None:
        """Read and work on nothing more for now."""

    def go_on(self) -> None:
        """Work on what had to wait."""

    def is_full(self) -> bool:
        """Whether so many answers wait that no further request should be worked on."""

    def flush(self) -> None:
        """Write everything that was added."""

    def finish(self) -> None:
        """Read no more requests, and close once everything is answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaqIdentity:
    """How this broker calls itself towards MetaQ clients."""

    broker_id: int
    host: str
    port: int

    @property
    def url(self) -> str:
        """The name of the broker in every error text: ``meta://host:port``."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"meta://{host}:{self.port}"


@dataclass(slots=True, kw_only=True)
class MetaqServices:
    """The services, as the assembly made them."""

    identity: MetaqIdentity
    settings: MetaqSection
    """Replaced as a whole when an administrator changes one: read it at each use."""
    messages: MessageService
    topics: TopicService
    store: MessageStore
    serving_rules: ServingRules
    clock: Clock
    rng: random.Random
    budget: OutputBudget
    counters: MetaqCounters
    realtime: RealTimeStatistics
    connections: Callable[[], int]
    config_file: Callable[[], bytes]
    """The configuration in the form of MetaQ's own file."""
    started_ms: int
    """Monotonic."""
    when_published: Callable[[str, Callable[[], None]], bool]
    """(topic, then): call `then` once clients can find a topic that was made just now, or that
    takes too long; False, and nothing will be called: they can, or nobody tells them."""
