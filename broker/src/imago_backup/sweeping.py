"""Backups that go, and the chunks that no backup names any more: mark and sweep.

A backup that is under way may rely on chunks that no manifest names yet, so nothing is swept while
there is one. Both write before they look: a backup says that it was begun and then waits for a
sweep that is there, a sweep says that it is there and then looks for what was begun.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, NamedTuple

import orjson

from imago_backup import shelf
from imago_backup.errors import BackupError, BackupUnknownError
from imago_backup.format import (
    CHUNKS,
    STARTED,
    SWEEP_LOCK,
    WHOLE,
    ShardManifest,
    decode,
    shard_of,
)
from imago_objects import ObjectMissingError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from imago_backup.shelf import Bucket

ABANDONED_MS = 24 * 3_600_000
"""What was begun so long ago and is not complete is given up by `prune`."""
LOCK_MS_MAX = 3_600_000
"""A sweep that took so long has ended without saying so."""
DELETED_AT_ONCE = 500


class Swept(NamedTuple):
    """What a sweep has done."""

    objects: int
    size: int
    waits_for: tuple[str, ...]
    """Backups that are under way: nothing was swept, the next sweep does it."""


async def abandoned(bucket: Bucket, now_ms: int) -> list[str]:
    """Return what was begun, is not complete and has been left."""
    found = []
    for each in await shelf.shelved(bucket):
        if each.complete:
            continue
        if STARTED not in each.parts:
            found.append(each.name)  # the rest of a deletion
            continue
        begun = await shelf.begun(bucket, each.name)
        if begun.started_ms < now_ms - ABANDONED_MS:
            found.append(each.name)
    return found


async def delete(bucket: Bucket, name: str) -> None:
    """Take a backup, or what was begun of it, away; its chunks go with the next sweep."""
    there = await shelf.parts_of(bucket, name)
    if not there.parts:
        raise BackupUnknownError(f"the backup {name} is unknown", "see `imago backup list`")
    # A crash between leaves what is not complete any more, and says that it was begun.
    ordered = [WHOLE, *sorted(there.shards), STARTED]
    for part in ordered:
        if part in there.parts:
            await bucket.delete([shard_of(name, part)])


async def sweep(bucket: Bucket, now_ms: int) -> Swept:
    """Delete all chunks that no backup names. BackupError: another sweep is under way."""
    mark = orjson.dumps({"at": now_ms, "by": secrets.token_hex(8)})
    while not await bucket.put_if_absent(SWEEP_LOCK, mark):
        since_ms = int(orjson.loads(await bucket.get(SWEEP_LOCK))["at"])
        if now_ms - since_ms < LOCK_MS_MAX:
            raise BackupError("another sweep of this bucket is under way", "wait for its end")
        await bucket.delete([SWEEP_LOCK])
    try:
        there = await shelf.shelved(bucket)
        if waits_for := tuple(each.name for each in there if not each.complete):
            return Swept(0, 0, waits_for)
        named = await _named(bucket, there)
        gone = [each for each in await bucket.list(CHUNKS) if each.name not in named]
        for at in range(0, len(gone), DELETED_AT_ONCE):
            if not await _has_lock(bucket, mark):
                raise BackupError("another sweep has taken this one for dead", "wait for its end")
            await bucket.delete([each.name for each in gone[at : at + DELETED_AT_ONCE]])
        return Swept(len(gone), sum(each.size for each in gone), ())
    finally:
        if await _has_lock(bucket, mark):
            await bucket.delete([SWEEP_LOCK])


async def _has_lock(bucket: Bucket, mark: bytes) -> bool:
    """Whether the sweep that is under way is this one: it may have been thought to be dead."""
    try:
        return await bucket.get(SWEEP_LOCK) == mark
    except ObjectMissingError:
        return False


async def _named(bucket: Bucket, there: Iterable[shelf.Shelved]) -> set[str]:
    """Return the chunks that backups name. An unreadable manifest raises: nothing is swept."""
    named: set[str] = set()
    for each in there:
        for shard in each.shards:
            name = shard_of(each.name, shard)
            manifest = decode(ShardManifest, name, await bucket.get(name))
            named |= {chunk.object_name(shard) for chunk in manifest.chunks}
    return named
