"""Old files of the log in a bucket, while this member is the master."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from imago_broker.features.tiered.archiving import (
    Archive,
    NotMasterError,
    TierRules,
    WrongClusterError,
)
from imago_broker.features.tiered.bucket import FencedTierError, ShardBucket, WrongTierError
from imago_log.tier.reader import TierReader
from imago_objects import ObjectsError
from imago_wire.errors import WrongError

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_broker.features.tiered.blocks import BlockCache
    from imago_broker.ports import Clock
    from imago_log.store import MessageStore

logger = logging.getLogger(__name__)

LOOK_S: Final = 2.0
"""How often the master looks for a file that may go."""
RETRY_S: Final = 5.0
SWEEP_S: Final = 3600.0
_TROUBLE = (
    ObjectsError,
    WrongTierError,
    FencedTierError,
    WrongClusterError,
    NotMasterError,
    WrongError,
    OSError,
)
"""What ends a try, and is tried again: the bucket's trouble is none of who sends messages."""


@dataclass(slots=True)
class TierCounts:
    """Totals since the start."""

    files_archived: int = 0
    bytes_archived: int = 0
    files_expired: int = 0
    objects_swept: int = 0
    failures: int = 0


class Tier:
    """What one broker has of a bucket: reads of old messages, and the work of the master."""

    def __init__(
        self,
        store: MessageStore,
        bucket: ShardBucket,
        blocks: BlockCache,
        clock: Clock,
        *,
        cluster_id: Callable[[], str],
        rules: TierRules,
    ) -> None:
        self._store, self._bucket, self._clock = store, bucket, clock
        self._cluster_id, self._rules = cluster_id, rules
        self.blocks = blocks
        self.reader = TierReader(self.blocks, store.config.segment_bytes_max, rules.left_out)
        self.counts = TierCounts()
        self.problem = ""
        """Why files do not go to the bucket now; empty: they do."""
        self._archive: Archive | None = None
        self._task: asyncio.Task[None] | None = None
        self.blocks.open()
        store.read_remote(self.reader)

    def start(self) -> None:
        """This member leads: the bucket is its business."""
        self.stop()
        self._task = asyncio.ensure_future(self._run())

    def stop(self) -> None:
        """It leads no more, or the broker stops."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._archive, self.problem = None, ""
        self.reader.lose()
        self.blocks.close()

    def keep(self, retention_ms: int) -> None:
        """Keep messages for so long from now on; 0: no limit."""
        self._rules = replace(self._rules, retention_ms=retention_ms)
        if self._archive is not None:
            self._archive.rules = self._rules

    def needed_from(self) -> int:
        """Return the log offset from which on the disk is the only place that has the log."""
        start = self._store.log_start
        return start if self._archive is None else max(start, self._archive.trusted_end)

    @property
    def away(self) -> bool:
        """Whether the bucket failed last, in whatever was asked of it."""
        return bool(self.problem or self.blocks.problem)

    @property
    def waiting_bytes(self) -> int:
        """Bytes of whole files that should be in the bucket and are not."""
        return 0 if self._archive is None else self._archive.waiting_bytes

    def status(self) -> dict[str, Any]:
        """Return how it is, for people."""
        manifest, archive = self.reader.manifest, self._archive
        return {
            "url": self._bucket.objects.url,
            "known": self.reader.known,
            "problem": self.problem or self.blocks.problem,
            "refused": archive.refused if archive is not None else "",
            "files": len(manifest.segments),
            "bytes": manifest.size,
            "start": manifest.segments[0].base if manifest.segments else 0,
            "end": manifest.end,
            "waitingBytes": self.waiting_bytes,
            "cacheBytes": self.blocks.size,
        }

    async def _run(self) -> None:
        probed = False
        while True:
            try:
                if not probed:
                    await self._bucket.objects.probe()
                    probed = True
                await self._lead()
            except _TROUBLE as error:
                self.counts.failures += 1
                if str(error) != self.problem:
                    logger.warning("tier.failed reason=%s", error)
                self.problem = str(error)
            except Exception:
                # Nobody waits for this task: what is wrong with it has to be seen all the same.
                logger.exception("tier.failed")
                self.problem = "internal error, see the broker's log"
            await asyncio.sleep(RETRY_S)

    async def _claimed(self) -> Archive:
        """Return what this mastership does with the bucket, which is its own from now on."""
        cluster_id = self._cluster_id()
        if not cluster_id:
            raise NotMasterError("the registry has not said which cluster this is")
        archive = Archive(
            self._store,
            self._bucket,
            self._clock,
            cluster_id=cluster_id,
            epoch=self._store.epoch_seen,
            rules=self._rules,
        )
        try:
            await archive.claim()
        except WrongClusterError:
            self._take(archive)  # nothing of this cluster's is there: queues begin on the disk
            raise
        return archive

    async def _lead(self) -> None:
        """Work until something goes wrong: then what stands in the bucket is read again."""
        archive = await self._claimed()
        self._take(archive)
        self._archive = archive
        self.counts.objects_swept += await archive.sweep()
        swept_ms = self._clock.monotonic_ms()
        while True:
            if self.blocks.problem:
                await self._bucket.latest()  # it may answer again, and nobody read since
                self.blocks.problem = ""
            self.problem = ""
            while await archive.trust():
                self._take(archive)
            while archive.is_trusted and await archive.step():
                self._take(archive)
                self.counts.files_archived += 1
                self.counts.bytes_archived += self._store.config.segment_bytes_max
            self.counts.files_expired += await archive.retire()
            self._take(archive)
            if self._clock.monotonic_ms() - swept_ms > SWEEP_S * 1000:
                swept_ms = self._clock.monotonic_ms()
                self.counts.objects_swept += await archive.sweep()
            await asyncio.sleep(LOOK_S)

    def _take(self, archive: Archive) -> None:
        if self.reader.manifest is not archive.manifest or not self.reader.known:
            self.reader.take(archive.manifest, archive.first)
