"""Counts of what went out, for the figures that RocketMQ's tools show."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

READERS_MAX: Final = 10_000
"""Pairs of group and topic that are told apart; what others are given is not counted for them."""


@dataclass(slots=True)
class Given:
    """What a group was given of a topic."""

    messages: int = 0
    bytes: int = 0
    answers: int = 0


@dataclass(slots=True)
class Traffic:
    """What RocketMQ consumers were answered since the start."""

    messages: int = 0
    bytes: int = 0
    found: int = 0
    """Answers with messages."""
    missed: int = 0
    """Reads that found none."""
    read_ns_max: int = 0
    """How long the longest read of the store took."""
    given: dict[tuple[str, str], Given] = field(default_factory=dict)
    """By group and topic."""
    sent_back: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Messages that were given back, by the same."""

    def delivered(self, group: str, topic: str, count: int, size: int) -> None:
        """Note one answer with messages."""
        self.found += 1
        self.messages += count
        self.bytes += size
        given = self.given.get((group, topic)) or self._new(group, topic)
        given.messages += count
        given.bytes += size
        given.answers += 1

    def gave_back(self, group: str, topic: str) -> None:
        """Note a message that comes back to its group later."""
        if len(self.sent_back) < READERS_MAX or (group, topic) in self.sent_back:
            self.sent_back[group, topic] += 1

    def forget(self, topic: str) -> None:
        """Forget a topic that is gone."""
        for counts in (self.given, self.sent_back):
            for key in [key for key in counts if key[1] == topic]:
                del counts[key]

    def _new(self, group: str, topic: str) -> Given:
        given = Given()
        if len(self.given) < READERS_MAX:
            self.given[group, topic] = given
        return given
