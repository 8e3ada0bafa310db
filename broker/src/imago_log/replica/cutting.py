"""Cut a follower's log, and everything derived from the part that is cut.

Order makes a crash harmless: first the checkpoint stops promising what goes, then the views and
the metadata are cut, then the log, then the epochs. Until the log is cut the cut has not happened:
a start reads it again to its old end and makes the views anew from the lowered checkpoint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from imago_log.disk.files import fatal, replace_whole
from imago_log.metadata.state import Metadata
from imago_log.views.units.lost import lost_from

if TYPE_CHECKING:
    from imago_log.metadata.changes import Change
    from imago_log.state import StoreState


class Cut(NamedTuple):
    """What has happened to topics and other metadata."""

    changes: list[Change]
    ended: list[str]
    """Topics whose queues are no longer valid."""


class LogCutter:
    """Cuts, while the worker is idle."""

    def __init__(self, s: StoreState) -> None:
        self._vfs, self._folder, self._log, self._recent = s.vfs, s.folder, s.log, s.recent
        self._damage, self._epochs, self._watermark = s.damage, s.epochs, s.watermark
        self._checkpointer, self._metadata = s.checkpointer, s.metadata
        self._folders, self._loader, self._queues = s.queue_folders, s.queue_loader, s.queues
        self._keys, self._materialiser = s.keys, s.materialiser

    def cut(self, end: int, state: Metadata | None) -> Cut:
        """Cut at a record border; `state` is that of the metadata there.

        None: no change of metadata goes.
        """
        self._log.sync()  # the snapshot that is written here must not be ahead of the log
        self._lower_marks(end)
        self._queues.truncate(end, self._metadata.topics)
        self._forget_lost_ends()
        self._materialiser.truncate()
        self._keys.truncate(end)
        self._recent.clear()
        made = Cut(*self._metadata.become(state)) if state is not None else Cut([], [])
        self._cut_producers(end)
        if self._metadata.end <= self._log.end:  # else it is of a snapshot that is still ahead
            self._metadata.reach(min(self._metadata.end, end))
            self.save_metadata(end)
        self._log.truncate(end)
        self._damage.truncate(end)
        self._damage.save()
        self._epochs.truncate(end)
        return made

    def empty(self, start: int) -> Cut:
        """Drop everything and begin at `start`.

        The views are not trusted until the metadata have come. A crash leaves the old log, a part
        of its front, or an empty one that begins where it began or at `start`.
        """
        self._folder.forget_views()
        self._lower_marks(self._log.start)
        # A snapshot beyond the log's end would be the leader's.
        with fatal("remove", self._folder.metadata):
            self._vfs.unlink(self._folder.metadata)
            self._vfs.sync_folder(self._folder.config)
        self._log.remove_all()
        self._epochs.truncate(0)
        nothing = Metadata()
        made = Cut(*self._metadata.become(nothing))
        self._metadata.take_producers(nothing)
        self._damage.truncate(0)
        self._damage.save()
        self._materialiser.forget()
        self._queues.drop_all(keep_tails=True)
        self._folders.discard_segments()
        self._folders.sync()  # nothing marks units below the log's start as old
        self._keys.reset(start)
        self._recent.clear()
        self._log.begin_at(start)
        self._metadata.reach(start)
        self._loader.count_up_to(start)
        self._watermark.begin(start)
        self._checkpointer.begin_at(start)
        self._checkpointer.write()
        return made

    def trust_views(self) -> None:
        """Say that the views on the device are those of the checkpoint."""
        self._checkpointer.write()
        replace_whole(self._vfs, self._folder.views_mark, b"1\n")

    def save_metadata(self, end: int) -> None:
        """Put the state of now, as that of a log offset, in the place of the snapshot."""
        replace_whole(self._vfs, self._folder.metadata, self._metadata.snapshot_at(end))
        self._checkpointer.begin_metadata(end, self._metadata.snapshot_version)

    def _lower_marks(self, end: int) -> None:
        """Promise no more than what stays; durably, before anything goes."""
        self._watermark.lower_to(end)
        keys_count = 0
        if self._checkpointer.keys_synced[0] > end:
            keys_count = self._keys.count_below(end)
        self._checkpointer.lower_to(end, keys_count)

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

    def _cut_producers(self, end: int) -> None:
        metadata, queues = self._metadata, self._queues
        metadata.producers.truncate(
            end, lambda topic, queue_id: queues.get(metadata.topic(topic), queue_id).end
        )
