"""What goes when: by age, by size, per log and per materialised topic; and what stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_log.disk.pressure import DiskLevel, DiskRatios, disk_level
from imago_log.lifecycle.retention import (
    FILES_AT_ONCE_MAX,
    Limits,
    LogFile,
    files_to_delete,
    files_to_spare,
)
from imago_testing.stores.in_memory import DATA, FakeClock, Model, open_store
from imago_testing.stores.vfs import MemoryVfs

if TYPE_CHECKING:
    from pathlib import Path

HOUR = 3600 * 1000
FILE = 4096


def limits(**changes: int) -> Limits:
    settings = {"retention_ms": 0, "retention_bytes": 0} | changes
    return Limits(**settings)


def decide(ages: list[int], **changes: int) -> int:
    files = [LogFile(at * FILE, 100 * HOUR - age) for at, age in enumerate(ages)]
    return files_to_delete(files, file_size=FILE, now_ms=100 * HOUR, limits=limits(**changes))


def test_decisions() -> None:
    assert decide([9 * HOUR, 2 * HOUR, HOUR]) == 0
    assert decide([9 * HOUR, 2 * HOUR, HOUR], retention_ms=HOUR) == 2
    assert decide([HOUR, 9 * HOUR], retention_ms=HOUR) == 0, "only from the oldest on"
    assert decide([0] * 5, retention_bytes=4 * FILE) == 2, "the written file counts"
    assert decide([0] * 5) == decide([]) == 0
    assert decide([9 * HOUR] * 50, retention_ms=HOUR) == FILES_AT_ONCE_MAX


def spared(count: int, needed_from: int) -> int:
    files = [LogFile(at * FILE, 0) for at in range(5)]
    return files_to_spare(files, count, file_size=FILE, needed_from=needed_from)


def test_files_that_are_needed_stay() -> None:
    assert spared(3, 5 * FILE) == 0
    assert spared(3, 3 * FILE) == 0, "needed from the next file on"
    assert spared(3, 3 * FILE - 1) == 1, "the file that holds it stays"
    assert spared(3, 2 * FILE) == 1, "before the needed ones those that are not"
    assert spared(3, 0) == 3
    assert spared(0, 0) == 0


def test_levels_begin_above_their_ratio() -> None:
    ratios = DiskRatios(clean=0.75, force=0.85, full=0.9)
    found = [disk_level(ratio, ratios) for ratio in (0.75, 0.76, 0.85, 0.86, 0.9, 0.91)]
    normal, clean, force, full = DiskLevel
    assert found == [normal, clean, clean, force, force, full]


class Kept:
    """A store that retention works on."""

    def __init__(self, **changes: int) -> None:
        self.vfs, self.clock, self.model = MemoryVfs(), FakeClock(), Model()
        self.changes = changes
        self.open()
        self.store.create_topic("T", {"name": "T"})

    def open(self) -> None:
        self.store = open_store(self.vfs, self.clock, **self.changes)

    def send(self, count: int, queue_id: int = 0, size: int = 300) -> None:
        for _ in range(count):
            self.model.send(self.store, [("T", queue_id, size)])

    def pass_time(self, ms: int = 4000, times: int = 4) -> None:
        for _ in range(times):
            self.clock.now_ms += ms
            self.store.tick()

    def log_files(self) -> list[int]:
        return [int(p.name) for p in self.vfs.files() if p.parent == DATA / "commitlog"]

    def metaq_files(self, queue_id: int) -> list[int]:
        folder = DATA / "metaq" / f"T-{queue_id}"
        return [int(p.stem) for p in self.vfs.files() if p.parent == folder and p.suffix]


def test_log_by_size() -> None:
    kept = Kept(retention_bytes=4 * FILE)
    kept.send(100)
    assert len(kept.log_files()) > 9
    kept.pass_time()
    assert kept.store.log_start > 0
    written = [base for base in kept.log_files() if base < kept.store.log_end]
    assert len(written) == 4
    assert written[0] == kept.store.log_start
    kept.model.check(kept.store)
    kept.store.close()
    kept.open()
    kept.model.check(kept.store)
    kept.store.close()


def test_what_is_kept_changes_while_the_store_is_open() -> None:
    kept = Kept(retention_ms=0)
    kept.send(100)
    kept.pass_time()
    assert kept.store.log_start == 0
    kept.store.keep(retention_ms=0, retention_bytes=4 * FILE)
    kept.pass_time()
    assert len([base for base in kept.log_files() if base < kept.store.log_end]) == 4
    kept.store.keep(retention_ms=HOUR, retention_bytes=0)
    kept.pass_time(ms=HOUR)
    assert kept.store.log_start == kept.store.log_end - kept.store.log_end % FILE
    kept.model.check(kept.store)
    kept.store.close()


def test_log_by_age() -> None:
    kept = Kept(retention_ms=HOUR)
    kept.send(30)
    kept.clock.now_ms += HOUR - 60_000
    kept.send(30)
    kept.pass_time()
    assert kept.store.log_start == 0, "nothing is older than an hour"
    kept.pass_time(ms=60_000)
    middle = kept.model.sent[30].place
    assert middle - FILE < kept.store.log_start <= middle
    kept.model.check(kept.store)
    kept.pass_time(ms=HOUR)
    assert kept.store.log_start == kept.store.log_end - kept.store.log_end % FILE
    assert kept.log_files(), "the written file stays"
    kept.model.check(kept.store)
    kept.store.close()


def test_a_queue_without_messages_left_goes_on_where_it_was() -> None:
    kept = Kept(retention_bytes=2 * FILE)
    kept.send(5, queue_id=1, size=40)
    end = kept.store.position_range("T", 1)[1]
    kept.send(60)
    kept.pass_time()
    for clean in (True, False):
        assert kept.store.queue_range("T", 1) == (5, 5)
        assert kept.store.position_range("T", 1) == (end, end)
        kept.store.close(clean=clean)
        kept.open()
    kept.send(1, queue_id=1)
    assert (kept.model.sent[-1].offset, kept.model.sent[-1].position) == (5, end)
    kept.model.check(kept.store)
    kept.store.close()


def test_a_queue_without_messages_left_survives_the_loss_of_its_view() -> None:
    kept = Kept(retention_bytes=2 * FILE)
    kept.send(5, queue_id=1, size=40)
    end = kept.store.position_range("T", 1)[1]
    kept.send(60)
    kept.pass_time()
    kept.store.close()
    for name in ("consumequeue", "consumequeue_v", "config"):
        kept.vfs.remove_folder(DATA / name)
    kept.open()
    assert kept.store.queue_range("T", 1) == (5, 5)
    kept.send(1, queue_id=1)
    assert (kept.model.sent[-1].offset, kept.model.sent[-1].position) == (5, end)
    kept.model.check(kept.store)
    kept.store.close()


def test_metadata_outlives_the_records_that_said_it() -> None:
    kept = Kept(retention_bytes=2 * FILE)
    kept.store.put_meta([("offset", "group", 41), ("group", "g", {"retry": 3})])
    for _ in range(3):
        kept.send(40)
        kept.pass_time()
    assert kept.store.log_start > 5 * FILE
    kept.store.close()
    kept.vfs.remove_folder(DATA / "config")
    kept.open()
    assert dict(kept.store.meta("offset")) == {"group": 41}
    assert dict(kept.store.meta("group")) == {"g": {"retry": 3}}
    assert list(kept.store.topics()) == ["T"]
    kept.model.check(kept.store)
    kept.store.close()


def test_nothing_goes_before_its_views_are_on_the_device() -> None:
    kept = Kept(retention_bytes=FILE, view_sync_interval_ms=1 << 40)
    kept.send(60)
    kept.pass_time()
    assert kept.store.log_start == 0, "a start after power loss would read again from here"
    kept.store.close()


def materialised(attributes: dict[str, str], **changes: int) -> Kept:
    kept = Kept(**changes)
    value = {"name": "T", "attributes": {"materialised": "true"} | attributes}
    kept.store.create_topic("T", value)
    return kept


@pytest.mark.shipped_limits
def test_materialised_topic_by_size() -> None:
    kept = materialised({"retention.bytes": "3000"})
    kept.send(40)
    kept.send(70, queue_id=1, size=50)
    kept.pass_time()
    assert kept.store.log_start == 0
    for queue_id, count in ((0, 40), (1, 70)):
        low, high = kept.store.position_range("T", queue_id)
        starts = kept.metaq_files(queue_id)
        assert low == starts[0] > 0
        assert 3000 <= high - low < 3000 + 1024
        assert kept.store.queue_range("T", queue_id) == (0, count), "the log still has them"
    kept.model.check(kept.store)
    kept.store.close()
    kept.open()
    assert kept.store.position_range("T", 0)[0] == kept.metaq_files(0)[0]
    kept.model.check(kept.store)
    kept.store.close()


def test_materialised_topic_by_age() -> None:
    kept = materialised({"retention.ms": str(HOUR)})
    kept.send(10)
    kept.clock.now_ms += HOUR
    kept.send(10)
    kept.pass_time()
    low, _ = kept.store.position_range("T", 0)
    assert low > 0
    assert kept.store.offset_of("T", 0, low) in range(7, 11)
    assert kept.store.queue_range("T", 0) == (0, 20)
    kept.pass_time(ms=HOUR)
    assert kept.metaq_files(0), "the written file stays"
    kept.model.check(kept.store)
    kept.store.close()


@pytest.mark.shipped_limits
def test_materialised_files_go_with_their_log() -> None:
    kept = materialised({}, retention_bytes=3 * FILE)
    kept.send(80)
    kept.pass_time()
    low, _ = kept.store.queue_range("T", 0)
    position = kept.store.position_of("T", 0, low)
    starts = kept.metaq_files(0)
    assert kept.store.log_start > 0
    assert starts[0] <= position
    assert starts[1] > position - 1024
    kept.model.check(kept.store)
    kept.store.close()


@pytest.mark.shipped_limits
def test_a_crash_while_a_materialised_file_goes_does_not_bring_its_positions_back() -> None:
    kept = materialised({"retention.bytes": "3000"})
    images: list[tuple[int, MemoryVfs]] = []

    def look(what: str, path: Path) -> None:
        if what == "unlink" and path.suffix == ".meta":
            images.append((int(path.stem), kept.vfs.crashed(power_loss=True)))

    kept.send(40)
    kept.store.request_sync()
    kept.vfs.before_call = look
    kept.pass_time()
    assert len(images) > 3
    kept.store.close()
    for start, image in images:
        store = open_store(image, kept.clock)
        assert store.position_range("T", 0)[0] > start
        store.close()
