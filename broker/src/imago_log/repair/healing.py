"""Put a damaged part of the log back: its bytes from elsewhere, then the views made of them."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from imago_log.commitlog.borders import segment_end
from imago_log.errors import LogIOError
from imago_log.views.units.lost import not_real_until
from imago_wire.hot import key_entries, scan_records
from imago_wire.record_format.layout import BLANK_SIZE
from imago_wire.records.record import ScanStop

if TYPE_CHECKING:
    from imago_log.commitlog.commit_log import CommitLog
    from imago_log.commitlog.damage import Damage
    from imago_log.repair.restoring import ViewRestorer
    from imago_log.results import DamagedRange
    from imago_wire.records.record import RecordView

logger = logging.getLogger(__name__)

APPLY_UNITS_MAX = 1 << 16
"""Lost units behind healed records that are written again with each piece; where there are more,
they wait until APPLY_BYTES have come."""
APPLY_BYTES = 4 << 20


@dataclass(slots=True)
class _Begun:
    """A range whose front is put back."""

    damaged: DamagedRange
    at: int
    """Where the next bytes go."""
    applied: int
    """The range begins here by now: what is before it is in service."""
    views: list[RecordView] = field(default_factory=list)
    """Records that are back, but in no view yet."""
    keys: bytearray = field(default_factory=bytearray)
    """Entries of the key index for all that is back."""
    keys_from: int = 0


class Healer:
    """Heals the ranges of one store, front to back. All methods belong to the store's thread."""

    def __init__(self, log: CommitLog, damage: Damage, restorer: ViewRestorer) -> None:
        self._log, self._damage, self._restorer = log, damage, restorer
        self._begun: _Begun | None = None

    def heal(self, offset: int, data: bytes) -> int:
        """Put a damaged range back into service with what was lost: log bytes of another copy.

        `offset` is the start of a damaged range. `data` either covers it exactly: whole records of
        these places, with the blank record and the zeros behind it where the range ends with its
        file. Or it is the front of that, and what it has of whole records is put back.
        Returns how many bytes were; 0: they do not fit the range or the queues, or the device
        refuses; nothing has changed. DiskFullError: a missing file cannot be made.
        """
        begun = self._begun
        if begun is None or begun.at != offset or not data:
            self.settle()
            begun = self._begin(offset) if data else None
        if begun is None or begun.at + len(data) > begun.damaged.end:
            return 0
        size, views = _records(self._log, begun.at, begun.damaged.end, data)
        if not size:
            return 0
        end = offset + size
        conflict = next((view for view in views if self._restorer.is_in_the_way(view)), None)
        if conflict is not None:
            logger.warning(
                "log.not-healed from=%d to=%d queue=%s/%d: another record has queue offset %d",
                offset, end, conflict.topic, conflict.queue_id, conflict.queue_offset,
            )  # fmt: skip
            return 0
        data = data[:size]
        try:
            self._log.put_back(offset, data)
        except LogIOError as error:
            logger.warning("log.not-healed from=%d to=%d error=%s", offset, end, error)
            return 0
        records_end = views[-1].physical_offset + views[-1].size if views else offset
        begun.keys += key_entries(data[: records_end - offset], offset)
        begun.views += views
        begun.at = end
        self._begun = begun
        if end == begun.damaged.end or end - begun.applied >= APPLY_BYTES or self._is_cheap(begun):
            self._apply(begun)
        return size

    def settle(self) -> None:
        """Put into service what has come so far: nothing more comes now."""
        begun, self._begun = self._begun, None
        if begun is not None:
            self._apply(begun)

    def _begin(self, offset: int) -> _Begun | None:
        found = self._damage.at(offset)
        if found is None or found.start != offset:
            return None
        return _Begun(found, offset, offset, keys_from=offset)

    def _is_cheap(self, begun: _Begun) -> bool:
        """Whether few lost units follow: they are written again with each piece that is applied."""
        last = {(view.topic, view.queue_id): view for view in begun.views}
        count = 0
        for view in last.values():
            queue, _ = self._restorer.queue(view)
            if queue is not None and queue.first <= view.queue_offset < queue.end:
                known = min(queue.end, view.queue_offset + APPLY_UNITS_MAX)
                count += not_real_until(queue, view.queue_offset, known) - view.queue_offset
        return count < APPLY_UNITS_MAX

    def _apply(self, begun: _Begun) -> None:
        """Put into service what was put back, and make its views."""
        damaged, end = begun.damaged, begun.at
        views, begun.views = begun.views, []
        whole = end == damaged.end
        if end > begun.applied:
            found = self._damage.at(begun.applied)
            if found is None:  # its file has been deleted, or it was cut off
                self._begun = None
                return
            self._damage.shrink(found, end)
            self._restorer.restore_units(views)
            begun.applied = end
        if whole:
            self._restorer.restore_keys(begun.keys_from, end, bytes(begun.keys))
            self._begun = None
        logger.warning("log.healed from=%d to=%d records=%d", damaged.start, end, len(views))


def _records(log: CommitLog, start: int, end: int, data: bytes) -> tuple[int, list[RecordView]]:
    """Return how much of these bytes may fill the front of a range, and the records in it."""
    scan = scan_records(data, start)
    if len(data) < end - start:
        whole = scan.stop in (ScanStop.END, ScanStop.SHORT, ScanStop.BLANK)
        return (scan.end, scan.views) if whole else (0, [])
    filled = start + scan.end
    fills = scan.stop is ScanStop.END and filled == end
    if scan.stop is ScanStop.BLANK and end == segment_end(log, start):
        said = int.from_bytes(data[scan.end : scan.end + 4], "big")
        fills = said == end - filled and not any(data[scan.end + BLANK_SIZE :])
    return (len(data), scan.views) if fills else (0, [])
