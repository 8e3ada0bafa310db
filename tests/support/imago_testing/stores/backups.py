"""Backups of small stores in real files: a bucket that counts, breaks and dies on request."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

from imago_backup import shelf
from imago_backup.format import Started
from imago_backup.restoring import RestoreOrder, ShardRestore
from imago_backup.source import StoreSource
from imago_backup.uploading import ShardUpload
from imago_log import MessageStore
from imago_objects import Objects, ObjectsConfig, open_objects
from imago_testing.stores.in_memory import FakeClock, folder_config

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from imago_backup.format import MetaqOffsets
    from imago_backup.restoring import Restored
    from imago_objects import Stored

SHARD = "shard-0"


class KilledError(BaseException):
    """Stands for kill -9: nothing behind the call is done."""


class FakeBucket:
    """A folder as a bucket."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._real: Objects = open_objects(ObjectsConfig(f"file://{folder}"))
        self.calls: Counter[str] = Counter()
        self.before: Callable[[str, str], None] = lambda _, __: None
        """Called before each call; it may raise."""

    async def put(self, name: str, data: bytes) -> None:
        self._count("put", name)
        await self._real.put(name, data)

    async def put_if_absent(self, name: str, data: bytes) -> bool:
        self._count("put_if_absent", name)
        return await self._real.put_if_absent(name, data)

    async def get(self, name: str) -> bytes:
        self._count("get", name)
        return await self._real.get(name)

    async def list(self, prefix: str = "") -> list[Stored]:
        self._count("list", prefix)
        return await self._real.list(prefix)

    async def delete(self, names: Sequence[str]) -> None:
        self._count("delete", names[0] if names else "")
        await self._real.delete(names)

    def _count(self, call: str, name: str) -> None:
        self.before(call, name)
        self.calls[call] += 1


def source_of(
    store: MessageStore,
    *,
    now_ms: Callable[[], int],
    offsets: MetaqOffsets | None = None,
    cluster_id: str = "the-id",
    tier_url: str = "",
) -> StoreSource:
    """Return a store as a backup reads it."""

    async def told() -> MetaqOffsets:
        return offsets or {}

    return StoreSource(
        store=store,
        cluster="tests",
        cluster_id=cluster_id,
        shard=SHARD,
        version="0",
        now_ms=now_ms,
        told_offsets=told,
        tier_url=tier_url,
    )


async def back_up(
    store: MessageStore,
    bucket: Any,
    name: str,
    clock: FakeClock,
    *,
    offsets: MetaqOffsets | None = None,
    cluster_id: str = "the-id",
    tier_url: str = "",
    rate: int = 0,
    sleep: Callable[[float], Any] = asyncio.sleep,
) -> ShardUpload:
    """Take a backup of a cluster of one shard."""
    started = Started(name=name, cluster="tests", shards=[SHARD], started_ms=clock.now_ms)
    source = source_of(
        store, now_ms=clock, offsets=offsets, cluster_id=cluster_id, tier_url=tier_url
    )
    upload = ShardUpload(source, bucket, started, bytes_a_second=rate, sleep=sleep)
    await upload.run()
    return upload


async def restore(bucket: Any, name: str, folder: Path, *, until_ms: int | None = None) -> Restored:
    """Make a data folder of it."""
    backup = await shelf.manifest_of(bucket, name)
    order = RestoreOrder(backup=backup, shard=SHARD, folder=folder, until_ms=until_ms)
    return await ShardRestore(bucket, order).run()


def open_restored(folder: Path, clock: FakeClock, *, lead: bool = True) -> MessageStore:
    """Start a store on a restored folder."""
    config = folder_config(folder, retention_bytes=0)
    return MessageStore.open(config, clock=clock, threaded=False, lead=lead)
