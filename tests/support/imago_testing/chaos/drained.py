"""What clients were told of a shard that was drained and removed, and what they had of it. Pure.

Promises: a shard does not say that it is drained while anybody has still to get what was
acknowledged there; when it is gone everybody has had all of it, each message once; and nothing is
acknowledged any more once it has said so.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from imago_testing.chaos.violations import Broken, Violation

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(slots=True)
class DrainedShard:
    """One drain, from the first message to the shard's removal."""

    told: dict[str, set[bytes]] = field(default_factory=dict)
    """By who is to have them: the messages that were acknowledged."""
    had: dict[str, list[bytes]] = field(default_factory=dict)
    """By who got them: messages, in order."""
    early: list[str] = field(default_factory=list)
    """What was still to be had when the shard said that it is drained."""
    late: list[bytes] = field(default_factory=list)
    """Messages that were acknowledged after that."""
    removed: bool = False

    def acked(self, body: bytes, *readers: str) -> None:
        """Note that these are to have a message."""
        for reader in readers:
            self.told.setdefault(reader, set()).add(body)

    def got(self, reader: str, bodies: list[bytes]) -> None:
        """Note what somebody was given."""
        self.had.setdefault(reader, []).extend(bodies)


def check_drained(drained: DrainedShard) -> Iterator[Violation]:
    """Yield every broken promise of one drain."""
    for what in drained.early:
        yield Violation(Broken.EARLY, what)
    for body in drained.late:
        yield Violation(Broken.LOST, f"{body!r}, acknowledged by a shard that is drained")
    if not drained.removed:
        yield Violation(Broken.APART, "a shard could not be drained and removed")
        return
    for reader, told in drained.told.items():
        yield from _of_reader(reader, told, Counter(drained.had.get(reader, ())))


def _of_reader(reader: str, told: set[bytes], had: Counter[bytes]) -> Iterator[Violation]:
    for body in sorted(told - had.keys()):
        yield Violation(Broken.LOST, f"{body!r} for {reader}, with its shard")
    for body, count in had.items():
        if count > 1:
            yield Violation(Broken.DUPLICATED, f"{body!r} for {reader}, {count} times")
        if body not in told:
            yield Violation(Broken.PHANTOM, f"{body!r} for {reader}")
