"""View: message keys → log offsets, in log order.

12 bytes an entry (u32 hash of `topic#key`, i64 log offset), a million entries a file, appended
behind the log and never sorted: putting costs next to nothing, and a look-up searches the bytes
of the time range for the hash. Different keys may share a hash, so the caller compares. See
docs/formats/views.md.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from imago_log.disk.files import FilePool, Unsynced, fatal, offset_name, offsets_of, write_all
from imago_wire.errors import WrongError
from imago_wire.hot import key_entries
from imago_wire.record_format.layout import KEY_ENTRY

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ENTRY_SIZE = KEY_ENTRY.size
ENTRIES_PER_FILE = 1 << 20
READ_ENTRIES = 1 << 17
WAITING_BYTES_MAX = 32 << 10
"""Records whose entries are made later: many at once would keep everybody who sends waiting."""


class KeyIndex:
    """Entries `first` … `count`, of all records below the log offset `end`.

    Entries in memory are found too. `written_count` of them are in files, of all records below
    `written_end`.
    """

    def __init__(
        self, pool: FilePool, folder: Path, entries_per_file: int = ENTRIES_PER_FILE
    ) -> None:
        self._pool, self._folder = pool, folder
        self._entries_per_file = entries_per_file
        self._starts: list[int] = []
        self._memory = bytearray()
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._waiting_from = 0
        self.written_count = self.written_end = self.end = 0

    # Filling

    def load(self, count: int, end: int) -> None:
        """Take over `count` entries that cover the log below `end`; later ones are cut off.

        ValueError: the files do not hold as many.
        """
        with fatal("list", self._folder):
            names = self._pool.vfs.names(self._folder)
        self._starts = [position // ENTRY_SIZE for position in offsets_of(names)]
        self.written_count, self.written_end, self.end = count, end, end
        self._truncate_files(count)
        if count and not self._holds(count):
            raise WrongError(f"the key index holds less than {count} entries")

    def _holds(self, count: int) -> bool:
        if not self._starts or not self._starts[-1] < count:
            return False
        with fatal("open", self._folder):
            size = self._pool.vfs.size(self._pool.get(self._name(self._starts[-1])).fd)
        return size >= (count - self._starts[-1]) * ENTRY_SIZE

    def reset(self, end: int) -> None:
        """Begin again with nothing, covering the log from `end` on."""
        self._memory.clear()
        self._waiting.clear()
        with fatal("list", self._folder):
            names = self._pool.vfs.names(self._folder)
        for position in offsets_of(names):
            self._unlink(position // ENTRY_SIZE)
        self._starts = []
        self.written_count, self.written_end, self.end = 0, end, end

    def add(self, log_offset: int, records: bytes) -> None:
        """Remember records just written; their entries are made once there are some of them."""
        waiting = self._waiting
        if not waiting:
            self._waiting_from = log_offset
        waiting.append((log_offset, records))
        if log_offset - self._waiting_from >= WAITING_BYTES_MAX:
            self.digest()

    def skip(self, log_end: int) -> None:
        """Note that the records just written, up to this log offset, have no keys."""
        if self._waiting:
            self._waiting.append((log_end, b""))
        else:
            self.end = log_end

    def digest(self) -> None:
        """Make the entries of the records that wait."""
        waiting = self._waiting
        while waiting:
            log_offset, records = waiting.popleft()
            self._memory += key_entries(records, log_offset)
            self.end = log_offset + len(records)

    @property
    def pending(self) -> int:
        """Bytes of entries in memory."""
        return len(self._memory)

    def write_all(self) -> None:
        """Write the entries in memory to their files."""
        self.digest()
        while self._memory:
            start = self.written_count - self.written_count % self._entries_per_file
            room = start + self._entries_per_file - self.written_count
            part = bytes(self._memory[: room * ENTRY_SIZE])
            path = self._path(start)
            with fatal("open", path):
                file = self._pool.get(
                    str(path), create=not self._starts or self._starts[-1] != start
                )
            if not self._starts or self._starts[-1] != start:
                self._starts.append(start)
            position = (self.written_count - start) * ENTRY_SIZE
            write_all(self._pool.vfs, file.fd, part, position, path)
            self.written_count += len(part) // ENTRY_SIZE
            del self._memory[: len(part)]
        self.written_end = self.end

    def unsynced(self, synced: int) -> list[Unsynced]:
        """Return the files to sync when the entries before `synced` are on the device."""
        per_file = self._entries_per_file
        return [(self._path(at), at >= synced) for at in self._starts if at + per_file > synced]

    # Looking up

    def candidates(self, key_hash: int, log_from: int, log_to: int) -> Iterator[int]:
        """Yield log offsets in log_from … log_to whose message may have the key, newest first."""
        self.digest()
        needle = key_hash.to_bytes(4, "big")
        first, last = self._search(log_from), self._search(log_to)
        blocks = range(first, last, READ_ENTRIES)
        for start in reversed(blocks):
            data = self._read(start, min(READ_ENTRIES, last - start))
            yield from reversed(list(_offsets_with(data, needle)))

    def _search(self, log_offset: int) -> int:
        low, high = self.first, self.written_count + len(self._memory) // ENTRY_SIZE
        while low < high:
            middle = (low + high) // 2
            if self._offset(middle) < log_offset:
                low = middle + 1
            else:
                high = middle
        return low

    @property
    def first(self) -> int:
        """The first entry that is kept."""
        return self._starts[0] if self._starts else self.written_count

    def _offset(self, entry: int) -> int:
        return int(KEY_ENTRY.unpack(self._read(entry, 1))[1])

    def _read(self, start: int, count: int) -> bytes:
        parts = []
        while count and start < self.written_count:
            file_start = start - start % self._entries_per_file
            end = min(start + count, file_start + self._entries_per_file, self.written_count)
            with fatal("read", self._folder):
                file = self._pool.get(self._name(file_start))
                parts.append(
                    self._pool.vfs.pread(
                        file.fd, (end - start) * ENTRY_SIZE, (start - file_start) * ENTRY_SIZE
                    )
                )
            start, count = end, count - (end - start)
        if count:
            at = (start - self.written_count) * ENTRY_SIZE
            parts.append(bytes(self._memory[at : at + count * ENTRY_SIZE]))
        return b"".join(parts)

    # Healing

    def holds(self, log_offset: int, size: int, entries: bytes) -> bool:
        """Whether there are just these entries for a part of the log."""
        first, last = self.count_below(log_offset), self._search(log_offset + size)
        return self._read(first, last - first) == entries

    def overwrite(self, log_offset: int, size: int, entries: bytes) -> bool:
        """Write the entries of a part of the log again; false: there are more or fewer of them."""
        first, last = self.count_below(log_offset), self._search(log_offset + size)
        if (last - first) * ENTRY_SIZE != len(entries) or last > self.written_count:
            return False
        while first < last:
            start = first - first % self._entries_per_file
            count = min(last, start + self._entries_per_file) - first
            path = self._path(start)
            with fatal("open", path):
                file = self._pool.get(str(path))
            part, entries = entries[: count * ENTRY_SIZE], entries[count * ENTRY_SIZE :]
            write_all(self._pool.vfs, file.fd, part, (first - start) * ENTRY_SIZE, path)
            first += count
        return True

    def replace(self, log_offset: int, size: int, entries: bytes) -> None:
        """Put the entries of a part of the log where they belong; those behind them move."""
        self.write_all()
        first = self._search(log_offset)
        last = self._search(log_offset + size)
        rest = self._read(last, self.written_count - last)
        self._truncate_files(first)
        self.written_count = first
        self._memory += entries + rest
        self.write_all()

    # Cutting

    def truncate(self, log_offset: int) -> None:
        """Forget the entries of records at or after a log offset."""
        self.digest()
        if log_offset >= self.end:
            return
        self.write_all()
        count = self._search(log_offset)
        self._truncate_files(count)
        self.written_count = min(self.written_count, count)
        self.written_end = self.end = min(self.end, log_offset)

    def _truncate_files(self, count: int) -> None:
        while self._starts and self._starts[-1] >= count:
            self._unlink(self._starts.pop())

    def count_below(self, log_offset: int) -> int:
        """Return how many entries there have ever been of records before a log offset."""
        self.digest()
        return self._search(log_offset)

    def drop_before(self, log_start: int) -> None:
        """Remove the files whose entries all point below the log's start, but never the last."""
        while len(self._starts) > 1 and self._offset(self._starts[1]) < log_start:
            self._unlink(self._starts.pop(0))

    def _name(self, start: int) -> str:
        return f"{self._folder}/{offset_name(start * ENTRY_SIZE)}"

    def _path(self, start: int) -> Path:
        return self._folder / offset_name(start * ENTRY_SIZE)

    def _unlink(self, start: int) -> None:
        path = self._path(start)
        self._pool.forget(self._name(start))
        with fatal("remove", path):
            self._pool.vfs.unlink(path)


def _offsets_with(data: bytes, needle: bytes) -> Iterator[int]:
    at = data.find(needle)
    while at >= 0:
        if at % ENTRY_SIZE == 0:
            yield int(KEY_ENTRY.unpack_from(data, at)[1])
        at = data.find(needle, at + 1)
