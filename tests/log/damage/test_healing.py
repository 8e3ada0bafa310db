"""Damage that is put back, from another copy or by hand: as if it had never been."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from imago_cli.doctor.damage import check_damage
from imago_log.offline.check import Severity, check
from imago_testing.stores.in_memory import DATA, Model, open_store
from imago_testing.stores.vfs import MemoryVfs

if TYPE_CHECKING:
    from pathlib import Path

    from imago_log import MessageStore

FILE = 4096


class Damaged:
    """A killed store with damage in its log, and what was there before."""

    def __init__(self, *lost: int, count: int = 30, drop: int | None = None) -> None:
        vfs, self.model = MemoryVfs(), Model()
        store = open_store(vfs)
        store.create_topic("T", {})
        store.create_topic("U", {})
        for at in range(count):
            self.model.send(store, [("T", 0, 60 + at), ("U", at % 2, 40)])
        store.request_sync()
        store.tick()
        self.vfs = vfs.crashed(power_loss=False)
        store.close(clean=False)
        self.whole = {
            path: vfs.content(path) for path in vfs.files() if path.parent.name == "commitlog"
        }
        for at in lost:
            place = self.model.sent[at].place
            self.vfs.flip_bit(self.path_of(place), place % FILE + 95)
        if drop is not None:
            self.vfs.unlink(self.path_of(drop * FILE))
        self.store = open_store(self.vfs)

    def path_of(self, place: int) -> Path:
        return DATA / "commitlog" / f"{place - place % FILE:020d}"

    def log_files(self) -> list[Path]:
        return [path for path in self.vfs.files() if path.parent.name == "commitlog"]

    def log_bytes(self, start: int, end: int) -> bytes:
        return self.whole[self.path_of(start)][start % FILE : start % FILE + end - start]

    def again(self, *, clean: bool) -> MessageStore:
        self.store.close(clean=clean)
        self.store = open_store(self.vfs)
        return self.store

    def heal_all(self) -> None:
        for damaged in self.store.damaged_ranges():
            assert self.store.heal(damaged.start, self.log_bytes(damaged.start, damaged.end))

    def is_as_if_nothing_had_been(self) -> None:
        assert self.store.damaged_ranges() == ()
        assert not self.store.damaged
        self.model.check(self.store)
        self.model.send(self.store, [("T", 0, 70), ("U", 0, 70), ("U", 1, 70)])
        for clean in (True, False):
            self.model.check(self.again(clean=clean))
            assert self.store.damaged_ranges() == ()
        self.vfs.unlink(DATA / "config" / "views")
        self.model.check(self.again(clean=True))
        self.store.close()


@pytest.mark.parametrize(
    "lost", [(0,), (4,), (4, 5), (4, 6, 8), (10, 40), (0, 1, 2, 3), (57,), (20, 22, 23, 24, 41)]
)
def test_ranges_that_are_healed(lost: tuple[int, ...]) -> None:
    damaged = Damaged(*lost)
    assert damaged.store.damaged_ranges()
    assert damaged.store.damaged
    damaged.heal_all()
    damaged.is_as_if_nothing_had_been()


def test_healed_last_range_first_and_between_starts() -> None:
    damaged = Damaged(4, 6, 20, 44)
    while ranges := damaged.store.damaged_ranges():
        last = ranges[-1]
        assert damaged.store.heal(last.start, damaged.log_bytes(last.start, last.end))
        damaged.again(clean=len(ranges) % 2 == 0)
        assert damaged.store.damaged_ranges() == ranges[:-1]
    damaged.is_as_if_nothing_had_been()


@pytest.mark.parametrize("drop", [0, 1])
def test_a_whole_file_that_is_put_back(drop: int) -> None:
    damaged = Damaged(drop=drop)
    (found,) = damaged.store.damaged_ranges()
    assert (found.start, found.end) == (drop * FILE, (drop + 1) * FILE)
    damaged.heal_all()
    if not drop:
        assert set(damaged.again(clean=True).topics()) == {"T", "U"}
    damaged.is_as_if_nothing_had_been()


@pytest.mark.shipped_limits
@pytest.mark.parametrize("piece", [100, 300, 1000])
@pytest.mark.parametrize("again", [False, True], ids=["at once", "over restarts"])
def test_a_whole_file_that_is_put_back_piece_by_piece(piece: int, again: bool) -> None:
    damaged, starts = Damaged(drop=1), set[int]()
    while ranges := damaged.store.damaged_ranges():
        (found,) = ranges
        assert found.start not in starts, "each piece helps"
        starts.add(found.start)
        size, healed = 0, 0
        while not healed:
            size = min(size + piece, found.size)
            healed = damaged.store.heal(
                found.start, damaged.log_bytes(found.start, found.start + size)
            )
        assert healed <= size
        if again:
            damaged.again(clean=len(starts) % 2 == 0)
    assert len(starts) > 3
    damaged.is_as_if_nothing_had_been()


def test_damage_found_at_rest_is_healed() -> None:
    damaged = Damaged()
    sent = damaged.model.sent[10]
    damaged.vfs.flip_bit(damaged.path_of(sent.place), sent.place % FILE + 60)
    damaged.store.components.storage.recent.clear()
    assert damaged.store.record_at(sent.place) is None
    assert len(damaged.store.damaged_ranges()) == 1
    damaged.heal_all()
    damaged.is_as_if_nothing_had_been()


def test_a_file_that_was_put_back_by_hand() -> None:
    damaged = Damaged(6, 30)
    damaged.store.close()
    for path, content in damaged.whole.items():
        if path != max(damaged.whole):
            damaged.vfs.put(path, content)
    damaged.store = open_store(damaged.vfs)
    damaged.is_as_if_nothing_had_been()


def test_only_what_was_there_heals() -> None:
    damaged = Damaged(10, 40)
    store = damaged.store
    first, second = store.damaged_ranges()
    good = damaged.log_bytes(first.start, first.end)
    before = {path: damaged.vfs.content(path) for path in damaged.log_files()}
    changed = bytearray(good)
    changed[-30] ^= 1
    for offset, data in [
        (first.start, good[:80]),
        (first.start, bytes(changed)),
        (first.start, bytes(len(good))),
        (first.start + 1, good),
        (second.start, good),
        (0, good),
    ]:
        assert not store.heal(offset, data)
    assert store.damaged_ranges() == (first, second)
    assert {path: damaged.vfs.content(path) for path in damaged.log_files()} == before
    assert store.heal(first.start, good)
    assert not store.heal(first.start, good), "it is whole"
    store.close()


def test_a_device_that_refuses() -> None:
    damaged = Damaged(10)
    (found,) = damaged.store.damaged_ranges()

    def fail(what: str, path: Path) -> None:
        if what == "write" and path.parent.name == "commitlog":
            raise OSError(errno.EIO, "Input/output error")

    damaged.vfs.before_call = fail
    good = damaged.log_bytes(found.start, found.end)
    assert not damaged.store.heal(found.start, good)
    damaged.vfs.before_call = None
    assert damaged.store.damaged_ranges() == (found,)
    assert damaged.store.heal(found.start, good)
    damaged.is_as_if_nothing_had_been()


def test_damage_that_was_gone_around_is_all_that_a_check_finds(tmp_path: Path) -> None:
    damaged = Damaged(4, 20, 21)
    (first, second) = damaged.store.damaged_ranges()
    damaged.model.send(damaged.store, [("T", 0, 50)])
    damaged.store.close()
    for path in damaged.vfs.files():
        copy = tmp_path / path.relative_to(DATA)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(damaged.vfs.content(path))
    found = list(check(tmp_path))
    errors = [finding for finding in found if finding.severity is Severity.ERROR]
    assert [(e.file.name, e.position) for e in errors] == [
        (f"{each.start - each.position:020d}", each.position) for each in (first, second)
    ]
    notes = [finding for finding in found if finding.file.name == "damage"]
    assert [str(first.start) in notes[0].what, str(second.start) in notes[1].what] == [True, True]
    assert {finding.file.name for finding in found} <= {e.file.name for e in errors} | {"damage"}
    (told,) = check_damage(tmp_path)
    assert told.level == "error"
    assert f"2 parts of the log are damaged, {first.size + second.size} bytes" in told.message
    (tmp_path / "config" / "damage").write_bytes(b"nonsense")
    assert [each.level for each in check_damage(tmp_path)] == ["warning"]
    (tmp_path / "config" / "damage").unlink()
    assert [each.level for each in check_damage(tmp_path)] == ["ok"]
