"""Finding what the files of one queue hold, and whether that is what the log says."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from imago_log.errors import ViewsInvalidError
from imago_log.views.units.consume_queue import ConsumeQueue
from imago_log.views.units.found_ends import PLACE_MAX, FoundEnds
from imago_log.views.units.unit_files import BLANK_SIZE_FIELD, LOST_SIZE_FIELD

if TYPE_CHECKING:
    from imago_log.commitlog.commit_log import CommitLog
    from imago_log.metadata.changes import Topic
    from imago_log.views.queues.queue_folders import QueueFolders
    from imago_log.views.queues.refilling import Refiller
    from imago_log.views.units.unit_proof import UnitProof
    from imago_log.views.units.witness import UnitWitness

logger = logging.getLogger(__name__)

Proven = Callable[[ConsumeQueue, bytes, int], bool]
"""Whether the log has the record that a unit of a queue, at a queue offset, says it has."""


class QueueLoader:
    """Loads queues. `limit` is the log offset up to which files count when found."""

    def __init__(
        self,
        log: CommitLog,
        folders: QueueFolders,
        witness: UnitWitness,
        proof: UnitProof,
        refiller: Refiller,
    ) -> None:
        self._log, self._folders, self.witness = log, folders, witness
        self._proof, self._refiller = proof, refiller
        self.limit = 0
        self.found = FoundEnds()
        self._refills = False
        """Whether the log's end is known: then units that files have lost are made from it."""
        self._keeps_cut = True
        """Whether the witness is to know what is cut off: a start puts the files in order."""

    def count_up_to(self, limit: int) -> None:
        """Let files count up to a log offset."""
        self.limit = limit

    def lower_to(self, end: int) -> None:
        """Let files count no further than the log will reach."""
        self.limit = min(self.limit, end)

    def trust_files(self) -> None:
        """Trust the files from now on: they are in order."""
        self._keeps_cut = False
        self.witness.trust_files()

    def begin_refills(self) -> None:
        """Make units that files have lost from the log: its end is known now."""
        self._refills = True

    def load(self, queue: ConsumeQueue, topic: Topic, proven: Proven | None = None) -> None:
        """Find what the files of a queue hold, and put right what is wrong.

        After power loss `proven` says whether the log has the record that a unit says it has.
        ViewsInvalidError: they do not agree with the log, whose end is not known yet.
        """
        queue.load()
        short = self._has_lost_files(queue)
        if self._is_stale(queue, topic):
            self._folders.clear(queue)
        end = queue.lookup.offset_of_log(self.limit)
        noise = self._has_noise_behind(queue, end, torn=proven is not None)
        self._note_rest(queue, end)
        if proven is not None:
            end, rejected = self._proven_end(queue, end, proven)
            noise |= rejected
        queue.truncate(end, torn=proven is not None)
        if queue.agrees and (noise or not self._ends_right(queue)):
            self._fill_again(queue, topic)
        if not queue.agrees and queue.lookup.is_bare:
            self._folders.clear(queue)  # a crash while it was to begin elsewhere: it begins again
        if (short or not queue.agrees) and self._refills:
            self._cut_to_agree(queue)
            self._refiller.refill(queue, topic)
        if not queue.agrees:
            ends = [(files.first, files.end) for files in queue.files()]
            raise ViewsInvalidError(f"{topic.name}/{queue.tail.queue_id}: units of {ends}")

    def _note_rest(self, queue: ConsumeQueue, end: int) -> None:
        """Remember what a queue's files have beyond what counts: it is about to be cut off."""
        if end < queue.end:
            self.found.note(queue)
            if self._keeps_cut:
                self.witness.keep(queue, end)

    def _has_noise_behind(self, queue: ConsumeQueue, end: int, *, torn: bool) -> bool:
        """Whether the bytes behind the units that count were not written there as units.

        With `torn` they may be there in part, but nothing else.
        """
        if not torn and not all(files.is_blank_behind() for files in queue.files()):
            return True
        if end == queue.end or (torn and not any(queue.units(end, 1))):
            return False
        place, size, _ = queue.unit(end)
        return not self.limit <= place < PLACE_MAX or (size < 0 and size != LOST_SIZE_FIELD)

    def _ends_right(self, queue: ConsumeQueue) -> bool:
        """Whether the newest unit of a queue's files is that of its record."""
        if queue.end == queue.first:
            return True
        log_end = max(self.limit, self._log.end)
        return self._proof.ends_right(queue, log_end, save=self._refills)

    def _fill_again(self, queue: ConsumeQueue, topic: Topic) -> None:
        """Make a queue again whose files hold noise: no offset is given out after it."""
        name, queue_id, end = topic.name, queue.tail.queue_id, queue.end
        if not self._refills:
            raise ViewsInvalidError(f"{name}/{queue_id}: noise where its files end, at {end}")
        logger.error("queue.noise queue=%s/%d end=%d: it is filled again from the log",
                     name, queue_id, end)  # fmt: skip
        self._folders.clear(queue)
        self._refiller.refill(queue, topic)

    def _has_lost_files(self, queue: ConsumeQueue) -> bool:
        """Whether a queue had units whose files are gone: its folder, or its positions tell."""
        if queue.end > queue.first:
            return False
        return self._folders.had_files(queue) or any(
            files.end > files.first for files in queue.files()
        )

    def _cut_to_agree(self, queue: ConsumeQueue) -> None:
        """Keep what both sequences of units hold, when the files of one were damaged at rest."""
        if len({files.first for files in queue.files()}) > 1:
            self._folders.clear(queue)
        else:
            queue.truncate(min(files.end for files in queue.files()))

    def _is_stale(self, queue: ConsumeQueue, topic: Topic) -> bool:
        """Whether the files are those of a deleted topic of the same name."""
        if queue.end == queue.first:
            return False
        place, size, _ = queue.unit(queue.end - 1)
        return size != BLANK_SIZE_FIELD and 0 <= place < topic.birth

    def _proven_end(self, queue: ConsumeQueue, end: int, proven: Proven) -> tuple[int, bool]:
        """Return the end of the units that a power loss has certainly left whole.

        Units of records below `limit` were synced; behind them they may be missing. One whose
        record says the same queue and offset shows that all before it are good. Second: whether
        one on the way was neither synced nor missing, so that more may be lost than power takes.
        """
        rejected = False
        while end > queue.first:
            unit = queue.units(end - 1, 1)
            if int.from_bytes(unit[8:12], "big") == BLANK_SIZE_FIELD:
                return end, rejected
            below = not self.limit <= int.from_bytes(unit[:8], "big") < PLACE_MAX
            if below and proven(queue, unit, end - 1):
                return end, rejected
            rejected |= below and any(unit)
            end -= 1
        return end, rejected

    def note_ends(self) -> None:
        """Remember where all queues on disk end, before their files are thrown away."""
        self.found.note_all(self._folders.unopened(*key) for key in self._folders.on_disk())
