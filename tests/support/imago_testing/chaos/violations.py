"""The promises that a run may find broken."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Broken(Enum):
    LOST = "an acknowledged message is not there"
    AGAIN = "an acknowledged delivery came again"
    MOVED = "an acknowledged message is not where it was said to be"
    DUPLICATED = "a message is there more than once"
    REORDERED = "messages of one producer changed their order"
    RENAMED = "an acknowledged message has another id than was said"
    REUSED = "two messages have the same id"
    UNSTABLE = "a place once showed another message"
    PHANTOM = "a message that nobody sent, or a damaged one"
    MISSED = "a consumer never saw a message"
    ASTRAY = "a consumer was sent away from where it wanted to go on"
    REWOUND = "a committed offset went back"
    INVENTED = "a committed offset that nobody committed"
    DISAGREED = "the two protocols show different messages"
    GAP = "the places of a queue do not follow each other"
    APART = "a shard that nobody disturbed was not whole again in time"
    UNLED = "a member could not be made leader"
    FORCED_OUT = "a full disk took messages that somebody had not read"
    IDLE = "a fault found nothing to be done to"
    INTRUDED = "somebody without the right to it was served"
    UNHEALED = "a member has damage where another one is whole"
    UNNAMED = "damage without a file and a byte"
    EARLY = "a shard said that it is drained and was not"


@dataclass(frozen=True, slots=True)
class Violation:
    broken: Broken
    text: str

    def __str__(self) -> str:
        return f"{self.broken.name}: {self.text}"
