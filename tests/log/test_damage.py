"""Only a torn tail is cut. Whatever else is wrong is named, and every other byte stays."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from imago_log import (
    CorruptLogError,
    DataFolderLockedError,
    LogIOError,
    MessageStore,
    StoreClosedError,
)
from imago_testing.stores import DATA, FakeClock, Model, Sent, check_queue, open_store
from imago_testing.vfs import MemoryVfs

if TYPE_CHECKING:
    from pathlib import Path

FILE = 4096


def path_of(place: int) -> Path:
    return DATA / "commitlog" / f"{place - place % FILE:020d}"


class Found:
    """A folder as a stop left it, and what is in its log."""

    def __init__(self, stop: str, *, synced: int = 0) -> None:
        """`synced` of 30 messages are surely on the device when the power is lost."""
        vfs, self.model = MemoryVfs(), Model()
        store = open_store(vfs)
        store.create_topic("T", {})
        store.request_sync()
        for at in range(30):
            self.model.send(store, [("T", 0, 300)])
            if at + 1 == synced:
                store.request_sync()
                store.tick()
        self.end = store.log_end
        self.vfs = vfs
        if stop == "killed":
            self.vfs = vfs.crashed(power_loss=False)
        elif stop == "power lost":
            # All of it happens to be there; what is synced is known from the checkpoint.
            self.vfs = vfs.crashed(power_loss=False)
            self.vfs.boot += 1
        store.close(clean=stop == "clean")

    @property
    def sent(self) -> list[Sent]:
        return self.model.sent

    def flip(self, message: int) -> int:
        """Damage the body of one message; return its place."""
        place = self.sent[message].place
        self.vfs.flip_bit(path_of(place), place % FILE + 100)
        return place

    def zero(self, message: int) -> int:
        """Leave zeros where one message was; return its place."""
        sent = self.sent[message]
        content = bytearray(self.vfs.content(path_of(sent.place)))
        at = sent.place % FILE
        content[at : at + sent.end - sent.place] = bytes(sent.end - sent.place)
        self.vfs.put(path_of(sent.place), bytes(content))
        return sent.place

    def log(self) -> dict[Path, bytes]:
        vfs = self.vfs
        return {p: vfs.content(p) for p in vfs.files() if p.parent.name == "commitlog"}

    def cut_at(self, message: int) -> None:
        """The log ends there now, and what stood behind never comes back."""
        place = self.sent[message].place
        self.model.cut(place)
        for _ in range(3):
            store = open_store(self.vfs)
            self.model.check(store)
            self.model.send(store, [("T", 0, 120)])
            self.model.check(store)
            store.close(clean=False)


def names_damage(found: Found, place: int) -> None:
    """The start says where the damage is, or takes that part out and serves all the rest."""
    before = found.log()
    error: CorruptLogError | None = None
    try:
        store = open_store(found.vfs)
    except CorruptLogError as refusal:
        error = refusal
    else:
        serves_the_rest(store, found, place)
        store.close(clean=False)
    assert error is None or (error.path, error.position) == (path_of(place), place % FILE)
    after = found.log()
    assert {path: after[path] for path in before} == before, "nothing is cut"


def serves_the_rest(store: MessageStore, found: Found, place: int) -> None:
    assert store.log_end == found.end
    assert any(path_of(place).name in text for text in store.tick().damaged)
    for sent in found.sent:
        if path_of(sent.place) != path_of(place):
            result = store.read("T", 0, sent.offset, messages_max=1, bytes_max=1)
            assert sent.body in result.body


@pytest.mark.parametrize("message", [0, 12, 28])
@pytest.mark.parametrize("how", ["flip", "zero"])
def test_middle_of_a_killed_process_log(how: str, message: int) -> None:
    found = Found("killed")
    place = found.flip(message) if how == "flip" else found.zero(message)
    names_damage(found, place)


@pytest.mark.parametrize("how", ["flip", "zero"])
def test_below_what_was_synced_before_the_power_went(how: str) -> None:
    found = Found("power lost", synced=20)
    place = found.flip(15) if how == "flip" else found.zero(15)
    names_damage(found, place)


@pytest.mark.parametrize("stop", ["killed", "power lost"])
@pytest.mark.parametrize("how", ["flip", "zero"])
def test_torn_tail_is_cut(how: str, stop: str) -> None:
    found = Found(stop, synced=20)
    if how == "flip":
        found.flip(29)
    else:
        found.zero(29)
    found.cut_at(29)


@pytest.mark.parametrize("how", ["flip", "zero"])
def test_what_was_never_synced_ends_at_the_first_hole_after_power_loss(how: str) -> None:
    found = Found("power lost", synced=18)
    if how == "flip":
        found.flip(20)
    else:
        found.zero(20)
    found.cut_at(20)


def test_damage_at_rest_harms_no_other_message() -> None:
    found = Found("clean")
    found.flip(12)
    before = found.log()
    store = open_store(found.vfs)
    around = found.sent[:12] + found.sent[13:]
    for sent in around:
        result = store.read("T", 0, sent.offset, messages_max=1, bytes_max=1)
        assert sent.body in result.body
    assert store.queue_range("T", 0) == (0, 30)
    store.close()
    assert found.log() == before


def test_missing_log_file() -> None:
    found = Found("clean")
    missing = path_of(2 * FILE)
    found.vfs.unlink(missing)
    before = found.log()
    with pytest.raises(CorruptLogError, match="missing") as caught:
        open_store(found.vfs)
    assert caught.value.path == missing
    assert found.log() == before


def test_log_file_of_another_size() -> None:
    found = Found("clean")
    path = path_of(FILE)
    found.vfs.put(path, found.vfs.content(path)[:-1])
    with pytest.raises(CorruptLogError, match="configured file size is 4096") as caught:
        open_store(found.vfs)
    assert (caught.value.path, caught.value.position) == (path, FILE - 1)


def test_another_file_size_than_configured_before() -> None:
    found = Found("clean")
    before = found.log()
    with pytest.raises(CorruptLogError):
        open_store(found.vfs, segment_bytes_max=8192)
    assert found.log() == before


def test_damaged_epoch_file() -> None:
    found = Found("clean")
    found.vfs.flip_bit(DATA / "epochFileCheckpoint", 14)
    with pytest.raises(CorruptLogError, match="epochFileCheckpoint"):
        open_store(found.vfs)


@pytest.mark.parametrize("slots", [(0,), (1,), (0, 1)])
def test_damaged_checkpoint(slots: tuple[int, ...]) -> None:
    found = Found("clean")
    for slot in slots:
        found.vfs.flip_bit(DATA / "checkpoint", 512 * slot + 40)
    store = open_store(found.vfs)
    found.model.check(store)
    store.close()


def test_damaged_metadata_snapshot() -> None:
    found = Found("clean")
    found.vfs.flip_bit(DATA / "config" / "metadata.json", 60)
    store = open_store(found.vfs)
    assert list(store.topics()) == ["T"]
    found.model.check(store)
    store.close()


def test_after_a_refused_start_the_folder_is_free() -> None:
    found = Found("clean")
    path = path_of(FILE)
    good = found.vfs.content(path)
    found.vfs.put(path, good[:-1])
    with pytest.raises(CorruptLogError):
        open_store(found.vfs)
    found.vfs.put(path, good)
    store = open_store(found.vfs)
    found.model.check(store)
    store.close()


def test_one_process_at_a_time() -> None:
    vfs = MemoryVfs()
    store = open_store(vfs)
    with pytest.raises(DataFolderLockedError):
        open_store(vfs)
    store.close()
    open_store(vfs).close()


@pytest.mark.parametrize("call", ["write", "sync"])
def test_a_failed_write_or_sync_is_final(call: str) -> None:
    vfs, clock, model = MemoryVfs(), FakeClock(), Model()
    store = open_store(vfs, clock)
    store.create_topic("T", {})
    model.send(store, [("T", 0, 100)])
    told: list[object] = []
    store.on_failure = told.append

    def fail(what: str, path: Path) -> None:
        if what == call and path.parent.name == "commitlog":
            raise OSError(errno.EIO, "Input/output error")

    vfs.before_call = fail
    if call == "write":
        with pytest.raises(LogIOError, match="Input/output error"):
            model.send(store, [("T", 0, 10)])
        assert len(told) == 1
        with pytest.raises(StoreClosedError):
            model.send(store, [("T", 0, 10)])
        with pytest.raises(StoreClosedError):
            store.tick()
    else:
        with pytest.raises(LogIOError, match="Input/output error"):
            store.request_sync()
        assert store.durable_end < store.log_end
    vfs.before_call = None
    model.in_flight.clear()
    left = vfs.crashed(power_loss=False)
    store.close(clean=False)
    store = open_store(left, clock)
    check_queue(store, "T", 0, model.sent)
    store.close()
