"""Cut a follower's log, and everything derived from the part that is cut.

Order makes a crash harmless: first the checkpoint stops promising what goes, then the views and
the metadata are cut, then the log, then the epochs. Until the log is cut the cut has not happened:
a start reads it again to its old end and makes the views anew from the lowered checkpoint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from imago_log.disk.files import fatal, replace_whole
from imago_log.metadata.state import Metadata

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
        self._views, self._queues, self._keys = s.views, s.queues, s.keys

    def cut(self, end: int, state: Metadata | None) -> Cut:
        """Cut at a record border; `state` is that of the metadata there.

        None: no change of metadata goes.
        """
        self._log.sync()  # the snapshot that is written here must not be ahead of the log
        self._lower_marks(end)
        for view in self._views:
            view.truncate(end)
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
        for view in reversed(self._views):
            view.reset(start)
        self._recent.clear()
        self._log.begin_at(start)
        self._metadata.reach(start)
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

    def _cut_producers(self, end: int) -> None:
        metadata, queues = self._metadata, self._queues
        metadata.producers.truncate(
            end, lambda topic, queue_id: queues.get(metadata.topic(topic), queue_id).end
        )
