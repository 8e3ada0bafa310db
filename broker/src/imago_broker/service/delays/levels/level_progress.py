"""How far each delay level has come, by the log: what was delivered is delivered, whatever breaks.

What a level delivers is one append: a firing record in a queue of its own, which names messages,
and they behind it, as with timers (`core.timer_record`). A second after something was delivered,
metadata notes how far the levels are, and which firing record is needed still; a start reads the
firing records from there on.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from imago_broker.core.timers.timer_record import firing_body
from imago_broker.model import names
from imago_broker.model.topics.system_topics import DELAY_LEVELS_MAX
from imago_broker.service.delays.firing_log import FLOOR_KEY, FiringLog
from imago_log.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_log.store import MessageStore
    from imago_wire.records.record import Entry

log = logging.getLogger(__name__)

KIND = "delay"
"""Of the metadata: by level the offset up to which all is delivered."""
FIRING_QUEUE = DELAY_LEVELS_MAX
"""Queue of the levels' topic that has the firing records: the one behind the levels."""


class DelayProgress:
    """The levels of one log, as its firing records and its metadata know them."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._firings = FiringLog(store, names.SCHEDULE_TOPIC, FIRING_QUEUE)
        self._noted: dict[str, int] = {}

    def read(self, levels: int) -> list[tuple[int, set[int]]]:
        """Return from where on each level has to deliver, and what behind that it has already."""
        self._noted = {
            key: value for key, value in self._store.meta(KIND).items() if isinstance(value, int)
        }
        done: dict[int, set[int]] = {}
        for queue_id, offset in self._firings.read(self._noted.get(FLOOR_KEY, 0)):
            done.setdefault(queue_id, set()).add(offset)
        offsets = []
        for level in range(1, levels + 1):
            offset, delivered = self._noted.get(str(level), 0), done.get(level - 1, set())
            while offset in delivered:
                offset += 1
            offsets.append((offset, {each for each in delivered if each > offset}))
        return offsets

    def noted(self, level: int) -> int:
        """Return the offset that a start would begin to count from."""
        return self._noted.get(str(level), 0)

    @property
    def end(self) -> int:
        """Offset of the next firing record."""
        return self._firings.end

    @property
    def floor(self) -> int:
        """The first firing record that was read."""
        return self._firings.floor

    def entry(
        self, fired: bytearray, dropped: bytes, now_ms: int
    ) -> tuple[Entry, tuple[int, int] | None]:
        """Return the firing record of an append, and what of an earlier one it states."""
        broken = self._firings.broken
        return self._firings.entry(firing_body(fired, dropped, broken), now_ms), broken

    def stated(self, broken: tuple[int, int] | None) -> None:
        """Note that a record which states that is in the log."""
        self._firings.stated(broken)

    def note(self, offsets: Mapping[int, int], floor: int) -> bool:
        """Note in the metadata how far levels are; false: the log takes nothing now."""
        wanted = {str(level): offset for level, offset in offsets.items()} | {FLOOR_KEY: floor}
        changes = [
            (KIND, key, value) for key, value in wanted.items() if self._noted.get(key, 0) != value
        ]
        if not changes:
            return True
        try:
            self._store.put_meta(changes)
        except StoreError as error:
            log.warning("delay_progress_not_noted reason=%s", error)
            return False
        self._noted |= wanted
        return True
