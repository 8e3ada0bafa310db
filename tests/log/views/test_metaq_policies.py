"""MetaQ's policies: when expired files go, what stays of them, partitions that are deleted."""

from __future__ import annotations

import errno
import io
import zipfile
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from imago_broker.core.deletion_times import DeletionTimes
from imago_log.disk.worker import InlineWorker
from imago_log.offline.check import check
from imago_log.results import MetaqStatus
from imago_log.views.metaq import metaq_archive
from imago_testing.stores.in_memory import DATA, FakeClock, Model, open_store
from imago_testing.stores.vfs import MemoryVfs
from imago_wire.hot import metaq_whole

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from imago_log.store import MessageStore

HOUR = 3600 * 1000
MINUTE = 60_000
SEGMENT = 2048
MORNING = "0 0 6,18 * * ?"
HOURLY = "0 30 * * * ?"
KEPT_MS = {"deleted": 12 * HOUR, "archived": 3 * HOUR, "packed": 6 * HOUR}
TOPICS = {
    "deleted": {"retention.ms": str(12 * HOUR)},
    "archived": {"retention.ms": str(3 * HOUR), "metaq.archive": "arc", "delete.when": HOURLY},
    "packed": {"retention.ms": str(6 * HOUR), "metaq.archive": "zip", "delete.when": MORNING},
}


class Kept:
    """A store that deletes by schedule, on a clock of its own."""

    def __init__(self, store_schedule: str = MORNING) -> None:
        self.vfs, self.clock, self.model = MemoryVfs(), FakeClock(), Model()
        start = datetime(2026, 11, 23, tzinfo=UTC)
        self.clock.now_ms = int(start.timestamp() * 1000)
        self.times = DeletionTimes(self.clock, store_schedule, zone=UTC)
        self.store = self.opened()
        for name, attributes in TOPICS.items():
            value = {"name": name, "attributes": {"materialised": "true", **attributes}}
            self.store.create_topic(name, value)

    def opened(self) -> MessageStore:
        return open_store(
            self.vfs,
            self.clock,
            due=self.times.due,
            metaq_segment_bytes_max=SEGMENT,
            retention_ms=24 * HOUR,
            segment_bytes_max=64 << 10,
        )

    def names(self, topic: str) -> list[str]:
        folder = DATA / "metaq" / f"{topic}-0"
        return sorted(p.name for p in self.vfs.files() if p.parent == folder)

    def pass_time(self, ms: int) -> None:
        end = self.clock.now_ms + ms
        while self.clock.now_ms < end:
            self.clock.now_ms = min(end, self.clock.now_ms + MINUTE)
            for _ in range(2):
                self.store.tick()

    def send(self, topic: str, count: int = 1, size: int = 300) -> None:
        for _ in range(count):
            self.model.send(self.store, [(topic, 0, size)])


@pytest.mark.shipped_limits
@pytest.mark.full
def test_72_hours_of_rolling_deleting_and_archiving(tmp_path: Path) -> None:
    """Bytes stay within policy, and no reader sees a hole inside what is kept."""
    kept = Kept()
    sent_at: dict[str, list[tuple[int, int]]] = {name: [] for name in TOPICS}
    restarts = {20, 41, 60}
    for hour in range(72):
        for name in TOPICS:
            kept.send(name, 4)
            sent_at[name].append((kept.clock.now_ms, kept.store.position_range(name, 0)[1]))
        kept.pass_time(HOUR)
        if hour in restarts:
            kept.store.close()
            kept.store = kept.opened()
        for name in TOPICS:
            low, high = kept.store.position_range(name, 0)
            assert high - low == read_through(kept.store, name)
            # Nothing younger than the policy is gone; what is older waits for its time at most.
            waits = HOUR if name == "archived" else 12 * HOUR
            oldest = kept.clock.now_ms - KEPT_MS[name] - waits - 2 * HOUR
            young = [end for at, end in sent_at[name] if at >= kept.clock.now_ms - KEPT_MS[name]]
            old = [end for at, end in sent_at[name] if at < oldest]
            assert low <= young[0] - 4 * 320, f"{name}: a message went too early"
            assert not old or low >= old[-1] - SEGMENT - 320, f"{name}: files pile up"
    kept.pass_time(HOUR)
    assert all(name.endswith(".meta") or name == "origin" for name in kept.names("deleted"))
    for topic, ending in (("archived", ".arc"), ("packed", ".zip")):
        archives = [name for name in kept.names(topic) if metaq_archive.is_archive(name)]
        assert archives
        assert {name[-4:] for name in archives} == {ending}
        low = kept.store.position_range(topic, 0)[0]
        assert whole(kept.vfs, topic, archives) == low, "all that went is in the archive"
    kept.store.close()
    on_disk(kept.vfs, tmp_path)
    assert not [each for each in check(tmp_path) if "metaq" in str(each.file)]


def on_disk(vfs: MemoryVfs, folder: Path) -> None:
    for path in vfs.files():
        target = folder / path.relative_to(DATA)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(vfs.content(path))


def read_through(store: MessageStore, topic: str) -> int:
    """Read a partition as a consumer does; return how many bytes it holds, without a hole."""
    position, end = store.position_range(topic, 0)
    start = position
    while position < end:
        read = store.read_positions(topic, 0, position, 1 << 20)
        assert read.status is MetaqStatus.FOUND
        assert read.position == position, "a hole"
        data = read.data if isinstance(read.data, bytes) else read.data.read()
        size = metaq_whole(data)
        assert size > 0
        position += size
    return position - start


def whole(vfs: MemoryVfs, topic: str, names: list[str]) -> int:
    """Return where archived files end, which follow each other and hold whole messages."""
    position = 0
    for name in names:
        assert int(name.partition(".")[0]) == position
        data = vfs.content(DATA / "metaq" / f"{topic}-0" / name)
        if name.endswith(".zip"):
            with zipfile.ZipFile(io.BytesIO(data)) as packed:
                assert packed.namelist() == [name.removesuffix(".zip")]
                data = packed.read(packed.namelist()[0])
        assert metaq_whole(data) == len(data)
        position += len(data)
    return position


@pytest.mark.shipped_limits
def test_expired_files_of_the_log_wait_for_their_time() -> None:
    kept = Kept()
    kept.send("deleted", 400, size=2000)
    kept.pass_time(25 * HOUR)  # from midnight to one o'clock: all has expired since midnight
    assert kept.store.log_start == 0
    kept.pass_time(6 * HOUR)
    assert kept.store.log_start > 0
    kept.store.close()


def test_a_partition_that_is_deleted_begins_where_it_ended() -> None:
    kept = Kept("")
    kept.send("deleted", 20)
    end = kept.store.position_range("deleted", 0)[1]
    attributes = {"materialised": "true", "metaq.begin.0": str(end)}
    kept.store.create_topic("deleted", {"name": "deleted", "attributes": attributes})
    kept.pass_time(5 * MINUTE)
    assert kept.store.position_range("deleted", 0) == (end, end)
    assert kept.store.read_positions("deleted", 0, 0, 1000).status is MetaqStatus.TOO_SMALL
    kept.send("deleted", 3)
    kept.pass_time(5 * MINUTE)
    assert read_through(kept.store, "deleted") == kept.store.position_range("deleted", 0)[1] - end
    assert kept.store.queue_range("deleted", 0) == (0, 23), "the log still has them"
    kept.store.close()
    kept.store = kept.opened()
    kept.pass_time(5 * MINUTE)
    assert kept.store.position_range("deleted", 0)[0] == end
    assert len([name for name in kept.names("deleted") if name.endswith(".meta")]) <= 2
    kept.store.close()


def test_a_crash_while_a_file_is_packed_leaves_it_whole() -> None:
    kept = Kept("")
    kept.send("packed", 20)
    images: list[MemoryVfs] = []

    def look(_: str, path: Path) -> None:
        if ".zip" in path.name or ".arc" in path.name:
            images.append(kept.vfs.crashed(power_loss=True))

    kept.vfs.before_call = look
    kept.pass_time(7 * HOUR)
    kept.store.close()
    assert len(images) > 5
    for image in images:
        packed_or_not = [
            p for p in image.files() if p.parent.name == "packed-0" and p.name.startswith("0" * 20)
        ]
        names = {p.name for p in packed_or_not} - {f"{'0' * 20}.meta.zip.part"}
        assert names, "the file is there by one of its names"
        store = open_store(
            image, kept.clock, metaq_segment_bytes_max=SEGMENT, segment_bytes_max=64 << 10
        )
        assert read_through(store, "packed") > 0
        store.close()


def worker_failures(monkeypatch: pytest.MonkeyPatch) -> list[Exception]:
    """Have jobs fail as those of a thread do, which `tick` does not see; return their errors."""
    failures: list[Exception] = []

    def submit(_: InlineWorker, job: Callable[[], None]) -> None:
        try:
            job()
        except Exception as error:
            failures.append(error)

    monkeypatch.setattr(InlineWorker, "submit", submit)
    return failures


def test_a_file_that_finds_no_room_to_be_packed_is_packed_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failures = worker_failures(monkeypatch)
    kept = Kept("")
    kept.send("packed", 20)

    def full(what: str, path: Path) -> None:
        if path.name.endswith(".zip.part") and what == "write":
            raise OSError(errno.ENOSPC, "No space left on device")

    kept.vfs.before_call = full
    kept.pass_time(7 * HOUR)
    assert not failures
    names = kept.names("packed")
    assert [name[-4:] for name in names if metaq_archive.is_archive(name)] == [".arc"] * 2
    kept.send("packed", 1)
    kept.vfs.before_call = None
    kept.pass_time(MINUTE)
    archives = [name for name in kept.names("packed") if metaq_archive.is_archive(name)]
    assert {name[-4:] for name in archives} == {".zip"}
    assert whole(kept.vfs, "packed", archives) == kept.store.position_range("packed", 0)[0]
    kept.store.close()


def test_nothing_is_packed_where_messages_need_the_room(monkeypatch: pytest.MonkeyPatch) -> None:
    failures = worker_failures(monkeypatch)
    kept = Kept("")
    kept.send("packed", 20)
    kept.vfs.total_bytes, kept.vfs.used_bytes = 100_000, 84_000  # force: 85 %
    kept.pass_time(7 * HOUR)
    assert sum(name.endswith(".arc") for name in kept.names("packed")) == 2
    kept.vfs.used_bytes = 50_000
    kept.pass_time(MINUTE)
    assert not [name for name in kept.names("packed") if name.endswith(".arc")]
    assert not failures
    kept.store.close()


def test_what_a_start_finds_archived_is_packed_unless_somebody_took_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failures = worker_failures(monkeypatch)
    kept = Kept("")
    kept.send("packed", 20)
    kept.vfs.total_bytes, kept.vfs.used_bytes = 100_000, 84_000
    kept.pass_time(7 * HOUR)
    kept.store.close()
    kept.store = kept.opened()
    taken = next(name for name in kept.names("packed") if name.endswith(".arc"))
    kept.vfs.unlink(DATA / "metaq" / "packed-0" / taken)
    kept.vfs.used_bytes = 0
    kept.pass_time(MINUTE)
    archives = [name for name in kept.names("packed") if metaq_archive.is_archive(name)]
    assert [name[-4:] for name in archives] == [".zip"]
    assert not failures
    kept.store.close()


def test_archives_are_moved_away_while_one_is_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    failures = worker_failures(monkeypatch)
    kept = Kept("")
    kept.send("packed", 20)
    renamed = []

    def moved(what: str, path: Path) -> None:
        if path.name.endswith(".zip") and what == "rename":
            kept.vfs.before_call = None
            renamed.append(path)
            kept.vfs.unlink(path.with_name(f"{path.name}.part"))

    kept.vfs.before_call = moved
    kept.pass_time(7 * HOUR)
    assert renamed
    assert not failures
    kept.store.close()


def test_files_of_a_partition_expire_that_nobody_asks_for() -> None:
    kept = Kept("")
    kept.send("deleted", 40)
    kept.pass_time(MINUTE)
    kept.store.close()
    kept.store = kept.opened()
    kept.pass_time(13 * HOUR)
    assert len([name for name in kept.names("deleted") if name.endswith(".meta")]) == 1
    kept.store.close()


@pytest.mark.parametrize("topic", ["archived", "packed"])
def test_archives_of_a_topic_outlive_one_of_the_same_name(topic: str) -> None:
    kept = Kept("")
    kept.send(topic, 20)
    kept.pass_time(25 * HOUR)
    before = {
        name: kept.vfs.content(DATA / "metaq" / f"{topic}-0" / name)
        for name in kept.names(topic)
        if metaq_archive.is_archive(name)
    }
    kept.store.delete_topic(topic)
    value = {"name": topic, "attributes": {"materialised": "true", **TOPICS[topic]}}
    kept.store.create_topic(topic, value)
    kept.model = Model()
    kept.send(topic, 20)
    kept.pass_time(25 * HOUR)
    after = {
        name: kept.vfs.content(DATA / "metaq" / f"{topic}-0" / name)
        for name in kept.names(topic)
        if metaq_archive.is_archive(name)
    }
    assert before.items() < after.items()
    kept.store.close()
