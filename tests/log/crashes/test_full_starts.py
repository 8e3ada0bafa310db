"""A store starts on a disk that is full to the last byte: it serves, refuses, and goes on later."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from imago_log import DiskFullError, MessageStore
from imago_testing.stores.in_memory import DATA, FakeClock, Model, small_config
from imago_testing.stores.vfs import MemoryVfs

if TYPE_CHECKING:
    from pathlib import Path

LOST = {
    "nothing": (),
    "views mark": ("config/views",),
    "key index": ("index/",),
    "units": ("consumequeue/", "consumequeue_v/"),
    "metadata": ("config/metadata.json",),
}


def opened(vfs: MemoryVfs, clock: FakeClock, *, lead: bool, **changes: int) -> MessageStore:
    return MessageStore.open(
        small_config(**changes), clock=clock, vfs=vfs, threaded=False, lead=lead
    )


def close_last_file(store: MessageStore, model: Model) -> int:
    """Write until the last file is closed; return where the next one starts, whose file is lost."""
    start = store.log_end - store.log_end % 4096 + 4096
    while store.log_end < start:
        model.send(store, [("T", 0, 100)])
    assert model.sent.pop().place == start
    return start


def left(
    stop: str, lost: str, *, fills: bool = False, expired: bool = False
) -> tuple[MemoryVfs, FakeClock, Model]:
    """A folder as a stop left it, without some of its files; then others fill the disk."""
    vfs, clock, model = MemoryVfs(), FakeClock(), Model()
    store = opened(vfs, clock, lead=True, **({"retention_ms": 6000} if expired else {}))
    for topic in ("T", "U", "V"):
        store.create_topic(topic, {})
    for at in range(5):
        model.send(store, [("V", 0, 150 + at)])
    for at in range(40):
        model.send(store, [("TU"[at % 2], at % 3, 150)])
        clock.now_ms += 300
        store.request_sync()
        store.tick()
    start = close_last_file(store, model) if fills else 1 << 40
    found = vfs if stop == "clean" else vfs.crashed(power_loss=stop == "power lost")
    assert bool(store.log_start) is expired
    store.close(clean=stop == "clean")
    for path in found.files():
        gone = str(path.relative_to(DATA)).startswith(LOST[lost] or ("-",))
        if gone or (path.parent == DATA / "commitlog" and int(path.name) >= start):
            found.unlink(path)
    found.free_bytes = 0
    return found, clock, model


@pytest.mark.parametrize("lead", [True, False], ids=["alone", "member"])
@pytest.mark.parametrize("lost", LOST)
@pytest.mark.parametrize("stop", ["clean", "killed", "power lost"])
@pytest.mark.parametrize("expired", [False, True], ids=["whole", "expired"])
@pytest.mark.parametrize(
    "kept", [True, pytest.param(False, marks=pytest.mark.full)], ids=["kept", "bare"]
)
def test_a_store_starts_on_a_full_disk(
    stop: str, lost: str, lead: bool, expired: bool, kept: bool
) -> None:
    vfs, clock, model = left(stop, lost, expired=expired)
    for path in vfs.files():
        if path.suffix == ".new" and not kept:  # as an earlier version has left it
            vfs.unlink(path)
    vfs.free_bytes = 0
    store = opened(vfs, clock, lead=lead)
    store.set_high_watermark(store.log_end)
    model.cut(store.log_end)
    model.check(store)
    health = store.tick()
    if lead:
        try:
            model.send(store, [("T", 0, 100)])
        except DiskFullError:
            model.in_flight = []
        else:
            assert health.writable  # what is reserved of the log has room
    vfs.free_bytes = 1 << 20
    for _ in range(3):
        clock.now_ms += 4000
        health = store.tick()
    assert health.writable
    if not lead:
        store.lead(store.epoch_seen + 1)
    model.send(store, [("T", 0, 100)])
    store.set_high_watermark(store.log_end)
    model.check(store)
    store.close()
    again = opened(vfs, clock, lead=True)
    model.check(again)


def test_a_log_begins_without_a_file_where_a_full_disk_has_no_room_for_it() -> None:
    vfs, clock, model = left("killed", "units", fills=True)

    def no_room(what: str, path: Path) -> None:
        if what == "allocate" and path.parent.name == "commitlog":
            raise OSError(errno.ENOSPC, "No space left on device")

    vfs.before_call = no_room
    for _ in range(2):
        store = opened(vfs, clock, lead=False)
        store.set_high_watermark(store.log_end)
        assert store.log_end % 4096 == 0
        model.check(store)
        store.lead(store.epoch_seen + 1)
        with pytest.raises(DiskFullError):
            model.send(store, [("T", 0, 100)])
        model.in_flight = []
        store.close(clean=False)
    vfs.before_call, vfs.free_bytes = None, 1 << 20
    store = opened(vfs, clock, lead=True)
    model.send(store, [("T", 0, 100)])
    model.check(store)


@pytest.mark.parametrize("lead", [True, False], ids=["alone", "member"])
def test_clean_stops_leave_all_files_that_starts_need_on_a_full_disk(lead: bool) -> None:
    """XFS makes no file where not a block is free, however short its content."""
    vfs, clock, model = left("clean", "nothing")

    def no_file(what: str, path: Path) -> None:
        if what in ("create", "allocate"):
            raise OSError(errno.ENOSPC, "No space left on device", str(path))

    vfs.before_call = no_file
    for _ in range(4):
        store = opened(vfs, clock, lead=lead)
        store.set_high_watermark(store.log_end)
        model.check(store)
        store.tick()
        clock.now_ms += 1000
        store.close()


def test_a_start_after_a_kill_goes_on_where_a_full_disk_takes_no_new_name() -> None:
    """Some file systems need room for the name of a file, too."""
    vfs, clock, model = left("killed", "nothing")

    def no_name(what: str, path: Path) -> None:
        if what in ("create", "rename") and path.parent == DATA:
            raise OSError(errno.ENOSPC, "No space left on device")

    vfs.before_call = no_name
    for _ in range(2):
        store = opened(vfs, clock, lead=False)
        store.set_high_watermark(store.log_end)
        model.cut(store.log_end)
        model.check(store)
        store.tick()
        store.close(clean=False)
