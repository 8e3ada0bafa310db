"""What is wrong with a backup, read from the bucket alone: names, checksums, each record."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from imago_backup import shelf
from imago_backup.errors import BackupDamagedError
from imago_backup.format import CHUNKS, Chunk, chunk_of, shard_of
from imago_backup.reading import RecordWalk
from imago_log.disk.files import offset_name
from imago_objects import ObjectMissingError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from imago_backup.format import BackupManifest, ShardManifest
    from imago_backup.shelf import Bucket


class BadObject(NamedTuple):
    """Something that is not as it was written."""

    name: str
    position: int | None
    """Byte within the object; None: all of it."""
    file: str
    """The log's file that it is a part of; empty: it is none."""
    file_position: int
    reason: str


class ChunkCheck(NamedTuple):
    """How far it is, and what was found in the last chunk."""

    shard: str
    done: int
    total: int
    found: list[BadObject]


async def verify(
    bucket: Bucket, backup: BackupManifest, *, quick: bool = False
) -> AsyncIterator[ChunkCheck]:
    """Check everything that a restore would read; `quick`: only that it is there, with its size."""
    for shard in backup.shards:
        try:
            manifest = await shelf.shard_manifest_of(bucket, backup, shard)
        except (BackupDamagedError, ObjectMissingError) as error:
            name = shard_of(backup.name, shard)
            yield ChunkCheck(shard, 0, 0, [BadObject(name, None, "", 0, str(error))])
            continue
        listed = {each.name: each.size for each in await bucket.list(f"{CHUNKS}/{shard}")}
        walk = RecordWalk(manifest.log_start, manifest.segment_bytes, known=manifest.damaged)
        found, done = list(_gaps(manifest)), 0
        for chunk in manifest.chunks:
            name = chunk.object_name(shard)
            if listed.get(name) != chunk.stored or quick:
                found += _of_size(manifest, chunk, listed.get(name))
                walk.miss(chunk.end)
            else:
                found += _of_content(manifest, chunk, await bucket.get(name), walk)
            done += chunk.stored
            yield ChunkCheck(shard, done, manifest.size, found)
            found = []


def _gaps(manifest: ShardManifest) -> Iterator[BadObject]:
    at = manifest.chunks[0].offset if manifest.chunks else manifest.log_start
    for chunk in manifest.chunks:
        if chunk.offset != at:
            yield _bad(manifest, chunk, None, f"the log from {at} to {chunk.offset} is in no chunk")
        at = chunk.end
    if at != manifest.end:
        name = shard_of(manifest.backup, manifest.shard)
        yield BadObject(name, None, "", 0, f"chunks end at {at}, the log at {manifest.end}")


def _of_size(manifest: ShardManifest, chunk: Chunk, size: int | None) -> list[BadObject]:
    if size is None:
        return [_bad(manifest, chunk, None, "it is missing")]
    if size != chunk.stored:
        reason = f"it has {size} bytes, {chunk.stored} were written"
        return [_bad(manifest, chunk, min(size, chunk.stored), reason)]
    return []


def _of_content(
    manifest: ShardManifest, chunk: Chunk, content: bytes, walk: RecordWalk
) -> list[BadObject]:
    data = content.ljust(chunk.length, b"\0")
    broken = walk.take(chunk.offset, data)
    whole = chunk_of(chunk.offset, data)[0].digest == chunk.digest
    if not broken:
        return [] if whole else [_bad(manifest, chunk, None, "its checksum does not match")]
    reason = "the record there is not whole"
    if whole:
        reason = "the member already had it so: the record there is not whole"
    return [
        _bad(manifest, chunk, each.offset - chunk.offset, f"{reason}: {each.reason}")
        for each in broken
    ]


def _bad(manifest: ShardManifest, chunk: Chunk, position: int | None, reason: str) -> BadObject:
    """Name a place in a chunk; a record that begins in the chunk before is said to be in this."""
    at = chunk.offset + max(0, position or 0)
    within = at % manifest.segment_bytes
    name = chunk.object_name(manifest.shard)
    place = position if position is None else max(0, position)
    return BadObject(name, place, offset_name(at - within), within, reason)
