"""A backup or a restore that is killed at any step goes on where it was, and harms nothing."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from imago_backup import format as layout
from imago_backup import shelf, uploading
from imago_backup.errors import BackupError, RestoreRefusedError
from imago_backup.format import Started
from imago_backup.uploading import ShardUpload
from imago_log.errors import RestoreUnfinishedError
from imago_objects import BucketAwayError
from imago_testing.stores.backups import (
    KilledError,
    back_up,
    open_restored,
    restore,
    source_of,
)
from imago_testing.stores.in_memory import Model
from imago_testing.stores.on_disk import fill

if TYPE_CHECKING:
    from pathlib import Path

    from imago_log import MessageStore
    from imago_testing.stores.backups import FakeBucket
    from imago_testing.stores.in_memory import FakeClock


async def test_killed_at_each_call_of_the_bucket(
    store: MessageStore,
    clock: FakeClock,
    bucket: FakeBucket,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(layout, "CHUNK_BYTES", 2048)
    model = fill(store, 12, clock)
    kills = left = 0

    def die(call: str, _: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise KilledError(call)

    bucket.before = die
    for allowed in range(100):
        left = allowed
        try:
            await back_up(store, bucket, "first", clock)
            break
        except KilledError:
            kills += 1
            bucket.before = lambda *_: None
            with pytest.raises(BackupError):
                await restore(bucket, "first", tmp_path / "too-early")
            bucket.before = die
    assert kills > 10
    bucket.before = lambda *_: None
    await restore(bucket, "first", tmp_path / "new")
    again = open_restored(tmp_path / "new", clock)
    model.check(again)
    again.close()


class Killer:
    """Ends a process at its n-th call of the operating system that changes a folder."""

    CALLS = ("open", "pwrite", "fsync", "posix_fallocate", "ftruncate", "rename", "unlink")

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = 1 << 30
        for name in self.CALLS:
            monkeypatch.setattr(os, name, self._counted(getattr(os, name)))

    def _counted(self, real: Any) -> Any:
        def call(*args: Any, **named: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                raise KilledError(real.__name__)
            return real(*args, **named)

        return call


@pytest.mark.parametrize("point", [None, 2500], ids=["all", "a point in time"])
async def test_a_restore_killed_at_each_step(
    store: MessageStore,
    clock: FakeClock,
    bucket: FakeBucket,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    point: int | None,
) -> None:
    monkeypatch.setattr(layout, "CHUNK_BYTES", 2048)
    begun_ms = clock.now_ms
    model = fill(store, 12, clock)
    await back_up(store, bucket, "first", clock, offsets={"plain": {"g": {"0": 3}}})
    until_ms = None if point is None else begun_ms + point
    whole = await restore(bucket, "first", tmp_path / "whole", until_ms=until_ms)
    model.cut(whole.end)
    folder, killer, kills = tmp_path / "new", Killer(monkeypatch), 0
    for allowed in range(300):
        killer.left = allowed
        try:
            await restore(bucket, "first", folder, until_ms=until_ms)
            break
        except KilledError:
            kills += 1
            if (folder / "checkpoint").exists() and not (folder / "restoring").exists():
                break  # all but its last word
        finally:
            killer.left = 1 << 30
        if (folder / "restoring").exists():
            with pytest.raises(RestoreUnfinishedError):
                open_restored(folder, clock)
    else:
        pytest.fail("it never ends")
    assert kills > 10
    assert _files(folder) == _files(tmp_path / "whole")
    again = open_restored(folder, clock)
    model.check(again)
    again.close()


def _files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "lock" and path.suffix != ".new"
    }


async def test_never_over_data(
    store: MessageStore, clock: FakeClock, bucket: FakeBucket, tmp_path: Path
) -> None:
    fill(store, 4, clock)
    await back_up(store, bucket, "first", clock)
    await back_up(store, bucket, "second", clock)
    (tmp_path / "volume" / "lost+found").mkdir(parents=True)
    await restore(bucket, "first", tmp_path / "volume")
    with pytest.raises(RestoreRefusedError, match="not empty: checkpoint, commitlog"):
        await restore(bucket, "first", tmp_path / "volume")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("dear")
    with pytest.raises(RestoreRefusedError, match=r"not empty: letter\.txt"):
        await restore(bucket, "first", tmp_path / "other")
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["letter.txt"]

    def die(call: str, name: str) -> None:
        if call == "get" and name.startswith("chunks/"):
            raise KilledError

    bucket.before = die
    with pytest.raises(KilledError):
        await restore(bucket, "first", tmp_path / "half")
    bucket.before = lambda *_: None
    with pytest.raises(RestoreRefusedError, match="another restore"):
        await restore(bucket, "second", tmp_path / "half")
    await restore(bucket, "first", tmp_path / "half")


async def test_a_bucket_that_is_away_for_a_while(
    store: MessageStore, clock: FakeClock, bucket: FakeBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, 4, clock)
    refusals, slept = 3, []

    def away(call: str, _: str) -> None:
        nonlocal refusals
        if call == "put" and refusals:
            refusals -= 1
            raise BucketAwayError("bucket", "no answer", "wait")

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    bucket.before = away
    await back_up(store, bucket, "first", clock, sleep=sleep)
    assert slept == [uploading.AWAY_PAUSE_SECONDS] * 3
    refusals = 1 << 30
    monkeypatch.setattr(uploading, "AWAY_SECONDS_MAX", -1.0)
    fill(store, 4, clock, Model(serial=100))
    with pytest.raises(BucketAwayError):
        await back_up(store, bucket, "second", clock, sleep=sleep)


async def test_no_faster_than_was_asked_for(
    store: MessageStore, clock: FakeClock, bucket: FakeBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "CHUNK_BYTES", 1024)
    fill(store, 12, clock)
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    await back_up(store, bucket, "first", clock, rate=1024, sleep=sleep)
    # Nobody waits here, so the last pause is what all of it should have taken.
    assert slept[-1] == pytest.approx(store.log_end / 1024, rel=0.5)


async def test_a_name_belongs_to_one_cluster(
    store: MessageStore, clock: FakeClock, bucket: FakeBucket
) -> None:
    fill(store, 2, clock)
    started = Started(
        name="first", cluster="tests", shards=["shard-0", "shard-1"], started_ms=clock.now_ms
    )
    await ShardUpload(source_of(store, now_ms=clock), bucket, started, bytes_a_second=0).run()
    assert not (await shelf.parts_of(bucket, "first")).complete  # shard-1 has nothing yet
    with pytest.raises(BackupError, match="was begun"):
        await back_up(store, bucket, "first", clock)
