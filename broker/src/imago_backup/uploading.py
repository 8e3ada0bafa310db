"""A member's part in a backup: the chunks of its log up to a cut, then the shard's manifest.

What the bucket has is not sent again, and what an earlier backup of the same log has sent is not
even read: bytes below the high watermark never change within one life of a shard, which its epochs
prove. Each file is read by a thread, a chunk at a time, and no faster than was asked for.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from imago_backup import shelf
from imago_backup.completing import complete
from imago_backup.errors import BackupDamagedError, BackupError
from imago_backup.format import (
    CHUNKS,
    SWEEP,
    Chunk,
    ShardManifest,
    Started,
    chunk_of,
    encode,
    next_length,
    shard_of,
    started_of,
)
from imago_objects import BucketAwayError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path
    from typing import Any

    from imago_backup.format import BackupManifest, MetaqOffsets
    from imago_backup.shelf import Bucket

logger = logging.getLogger(__name__)

AWAY_SECONDS_MAX = 600.0
"""How long a bucket may be away before a backup fails; the next try goes on where this one was."""
AWAY_PAUSE_SECONDS = 5.0
SWEEP_LOOK_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCut:
    """The log of a member at one moment: everything below `end` is readable."""

    first: int
    """Where its oldest file begins."""
    log_start: int
    end: int
    segment_bytes: int
    first_ms: int
    last_ms: int
    cut_ms: int
    epoch_seen: int
    epochs: list[list[int]]
    damaged: list[list[Any]]
    older_in: str = ""


class LogSource(Protocol):
    """The log of a running member."""

    @property
    def cluster(self) -> str: ...
    @property
    def cluster_id(self) -> str: ...
    @property
    def shard(self) -> str: ...
    @property
    def version(self) -> str: ...

    async def metaq_offsets(self) -> MetaqOffsets:
        """Return what MetaQ's groups have in ZooKeeper now."""
        ...

    def cut(self) -> LogCut:
        """Cut the log here."""
        ...

    def path(self, offset: int) -> Path:
        """Return the file that holds a log offset."""
        ...

    def files(self) -> dict[str, str]:
        """Return small files that the log does not tell."""
        ...


@dataclass(slots=True)
class UploadProgress:
    """How far a member is."""

    total: int = 0
    """Bytes of the log, up to the cut."""
    done: int = 0
    sent: int = 0
    """Bytes that the bucket did not have."""


class ShardUpload:
    """One shard's part in one backup. Done again it goes on where it was."""

    def __init__(
        self,
        source: LogSource,
        bucket: Bucket,
        started: Started,
        *,
        bytes_a_second: int,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """`bytes_a_second`: of the bucket's line and of the disk; 0: as fast as they are."""
        self._source, self._bucket, self._started = source, bucket, started
        self._rate, self._sleep = bytes_a_second, sleep
        self.progress = UploadProgress()
        self._stored: set[str] = set()
        self._known: dict[int, Chunk] = {}
        self._chunks: dict[int, Chunk] = {}

    async def run(self) -> None:
        """Do all of it. BackupError, ObjectsError: it is not done."""
        name, shard = self._started.name, self._source.shard
        await self._begin()
        if shard not in (await shelf.parts_of(self._bucket, name)).shards:
            self._stored = {each.name for each in await self._bucket.list(f"{CHUNKS}/{shard}")}
            offsets = await self._source.metaq_offsets()  # before the cut, so never ahead of it
            cut = self._source.cut()
            self._known = await self._known_of(cut)
            cut = await self._send_log(cut)
            data = encode(self._manifest(cut, offsets))
            await self._patiently(lambda: self._bucket.put_if_absent(shard_of(name, shard), data))
        await complete(self._bucket, self._started, self._source.version)

    async def _begin(self) -> None:
        """Say that there is a backup now; nothing that it may rely on is swept from then on."""
        started = self._started
        if not await self._bucket.put_if_absent(started_of(started.name), encode(started)):
            found = await shelf.begun(self._bucket, started.name)
            if (found.cluster, found.shards) != (started.cluster, started.shards):
                raise BackupError(
                    f"a backup {started.name} of cluster {found.cluster} and the shards"
                    f" {', '.join(found.shards)} was begun",
                    "take another name, or delete that one",
                )
            self._started = found
        while await self._bucket.list(SWEEP):
            await self._sleep(SWEEP_LOOK_SECONDS)

    async def _known_of(self, cut: LogCut) -> dict[int, Chunk]:
        """Return the chunks of the newest backup of this very log, by log offset."""
        found: list[BackupManifest] = []
        for each in await shelf.shelved(self._bucket):
            if each.complete and self._source.shard in each.shards:
                try:
                    found.append(await shelf.manifest_of(self._bucket, each.name))
                except BackupError as error:
                    logger.warning("backup_unreadable name=%s reason=%s", each.name, error)
        for backup in sorted(found, key=lambda each: -each.started_ms):
            if backup.cluster_id != self._source.cluster_id:
                continue
            try:
                shard = await shelf.shard_manifest_of(self._bucket, backup, self._source.shard)
            except BackupDamagedError as error:
                logger.warning("backup_unreadable name=%s reason=%s", backup.name, error)
                continue
            if shard.segment_bytes == cut.segment_bytes:
                same = same_until(shard, cut)
                return {each.offset: each for each in shard.chunks if each.end <= same}
        return {}

    async def _send_log(self, cut: LogCut) -> LogCut:
        """Send everything up to the cut, or up to a later one; return which."""
        loop = asyncio.get_running_loop()
        at, begun, paced = cut.first, loop.time(), 0
        while at < cut.end:
            self.progress.total = cut.end - cut.first
            self.progress.done = at - cut.first
            length = next_length(at, cut.end, cut.segment_bytes)
            known = self._known.get(at)
            if known is not None and known.length == length and self._has(known):
                chunk = known
            else:
                try:
                    chunk, content = await asyncio.to_thread(
                        read_chunk, self._source.path(at), at, at % cut.segment_bytes, length
                    )
                except FileNotFoundError:
                    # Old files went meanwhile. What only they said was said again before that.
                    cut = self._source.cut()
                    if cut.first <= at:
                        raise
                    at = cut.first
                    continue
                paced += chunk.length
                await self._send(chunk, content)
            self._chunks[at] = chunk
            at = chunk.end
            if self._rate and (early := begun + paced / self._rate - loop.time()) > 0:
                await self._sleep(early)
        self.progress.total = self.progress.done = cut.end - cut.first
        return cut

    async def _send(self, chunk: Chunk, content: bytes) -> None:
        if not self._has(chunk):
            name = chunk.object_name(self._source.shard)
            await self._patiently(lambda: self._bucket.put(name, content))
            self._stored.add(name)
            self.progress.sent += chunk.stored

    def _has(self, chunk: Chunk) -> bool:
        return chunk.object_name(self._source.shard) in self._stored

    async def _patiently(self, put: Callable[[], Awaitable[object]]) -> None:
        """Wait for a bucket that is away, for a while."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + AWAY_SECONDS_MAX
        while True:
            try:
                await put()
            except BucketAwayError as error:
                if loop.time() > deadline:
                    raise
                logger.warning("backup_waits name=%s reason=%s", self._started.name, error)
                await self._sleep(AWAY_PAUSE_SECONDS)
            else:
                return

    def _manifest(self, cut: LogCut, offsets: MetaqOffsets) -> ShardManifest:
        kept = sorted(each for each in self._chunks.values() if cut.first <= each.offset < cut.end)
        return ShardManifest(
            backup=self._started.name,
            cluster=self._source.cluster,
            cluster_id=self._source.cluster_id,
            shard=self._source.shard,
            segment_bytes=cut.segment_bytes,
            log_start=cut.log_start,
            end=cut.end,
            first_ms=cut.first_ms,
            last_ms=cut.last_ms,
            cut_ms=cut.cut_ms,
            epoch_seen=cut.epoch_seen,
            epochs=cut.epochs,
            damaged=cut.damaged,
            chunks=kept,
            metaq_offsets=offsets,
            files=self._source.files(),
            older_in=cut.older_in,
        )


def read_chunk(path: Path, offset: int, position: int, length: int) -> tuple[Chunk, bytes]:
    """Read a piece of one of the log's files, and what stands for it. FileNotFoundError."""
    with path.open("rb", buffering=0) as file:
        file.seek(position)
        data = file.read(length)
        while len(data) < length and (more := file.read(length - len(data))):
            data += more
    if len(data) < length:
        raise BackupError(
            f"{path} ends at byte {position + len(data)}, before the log does",
            "take the backup of another member",
        )
    return chunk_of(offset, data)


def same_until(shard: ShardManifest, cut: LogCut) -> int:
    """Return up to which log offset an earlier backup and a log have the same bytes.

    One leader wrote each epoch, so the logs are one as far as their epochs are. What both know of
    the last common one ends where either of them goes on with another.
    """
    ours = {each[0]: each[1] for each in cut.epochs}
    theirs = [(epoch, start) for epoch, start in shard.epochs if epoch in ours]
    same = min(shard.end, cut.end)
    if not theirs or any(start > cut.first and ours[epoch] != start for epoch, start in theirs):
        return 0
    last = theirs[-1][0]
    for epochs in (shard.epochs, cut.epochs):
        same = min([same, *(start for epoch, start in epochs if epoch > last)])
    return same
