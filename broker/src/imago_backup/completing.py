"""The backup's own manifest, written when all shards have theirs, by whichever member sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_backup import shelf
from imago_backup.format import (
    BackupManifest,
    ShardManifest,
    decode,
    encode,
    shard_of,
    summary_of,
    whole_of,
)

if TYPE_CHECKING:
    from imago_backup.format import Started
    from imago_backup.shelf import Bucket


async def complete(bucket: Bucket, started: Started, version: str) -> bool:
    """Write the manifest if nothing is missing; return whether the backup is complete."""
    there = await shelf.parts_of(bucket, started.name)
    if there.complete:
        return True
    if not there.shards >= {*started.shards}:
        return False
    shards = {}
    cluster_id, finished_ms = "", started.started_ms
    for shard in started.shards:
        name = shard_of(started.name, shard)
        data = await bucket.get(name)
        manifest = decode(ShardManifest, name, data)
        shards[shard] = summary_of(manifest, data)
        cluster_id, finished_ms = manifest.cluster_id, max(finished_ms, manifest.cut_ms)
    whole = BackupManifest(
        name=started.name,
        cluster=started.cluster,
        cluster_id=cluster_id,
        version=version,
        started_ms=started.started_ms,
        finished_ms=finished_ms,
        shards=shards,
    )
    await bucket.put_if_absent(whole_of(started.name), encode(whole))
    return True
