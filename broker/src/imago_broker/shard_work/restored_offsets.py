"""Offsets of MetaQ's groups come back into ZooKeeper when a restored member leads its shard.

They are in a file of its folder (`imago backup restore` writes it), and go into the tree where a
group has none: whoever reads meanwhile goes on where it is. Then the file goes.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from imago_broker.ports import CoordinatorError
from imago_log.disk.folder import RESTORED_OFFSETS

if TYPE_CHECKING:
    from imago_broker.ports import MetaqProgress
    from imago_broker.shard_work.services import ShardServices

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0


class RestoredOffsets:
    """Waits until this member leads and the registry answers; without a file it does nothing."""

    def __init__(self, services: ShardServices) -> None:
        self._services = services
        self._path = Path(services.config.broker.data_dir) / RESTORED_OFFSETS
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Look from now on."""
        if self._path.exists():
            self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Leave the rest to the next start."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        told = ""
        while True:
            if self._leads():
                try:
                    count = await self._bring()
                except (CoordinatorError, ValueError, OSError) as error:
                    if str(error) != told:
                        told = str(error)
                        logger.warning("offsets_not_restored path=%s reason=%s", self._path, error)
                else:
                    logger.info("offsets_restored count=%d", count)
                    return
            await asyncio.sleep(LOOK_SECONDS)

    def _leads(self) -> bool:
        registered = self._services.coordinator.registered
        return (
            self._services.store.leading
            and registered is not None
            and self._services.coordinator.view().leads(registered)
        )

    async def _bring(self) -> int:
        consumers, store = self._services.metaq_consumers, self._services.store
        said = orjson.loads(await asyncio.to_thread(self._path.read_bytes))
        there = await consumers.metaq_progress([*said])
        count = 0
        for topic, group, partition, at in _missing(said, there):
            low, high = store.position_range(topic, partition)
            # Of an earlier point in time, positions may be ahead of what is there.
            await consumers.set_metaq_offset(topic, group, partition, min(max(at, low), high))
            count += 1
        await asyncio.to_thread(self._path.unlink)
        return count


def _missing(
    said: dict[str, dict[str, dict[str, int]]], there: MetaqProgress
) -> list[tuple[str, str, int, int]]:
    """Return what is said of partitions of which the tree has nothing."""
    return [
        (topic, group, int(partition), at)
        for topic, groups in said.items()
        for group, positions in groups.items()
        for partition, at in positions.items()
        if int(partition) not in there.get(topic, {}).get(group, {})
    ]
