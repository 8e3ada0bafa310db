"""A disk that fills up: puts are refused whole, nothing is lost, service resumes by itself."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
from typing import TYPE_CHECKING

import pytest

from imago_log import DiskFullError, DiskLevel, MessageStore
from imago_log.disk import space
from imago_testing.stores.claims import SaidClaims
from imago_testing.stores.in_memory import DATA, FakeClock, Model, open_store
from imago_testing.stores.members import open_member
from imago_testing.stores.vfs import MemoryVfs

if TYPE_CHECKING:
    from pathlib import Path


def percent(vfs: MemoryVfs, used: float) -> None:
    vfs.total_bytes, vfs.used_bytes = 10_000, int(used * 100)


def begun(vfs: MemoryVfs, clock: FakeClock) -> tuple[MessageStore, Model]:
    store, model = open_store(vfs, clock), Model()
    store.create_topic("T", {})
    for _ in range(60):
        model.send(store, [("T", 0, 300)])
    return store, model


Where = list[tuple[str, int, int]]
TWO: Where = [("T", 0, 300), ("T", 0, 10)]


def refused(store: MessageStore, model: Model, where: Where) -> None:
    """An append fails, and nothing of it is there."""
    before = (store.log_end, store.queue_range("T", 0), store.position_range("T", 0))
    with pytest.raises(DiskFullError):
        model.send(store, where)
    model.in_flight.clear()
    assert (store.log_end, store.queue_range("T", 0), store.position_range("T", 0)) == before


def test_above_the_last_level_puts_are_refused_until_there_is_room() -> None:
    vfs, clock = MemoryVfs(), FakeClock()
    store, model = begun(vfs, clock)
    percent(vfs, 90.01)
    health = store.tick()
    assert (health.disk_level, health.writable) == (DiskLevel.FULL, False)
    refused(store, model, TWO)
    model.check(store)
    store.put_meta([("offset", "group", 5)])  # consumers go on, and free what can go
    percent(vfs, 89.9)
    health = store.tick()
    assert (health.disk_level, health.writable) == (DiskLevel.FORCE, True)
    model.send(store, [("T", 0, 300)])
    model.check(store)
    store.close()
    store = open_store(vfs, clock)
    model.check(store)
    assert dict(store.meta("offset")) == {"group": 5}
    store.close()


@pytest.mark.parametrize(
    ("used", "level", "writable", "frees"),
    [
        (75, DiskLevel.NORMAL, True, False),
        (80, DiskLevel.CLEAN, True, False),
        (88, DiskLevel.FORCE, True, True),
        (95, DiskLevel.FULL, False, True),
    ],
)
def test_levels(used: float, level: DiskLevel, writable: bool, frees: bool) -> None:
    vfs, clock = MemoryVfs(), FakeClock()
    store, model = begun(vfs, clock)
    percent(vfs, used)
    health = store.tick(SaidClaims())
    for _ in range(4):
        clock.now_ms += 4000
        health = store.tick(SaidClaims())
    assert (health.disk_level, health.writable) == (level, writable)
    assert health.disk_used_ratio == pytest.approx(used / 100)
    assert (store.log_start > 0) is frees
    model.check(store)
    store.close()


def test_one_file_a_round_goes_before_its_time() -> None:
    vfs, clock = MemoryVfs(), FakeClock()
    store, model = begun(vfs, clock)
    clock.now_ms += 4000
    store.tick()
    percent(vfs, 88)
    starts = []
    for _ in range(50):
        store.tick(SaidClaims())
        starts.append(store.log_start)
    steps = {after - before for before, after in itertools.pairwise(starts)}
    assert steps == {0, 4096}
    assert starts[-1] < store.log_end, "the written file stays"
    model.check(store)
    store.close()


def test_a_file_system_that_ends_early_refuses_too() -> None:
    """The disk is full below our level: the next log file cannot be made."""
    vfs, clock = MemoryVfs(), FakeClock()
    store, model = begun(vfs, clock)
    store.tick()
    vfs.free_bytes = 0
    while store.log_end % 4096 < 2800:  # what is left of the file can still be used
        model.send(store, [("T", 0, 300)])
    refused(store, model, [("T", 0, 500)] * 12)
    refused(store, model, [("T", 0, 500)] * 12)
    model.check(store)
    vfs.free_bytes = None
    model.send(store, [("T", 0, 500)] * 12)
    model.check(store)
    store.close()


class NoRoom:
    """A disk that has no room for the files of views: calls in a folder, or outside the log's."""

    def __init__(
        self, vfs: MemoryVfs, calls: tuple[str, ...], folder: str, number: int = errno.ENOSPC
    ) -> None:
        self._calls, self._folder, self._number = calls, folder, number
        vfs.before_call = self._look

    def _look(self, what: str, path: Path) -> None:
        parts = path.parts[2:-1]
        here = self._folder in parts if self._folder else "commitlog" not in parts
        probed = what == "allocate" and path.parent.name == "config"
        if probed or (what in self._calls and here):
            raise OSError(self._number, os.strerror(self._number))


def send_until_refused(
    store: MessageStore, model: Model, clock: FakeClock, where: Where, rounds: int = 100
) -> bool:
    for _ in range(rounds):
        try:
            model.send(store, where)
        except DiskFullError:
            model.in_flight.clear()
            return True
        clock.now_ms += 4000
        store.tick()
    return False


@pytest.mark.parametrize(
    ("calls", "folder"),
    [
        (("write", "truncate"), "consumequeue"),
        (("write", "truncate"), "consumequeue_v"),
        (("create",), "consumequeue"),
        (("write", "create"), "index"),
        (("write",), "metaq"),
        (("create",), "metaq"),
        (("write", "create"), "config"),
        (("write", "create", "truncate"), ""),
    ],
)
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE, errno.ENFILE])
def test_views_without_room_wait_and_messages_are_refused_meanwhile(
    calls: tuple[str, ...], folder: str, number: int
) -> None:
    vfs, clock = MemoryVfs(), FakeClock()
    store, model = begun(vfs, clock)
    store.create_topic("M", {"attributes": {"materialised": "true"}})
    model.send(store, [("T", 0, 300), ("M", 0, 100)])
    store.tick()
    told: list[object] = []
    store.on_failure.add(told.append)
    where: Where = [("T", 0, 60), ("T", 1, 60), ("M", 0, 90)]
    NoRoom(vfs, calls, folder, number)
    assert send_until_refused(store, model, clock, where)
    for _ in range(3):
        clock.now_ms += 1000
        assert not store.tick().writable
    refused(store, model, TWO)
    model.check(store)
    vfs.before_call = None
    clock.now_ms += 4000
    assert store.tick().writable
    assert not send_until_refused(store, model, clock, where, rounds=4)
    model.check(store)
    assert told == []
    store.close()
    for clean in (True, False):
        store = open_store(vfs, clock)
        model.check(store)
        store.close(clean=clean)


def test_a_store_that_closes_without_room_for_its_views_makes_them_at_the_next_start() -> None:
    vfs, clock = MemoryVfs(), FakeClock()
    store, model = begun(vfs, clock)
    model.send(store, [("T", 0, 300)] * 5)

    NoRoom(vfs, ("write", "truncate", "create"), "consumequeue")
    store.close()
    vfs.before_call = None
    store = open_store(vfs, clock)
    model.check(store)
    store.close()


def test_a_full_disk_can_be_opened_and_read() -> None:
    vfs, clock = MemoryVfs(), FakeClock()
    store, model = begun(vfs, clock)
    store.close()
    percent(vfs, 99)
    store = open_store(vfs, clock)
    model.check(store)
    assert store.tick().writable is False
    refused(store, model, TWO)
    store.close()


def test_no_file_is_made_ahead_on_a_full_disk() -> None:
    vfs, clock = MemoryVfs(), FakeClock()
    store, _ = begun(vfs, clock)
    percent(vfs, 95)
    for _ in range(3):
        store.tick()
    bases = [int(p.name) for p in vfs.files() if p.parent == DATA / "commitlog"]
    assert max(bases) < store.log_end
    store.close()


HOUR = 3_600_000
LARGER: dict[str, int] = {"retention_ms": HOUR, "segment_bytes_max": 16 << 10}
"""Files whose kept part has room for all metadata of a test."""


def pass_time(store: MessageStore, clock: FakeClock, *, several: bool) -> None:
    for _ in range(5):
        if several:
            store.set_high_watermark(store.log_end)
        clock.now_ms += 4000
        store.tick()


def filled(
    vfs: MemoryVfs, clock: FakeClock, *, several: bool, sizes: tuple[int, ...], notes: int = 0
) -> MessageStore:
    """Return a store that has sent until its disk was full to the last byte."""
    store = (open_member if several else open_store)(vfs, clock, **LARGER)
    if several:
        store.lead(1)
    model = Model()
    store.create_topic("T", {})
    for number in range(notes):
        store.put_meta([("note", f"{number}", "y" * 100)])
    for _ in range(100):
        model.send(store, [("T", 0, 300)])
        if several and len(model.sent) == 50:
            store.lead(2)  # the epoch before is forgotten with its files
    pass_time(store, clock, several=several)
    vfs.free_bytes = 0
    for size in sizes:  # the smaller one takes what the larger one has left
        with contextlib.suppress(DiskFullError):
            while True:
                model.send(store, [("T", 0, size)])
        model.in_flight.clear()
    return store


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("sizes", [(300, 1), (1, 1), (900, 300)])
def test_expired_files_go_from_a_disk_that_is_full_to_the_last_byte(
    several: bool, sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(space, "PROBE_BYTES", 1024)  # these files are small
    vfs, clock = MemoryVfs(), FakeClock()
    store = filled(vfs, clock, several=several, sizes=sizes)
    told: list[object] = []
    store.on_failure.add(told.append)
    with contextlib.suppress(DiskFullError):
        for offset in range(1000):  # consumers go on for as long as there is room for them
            store.put_meta([("offset", "group", offset)])
    assert store.log_start == 0
    clock.now_ms += 2 * HOUR
    pass_time(store, clock, several=several)
    assert store.log_start > 0
    Model().send(store, [("T", 0, 300)] * 3)
    assert told == []
    vfs.free_bytes = None
    pass_time(store, clock, several=several)
    start, end, offsets = store.log_start, store.log_end, store.queue_range("T", 0)
    store.close(clean=False)
    store = (open_member if several else open_store)(vfs, clock, **LARGER)
    if several:
        store.set_high_watermark(end)
    assert (store.log_start, store.log_end, store.queue_range("T", 0)) == (start, end, offsets)
    store.close()


def test_a_disk_that_stays_full_keeps_nobody_from_looking_after_the_rest() -> None:
    """What files that go have said is more than the kept part takes: the next round tries again."""
    vfs, clock = MemoryVfs(), FakeClock()
    store = filled(vfs, clock, several=True, sizes=(300, 1), notes=30)
    told: list[object] = []
    store.on_failure.add(told.append)
    clock.now_ms += 2 * HOUR
    for _ in range(3):
        clock.now_ms += 4000
        assert not store.tick().writable
    assert store.log_start == 0
    vfs.free_bytes = None
    pass_time(store, clock, several=True)
    assert (store.log_start > 0, store.tick().writable, told) == (True, True, [])
    store.close()
