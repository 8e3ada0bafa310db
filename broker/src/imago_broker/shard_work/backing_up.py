"""This member's part in backups, and what old ones leave behind: one at a time, beside the loop."""

from __future__ import annotations

import asyncio
import importlib
import importlib.metadata
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from imago_broker.model.registry.cluster import shard_name
from imago_broker.ports import CoordinatorError
from imago_broker.shard_work.errors import AdminError

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from imago_backup.format import MetaqOffsets, Started
    from imago_backup.uploading import ShardUpload
    from imago_broker.shard_work.services import ShardServices
    from imago_objects import Objects

logger = logging.getLogger(__name__)

RUNNING, DONE, FAILED = "running", "done", "failed"
JOBS_MAX = 16
"""Whose ends are remembered, the newest."""
CURE_URL = "Set backup.url (docs/backup.md) to a bucket or folder that all members reach."


@dataclass(slots=True)
class BackupJob:
    """This member's part in one backup."""

    name: str
    upload: ShardUpload
    task: asyncio.Task[None] | None = None
    state: str = RUNNING
    error: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return it as routes show it."""
        progress = self.upload.progress
        return {
            "backup": self.name,
            "state": self.state,
            "error": self.error,
            "bytes": progress.total,
            "bytesDone": progress.done,
            "bytesSent": progress.sent,
        }


@dataclass(slots=True)
class BackingUp:
    """Starts and ends the parts of this member."""

    services: ShardServices
    _jobs: dict[str, BackupJob] = field(default_factory=dict)
    _sweeping: asyncio.Task[None] | None = None
    _bucket: tuple[object, Objects] | None = None

    async def stop(self) -> None:
        """Leave the rest to whoever asks again: it goes on where this has ended."""
        tasks = [job.task for job in self._jobs.values() if job.task is not None]
        tasks += [self._sweeping] if self._sweeping is not None else []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def bucket(self) -> Objects:
        """Return where this cluster's backups are. AdminError: nowhere."""
        settings = self.services.config.backup
        if not settings.url:
            raise AdminError(409, "no_backup_url", "No backups are taken here.", CURE_URL)
        if self._bucket is None or self._bucket[0] != settings:
            # The library is loaded beside the loop: it takes a moment.
            await asyncio.to_thread(importlib.import_module, "imago_backup.uploading")
            self._bucket = settings, await asyncio.to_thread(_open, settings)
        return self._bucket[1]

    def job(self, name: str) -> BackupJob | None:
        """Return this member's part in a backup, as far as it remembers."""
        return self._jobs.get(name)

    async def begin(self, started: Started, *, bytes_a_second: int | None) -> BackupJob:
        """Do this member's part from now on; one that runs goes on."""
        bucket = await self.bucket()
        known = self._jobs.get(started.name)
        if known is not None and known.state == RUNNING:
            return known
        if busy := next((job for job in self._jobs.values() if job.state == RUNNING), None):
            raise AdminError(
                409,
                "busy",
                f"This member is busy with the backup {busy.name}.",
                "Wait for its end: GET /admin/v1/cluster/backups/NAME.",
            )
        rate = self.services.config.backup.bytes_a_second
        upload = _upload(self, bucket, started, rate if bytes_a_second is None else bytes_a_second)
        job = BackupJob(started.name, upload)
        self._jobs.pop(started.name, None)
        self._jobs[started.name] = job
        job.task = asyncio.create_task(_told(job, upload.run()))
        for name in [name for name, each in self._jobs.items() if each.state != RUNNING]:
            if len(self._jobs) > JOBS_MAX:
                del self._jobs[name]
        return job

    def sweep(self) -> None:
        """Delete what no backup names, beside everything else; what fails does so the next time."""
        if self._sweeping is None or self._sweeping.done():
            self._sweeping = asyncio.create_task(self._sweep())

    async def _sweep(self) -> None:
        from imago_backup import sweeping  # noqa: PLC0415  loaded by `bucket`
        from imago_backup.errors import BackupError  # noqa: PLC0415
        from imago_objects import ObjectsError  # noqa: PLC0415

        try:
            bucket = await self.bucket()
            swept = await sweeping.sweep(bucket, self.services.clock.epoch_ms())
        except (BackupError, ObjectsError) as error:
            logger.warning("backups_not_swept reason=%s", error)
        else:
            logger.info(
                "backups_swept objects=%d bytes=%d waits_for=%s",
                swept.objects, swept.size, ",".join(swept.waits_for),
            )  # fmt: skip

    async def told_offsets(self) -> MetaqOffsets:
        """Return what MetaQ's groups have in ZooKeeper of this shard's partitions."""
        from imago_backup.errors import BackupError  # noqa: PLC0415

        services = self.services
        duals = {config.name for config in services.topics.all() if config.dual}
        try:
            found = await services.metaq_consumers.metaq_progress(duals)
        except CoordinatorError as error:
            raise BackupError(
                f"nobody knows where MetaQ's groups are: {error}", "see whether ZooKeeper answers"
            ) from error
        return {
            topic: {
                group: {str(partition): at for partition, at in sorted(positions.items())}
                for group, positions in groups.items()
                if positions
            }
            for topic, groups in found.items()
        }


def _open(settings: Any) -> Objects:
    from imago_objects import (  # noqa: PLC0415  with its library, once backups are taken
        BucketRefusedError,
        ObjectsConfig,
        open_objects,
    )

    try:
        return open_objects(
            ObjectsConfig(
                settings.url,
                endpoint=settings.endpoint,
                region=settings.region,
                credentials_folder=settings.credentials_folder,
                ca_file=settings.ca_file,
            )
        )
    except BucketRefusedError as error:
        raise AdminError(
            409, "bucket_refused", f"{error.bucket}: {error.what}.", CURE_URL
        ) from error


def _upload(work: BackingUp, bucket: Objects, started: Started, rate: int) -> ShardUpload:
    from imago_backup.source import StoreSource  # noqa: PLC0415  loaded by `bucket`
    from imago_backup.uploading import ShardUpload  # noqa: PLC0415

    services = work.services
    source = StoreSource(
        store=services.store,
        cluster=services.config.broker.cluster,
        cluster_id=services.coordinator.view().cluster_id,
        shard=shard_name(services.config.broker.shard),
        version=importlib.metadata.version("imago-mq"),
        now_ms=services.clock.epoch_ms,
        told_offsets=work.told_offsets,
        tier_url=services.config.tier.url,
    )
    return ShardUpload(source, bucket, started, bytes_a_second=rate)


async def _told(job: BackupJob, work: Coroutine[Any, Any, None]) -> None:
    """Do it, and keep how it ended."""
    try:
        await work
    except asyncio.CancelledError:
        job.state, job.error = FAILED, "the broker stops"
        raise
    except Exception as error:  # it is told to whoever asks, and in the log
        job.state, job.error = FAILED, str(error) or type(error).__name__
        logger.warning("backup_failed name=%s reason=%s", job.name, job.error)
    else:
        job.state = DONE
        logger.info("backup_done name=%s bytes=%d sent=%d", job.name,
                    job.upload.progress.total, job.upload.progress.sent)  # fmt: skip
