"""The queues as a view of the log: what a cut, a deletion or a reset does to all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_log.views.units.lost import lost_from

if TYPE_CHECKING:
    from imago_log.commitlog.damage import Damage
    from imago_log.metadata.state import Metadata
    from imago_log.views.queues.queue_loading import QueueLoader
    from imago_log.views.queues.queue_writing import QueueWriter
    from imago_log.views.queues.queues import Queues


class QueuesView:
    """All queues, open or not."""

    def __init__(
        self,
        queues: Queues,
        writer: QueueWriter,
        loader: QueueLoader,
        metadata: Metadata,
        damage: Damage,
    ) -> None:
        self._queues, self._folders, self._loader = queues, queues.folders, loader
        self._metadata, self._damage = metadata, damage
        self.write_all = writer.write_all

    def truncate(self, end: int) -> None:
        """Forget what records at or after a log offset gave it."""
        self._queues.truncate(end, self._metadata.topics)
        self._forget_lost_ends()

    def _forget_lost_ends(self) -> None:
        """Let no queue end in lost messages: it is unknown which of them were cut off.

        The next record of a queue, or the healed one, says again how many there are.
        """
        if not self._damage.ranges:
            return
        topics = self._metadata.topics
        for name, queue_id in self._folders.on_disk():
            if name in topics:
                self._queues.get(topics[name], queue_id)
        for queue in self._queues:
            kept = lost_from(queue, queue.end)
            if kept < queue.end:
                queue.truncate(kept)

    def drop_before(self, start: int) -> None:
        """Let go of what records before a log offset gave it."""
        for queue in self._queues:
            queue.drop_before(queue.lookup.min_offset(start))

    def reset(self, start: int) -> None:
        """Drop everything and begin with nothing at a log offset."""
        self._queues.drop_all(keep_tails=True)
        self._folders.discard_segments()
        self._folders.sync()  # nothing marks units below the log's start as old
        self._loader.count_up_to(start)
