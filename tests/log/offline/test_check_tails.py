"""What the offline check says of a log's end after a kill: torn, or lost by the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_log.offline.check import Severity, check
from imago_testing.stores.in_memory import HOST, START_MS
from imago_testing.stores.on_disk import flip, make_files, open_files
from imago_wire.hot import QueueTail, RecordBuilder
from imago_wire.records.record import make_entry

if TYPE_CHECKING:
    from pathlib import Path


def newest(folder: Path) -> tuple[Path, int]:
    """The last file of a log that holds anything, and where it ends."""
    path = max(path for path in (folder / "commitlog").iterdir() if any(path.read_bytes()))
    return path, len(path.read_bytes().rstrip(b"\0"))


@pytest.mark.parametrize("left", [20, 100])
def test_a_torn_tail_after_a_kill_is_a_warning(tmp_path: Path, left: int) -> None:
    make_files(tmp_path, clean=False)
    path, end = newest(tmp_path)
    tail = QueueTail(b"T", 0, dual=False)
    entry = make_entry(tail, b"body" * 9, born_ms=START_MS, born_host=HOST)
    record, _ = RecordBuilder(HOST, 5, 0).build([entry], 0, int(path.name) + end, START_MS, 1 << 20)
    content = bytearray(path.read_bytes())
    content[end : end + left] = bytes(record)[:left]
    path.write_bytes(content)
    torn = [found for found in check(tmp_path) if found.severity is not Severity.NOTE]
    assert [found.severity for found in torn] == [Severity.WARNING]
    assert (torn[0].file, torn[0].position) == (path, end)
    assert "torn tail" in torn[0].what
    open_files(tmp_path).close()
    assert list(check(tmp_path)) == [], "the start has cut it"


def test_the_check_warns_of_noise_that_the_start_cuts(tmp_path: Path) -> None:
    make_files(tmp_path, clean=False)
    path, end = newest(tmp_path)
    content = bytearray(path.read_bytes())
    content[end : end + 90] = bytes(range(1, 91))
    path.write_bytes(content)
    (cut,) = [found for found in check(tmp_path) if found.severity is not Severity.NOTE]
    assert (cut.severity, cut.file, cut.position) == (Severity.WARNING, path, end)
    store = open_files(tmp_path)
    assert not store.damaged_ranges()
    store.close()
    assert list(check(tmp_path)) == [], "the start has cut it"


def test_what_no_kill_does_to_the_end_is_an_error(tmp_path: Path) -> None:
    make_files(tmp_path, clean=False)
    path, end = newest(tmp_path)
    flip(path, end - 5)
    (found,) = [found for found in check(tmp_path) if found.severity is not Severity.NOTE]
    assert (found.severity, found.file) == (Severity.ERROR, path)
    assert "no torn write" in found.what
    store = open_files(tmp_path)
    (lost,) = store.damaged_ranges()
    assert (lost.path, lost.position) == (path, found.position)
    store.close()
