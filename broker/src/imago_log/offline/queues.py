"""Consume queues and MetaQ positions, unit by unit, against the records of the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_log.disk.files import offset_name, offsets_of
from imago_log.offline.findings import REBUILD
from imago_log.offline.stopped import file_size, read_part
from imago_log.views.units.unit_files import BLANK_SIZE_FIELD, LOST_SIZE_FIELD
from imago_wire.record_format.layout import POSITION_UNIT, UNIT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from imago_log.metadata.changes import Topic
    from imago_log.metadata.state import Metadata
    from imago_log.offline.findings import Findings
    from imago_log.offline.stopped import StoppedStore
    from imago_wire.records.record import RecordView

_UNKNOWN = -1


class QueueState:
    """One queue: its files, and how far log and files have been compared."""

    __slots__ = (
        "cursor",
        "damage",
        "next_offset",
        "next_position",
        "position_end",
        "positions",
        "topic",
        "units",
    )

    def __init__(self, topic: Topic, units: UnitSequence, positions: UnitSequence | None) -> None:
        self.topic, self.units, self.positions = topic, units, positions
        self.cursor = units.first
        """Units before it have been checked."""
        self.next_offset = self.next_position = _UNKNOWN
        """What the next record in the log must hold."""
        self.position_end = _UNKNOWN
        """Where the last position unit's message ends."""
        self.damage = 0


class QueuesCheck:
    """All queues of one store. `limit`: files hold everything below this log offset."""

    def __init__(
        self,
        store: StoppedStore,
        findings: Findings,
        metadata: Metadata,
        log_start: int,
        limit: int,
        is_damaged: Callable[[int], bool],
    ) -> None:
        self._store, self._findings, self._metadata = store, findings, metadata
        self._log_start, self._limit, self._is_damaged = log_start, limit, is_damaged
        self._states: dict[tuple[bytes, int], QueueState | None] = {}
        self._damage = 0
        """How many damaged places of the log lie behind the records taken so far."""
        self._find()

    def pass_damage(self, count: int) -> None:
        """Note how many damaged places of the log lie behind the records taken so far."""
        self._damage = count

    def _find(self) -> None:
        """Take up every queue that has a folder."""
        folder, vfs = self._store.folder, self._store.vfs
        for root in (folder.queues, folder.positions):
            for name in vfs.names(root):
                topic = self._topic(name)
                if topic is None:
                    self._findings.note(root / name, "belongs to no topic: left by a deletion")
                    continue
                for number in vfs.names(root / name):
                    if number.isdecimal():
                        self.state(name.encode(), int(number))
                    else:
                        what = "is not the number of a queue"
                        self._findings.warn(root / name / number, None, what, "move it away")

    def _topic(self, name: str) -> Topic | None:
        try:
            return self._metadata.topic(name)
        except KeyError:
            return None

    def state(self, topic: bytes, queue_id: int) -> QueueState | None:
        """Return a queue, None for that of a topic that was deleted."""
        key = (topic, queue_id)
        if key not in self._states:
            self._states[key] = self._open(topic.decode("utf-8", "replace"), queue_id)
        return self._states[key]

    def _open(self, name: str, queue_id: int) -> QueueState | None:
        topic = self._topic(name)
        if topic is None:
            return None
        folder, below = self._store.folder, f"{name}/{queue_id}"
        units = UnitSequence(self._store, folder.queues / below, UNIT.size)
        units.check_files(self._findings)
        positions = None
        if topic.dual:
            positions = UnitSequence(self._store, folder.positions / below, POSITION_UNIT.size)
            positions.check_files(self._findings)
            if units.exists and positions.exists and units.first != positions.first:
                what = f"begins at unit {positions.first}, the queue's units at {units.first}"
                self._findings.error(positions.place(positions.first)[0], 0, what, REBUILD)
        return QueueState(topic, units, positions)

    def states(self) -> list[tuple[tuple[bytes, int], QueueState]]:
        """Return all queues of topics that exist."""
        return [(key, state) for key, state in self._states.items() if state is not None]

    # Records

    def take(self, view: RecordView) -> str:
        """Take the next record of the log; return what is wrong with the record, or ""."""
        state = self.state(view.topic, view.queue_id)
        if state is None or view.physical_offset < state.topic.birth:
            return ""  # of a topic that was deleted
        problem = self._order(state, view)
        if view.physical_offset < self._limit:
            self._skip_to(state, view.queue_offset)
            self._compare(state, view)
        return problem

    def _order(self, state: QueueState, view: RecordView) -> str:
        problem = ""
        offset, position = view.queue_offset, view.metaq_position
        if state.next_offset != _UNKNOWN and state.damage == self._damage:
            if offset != state.next_offset:
                problem = f"queue offset {offset} where {state.next_offset} comes next"
            elif state.topic.dual and position != state.next_position:
                problem = f"MetaQ position {position} where {state.next_position} comes next"
        state.damage = self._damage
        state.next_offset, state.next_position = offset + 1, position + view.metaq_size
        return problem

    def _compare(self, state: QueueState, view: RecordView) -> None:
        index = view.queue_offset
        if index < state.cursor:
            self._miss(state.units, index, "begins behind it")
            return
        state.cursor = index + 1
        wanted = UNIT.pack(view.physical_offset, view.size, view.tag_code)
        self._unit(state, state.units, index, wanted)
        if state.positions is not None:
            wanted = POSITION_UNIT.pack(view.metaq_position, view.metaq_size)
            self._unit(state, state.positions, index, wanted)
            state.position_end = view.metaq_position + view.metaq_size

    def _unit(self, state: QueueState, sequence: UnitSequence, index: int, wanted: bytes) -> None:
        found = sequence.unit(index)
        if found == wanted:
            sequence.found()
            return
        if not found:
            self._miss(sequence, index, "lacks it")
            return
        fields = UNIT if sequence is state.units else POSITION_UNIT
        names = ("log offset", "size", "tag code") if fields is UNIT else ("MetaQ position", "size")
        wrong = [
            f"{name} {got}, the record says {want}"
            for name, got, want in zip(
                names, fields.unpack(found), fields.unpack(wanted), strict=True
            )
            if got != want
        ]
        path, position = sequence.place(index)
        self._findings.error(path, position, f"unit {index}: {'; '.join(wrong)}", REBUILD)

    def _miss(self, sequence: UnitSequence, index: int, how: str) -> None:
        if sequence.missed():  # reported once for all that follow
            path, position = sequence.place(index)
            what = f"the log has message {index} of this queue, the file {how}"
            self._findings.error(path, position, what, REBUILD)

    # Units that no record of the log stands for

    def _skip_to(self, state: QueueState, index: int) -> None:
        """Check the units up to one: of records that expired, or lie where the log is damaged."""
        while state.cursor < min(index, state.units.limit):
            unit = state.units.unit(state.cursor)
            if unit:
                self._lone(state, state.cursor, unit)
            else:
                path, position = state.units.place(state.cursor)
                what = f"unit {state.cursor} was not written, but later ones are"
                self._findings.error(path, position, what, REBUILD)
            state.cursor += 1
        state.cursor = max(state.cursor, index)

    def _lone(self, state: QueueState, index: int, unit: bytes) -> None:
        place, size, _ = UNIT.unpack(unit)
        blank = size == BLANK_SIZE_FIELD
        if not blank and place >= self._log_start and not self._is_damaged(place):
            path, position = state.units.place(index)
            what = f"unit {index} points to log offset {place}, where no record of this queue is"
            self._findings.error(path, position, what, REBUILD)
        if state.positions is None:
            return
        found = state.positions.unit(index)
        path, position = state.positions.place(index)
        if not found:
            self._findings.error(path, position, f"lacks unit {index} of the queue", REBUILD)
            return
        start, length = POSITION_UNIT.unpack(found)
        if size == LOST_SIZE_FIELD:
            # Not every version noted how long it was.
            state.position_end = UNIT.unpack(unit)[2] or _UNKNOWN
            return
        if state.position_end not in (_UNKNOWN, start):
            what = f"unit {index} is of position {start}, the one before ends at "
            self._findings.error(path, position, f"{what}{state.position_end}", REBUILD)
        state.position_end = start if length == BLANK_SIZE_FIELD else start + length

    def finish(self) -> None:
        """Check the units behind the last record of each queue."""
        for _, state in self.states():
            units = state.units
            while unit := units.unit(state.cursor):
                if UNIT.unpack(unit)[0] >= self._limit:
                    break
                self._lone(state, state.cursor, unit)
                state.cursor += 1
            if self._store.clean:
                self._nothing_behind(state)

    def _nothing_behind(self, state: QueueState) -> None:
        for sequence in (state.units, state.positions):
            behind = None if sequence is None else sequence.written_behind(state.cursor)
            if sequence is not None and behind is not None:
                path, position = sequence.place(behind)
                what = f"there is more behind the queue's end, {state.cursor}"
                self._findings.error(path, position, what, REBUILD)


# One numbered sequence of units in its files, read once from the first to the last.


UNITS_PER_FILE = 300_000
_WINDOW_UNITS = 128


class UnitSequence:
    """Units `first` … `limit`, of which the last may be zeros: not written."""

    def __init__(self, store: StoppedStore, folder: Path, unit_size: int) -> None:
        self._pool, self.folder, self.unit_size = store.pool, folder, unit_size
        self._per_file = UNITS_PER_FILE * unit_size
        names = store.vfs.names(folder)
        self._sizes = {
            start: file_size(store.pool, folder / offset_name(start)) for start in offsets_of(names)
        }
        self._others = [name for name in names if name not in map(offset_name, self._sizes)]
        starts = sorted(self._sizes)
        self.first = starts[0] // unit_size if starts else 0
        self.limit = (starts[-1] + self._sizes[starts[-1]]) // unit_size if starts else 0
        self._window = b""
        self._window_at = 0
        self._lacking = False
        """Whether the unit asked for last was missing."""

    def found(self) -> None:
        """The unit asked for last was there."""
        self._lacking = False

    def missed(self) -> bool:
        """The unit asked for last was missing; true: the one before it was there."""
        first, self._lacking = not self._lacking, True
        return first

    @property
    def exists(self) -> bool:
        """Whether there is any file."""
        return bool(self._sizes)

    def check_files(self, findings: Findings) -> None:
        """Check names and sizes: files follow one another, all but the last are full."""
        folder, full = self.folder, self._per_file
        for name in self._others:
            what = "is not named as a view file, which is its first byte in 20 digits"
            findings.warn(folder / name, None, what, "move it out of the folder, if it is yours")
        starts = sorted(self._sizes)
        for start in starts:
            path = folder / offset_name(start)
            if start % full:
                what = f"the name is no multiple of the file size {full}"
                findings.error(path, None, what, REBUILD)
            if start != starts[-1] and self._sizes[start] != full:
                what = f"{self._sizes[start]} bytes, but files before the last one have {full}"
                findings.error(path, self._sizes[start], what, REBUILD)
            elif self._sizes[start] > full:
                what = f"{self._sizes[start]} bytes, but no such file has more than {full}"
                findings.error(path, full, what, REBUILD)
        for start in range(min(starts, default=0), max(starts, default=0), full):
            if start not in self._sizes:
                findings.error(folder / offset_name(start), None, "the file is missing", REBUILD)

    def place(self, index: int) -> tuple[Path, int]:
        """Return the file of a unit and the unit's byte position in it."""
        at = index * self.unit_size
        return self.folder / offset_name(at - at % self._per_file), at % self._per_file

    def unit(self, index: int) -> bytes:
        """Return one unit; b"" where no file holds it or it was not written."""
        at = (index - self._window_at) * self.unit_size
        if not 0 <= at < len(self._window):
            self._window, self._window_at = self._read(index), index
            at = 0
        unit = self._window[at : at + self.unit_size]
        return unit if len(unit) == self.unit_size and any(unit[8:12]) else b""

    def _read(self, index: int) -> bytes:
        path, position = self.place(index)
        if index * self.unit_size - position not in self._sizes:
            return b""
        count = min(_WINDOW_UNITS, UNITS_PER_FILE - index % UNITS_PER_FILE)
        return read_part(self._pool, path, position, count * self.unit_size)

    def written_behind(self, index: int) -> int | None:
        """Return the first index from `index` on that is not zeros, None when there is none."""
        while index < self.limit:
            data = self._read(index)
            if any(data):
                return index
            index += max(1, len(data) // self.unit_size)
        return None
