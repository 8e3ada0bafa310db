"""What the clients of a run saw and were promised, as values.

A partition of MetaQ and a queue of RocketMQ are the same thing. The place of a message in it is
an offset (0, 1, 2 …) to RocketMQ and a byte position to MetaQ.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from imago_testing.chaos.drained import DrainedShard


class Protocol(Enum):
    METAQ = "MetaQ"
    ROCKETMQ = "RocketMQ"


@dataclass(frozen=True, slots=True, order=True)
class Queue:
    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.number}"


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """Which message: the numbers of one producer grow in the order in which it sends."""

    producer: int
    number: int

    def __str__(self) -> str:
        return f"message {self.number} of producer {self.producer}"


@dataclass(frozen=True, slots=True)
class Place:
    """Where an acknowledgement said that the message is."""

    protocol: Protocol
    queue: Queue
    at: int
    id: int
    """Of MetaQ: the message id; of RocketMQ: the log offset that its message id names."""

    def __str__(self) -> str:
        return f"{self.protocol.value} {self.queue} at {self.at}"


@dataclass(frozen=True, slots=True)
class Stored:
    """A message as a reader saw it; without a key when its content is damaged or not ours."""

    at: int
    key: Key | None
    id: int
    """As in `Place`."""
    size: int
    """How far behind `at` the next place is: bytes to MetaQ, 1 to RocketMQ."""
    content: int
    """A digest of attribute (tags) and body."""


class Step(Enum):
    """What happened to the committed offset of a queue."""

    TRIED = "tried"
    """A commit was sent."""
    COMMITTED = "committed"
    """A commit was acknowledged; it is written within a moment, or before anybody is told."""
    TOLD = "told"
    """The broker answered what is committed."""
    LOST = "lost"
    """The connection was lost: commits that nobody was told of may be gone (`offset` is 0)."""


@dataclass(frozen=True, slots=True)
class Progress:
    queue: Queue
    step: Step
    offset: int


@dataclass(frozen=True, slots=True)
class Hole:
    """A range of the log that a member says is damaged, and where that lies in its files."""

    start: int
    end: int
    file: str
    position: int

    @property
    def named(self) -> bool:
        return bool(self.file) and self.position >= 0

    def __str__(self) -> str:
        return f"{self.start} to {self.end} in {self.file} at byte {self.position}"


LightMessages = dict[str, list[Stored]]
"""Light queues (LMQ) by their names, each from its start to its end; `at` is the place there."""
Messages = dict[tuple[Protocol, Queue], list[Stored]]
"""Every queue from its start to its end, read through both protocols."""


@dataclass(slots=True)
class Ending:
    """What a member showed that was made leader when all was over."""

    member: str
    messages: Messages
    log_start: int = 0
    """Messages below this log offset have expired."""
    holes: list[Hole] = field(default_factory=list)
    light: LightMessages = field(default_factory=dict)


@dataclass(slots=True)
class History:
    """One run. Producers never repeat a number, whatever became of it."""

    attempted: dict[Key, int] = field(default_factory=dict)
    """All that was sent, with its content; what is not acknowledged may be stored or not."""
    light: dict[Key, tuple[str, ...]] = field(default_factory=dict)
    """The light queues that a message names, of those that name any."""
    acked: dict[Key, Place] = field(default_factory=dict)
    reads: list[tuple[Protocol, Queue, Stored]] = field(default_factory=list)
    """What the consumers saw while the broker was killed again and again."""
    astray: list[tuple[Protocol, Queue, int]] = field(default_factory=list)
    """Places where consumers wanted to go on, and were told that nothing can be there."""
    progress: list[Progress] = field(default_factory=list)
    """Of the one consumer group, in the order of time."""
    final: Messages = field(default_factory=dict)
    """What a broker alone showed when all was over."""
    endings: list[Ending] = field(default_factory=list)
    """The same of each member of a shard."""
    apart: list[str] = field(default_factory=list)
    """Times at which a shard that nobody disturbed was not whole again soon, with what it said."""
    idle: list[str] = field(default_factory=list)
    """Faults that did nothing: nobody has seen what would have become of them."""
    intruded: list[str] = field(default_factory=list)
    """What a closed cluster took from somebody who has no right to it."""
    forced_out: list[str] = field(default_factory=list)
    """Messages that a full disk took although a group had not read them."""
    unled: list[str] = field(default_factory=list)
    """Members that could not be made leader when all was over, and why."""
    sdk_lost: list[str] = field(default_factory=list)
    """Messages that a client over gRPC was answered, and never got."""
    sdk_again: list[str] = field(default_factory=list)
    """Messages that it got after their acknowledgement was answered."""
    drains: list[DrainedShard] = field(default_factory=list)
    """Shards that were drained and removed meanwhile."""
