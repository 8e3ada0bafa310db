"""Counts of what went out, for the figures that RocketMQ's tools show."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

READERS_MAX: Final = 10_000
"""Pairs of group and topic that are counted apart; all others are counted together."""


@dataclass(slots=True)
class Given:
    """What a group was given of a topic."""

    messages: int = 0
    bytes: int = 0
    answers: int = 0
    read_ns: int = 0
    """How long the reads of the store for these answers took."""


@dataclass(slots=True)
class Traffic:
    """What RocketMQ consumers were answered since the start."""

    missed: int = 0
    """Reads that found none."""
    read_ns_max: int = 0
    """How long the longest read of the store took."""
    _read_ns: int = 0
    """How long the last one took."""
    given: dict[tuple[str, str], Given] = field(default_factory=dict)
    """By group and topic."""
    sent_back: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Messages that were given back, by the same."""
    _others: Given = field(default_factory=Given)
    """What topics were given that are gone, and groups that are not told apart."""

    @property
    def messages(self) -> int:
        """How many messages went out."""
        return self._others.messages + sum(given.messages for given in self.given.values())

    @property
    def bytes(self) -> int:
        """How many bytes of records."""
        return self._others.bytes + sum(given.bytes for given in self.given.values())

    @property
    def found(self) -> int:
        """How many answers had messages."""
        return self._others.answers + sum(given.answers for given in self.given.values())

    def note_read(self, took_ns: int) -> None:
        """Note how long a read of the store took; what it found is `delivered` next."""
        self._read_ns = took_ns
        if took_ns > self.read_ns_max:
            self.read_ns_max = took_ns

    def delivered(self, group: str, topic: str, count: int, size: int) -> None:
        """Note one answer with messages: those of the last read."""
        given = self.given.get((group, topic)) or self._new(group, topic)
        given.messages += count
        given.bytes += size
        given.answers += 1
        given.read_ns += self._read_ns

    def gave_back(self, group: str, topic: str) -> None:
        """Note a message that comes back to its group later."""
        if len(self.sent_back) < READERS_MAX or (group, topic) in self.sent_back:
            self.sent_back[group, topic] += 1

    def forget(self, topic: str) -> None:
        """Tell a topic that is gone apart no more."""
        for key in [key for key in self.given if key[1] == topic]:
            gone, others = self.given.pop(key), self._others
            others.messages += gone.messages
            others.bytes += gone.bytes
            others.answers += gone.answers
            others.read_ns += gone.read_ns
        for key in [key for key in self.sent_back if key[1] == topic]:
            del self.sent_back[key]

    def _new(self, group: str, topic: str) -> Given:
        if len(self.given) >= READERS_MAX:
            return self._others
        given = self.given[group, topic] = Given()
        return given
