"""The metadata as they were at an earlier log offset: what a cut goes back to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_log.commitlog.log_reader import find_damage
from imago_log.disk.files import fatal, read_whole
from imago_log.metadata.changes import META_TOPIC, decode_changes
from imago_log.metadata.state import Metadata
from imago_log.views.units.lost import is_lost
from imago_wire.hot import view_record
from imago_wire.record_format.layout import UNIT

if TYPE_CHECKING:
    from imago_log.state import StoreState

_UNITS_AT_ONCE = 1024


class PastMetadata:
    """Reads the last snapshot, and the changes since."""

    def __init__(self, s: StoreState) -> None:
        self._vfs, self._folder, self._log = s.vfs, s.folder, s.log
        self._damage, self._witness = s.damage, s.witness
        self._records, self._metadata, self._queues = s.records, s.metadata, s.queues

    def at(self, end: int) -> Metadata | None:
        """Return the state at a log offset: the last snapshot, or nothing, and the changes since.

        None: it is that of the log's end, or one that is ahead of the log.
        """
        if self._metadata.end > self._log.end or not self._changes_behind(end):
            return None
        state = self._snapshot()
        if state is None or state.end > end:
            state = Metadata()
        queue = self._queues.get(state.builtin[META_TOPIC], 0)
        start = max(state.end, self._log.start)
        offset = queue.lookup.search(queue.lookup.min_offset(self._log.start), queue.end,
                              lambda at: queue.unit(at)[0] < start)  # fmt: skip
        while offset < queue.end:
            units = queue.units(offset, min(_UNITS_AT_ONCE, queue.end - offset))
            offset += _UNITS_AT_ONCE
            for place, size, _ in UNIT.iter_unpack(units):
                if place < end and is_lost(self._damage, place, size):
                    self._metadata.doubt()
                elif place < end:
                    record = self._records.whole(place)
                    if record is None:
                        self._note_damage(place)
                        continue
                    view = view_record(record)
                    body = record[view.body_at : view.body_at + view.body_size]
                    state.apply(decode_changes(body), place)
        state.reach(end)
        return state

    def _snapshot(self) -> Metadata | None:
        with fatal("read", self._folder.metadata):
            data = read_whole(self._vfs, self._folder.metadata)
        try:
            return None if data is None else Metadata.from_snapshot(data)
        except (ValueError, KeyError, TypeError):
            return None  # damaged: the log has it all

    def _changes_behind(self, end: int) -> bool:
        """Whether a change of metadata is at or behind a log offset."""
        queue = self._queues.get(self._metadata.builtin[META_TOPIC], 0)
        return queue.end > queue.first and queue.unit(queue.end - 1)[0] >= end

    def _note_damage(self, place: int) -> None:
        """Note what keeps a change from being read: the leader is asked for all of them."""
        found = find_damage(self._log, place, self._log.end, self._witness)
        if found is not None:
            self._damage.add(*found)
        self._metadata.doubt()
