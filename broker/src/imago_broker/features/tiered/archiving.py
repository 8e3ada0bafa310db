"""Takes files of the log to the bucket, and deletes there what has expired: one step a call.

A file goes once it is written no more and on all members in sync. It counts when its object and
its index have been read back and the manifest names them; not before may it be deleted here. What
has expired is named no more first, then deleted. Whatever ends half-way leaves objects that no
manifest names: `sweep` finds them.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from zlib import crc32

from imago_log.tier.index import TierRefusedError, build_index, decode_directory
from imago_log.tier.manifest import TierManifest, TierSegment

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_broker.features.tiered.bucket import ShardBucket
    from imago_broker.ports import Clock
    from imago_log.store import MessageStore
    from imago_log.tier.index import BuiltIndex, Key, TierRow

logger = logging.getLogger(__name__)

RETIRED_MAX: Final = 64
"""Files that one step deletes in the bucket, so that a mistake of a clock stays small."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TierRules:
    """What goes to the bucket, and how long and how much of it stays; 0: no limit."""

    left_out: Callable[[str], bool]
    """Tells topics that do not go there."""
    retention_ms: int
    retention_bytes: int


class Archive:
    """What the master of a shard does with the bucket, in one mastership."""

    def __init__(
        self,
        store: MessageStore,
        bucket: ShardBucket,
        clock: Clock,
        *,
        cluster_id: str,
        epoch: int,
        rules: TierRules,
    ) -> None:
        self._store, self._bucket, self._clock = store, bucket, clock
        self._cluster_id, self._epoch, self.rules = cluster_id, epoch, rules
        self.manifest = TierManifest(cluster_id, epoch, 0)
        self.first: dict[Key, TierRow] = {}
        """The directory of the first file."""
        self._last: dict[Key, TierRow] = {}
        self.trusted_end = 0
        """Below it the bucket has what this log has, as far as this log still has it: seen in this
        mastership. Files may go up to there."""
        self.refused = ""
        """Why the next file cannot go; empty: it can."""

    async def claim(self) -> None:
        """Make the bucket this mastership's. FencedTierError, WrongTierError: it cannot be."""
        latest = await self._bucket.latest() or self.manifest
        if latest.cluster != self._cluster_id:
            raise WrongClusterError(
                f"{self._bucket.objects.url}: it holds the messages of another cluster"
                f" ({latest.cluster}), this is {self._cluster_id}: name another prefix"
            )
        if latest.epoch > self._epoch:
            raise NotMasterError(
                f"the bucket knows epoch {latest.epoch}, this master has {self._epoch}"
            )
        # What a log has lost, as its members were told to go on without it, is in no bucket either.
        kept = [each for each in latest.segments if each.end <= self._store.log_end]
        if len(kept) < len(latest.segments):
            logger.error("tier.beyond_log files=%d", len(latest.segments) - len(kept))
        await self._write(latest.next(self._epoch, kept))
        if kept:
            self._last = await self._directory(kept[-1])

    async def _write(self, manifest: TierManifest) -> None:
        first = self.first
        before = self.manifest.segments[:1]
        if manifest.segments[:1] != before:
            first = await self._directory(manifest.segments[0]) if manifest.segments else {}
        await self._bucket.write(manifest)
        self.manifest, self.first = manifest, first

    async def _directory(self, segment: TierSegment) -> dict[Key, TierRow]:
        data = await self._bucket.objects.get(segment.index, 0, segment.directory_size)
        return await asyncio.to_thread(decode_directory, data)

    @property
    def waiting_bytes(self) -> int:
        """Bytes of whole files that are not in the bucket yet."""
        return max(0, self._ends_at() - self._next_base())

    def _ends_at(self) -> int:
        """Return where the files end that may go: nothing of them can change any more."""
        store, size = self._store, self._store.config.segment_bytes_max
        end = min(store.high_watermark, store.durable_end, store.log_end)
        return end - end % size

    def _next_base(self) -> int:
        """Return where the next file begins; one whose first part is gone here stays."""
        size = self._store.config.segment_bytes_max
        return max(self.manifest.end, -(-self._store.log_start // size) * size)

    @property
    def is_trusted(self) -> bool:
        """Whether all that both have is the same."""
        return self.trusted_end >= self.manifest.end

    async def trust(self) -> bool:
        """Compare a file that both have; False: there is none to compare, or it is damaged here.

        What a former master took there is this log's, unless members have lost what it had, or
        began again with an older copy of it: such files and all behind them are named no more.
        """
        start = self._store.log_start
        segments = self.manifest.segments
        index = next(
            (n for n, each in enumerate(segments) if each.end > max(start, self.trusted_end)), None
        )
        if index is None:
            self.trusted_end = max(self.trusted_end, self.manifest.end)
            return False
        segment = segments[index]
        if segment.base >= start:
            built = await self._built(segment.base)
            if built is None:
                return False
            if built.crc != segment.crc:
                logger.error("tier.differs base=%d files=%d", segment.base, len(segments) - index)
                await self._write(self.manifest.next(self._epoch, segments[:index]))
                self._last = await self._directory(segments[index - 1]) if index else {}
                return True
        self.trusted_end = segment.end
        return True

    async def step(self) -> bool:
        """Take one file there; False: there is none that may go. Any error: nothing has changed."""
        base, size = self._next_base(), self._store.config.segment_bytes_max
        if base + size > self._ends_at():
            self.refused = ""
            return False
        built = await self._built(base)
        if built is None:
            return False
        name = self._bucket.name(base, self._epoch, secrets.randbits(64))
        segment = TierSegment(
            base, size, len(built.data), built.directory_size, built.newest_ms, built.crc, name
        )
        path = self._store.components.storage.log.path(base)
        await self._bucket.send(segment.log, path)
        await self._bucket.send(segment.index, built.data)
        await self._bucket.verify(segment.log, size, built.crc)
        await self._bucket.verify(segment.index, len(built.data), crc32(built.data))
        head = built.data[: built.directory_size]
        rows = await asyncio.to_thread(decode_directory, head)
        await self._write(self.manifest.next(self._epoch, [*self.manifest.segments, segment]))
        self._last = rows
        self.trusted_end = segment.end
        logger.info("tier.archived base=%d bytes=%d", base, size)
        return True

    async def _built(self, base: int) -> BuiltIndex | None:
        """Return the index of a file here; None: it is damaged, and waits to be healed."""
        try:
            built = await self._build(base)
        except TierRefusedError as error:
            if str(error) != self.refused:
                logger.warning("tier.refused base=%d reason=%s", base, error)
            self.refused = str(error)
            return None
        self.refused = ""
        return built

    async def _build(self, base: int) -> BuiltIndex:
        storage = self._store.components.storage
        topics = {
            name: (topic.incarnation, topic.birth)
            for name, topic in storage.metadata.topics.items()
            if not self.rules.left_out(name)
        }
        return await asyncio.to_thread(build_index, storage.log, base, topics, self._last)

    async def retire(self) -> int:
        """Delete there what has expired; return how many files that are."""
        count = self._expired()
        if not count:
            return 0
        gone, kept = self.manifest.segments[:count], self.manifest.segments[count:]
        await self._write(self.manifest.next(self._epoch, kept))
        await self._bucket.delete([name for each in gone for name in (each.log, each.index)])
        logger.info("tier.expired files=%d start=%d", count, kept[0].base if kept else gone[-1].end)
        return count

    def _expired(self) -> int:
        now_ms, size, count = self._clock.epoch_ms(), self.manifest.size, 0
        for each in self.manifest.segments[:RETIRED_MAX]:
            old = self.rules.retention_ms and now_ms - each.newest_ms > self.rules.retention_ms
            large = self.rules.retention_bytes and size > self.rules.retention_bytes
            if each.end > self._store.log_start or not (old or large):
                break  # what the disk still has is its business first
            size -= each.size + each.index_size
            count += 1
        return count

    async def sweep(self) -> int:
        """Delete objects that no manifest names; return how many there were."""
        orphans = await self._bucket.orphans(self.manifest, self._epoch)
        await self._bucket.delete(orphans)
        if orphans:
            logger.info("tier.swept objects=%d", len(orphans))
        return len(orphans)


class WrongClusterError(Exception):
    """The bucket is another cluster's."""


class NotMasterError(Exception):
    """The bucket knows a later master."""
