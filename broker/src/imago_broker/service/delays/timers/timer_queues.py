"""The queues of the timer topic: what is noted of them, what the log must keep, what it lost."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from imago_broker.model.names import TIMER_TOPIC
from imago_broker.service.delays.firing_log import FLOOR_KEY, TIMER_KIND
from imago_broker.service.delays.timers.timer_bucket import BUCKETS
from imago_log.errors import StoreError
from imago_wire.record_format.layout import UNIT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from imago_log.store import MessageStore

log = logging.getLogger(__name__)

UNITS_MAX: Final = 4096
"""Units read at once of a queue."""


class TimerQueues:
    """The buckets of one log, as their units and the metadata know them."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    @property
    def floor(self) -> int:
        """The first firing record that is needed still."""
        return self._noted(FLOOR_KEY)

    def base(self, queue_id: int) -> int:
        """Return the offset below which all timers of a queue are done."""
        return self._noted(str(queue_id))

    def range(self, queue_id: int) -> tuple[int, int]:
        """Return the offsets that may have timers which are not done."""
        low, high = self._store.queue_range(TIMER_TOPIC, queue_id)
        return min(max(low, self.base(queue_id)), high), high

    def used(self) -> list[int]:
        """Return the queues in which the log has, or had, a timer."""
        buckets = (q for q in self._store.queues(TIMER_TOPIC) if q < BUCKETS)
        return [q for q in buckets if self._store.queue_range(TIMER_TOPIC, q) != (0, 0)]

    def note(self, changes: Sequence[tuple[str, str, int]]) -> bool:
        """Note in the metadata what is done; false: the log takes nothing now."""
        try:
            self._store.put_meta(changes)
        except StoreError as error:
            log.warning("timers_not_noted reason=%s", error)
            return False
        return True

    def needed_place(
        self, queue_id: int, may_fire: Callable[[int], bool] | None = None
    ) -> int | None:
        """Return the log offset of the oldest record that a queue's timers need; None: of none.

        A timer in a damaged part of the log keeps nothing. Behind it `may_fire` says of each
        timer whether it may still fire; without it all may.
        """
        damaged = self._store.damaged_ranges()
        offset = base = self.range(queue_id)[0]
        while units := self._units(queue_id, offset, UNITS_MAX if damaged else 1):
            place: int
            for place, _, _ in UNIT.iter_unpack(units):
                readable = not any(lost.start <= place < lost.end for lost in damaged)
                if readable and (offset == base or may_fire is None or may_fire(offset)):
                    return place
                offset += 1
        return None

    def note_lost(
        self, queues: Iterable[int], done: Mapping[int, list[int]], begins_ms: Mapping[int, int]
    ) -> int:
        """Name the timers that the log lost before they were done, once; return how many.

        Recalls count as well. `done`: what firing records say beside the notes; `begins_ms`: when
        a queue's bucket begins, where that is known.
        """
        changes: list[tuple[str, str, int]] = []
        count = 0
        for queue_id in queues:
            base, low = self.base(queue_id), self._store.queue_range(TIMER_TOPIC, queue_id)[0]
            if base >= low:
                continue
            fired = set(done.get(queue_id, ()))
            lost = [offset for offset in range(base, low) if offset not in fired]
            changes.append((TIMER_KIND, str(queue_id), low))
            count += len(lost)
            if lost:
                log.error(
                    "timers_lost queue=%d first=%d last=%d count=%d bucket_begins_ms=%s reason=%s",
                    queue_id,
                    lost[0],
                    lost[-1],
                    len(lost),
                    begins_ms.get(queue_id, "unknown"),
                    "a full disk took their log files: give it room, or shorten store.retention_ms",
                )
        if changes:
            self.note(changes)
        return count

    def _noted(self, key: str) -> int:
        value = self._store.meta(TIMER_KIND).get(key, 0)
        return value if isinstance(value, int) else 0

    def _units(self, queue_id: int, offset: int, count: int) -> bytes:
        return self._store.units(TIMER_TOPIC, queue_id, offset, count)
