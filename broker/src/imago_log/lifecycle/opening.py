"""Open a data folder: from what the last process left to a store that can be written.

Order matters, for a crash may come between any two steps: the log is recovered and cut, then the
checkpoint says what holds now, then the running mark is set, then the first byte is written.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from imago_log.commitlog.borders import written_end
from imago_log.commitlog.checkpoint import Checkpoint
from imago_log.commitlog.log_reader import find_damage, survey
from imago_log.disk.files import fatal, read_whole, replace_whole
from imago_log.disk.folder import LastStop
from imago_log.errors import CorruptLogError, ViewsInvalidError
from imago_log.lifecycle.lost_ends import keep_ends, lost_at_end
from imago_log.lifecycle.recovery import claimed_records, recover
from imago_log.metadata.state import Metadata
from imago_log.views.dispatcher import Dispatcher
from imago_log.views.queues.refilling import begin_empty_queues
from imago_wire.hot import queue_records
from imago_wire.record_format.layout import UNIT

if TYPE_CHECKING:
    from pathlib import Path

    from imago_log.commitlog.log_reader import Extent
    from imago_log.state import StoreState
    from imago_log.views.units.consume_queue import ConsumeQueue

logger = logging.getLogger(__name__)

_LOOK_BEHIND_END = 4096


class Opened(NamedTuple):
    """A store that can be written, and what its start has found."""

    storage: StoreState
    last_stop: LastStop
    revived: frozenset[str]
    """Topics that the log must be told of again: their creation is lost in damage."""


class StoreOpening:
    """One opening; what is known so far is in its attributes."""

    def __init__(self, parts: StoreState, *, lead: bool) -> None:
        self.parts, self.lead = parts, lead
        self.last_stop = parts.folder.last_stop()
        self.known = parts.checkpointer.written is not None
        self.checkpoint = parts.checkpointer.written or Checkpoint()
        if self.last_stop is LastStop.POWER_LOST:
            parts.witness.doubt_from(self.checkpoint.views_synced)
        self.marker: Path = parts.folder.views_mark
        self.revived: set[str] = set()
        self.healed: list[tuple[int, int]] = []
        self.witness = parts.witness

    def run(self) -> Opened:
        """Recover; when it returns the store can be written."""
        parts = self.parts
        self._load_log()
        if self.last_stop is LastStop.KILLED:
            parts.log.sync_found(self.checkpoint.durable_end)
        snapshot = self._snapshot()
        views = self.known and self._views_count() and self._load_keys()
        if snapshot is not None and views:
            self._take_snapshot(snapshot)
            try:
                end, torn = self._from_checkpoint()
                end = lost_at_end(parts, end, self.last_stop)
            except ViewsInvalidError as error:
                logger.warning("views.invalid reason=%s", error)
                end, torn = self._from_nothing(self._snapshot())
        else:
            end, torn = self._from_nothing(snapshot)
        self._finish(end, torn)
        return Opened(parts, self.last_stop, frozenset(self.revived))

    def _take_snapshot(self, snapshot: Metadata) -> None:
        parts, checkpoint = self.parts, self.checkpoint
        snapshot.reach(max(snapshot.end, checkpoint.metadata_end))
        parts.metadata.adopt(snapshot)
        parts.checkpointer.begin_metadata(snapshot.end, snapshot.snapshot_version)
        parts.checkpointer.begin_keys(checkpoint.keys_end, checkpoint.keys_count)

    def _load_log(self) -> None:
        """Find the log's files, and what is known or seen at once to be damaged."""
        parts, log = self.parts, self.parts.log
        broken = log.load(self.checkpoint.log_start if self.known else None)
        if not log.bases() and self.checkpoint.log_end > self.checkpoint.log_start:
            if self.lead:
                raise CorruptLogError(log.folder, 0, "no file of the log is there")
            self._begin_as_new_member()
            broken = []
        checkpoint = self.checkpoint
        end = checkpoint.log_end if self.last_stop is LastStop.CLEAN else log.files_end
        for base in broken:
            # The newest file, unless the stop was clean, is checked when the end is found.
            if base + log.segment_size < log.files_end or self.last_stop is LastStop.CLEAN:
                self._survey(max(base, log.start), min(base + log.segment_size, end))
        if self.last_stop is LastStop.CLEAN and end > log.files_end:
            self._damaged((log.files_end, end, "the file is missing"))
        noted = parts.damage.load()
        self.known = self.known and noted is not None
        for start, noted_end, since_ms, reason in noted or ():
            if noted_end > log.start:
                self._verify_again(max(start, log.start), noted_end, reason, since_ms)

    def _begin_as_new_member(self) -> None:
        """Be a new member, which other members fill: the folder has lost its whole log.

        What is noted first outlives a crash: that this log lacks what was acknowledged.
        """
        parts, folder, lost = self.parts, self.parts.folder, self.checkpoint
        logger.error("log.gone folder=%s log_start=%d log_end=%d: this member begins again",
                     folder.log, lost.log_start, lost.log_end)  # fmt: skip
        folder.mark_unclean(True)
        parts.epochs.truncate(0)
        folder.forget_views()
        for path in (folder.metadata, folder.damage):
            with fatal("remove", path):
                parts.vfs.unlink(path)
        with fatal("sync", folder.config):
            parts.vfs.sync_folder(folder.config)
        parts.queue_folders.discard_segments()
        parts.log.load(None)
        self.known = False
        self.checkpoint = Checkpoint(
            epoch=lost.epoch, store_ms=lost.store_ms, metaq_id=lost.metaq_id
        )

    def _verify_again(self, start: int, end: int, reason: str, since_ms: int) -> None:
        """Read a damaged range again: it may have been healed, as a whole or in part."""
        parts = self.parts
        for lost_start, lost_end, *_ in survey(parts.log, start, end, self.witness):
            parts.damage.add(lost_start, lost_end, reason, since_ms)
            self.healed.append((start, lost_start))
            start = lost_end
        self.healed.append((start, end))

    def _restore_healed(self) -> None:
        """Add to the views the records that were lost when they were made and are back."""
        parts = self.parts
        for start, end in self.healed:
            parts.restorer.restore(start, end)

    def _survey(self, start: int, end: int) -> None:
        for extent in survey(self.parts.log, start, end, self.witness):
            self._damaged(extent)

    def _damaged(self, extent: Extent) -> None:
        self.parts.damage.add(*extent)

    def _snapshot(self) -> Metadata | None:
        path = self.parts.folder.metadata
        with fatal("read", path):
            data = read_whole(self.parts.vfs, path)
        if data is None:
            return None
        try:
            return Metadata.from_snapshot(data)
        except (ValueError, KeyError, TypeError) as error:
            logger.warning("metadata.snapshot-damaged path=%s reason=%s", path, error)
            return None

    def _views_count(self) -> bool:
        """Whether the views look whole up to the checkpoint, without reading them."""
        if not self.parts.vfs.exists(self.marker):
            return False
        if self.last_stop is LastStop.CLEAN and not self.parts.folder.views_agree():
            logger.warning("views.invalid reason=folders of queues are not those of the last stop")
            return False
        return True

    def _load_keys(self) -> bool:
        try:
            self.parts.keys.load(self.checkpoint.keys_count, self.checkpoint.keys_end)
        except ValueError as error:
            logger.warning("keys.invalid reason=%s", error)
            return False
        return True

    # From the checkpoint

    def _from_checkpoint(self) -> tuple[int, bool]:
        parts, checkpoint = self.parts, self.checkpoint
        if self.last_stop is LastStop.CLEAN and self._ends_clean():
            parts.queue_loader.count_up_to(checkpoint.log_end)
            parts.checkpointer.begin_views(checkpoint.views_synced)
            parts.stamps.begin(checkpoint.store_ms, checkpoint.metaq_id)
            return checkpoint.log_end, False
        # After a kill the files hold more than was synced, but which of them are to be synced
        # is forgotten: reading the log again from there finds them all.
        views_end = checkpoint.views_synced
        parts.checkpointer.begin_views(views_end)
        parts.queue_loader.count_up_to(views_end)
        start = max(min(views_end, checkpoint.keys_end, parts.metadata.end), parts.log.start)
        parts.materialiser.verify_found()
        if self.last_stop is LastStop.POWER_LOST:
            self._load_all_queues()
        return self._read_again(start, views_end)

    def _ends_clean(self) -> bool:
        """Whether the log ends where the checkpoint says, with nothing behind it."""
        log, checkpoint = self.parts.log, self.checkpoint
        views = {checkpoint.views_synced, checkpoint.keys_end, checkpoint.metadata_end}
        if views != {checkpoint.log_end}:
            return False
        return not any(log.read(checkpoint.log_end, _LOOK_BEHIND_END))

    def _load_all_queues(self) -> None:
        """Cut every queue now: units above the limit may be of records that are lost."""
        queues, metadata = self.parts.queues, self.parts.metadata
        for name, queue_id in self.parts.queue_folders.on_disk():
            try:
                queues.get(metadata.topic(name), queue_id, self._proven)
            except KeyError:
                queues.drop_topic(name)

    def _proven(self, queue: ConsumeQueue, unit: bytes, offset: int) -> bool:
        place, size, _ = UNIT.unpack(unit)
        if self.parts.damage.at(place) is not None:
            return True  # it was synced, and its record was whole once
        if size <= 0:
            return False
        if place < self.parts.log.start:  # the record has expired: only order can tell
            return offset == queue.first or queue.unit(offset - 1)[0] < place
        tail, log = queue.tail, self.parts.log
        record = log.read(place, size)
        if queue_records(record, place, tail.topic, tail.queue_id, offset) == size == len(record):
            return True
        # The unit was synced, so its record was: the log may be what is damaged.
        lost = find_damage(log, place, self.checkpoint.durable_end, self.witness)
        if lost is not None:
            self._damaged(lost)
        return lost is not None

    def _open_materialised(self) -> None:
        """Check all MetaQ files now: the next start will not know that some are not synced."""
        parts = self.parts
        for name, queue_id in parts.queue_folders.on_disk():
            topic = parts.metadata.topics.get(name)
            if topic is not None and topic.materialised:
                queue = parts.queues.get(topic, queue_id)
                parts.materialiser.open(topic, queue)

    # From nothing

    def _from_nothing(self, snapshot: Metadata | None) -> tuple[int, bool]:
        """Build every view again: topics first, so that each record finds its own.

        Where the log is damaged, changes may be lost in it that a snapshot still has.
        """
        parts = self.parts
        if parts.log.bases():
            logger.warning("views.rebuild log_start=%d", parts.log.start)
        with fatal("remove", self.marker):
            parts.vfs.unlink(self.marker)
        parts.metadata.adopt(Metadata())
        if self.last_stop is not LastStop.POWER_LOST:
            parts.queue_loader.note_ends()
        start = parts.log.start
        for view in parts.views:
            view.rebuild(start)
        parts.checkpointer.begin_at(start)
        end, _ = self._read_again(start, start, only_metadata=True)
        if snapshot is not None and (parts.damage.ranges or snapshot.end > end):
            # Of changes that are lost in damage, or of the leader's that are still to come.
            parts.metadata.adopt(snapshot)
            first = max(start, snapshot.end)
            if first < end:
                self._read_again(first, first, only_metadata=True)
        return self._read_again(start, start)

    def _begin_empty_queues(self) -> None:
        queues, metadata = self.parts.queues, self.parts.metadata
        begin_empty_queues(metadata, lambda name, at: queues.get(metadata.topic(name), at))

    def _read_again(
        self, start: int, views_from: int, *, only_metadata: bool = False
    ) -> tuple[int, bool]:
        parts, checkpoint = self.parts, self.checkpoint
        dispatcher = Dispatcher(
            parts.metadata,
            parts.damage,
            () if only_metadata else parts.views,
            views_from=views_from,
        )
        end, torn = recover(
            parts.log,
            start,
            dispatcher.block,
            self._damaged,
            self.witness,
            last_stop=self.last_stop,
            durable_end=checkpoint.durable_end,
        )
        self.revived |= dispatcher.revived
        lost = parts.damage.at(end - 1)
        if lost is not None and not only_metadata:
            parts.views.queues.claim(claimed_records(parts.log, lost.start, end))
        logger.info(
            "%s start=%d end=%d records=%d last_stop=%s",
            "log.topics-read" if only_metadata else "log.read-again",
            start, end, dispatcher.count, self.last_stop.value,
        )  # fmt: skip
        parts.stamps.begin(
            max(dispatcher.store_ms, checkpoint.store_ms),
            max(dispatcher.metaq_id, checkpoint.metaq_id),
        )
        return end, torn

    # Afterwards

    def _finish(self, end: int, torn: bool) -> None:
        parts = self.parts
        self._begin_log(end, torn)
        parts.metadata.doubt(bool(parts.damage.ranges))
        parts.damage.save()
        parts.metadata.reach(end if self.lead else max(end, parts.metadata.end))
        parts.keys.truncate(end)
        whole = self.last_stop is LastStop.CLEAN and parts.vfs.exists(self.marker)
        if not whole and parts.metadata.end <= end:
            self._begin_empty_queues()
        with parts.space.awaited():
            parts.queue_writer.write_all()
            if self.last_stop is not LastStop.CLEAN:
                self._open_materialised()
        self._begin_role(end)
        parts.checkpointer.write()
        if parts.vfs.exists(self.marker):
            self._restore_healed()
        else:
            with parts.space.awaited():  # else the next start builds the views again as well
                replace_whole(parts.vfs, parts.folder.metadata, parts.metadata.snapshot())
                parts.checkpointer.note_snapshot(parts.metadata.snapshot_version)
                parts.folder.mark_views()
        if self.last_stop is LastStop.POWER_LOST and not self.lead:
            # Before the running mark: a start that finds that of this boot sees no loss of power.
            parts.folder.mark_unclean(True)
        parts.folder.mark_running()
        parts.queue_loader.trust_files()
        parts.queue_folders.empty_trash()
        parts.folder.keep_room()

    def _begin_log(self, end: int, torn: bool) -> None:
        parts = self.parts
        if torn:
            written = written_end(parts.log, end, parts.log.files_end)
            logger.warning("log.tail-cut from=%d to=%d file=%s at=%d last_stop=%s",
                           end, written, parts.log.path(end), end % parts.log.segment_size,
                           self.last_stop.value)  # fmt: skip
        parts.log.begin(end, torn=torn)
        parts.queue_loader.begin_refills()
        parts.log.sync()
        parts.damage.truncate(end)
        keep_ends(parts, self.last_stop)

    def _begin_role(self, end: int) -> None:
        """Open an epoch, or wait for one: a member keeps its tail, which may be acknowledged."""
        parts, epochs = self.parts, self.parts.epochs
        if epochs.problem and (self.known or end > parts.log.start):
            self._without_epochs()
        with epochs.waiting():
            if self.lead:
                epoch = max(epochs.promised, self.checkpoint.epoch) + 1
                epochs.lead(epoch, parts.log.start, end)
            else:
                epochs.end_at(end)
                epochs.promise(self.checkpoint.epoch)
        with parts.space.awaited():
            epochs.save()
        if not self.lead:
            parts.watermark.begin(max(min(self.checkpoint.high_watermark, end), parts.log.start))

    def _without_epochs(self) -> None:
        """Go on without the epoch file: this log counts less than any whose epochs are known."""
        parts = self.parts
        if not self.lead:
            parts.folder.mark_unclean(True)
        aside = parts.epochs.set_aside()
        logger.error(
            "epochs.unknown path=%s reason=%s kept=%s cure=%s",
            parts.folder.epochs,
            parts.epochs.problem,
            aside,
            "none needed: a leader with whole epochs has this member copy its log again",
        )
