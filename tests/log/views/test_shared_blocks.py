"""Readers of a backlog share what they read of the log."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from imago_log import MetaqStatus
from imago_testing.stores.in_memory import Model, open_store, whole_messages
from imago_testing.stores.vfs import MemoryVfs

if TYPE_CHECKING:
    from pathlib import Path

    from imago_log import MessageStore

pytestmark = pytest.mark.shipped_limits
QUEUES = 4
SEGMENT_BYTES = 4 << 20


class ReadVfs(MemoryVfs):
    """Counts what is read of the log in large parts, and may fail to."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[tuple[Path, int]] = []
        self.broken = False

    def pread_into(self, fd: int, memory: memoryview, offset: int) -> int:
        self.parts.append((self._open[fd][0], offset))
        if self.broken:
            raise OSError(errno.EIO, "Input/output error")
        return super().pread_into(fd, memory, offset)


def backlog(vfs: ReadVfs, messages: int = 8000, size: int = 300) -> tuple[MessageStore, Model]:
    """Fill queues by turns, and start again: nothing of it is in memory."""
    store, model = open_store(vfs, segment_bytes_max=SEGMENT_BYTES), Model()
    store.create_topic("T", {})
    for _ in range(messages // 80):
        model.send(store, [("T", number % QUEUES, size) for number in range(80)])
    store.close()
    return open_store(vfs, segment_bytes_max=SEGMENT_BYTES), model


def read_all(store: MessageStore, bytes_max: int = 200_000) -> list[bytes]:
    """Read all queues, a part of each by turns; return what each has."""
    positions, found = [0] * QUEUES, [b""] * QUEUES
    ends = [store.position_range("T", number)[1] for number in range(QUEUES)]
    while positions != ends:
        for number in range(QUEUES):
            if positions[number] == ends[number]:
                continue
            read = store.read_positions("T", number, positions[number], bytes_max)
            assert (read.status, read.position) == (MetaqStatus.FOUND, positions[number])
            data = whole_messages(read.data)
            positions[number] += len(data)
            found[number] += data
    return found


def test_what_one_reader_has_read_serves_the_others() -> None:
    vfs = ReadVfs()
    store, model = backlog(vfs)
    vfs.parts.clear()
    found = read_all(store)
    assert len(vfs.parts) == len(set(vfs.parts)) > 1, "each part of the log is read once"
    assert [len(data) for data in found] == [
        store.position_range("T", number)[1] for number in range(QUEUES)
    ]
    assert sum(data.count(b"......") > 0 for data in found) == QUEUES
    assert len(model.sent) == 8000
    vfs.broken = True
    store.components.storage.records._blocks.forget()
    assert read_all(store) == found, "what cannot be read at once is read in pieces"
    store.close()


def test_a_part_read_before_the_log_was_mended_is_read_again() -> None:
    vfs = ReadVfs()
    store, model = backlog(vfs)
    found = read_all(store)
    store.components.storage.records._blocks.forget()
    victim = model.sent[400]
    path, at = store.components.storage.log.path(victim.place), victim.place % SEGMENT_BYTES + 120
    vfs.flip_bit(path, at, 1)
    store.components.storage.records._blocks.find(victim.place, 100, read=True)
    vfs.flip_bit(path, at, 1)
    assert read_all(store) == found
    assert not store.damaged
    store.close()


def test_a_part_goes_when_the_log_is_cut_or_put_right() -> None:
    vfs = ReadVfs()
    store, model = backlog(vfs)
    read_all(store)
    log, blocks = store.components.storage.log, store.components.storage.records._blocks
    place = model.sent[0].place
    assert blocks.find(place, 100, read=False) is not None
    log.put_back(place, log.read(place, 100))
    assert blocks.find(place, 100, read=False) is None
    assert blocks.find(place, 100, read=True) is not None
    store.close()


def test_what_does_not_lie_in_one_part_is_not_shared() -> None:
    vfs = ReadVfs()
    store, model = backlog(vfs)
    blocks = store.components.storage.records._blocks
    place = model.sent[10].place
    for start, size in [
        (place, 2 << 20),
        (place, 0),
        (place, -5),
        (4 << 20, 8 << 20),
        (1 << 40, 9),
    ]:
        assert blocks.find(start, size, read=True) is None
    store.close()
