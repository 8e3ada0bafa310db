"""Damage in the bucket is found without a cluster, with object, file and byte."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from imago_backup import shelf
from imago_backup.errors import BackupDamagedError
from imago_backup.format import encode, shard_of, whole_of
from imago_backup.verifying import BadObject, verify
from imago_testing.stores.backups import SHARD, back_up, open_restored, restore
from imago_testing.stores.on_disk import fill, flip

if TYPE_CHECKING:
    from pathlib import Path

    from imago_backup.format import ShardManifest
    from imago_log import MessageStore
    from imago_testing.stores.backups import FakeBucket
    from imago_testing.stores.in_memory import FakeClock


async def found(bucket: FakeBucket, name: str = "first", *, quick: bool = False) -> list[BadObject]:
    backup = await shelf.manifest_of(bucket, name)
    return [bad async for step in verify(bucket, backup, quick=quick) for bad in step.found]


@pytest.fixture
async def backup(store: MessageStore, clock: FakeClock, bucket: FakeBucket) -> ShardManifest:
    fill(store, 20, clock)
    await back_up(store, bucket, "first", clock)
    whole = await shelf.manifest_of(bucket, "first")
    return await shelf.shard_manifest_of(bucket, whole, SHARD)


async def test_a_whole_one(backup: ShardManifest, bucket: FakeBucket) -> None:
    assert await found(bucket) == []
    assert await found(bucket, quick=True) == []
    assert len(backup.chunks) > 3


async def test_a_flipped_bit(
    backup: ShardManifest, bucket: FakeBucket, store: MessageStore, tmp_path: Path
) -> None:
    chunk = backup.chunks[2]
    record = store.components.storage.log.read(chunk.offset, 4)
    first = int.from_bytes(record, "big")
    name = chunk.object_name(SHARD)
    flip(bucket.folder / name, first + 40)  # in the second record of the third file
    (bad,) = await found(bucket)
    assert (bad.name, bad.position) == (name, first)
    assert (bad.file, bad.file_position) == (f"{chunk.offset:020d}", first)
    assert "not whole" in bad.reason
    assert await found(bucket, quick=True) == []  # its size is right
    with pytest.raises(BackupDamagedError, match="checksum"):
        await restore(bucket, "first", tmp_path / "new")


async def test_files_of_other_names_are_written_nowhere(
    backup: ShardManifest, bucket: FakeBucket, tmp_path: Path
) -> None:
    """Whoever may write into the bucket writes nothing elsewhere on who restores."""
    away = tmp_path / "away"
    files = {"../away": "theirs", str(away): "theirs", "token": "theirs"}
    whole = await shelf.manifest_of(bucket, "first")
    data = encode(replace(backup, files={**files, "config/rocketmq-settings": "ours"}))
    shards = {SHARD: replace(whole.shards[SHARD], digest=hashlib.sha256(data).hexdigest())}
    await bucket.put(shard_of("first", SHARD), data)
    await bucket.put(whole_of("first"), encode(replace(whole, shards=shards)))
    await restore(bucket, "first", tmp_path / "new")
    assert not away.exists()
    assert not (tmp_path / "new" / "token").exists()
    assert (tmp_path / "new" / "config" / "rocketmq-settings").read_text() == "ours"


async def test_behind_the_records(backup: ShardManifest, bucket: FakeBucket) -> None:
    chunk = backup.chunks[1]
    flip(bucket.folder / chunk.object_name(SHARD), chunk.stored - 1)  # of the blank record's magic
    (bad,) = await found(bucket)
    assert bad.file == f"{chunk.offset:020d}"


@pytest.mark.parametrize("quick", [True, False])
async def test_missing_and_short(
    backup: ShardManifest, bucket: FakeBucket, tmp_path: Path, quick: bool
) -> None:
    gone, short = backup.chunks[0], backup.chunks[2]
    (bucket.folder / gone.object_name(SHARD)).unlink()
    path = bucket.folder / short.object_name(SHARD)
    path.write_bytes(path.read_bytes()[:100])
    bad = await found(bucket, quick=quick)
    assert [(each.name, each.position) for each in bad] == [
        (gone.object_name(SHARD), None),
        (short.object_name(SHARD), 100),
    ]
    with pytest.raises(BackupDamagedError, match="missing"):
        await restore(bucket, "first", tmp_path / "new")


async def test_damaged_manifests(backup: ShardManifest, bucket: FakeBucket, tmp_path: Path) -> None:
    assert backup.chunks
    flip(bucket.folder / "backups/first/shard-0", 400)
    (bad,) = await found(bucket)
    assert bad.name == "backups/first/shard-0"
    with pytest.raises(BackupDamagedError, match="not the one"):
        await restore(bucket, "first", tmp_path / "new")
    flip(bucket.folder / "backups/first/manifest", 100)
    with pytest.raises(BackupDamagedError, match="checksum"):
        await found(bucket)


async def test_damage_that_the_member_had(
    store: MessageStore, clock: FakeClock, bucket: FakeBucket, tmp_path: Path
) -> None:
    model = fill(store, 20, clock)
    lost = model.sent[30]
    flip(tmp_path / "running" / "commitlog" / f"{lost.place // 4096 * 4096:020d}",
         lost.place % 4096 + 60)  # fmt: skip
    store.verify(0, store.log_end)
    assert store.damaged
    await back_up(store, bucket, "first", clock)
    assert (await shelf.manifest_of(bucket, "first")).shards[SHARD].damaged == 1
    assert await found(bucket) == []
    await restore(bucket, "first", tmp_path / "new")
    again = open_restored(tmp_path / "new", clock)
    assert [(each.start, each.end) for each in again.damaged_ranges()] == [(lost.place, lost.end)]
    again.close()
