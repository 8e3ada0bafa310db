"""Which backups a bucket holds."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from imago_backup.errors import BackupDamagedError, BackupUnknownError
from imago_backup.format import (
    BACKUPS,
    STARTED,
    WHOLE,
    BackupManifest,
    ShardManifest,
    Started,
    decode,
    shard_of,
    started_of,
    whole_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_objects import Stored


class Bucket(Protocol):
    """What backups ask of `imago_objects.Objects`."""

    async def put(self, name: str, data: bytes) -> None: ...
    async def put_if_absent(self, name: str, data: bytes) -> bool: ...
    async def get(self, name: str) -> bytes: ...
    async def list(self, prefix: str = "") -> list[Stored]: ...
    async def delete(self, names: Sequence[str]) -> None: ...


@dataclass(slots=True)
class Shelved:
    """The objects of one backup."""

    name: str
    parts: set[str] = field(default_factory=set)
    """Their names below the backup's own."""

    @property
    def complete(self) -> bool:
        """Whether it is a backup, or was only begun."""
        return WHOLE in self.parts

    @property
    def shards(self) -> set[str]:
        """Shards that have their manifest."""
        return self.parts - {STARTED, WHOLE}


async def shelved(bucket: Bucket) -> list[Shelved]:
    """Return all backups, and what was begun, by name."""
    found: dict[str, Shelved] = {}
    for stored in await bucket.list(BACKUPS):
        name, _, part = stored.name.removeprefix(f"{BACKUPS}/").partition("/")
        found.setdefault(name, Shelved(name)).parts.add(part)
    return [found[name] for name in sorted(found)]


async def parts_of(bucket: Bucket, name: str) -> Shelved:
    """Return what there is of one backup."""
    prefix = f"{BACKUPS}/{name}"
    stored = await bucket.list(prefix)
    return Shelved(name, {each.name.removeprefix(f"{prefix}/") for each in stored})


async def complete(bucket: Bucket) -> list[BackupManifest]:
    """Return the manifests of all complete backups, the oldest first."""
    names = [each.name for each in await shelved(bucket) if each.complete]
    found = [await manifest_of(bucket, name) for name in names]
    return sorted(found, key=lambda each: (each.started_ms, each.name))


async def manifest_of(bucket: Bucket, name: str) -> BackupManifest:
    """Return a backup's manifest. BackupUnknownError: there is none, BackupDamagedError."""
    there = await parts_of(bucket, name)
    if not there.complete:
        what = "is not complete" if there.parts else "is unknown"
        raise BackupUnknownError(f"the backup {name} {what}", "see `imago backup list`")
    return decode(BackupManifest, whole_of(name), await bucket.get(whole_of(name)))


async def shard_manifest_of(bucket: Bucket, backup: BackupManifest, shard: str) -> ShardManifest:
    """Return a shard's manifest, which the backup's vouches for."""
    name = shard_of(backup.name, shard)
    data = await bucket.get(name)
    if hashlib.sha256(data).hexdigest() != backup.shards[shard].digest:
        raise BackupDamagedError(
            f"{name}: it is not the one that the backup names", "take another backup"
        )
    return decode(ShardManifest, name, data)


async def begun(bucket: Bucket, name: str) -> Started:
    """Return what a backup was begun with."""
    return decode(Started, started_of(name), await bucket.get(started_of(name)))
