"""Whether messages of an idempotent producer are new, said before, out of order, or of its past.

A producer numbers its messages from 0 in each queue and epoch and skips none. So whatever is below
the number that comes next is in the log already, and whatever is above it may only be appended
once what lies between has come: a message that overtook another would otherwise make that one look
like a repeat, and it would be lost.

=====================  ====================  =============================
epoch                  numbers               verdict
=====================  ====================  =============================
older than the newest  any                   fenced
the newest             from the next one on  append
the newest             all below the next    repeat
the newest             anything else         out of order
newer, or the          from 0 on             append; the new epoch counts
producer is unknown
newer, or unknown      anything else         out of order
=====================  ====================  =============================
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class Verdict(Enum):
    """What to do with the messages."""

    APPEND = "append"
    REPEAT = "repeat"
    OUT_OF_ORDER = "out-of-order"
    FENCED = "fenced"


@dataclass(frozen=True, slots=True)
class Numbers:
    """What one request claims: `count` messages from number `first` on."""

    producer: str
    epoch: int
    first: int
    count: int

    @property
    def end(self) -> int:
        return self.first + self.count


class ProducerState(NamedTuple):
    """What is known of a producer in one queue."""

    epoch: int
    """Its newest epoch, in whatever queue."""
    next: int
    """The number that comes next in that epoch."""


UNKNOWN = ProducerState(-1, 0)
"""Nothing was heard of the producer, or too long ago."""


def judge(state: ProducerState, claimed: Numbers) -> Verdict:
    """Return what the table above says."""
    if claimed.epoch < state.epoch:
        return Verdict.FENCED
    expected = state.next if claimed.epoch == state.epoch else 0
    if claimed.first == expected:
        return Verdict.APPEND
    return Verdict.REPEAT if claimed.end <= expected else Verdict.OUT_OF_ORDER


class Gathered:
    """What has been let through but is not in the log yet: it counts as if it were."""

    def __init__(self) -> None:
        self._epochs: dict[str, int] = {}
        self._next: dict[tuple[str, str, int], tuple[int, int]] = {}

    def add(self, queue: tuple[str, int], claimed: Numbers) -> None:
        """Note messages that will be appended."""
        self._epochs[claimed.producer] = claimed.epoch
        self._next[claimed.producer, *queue] = (claimed.epoch, claimed.end)

    def state_of(
        self, queue: tuple[str, int], producer: str, logged: ProducerState
    ) -> ProducerState:
        """Return the state that a producer will have after what is gathered."""
        epoch = max(logged.epoch, self._epochs.get(producer, -1))
        known = self._next.get((producer, *queue))
        if known is not None and known[0] == epoch:
            return ProducerState(epoch, known[1])
        return ProducerState(epoch, logged.next if logged.epoch == epoch else 0)
