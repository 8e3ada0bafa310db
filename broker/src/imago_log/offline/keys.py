"""The key index, entry by entry, against the keys of the records."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from imago_log.disk.files import offset_name, offsets_of
from imago_log.offline.findings import REBUILD
from imago_log.offline.stopped import file_size, read_part
from imago_log.views.key_index import ENTRIES_PER_FILE, ENTRY_SIZE
from imago_wire.hot import key_entries
from imago_wire.record_format.layout import KEY_ENTRY

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from imago_log.offline.findings import Findings
    from imago_log.offline.stopped import StoppedStore

_FILE_BYTES = ENTRIES_PER_FILE * ENTRY_SIZE
_WINDOW_ENTRIES = 8192


class _KeyEntry(NamedTuple):
    """One entry of the index: a key's hash, and the log offset of the record that has the key."""

    key_hash: int
    place: int


class KeysCheck:
    """Entries `first` … `count`, which cover the log below `end`."""

    def __init__(
        self,
        store: StoppedStore,
        findings: Findings,
        log_start: int,
        is_damaged: Callable[[int], bool],
    ) -> None:
        self._store, self._findings, self._log_start = store, findings, log_start
        self._is_damaged = is_damaged
        self._folder = store.folder.keys
        checkpoint = store.checkpoint
        self._count = checkpoint.keys_count if checkpoint else 0
        self._end = checkpoint.keys_end if checkpoint else 0
        names = store.vfs.names(self._folder)
        starts = offsets_of(names)
        self._cursor = starts[0] // ENTRY_SIZE if starts else 0
        self._window, self._window_at = b"", 0
        self._lost = False
        """The files do not go on as the log does: said once."""
        self._check_files(names, starts)

    def _check_files(self, names: list[str], starts: list[int]) -> None:
        findings, folder = self._findings, self._folder
        known = {offset_name(start) for start in starts}
        for name in sorted({*names} - known):
            what = "is not named as a key index file, which is its first byte in 20 digits"
            findings.warn(folder / name, None, what, "move it out of the folder, if it is yours")
        total = self._count * ENTRY_SIZE
        for start in starts:
            path = folder / offset_name(start)
            size = file_size(self._store.pool, path)
            least = min(_FILE_BYTES, total - start)
            if start % _FILE_BYTES:
                what = f"the name is no multiple of the file size {_FILE_BYTES}"
                findings.error(path, None, what, REBUILD)
            elif size < least or size > _FILE_BYTES:
                what = f"{size} bytes, the checkpoint counts {least} in this file"
                findings.error(path, min(size, _FILE_BYTES), what, REBUILD)
                self._lost = True
        first = starts[0] if starts else 0
        for start in range(first, total, _FILE_BYTES):
            if start not in starts:
                findings.error(folder / offset_name(start), None, "the file is missing", REBUILD)
                self._lost = True

    def take(self, data: bytes, log_offset: int) -> None:
        """Take whole records of the log that follow one another."""
        if self._lost or log_offset >= self._end:
            return
        for key_hash, place in KEY_ENTRY.iter_unpack(key_entries(data, log_offset)):
            if place >= self._end or self._lost:
                return
            self._entry(key_hash, place)

    def _entry(self, key_hash: int, place: int) -> None:
        while (found := self._read(self._cursor)) and found.place < place:
            if found.place >= self._log_start and not self._is_damaged(found.place):
                self._tell(f"points to log offset {found.place}, where no key comes next")
                self._lost = True
                return
            self._cursor += 1
        if found is None:
            self._tell(f"is missing: the log has a key at {place}")
            self._lost = True
        elif found.place != place:
            self._tell(f"points to log offset {found.place}, the next key is at {place}")
            self._lost = True
        elif found.key_hash != key_hash:
            self._tell(f"has the hash {found.key_hash:08x}, the key at {place} has {key_hash:08x}")
        self._cursor += 1

    def _read(self, entry: int) -> _KeyEntry | None:
        if entry >= self._count:
            return None
        at = (entry - self._window_at) * ENTRY_SIZE
        if not 0 <= at < len(self._window):
            path, position = self._place(entry)
            count = min(_WINDOW_ENTRIES, ENTRIES_PER_FILE - entry % ENTRIES_PER_FILE)
            self._window = read_part(self._store.pool, path, position, count * ENTRY_SIZE)
            self._window_at, at = entry, 0
        return _KeyEntry(*KEY_ENTRY.unpack_from(self._window, at))

    def _place(self, entry: int) -> tuple[Path, int]:
        at = entry * ENTRY_SIZE
        return self._folder / offset_name(at - at % _FILE_BYTES), at % _FILE_BYTES

    def _tell(self, what: str) -> None:
        path, position = self._place(self._cursor)
        self._findings.error(path, position, f"entry {self._cursor} {what}", REBUILD)

    def finish(self) -> None:
        """Check the entries behind the last key."""
        while not self._lost and (found := self._read(self._cursor)):
            if found.place >= self._log_start and not self._is_damaged(found.place):
                self._tell(f"points to log offset {found.place}, where no more keys are")
                return
            self._cursor += 1
