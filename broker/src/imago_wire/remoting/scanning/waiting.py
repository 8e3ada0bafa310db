"""Sends that do not simply go to their queue: where they go instead, as `take_sends` needs it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_wire.record_format.entries import QueueTail

PROPERTIES_MAX: Final = 4096
"""Bytes of properties above which such a send gets a closer look."""
WORD_MAX: Final = 128
"""The same of its unique key, and of its group of producers."""
DIGITS_MAX: Final = 13
"""The same of the numbers in its properties: enough for a time in milliseconds."""


@dataclass(slots=True, kw_only=True)
class ParkingSpace:
    """What such sends find during one turn. Times are epoch milliseconds."""

    now_ms: int
    delays_ms: Sequence[int]
    """How long each delay level waits; a higher level than there are is the last."""
    level_tails: Sequence[QueueTail | None]
    timer_delay_ms_max: int
    bucket_ms: int
    bucket_count: int
    bucket_tails: Sequence[QueueTail | None]
    """Timers wait in queue ``due // bucket_ms % bucket_count``."""
    half_tail: QueueTail | None
    half_room: int
    """How many half messages may be taken."""
    broker_name: str
    halves: list[tuple[int, str, str]] = field(default_factory=list)
    """Half messages that were taken: which entry, its producer's group, who began it."""
    numbered: list[tuple[int, str, int, int]] = field(default_factory=list)
    """Those of idempotent producers: which entry, producer, epoch and number."""


class Parking(Protocol):
    """What makes that, when the first of a turn comes; and what it leaves out until it is used."""

    space: ParkingSpace | None
    owner: str
    """Of whose share the transactions are that are begun; empty: only a closer look finds that."""
    expected: dict[tuple[str, QueueTail], list[int]]
    """Of idempotent producers and queues: the epoch, and the number that comes next, which goes on
    with each that is taken."""

    def look(self) -> ParkingSpace:
        """Return the space of this turn, kept from then on."""
        ...

    def level_tail(self, level: int) -> QueueTail:
        """Return the queue of a delay level, 1 the first."""
        ...

    def bucket_tail(self, bucket: int) -> QueueTail:
        """Return a queue in which timers wait."""
        ...

    def expect(self, producer: str, tail: QueueTail) -> list[int]:
        """Return, and note, what is expected of a producer in a queue; [-1, -1]: look closer."""
        ...
