"""Read the whole log again and again, slowly, to find damage before a reader needs it.

The worker reads and verifies the records and has each view's check read them, too; the store's
thread notes what is damaged, and has each check put its view right. One step a tick.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from imago_log.commitlog.borders import border_behind, is_blank, segment_end
from imago_log.views.view import LogBlock
from imago_wire.hot import QueueTail, index_records, whole_records
from imago_wire.records.record import ScanStop

if TYPE_CHECKING:
    from imago_log.commitlog.borders import Witness
    from imago_log.commitlog.commit_log import CommitLog
    from imago_log.commitlog.damage import Damage
    from imago_log.state import StoreState
    from imago_log.views.view import QueueKey, ViewComparison

logger = logging.getLogger(__name__)

BLOCK_BYTES = 1 << 20
STEP_BYTES_MIN = 1 << 20
HASTE = 1.25
"""A pass is planned to be this much faster than its interval."""


class ScrubCounts(NamedTuple):
    """Scrubbing's counts since the store was opened."""

    passes: int = 0
    bytes_verified: int = 0
    views_mended: int = 0
    """Units, key entries and MetaQ files that were wrong."""


@dataclass(slots=True)
class _Step:
    """One step, for the worker. `done` is set last."""

    log: CommitLog
    damage: Damage
    witness: Witness
    start: int
    end: int
    """A border: what is verified ends here, or a little before it."""
    stop_at: int
    """Enough has been read when the step gets here."""
    checks: list[ViewComparison]
    blocks: list[LogBlock] = field(default_factory=list)
    suspects: list[int] = field(default_factory=list)
    """Log offsets where no whole record is."""
    at: int = 0
    """Where the next step goes on."""
    done: bool = False

    def run(self) -> None:
        self.at = self.start
        chunk = BLOCK_BYTES
        while self.at < min(self.end, self.stop_at):
            found = self.damage.at(self.at)
            if found is not None:
                self.at = found.end
                continue
            limit = min(self.end, segment_end(self.log, self.at))
            data = self.log.read(self.at, min(chunk, limit - self.at))
            good, stop, _ = whole_records(data, self.at)
            self._take(data[:good])
            chunk = self._go_on(good, stop, cut=len(data) == chunk, limit=limit)
        self.done = True

    def _go_on(self, good: int, stop: ScanStop, *, cut: bool, limit: int) -> int:
        """Move on; return the size of the next read, which holds a record that was cut."""
        if self.at == limit or (good and cut and stop in (ScanStop.END, ScanStop.SHORT)):
            return BLOCK_BYTES
        if cut and stop is ScanStop.SHORT:
            return segment_end(self.log, self.at) - self.at
        if stop is ScanStop.BLANK and is_blank(self.log, self.at):
            self.at = segment_end(self.log, self.at)
        elif self.at < self.log.start:
            self.at = self.log.start  # deleted meanwhile
        else:
            self.suspects.append(self.at)
            self.at = border_behind(self.log, self.at, limit, self.witness)
        return BLOCK_BYTES

    def _take(self, data: bytes) -> None:
        if not data:
            return
        units: dict[QueueKey, tuple[int, QueueTail]] = {}

        def find(topic: bytes, queue_id: int, offset: int, _: int, position: int) -> QueueTail:
            if known := units.get((topic, queue_id)):
                return known[1]  # the compiled twin holds a few at a time, and asks again
            tail = QueueTail(topic, queue_id, dual=position >= 0, next_offset=offset)
            units[topic, queue_id] = (offset, tail)
            return tail

        index_records(data, find, b"")
        block = LogBlock(self.at, len(data), units)
        self.blocks.append(block)
        self.at += len(data)
        for check in self.checks:
            check.read(block, data)


class Scrubber:
    """Steps through the log of one store. All methods belong to the store's thread."""

    def __init__(self, s: StoreState) -> None:
        self._interval_ms = s.config.scrub_interval_ms
        self._step_bytes_max = s.config.scrub_step_bytes_max
        self._log, self._damage, self._witness = s.log, s.damage, s.witness
        self._views, self._inspector, self._background = s.views, s.inspector, s.background
        self.counts = ScrubCounts()
        self._step: _Step | None = None
        self._at = self._end = -1
        """Of the pass that runs; no pass runs when they are equal."""
        self._began_ms = self._stepped_ms = -1

    def tick(self, now_ms: int) -> None:
        """Take over what was verified; start the next step when it is time."""
        if not self._interval_ms:
            return
        if self._step is not None:
            if not self._step.done:
                return
            self._take(self._step)
            self._step = None
        if self._at >= self._end and not self._begin(now_ms):
            return
        log = self._log
        self._at, self._end = max(self._at, log.start), min(self._end, log.durable_end)
        if self._at < self._end:
            self._plan(now_ms)
        else:
            self._finish()

    def _begin(self, now_ms: int) -> bool:
        if self._began_ms >= 0 and now_ms - self._began_ms < self._interval_ms:
            return False
        log = self._log
        self._at, self._end, self._began_ms, self._stepped_ms = (
            log.start,
            log.durable_end,
            now_ms,
            now_ms,
        )
        return self._at < self._end

    def _plan(self, now_ms: int) -> None:
        elapsed_ms = max(0, now_ms - self._stepped_ms)
        self._stepped_ms = now_ms
        total = self._end - self._log.start
        due = int(total * HASTE * elapsed_ms / self._interval_ms)
        size = min(max(due, STEP_BYTES_MIN), self._step_bytes_max)
        step = self._step = _Step(
            self._log,
            self._damage,
            self._witness,
            self._at,
            self._end,
            self._at + size,
            [check for view in self._views if (check := view.compare()) is not None],
        )
        self._background.submit(step.run)
        if step.done:
            self._step = None
            self._take(step)

    def _take(self, step: _Step) -> None:
        for place in step.suspects:
            self._inspector.look(place)
        kept = [
            block
            for block in step.blocks
            if block.start >= self._log.start and block.start + block.size <= self._end
        ]
        mended = sum(check.mend(kept) for check in step.checks)
        verified = sum(block.size for block in step.blocks)
        passes, before, views = self.counts
        self.counts = ScrubCounts(passes, before + verified, views + mended)
        self._at = step.at
        if self._at >= self._end:
            self._finish()

    def _finish(self) -> None:
        self.counts = self.counts._replace(passes=self.counts.passes + 1)
        self._at = self._end = -1
        logger.info("log.scrubbed %s", self.counts)
