"""All work among shards of one broker, started and stopped together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.shard_work.access_spreading import AccessSpreader
from imago_broker.shard_work.backing_up import BackingUp
from imago_broker.shard_work.draining import Drainer
from imago_broker.shard_work.restored_offsets import RestoredOffsets
from imago_broker.shard_work.spreading import Spreader

if TYPE_CHECKING:
    from imago_broker.shard_work.services import ShardServices


class ShardWork:
    """Has topics leave, and spread, and users too, and takes backups, for as long as it runs."""

    def __init__(self, services: ShardServices) -> None:
        self.drainer = Drainer(services)
        self.users = AccessSpreader(services)
        self.backups = BackingUp(services)
        self._topics = Spreader(services)
        self._restored = RestoredOffsets(services)

    def start(self) -> None:
        """Work from now on."""
        self.drainer.start()
        self._topics.start()
        self.users.start()
        self._restored.start()

    async def stop(self) -> None:
        """Leave the rest to the next master."""
        await self.backups.stop()
        await self._restored.stop()
        await self.users.stop()
        await self._topics.stop()
        await self.drainer.stop()
