"""The units of a delay level's queue, read ahead: what is due, and how long the rest waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imago_broker.model import names
from imago_wire.hot import due_units
from imago_wire.record_format.layout import UNIT

if TYPE_CHECKING:
    from imago_log.store import MessageStore

UNITS_MAX: Final = 256


class LevelUnits:
    """Some units of one level. They say when a message is due; its record has the last word."""

    def __init__(self, store: MessageStore, queue_id: int) -> None:
        self._store, self._queue_id = store, queue_id
        self._units = b""
        self._end = 0
        """Queue offset behind them."""

    def due(self, offset: int, now_ms: int) -> int:
        """Return how many messages are due from an offset on, up to as many as are read at once."""
        count = self._known_due(offset, now_ms)
        if count == self._left(offset):  # there may be more
            units = self._store.units(names.SCHEDULE_TOPIC, self._queue_id, offset, UNITS_MAX)
            self._units, self._end = units, offset + len(units) // UNIT.size
            count = self._known_due(offset, now_ms)
        return count

    def wait_ms(self, offset: int, now_ms: int) -> int:
        """Return how long the message at an offset has to wait; 0: it is due, or nobody knows."""
        left = self._left(offset)
        if not left:
            return 0
        due_ms: int = UNIT.unpack_from(self._units, len(self._units) - left * UNIT.size)[2]
        return max(0, due_ms - now_ms)

    def _known_due(self, offset: int, now_ms: int) -> int:
        left = self._left(offset)
        return due_units(self._units[-left * UNIT.size :], now_ms) if left else 0

    def _left(self, offset: int) -> int:
        left = self._end - offset
        return left if 0 < left * UNIT.size <= len(self._units) else 0
