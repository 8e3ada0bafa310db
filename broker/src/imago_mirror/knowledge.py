"""What a running mirror knows, for all that work on it: the note to keep, and how far behind."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from imago_mirror.core.assignment import QueuePlace
from imago_mirror.core.notes import MirrorNote
from imago_mirror.core.offsets import OffsetMap

if TYPE_CHECKING:
    from imago_mirror.core.origins import SourceQueue


class Knowledge:
    """Belongs to one event loop."""

    def __init__(self, note: MirrorNote | None = None) -> None:
        self.note = note or MirrorNote()
        self.ends: dict[SourceQueue, int] = {}
        """Where the source's queues ended when that was last seen."""
        self.target_incarnations: dict[tuple[str, str], int] = {}
        """Of the target's topics, by topic and shard."""
        self.copied_messages: Counter[str] = Counter()
        self.returned = 0
        """Messages that were not copied, since they came from the target."""
        self.last_copied_ms = 0
        self.groups: dict[str, dict[str, Any]] = {}
        self._caught_up_ms: dict[SourceQueue, int] = {}
        self._began_ms = _now_ms()

    def map_of(self, topic: str, place: QueuePlace) -> OffsetMap:
        life = self.target_incarnations.get((topic, place.shard), 0)
        return self.note.maps.setdefault((topic, place), OffsetMap(life=life))

    def note_target(self, topic: str, shard: str, life: int) -> None:
        """Note which topic of its name the target has: of another one maps say nothing."""
        self.target_incarnations[topic, shard] = life
        for (name, place), map_ in list(self.note.maps.items()):
            if (name, place.shard) == (topic, shard) and map_.life != life:
                del self.note.maps[name, place]

    def place_of(self, queue: SourceQueue) -> QueuePlace | None:
        """Return the place of a queue of the target; None: its topic was made anew since then."""
        known = self.target_incarnations.get((queue.topic, queue.shard))
        return QueuePlace(queue.shard, queue.queue_id) if known == queue.incarnation else None

    def copied(self, topic: str, count: int) -> None:
        self.copied_messages[topic] += count
        self.last_copied_ms = _now_ms()

    def caught_up(self, queue: SourceQueue, whether: bool) -> None:
        if whether:
            self._caught_up_ms[queue] = _now_ms()

    def lag(self, queue: SourceQueue) -> tuple[int, float]:
        """Return how many messages, and seconds, the target is behind in a queue."""
        position = self.note.lanes[queue].position
        behind = max(0, self.ends.get(queue, position.next) - max(position.next, position.copied))
        if not behind:
            return 0, 0.0
        since_ms = max(position.store_ms, self._caught_up_ms.get(queue, 0)) or self._began_ms
        return behind, max(0, _now_ms() - since_ms) / 1000

    def forget(self, queue: SourceQueue) -> None:
        self.note.lanes.pop(queue, None)
        self.ends.pop(queue, None)
        self._caught_up_ms.pop(queue, None)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
