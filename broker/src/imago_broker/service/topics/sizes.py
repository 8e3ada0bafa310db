"""What a queue's messages take, out of its units: no record is read, and nothing is kept for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imago_wire.record_format.layout import UNIT

if TYPE_CHECKING:
    from imago_log import MessageStore

STRETCHES: Final = 16
STRETCH_UNITS: Final = 256
"""80 kB of units at most for a queue of any length: a list asks for thousands of queues."""
_BLANK: Final = 0x7FFF_FFFF
"""Of a unit without a record; where one was lost the size is below 0."""


def queue_bytes(store: MessageStore, topic: str, queue_id: int) -> int:
    """Return the bytes of a queue's records: beyond 4,096 of them by the mean of that many.

    Those that are only in a bucket count by the mean of those here.
    """
    low, high = store.queue_range(topic, queue_id)
    step = max(STRETCH_UNITS, -(-(high - low) // STRETCHES))
    seen = size = 0
    for at in range(low, high, step):
        for _, record, _ in UNIT.iter_unpack(store.units(topic, queue_id, at, STRETCH_UNITS)):
            if 0 < record < _BLANK:
                seen, size = seen + 1, size + record
    return size * (high - low) // seen if seen else 0
