"""Backups that go leave no chunk behind, and take none that another one needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_backup import format as layout
from imago_backup import shelf, sweeping
from imago_backup.errors import BackupDamagedError, BackupError, BackupUnknownError
from imago_backup.sweeping import ABANDONED_MS, LOCK_MS_MAX, abandoned, delete, sweep
from imago_testing.stores.backups import KilledError, back_up, open_restored, restore
from imago_testing.stores.on_disk import fill, flip

if TYPE_CHECKING:
    from pathlib import Path

    from imago_log import MessageStore
    from imago_testing.stores.backups import FakeBucket
    from imago_testing.stores.in_memory import FakeClock


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "CHUNK_BYTES", 1024)


async def objects(bucket: FakeBucket) -> list[str]:
    return [each.name for each in await bucket.list()]


async def test_what_others_share_stays(
    store: MessageStore,
    clock: FakeClock,
    bucket: FakeBucket,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sweeping, "DELETED_AT_ONCE", 2)
    model = fill(store, 10, clock)
    await back_up(store, bucket, "one", clock)
    fill(store, 3, clock, model)
    await back_up(store, bucket, "two", clock)
    before = set(await objects(bucket))
    await delete(bucket, "one")
    swept = await sweep(bucket, clock.now_ms)
    gone = before - set(await objects(bucket))
    assert swept.objects == 1  # the piece that ended at the first cut
    assert len(gone) == 1 + 3
    await restore(bucket, "two", tmp_path / "new")
    again = open_restored(tmp_path / "new", clock)
    model.check(again)
    again.close()
    await delete(bucket, "two")
    await sweep(bucket, clock.now_ms)
    assert await objects(bucket) == []


async def test_a_sweep_that_another_took_for_dead_goes_on_with_nothing(
    store: MessageStore, clock: FakeClock, bucket: FakeBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backup that was begun since may rely on what was an orphan when the sweep looked."""
    monkeypatch.setattr(sweeping, "DELETED_AT_ONCE", 1)
    fill(store, 10, clock)
    await back_up(store, bucket, "one", clock)
    await delete(bucket, "one")
    before, theirs = await objects(bucket), b'{"at": 7, "by": "another"}'

    def steal(call: str, name: str) -> None:
        if call == "delete" and name in before:
            (bucket.folder / layout.SWEEP_LOCK).write_bytes(theirs)

    bucket.before = steal
    with pytest.raises(BackupError, match="taken this one for dead"):
        await sweep(bucket, clock.now_ms)
    assert set(await objects(bucket)) == {*before[1:], layout.SWEEP_LOCK}
    assert await bucket.get(layout.SWEEP_LOCK) == theirs


async def test_killed_at_each_step(
    store: MessageStore, clock: FakeClock, bucket: FakeBucket, tmp_path: Path
) -> None:
    model = fill(store, 6, clock)
    await back_up(store, bucket, "one", clock)
    fill(store, 3, clock, model)
    await back_up(store, bucket, "two", clock)
    left, done = 0, False

    def die(_: str, __: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise KilledError

    bucket.before = die
    for allowed in range(60):
        left, done = allowed, False
        try:
            if "one" in {each.name for each in await shelf.shelved(bucket)}:
                await delete(bucket, "one")
            await sweep(bucket, clock.now_ms)
            done = True
        except KilledError:
            clock.now_ms += LOCK_MS_MAX  # what it has left locked counts no more
        if done:
            break
    bucket.before = lambda *_: None
    assert done
    assert {each.name for each in await shelf.shelved(bucket)} == {"two"}
    assert not await bucket.list("sweep")
    await restore(bucket, "two", tmp_path / "new")
    again = open_restored(tmp_path / "new", clock)
    model.check(again)
    again.close()


async def test_a_backup_under_way_is_waited_for(
    store: MessageStore, clock: FakeClock, bucket: FakeBucket, tmp_path: Path
) -> None:
    model = fill(store, 6, clock)
    await back_up(store, bucket, "one", clock)
    swept = []

    async def delete_and_sweep() -> None:
        await delete(bucket, "one")
        swept.append(await sweep(bucket, clock.now_ms))

    steps: list[str] = []
    real = bucket.list

    async def between(prefix: str = "") -> list[object]:
        found = await real(prefix)
        if prefix == "chunks/shard-0" and not steps:  # it has seen the chunks it will rely on
            steps.append(prefix)
            await delete_and_sweep()
        return found  # type: ignore[return-value]

    bucket.list = between  # type: ignore[assignment,method-assign]
    await back_up(store, bucket, "two", clock)
    assert swept[0].waits_for == ("two",)
    assert (await sweep(bucket, clock.now_ms)).waits_for == ()
    await restore(bucket, "two", tmp_path / "new")
    again = open_restored(tmp_path / "new", clock)
    model.check(again)
    again.close()


async def test_a_sweep_is_waited_for(
    store: MessageStore, clock: FakeClock, bucket: FakeBucket
) -> None:
    fill(store, 3, clock)
    await bucket.put("sweep/lock", b'{"at": %d}' % clock.now_ms)
    with pytest.raises(BackupError, match="another sweep"):
        await sweep(bucket, clock.now_ms)
    waited = 0

    async def sleep(_: float) -> None:
        nonlocal waited
        waited += 1
        assert not await bucket.list("chunks")
        if waited == 2:
            await bucket.delete(["sweep/lock"])

    await back_up(store, bucket, "one", clock, sleep=sleep)
    assert waited == 2


async def test_nothing_goes_where_a_manifest_cannot_be_read(
    store: MessageStore, clock: FakeClock, bucket: FakeBucket
) -> None:
    fill(store, 6, clock)
    await back_up(store, bucket, "one", clock)
    await back_up(store, bucket, "two", clock)
    flip(bucket.folder / "backups/two/shard-0", 500)
    await delete(bucket, "one")
    before = await objects(bucket)
    with pytest.raises(BackupDamagedError):
        await sweep(bucket, clock.now_ms)
    assert await objects(bucket) == before
    await delete(bucket, "two")
    await sweep(bucket, clock.now_ms)
    assert await objects(bucket) == []


async def test_what_was_left_half_way(
    store: MessageStore, clock: FakeClock, bucket: FakeBucket
) -> None:
    fill(store, 2, clock)

    def die(call: str, name: str) -> None:
        if name == "backups/left/shard-0" and call == "put_if_absent":
            raise KilledError

    bucket.before = die
    with pytest.raises(KilledError):
        await back_up(store, bucket, "left", clock)
    bucket.before = lambda *_: None
    assert await abandoned(bucket, clock.now_ms + ABANDONED_MS) == []
    assert await abandoned(bucket, clock.now_ms + ABANDONED_MS + 1) == ["left"]
    with pytest.raises(BackupUnknownError):
        await delete(bucket, "other")
