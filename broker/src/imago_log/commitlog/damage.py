"""Which parts of the log are out of service, and the file that says so.

A damaged range holds what were records and is not whole any more. Nothing in it is delivered,
everything around it is. The file, `config/damage`, is read again at each start, and what has been
healed meanwhile is forgotten. See docs/formats/damage.md.
"""

from __future__ import annotations

import logging
import threading
from bisect import bisect_right
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import orjson

from imago_log.disk.files import fatal, read_whole, replace_whole
from imago_log.results import DamagedRange
from imago_wire.crc import crc31
from imago_wire.errors import WrongError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from imago_log.commitlog.commit_log import CommitLog
    from imago_log.disk.vfs import Vfs
    from imago_log.disk.worker import Background
    from imago_log.signals import Signal

logger = logging.getLogger(__name__)

FORMAT = 1
HEALING_MS = 5000
"""How long readers wait for bytes that another member may hold whole, before they skip them."""


def encode_ranges(ranges: Iterable[DamagedRange]) -> bytes:
    """Return the file's content: ten digits of checksum, a line feed, JSON, a line feed."""
    listed = [
        {"from": found.start, "to": found.end, "since": found.since_ms, "reason": found.reason}
        for found in ranges
    ]
    data = orjson.dumps({"format": FORMAT, "ranges": listed})
    return b"%010d\n%b\n" % (crc31(data), data)


def decode_ranges(data: bytes) -> list[tuple[int, int, int, str]]:
    """Return start, end, time found and reason of each. ValueError: the file is damaged."""
    checksum, _, rest = data.partition(b"\n")
    content = rest.removesuffix(b"\n")
    if not checksum.isdigit() or int(checksum) != crc31(content):
        raise WrongError("checksum does not match")
    found = orjson.loads(content)
    if found["format"] != FORMAT:
        raise WrongError(f"format {found['format']}")
    return [
        (int(each["from"]), int(each["to"]), int(each["since"]), str(each["reason"]))
        for each in found["ranges"]
    ]


@dataclass(kw_only=True, eq=False)
class Damage:
    """The damaged ranges of one log. Look-ups in any thread; `ranges` is replaced, not changed."""

    vfs: Vfs
    path: Path
    log: CommitLog
    clock: Callable[[], int]
    """Gives epoch milliseconds."""
    background: Background
    on_found: Signal[DamagedRange]
    """Called in the thread that found a new range."""
    others: bool
    """Whether other members may have what is lost here."""
    ranges: tuple[DamagedRange, ...] = field(default=(), init=False)
    """In order; they do not overlap."""
    gaps: bool = field(default=False, init=False)
    """Whether a queue is known to have lost units for offsets that no record ever had."""
    skipped: int = field(default=0, init=False)
    """Messages that readers skipped."""
    _healed: tuple[DamagedRange, ...] = field(default=(), init=False)
    """As they were before something of them was put back: the file names them until the
    views of that are on the device, so that the next start makes them again."""
    _saved: bytes = field(default=b"", init=False)
    _told: set[int] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self._lock = threading.RLock()

    # The file

    def load(self) -> list[tuple[int, int, int, str]] | None:
        """Return what the file says, None when it is damaged: then the log must be read again."""
        with fatal("read", self.path):
            self._saved = read_whole(self.vfs, self.path) or b""
        if not self._saved:
            return []
        try:
            return decode_ranges(self._saved)
        except (ValueError, KeyError, TypeError) as error:
            logger.warning("damage.note-damaged path=%s reason=%s", self.path, error)
            return None

    def save(self) -> None:
        """Make the file say what is known. LogIOError when it cannot."""
        with self._lock:
            listed = self._listed()
            data = encode_ranges(listed) if listed else b""
            if data == self._saved:
                return
            if data:
                replace_whole(self.vfs, self.path, data, room=True)
            else:
                with fatal("remove", self.path):
                    self.vfs.unlink(self.path)
                    self.vfs.sync_folder(self.path.parent)
            self._saved = data

    def save_later(self) -> None:
        """Save when there is time."""
        self.background.submit_waiting(self.save)

    def _listed(self) -> list[DamagedRange]:
        healed = self._healed
        kept = [
            each
            for each in self.ranges
            if not any(old.start <= each.start and each.end <= old.end for old in healed)
        ]
        return sorted([*kept, *healed], key=lambda each: each.start)

    @property
    def healed(self) -> tuple[DamagedRange, ...]:
        """The ranges that are whole again, as they were, while the file still names them."""
        return tuple(old for old in self._healed if self.first_in(old.start, old.end) is None)

    def forget_healed(self, healed: Sequence[DamagedRange]) -> None:
        """Drop these from the file at the next `save`: their views are on the device."""
        with self._lock:
            self._healed = tuple(each for each in self._healed if each not in healed)

    # Ranges

    def add(self, start: int, end: int, reason: str, since_ms: int | None = None) -> None:
        """Take log offsets out of service; those of each file are a range of their own."""
        since_ms = self.clock() if since_ms is None else since_ms
        while start < end:
            border = start - start % self.log.segment_size + self.log.segment_size
            self._add(start, min(end, border), reason, since_ms)
            start = border

    def _add(self, start: int, end: int, reason: str, since_ms: int) -> None:
        with self._lock:
            overlapping = [each for each in self.ranges if each.start < end and start < each.end]
            if any(each.start <= start and end <= each.end for each in overlapping):
                return
            oldest = min(overlapping, key=lambda each: each.since_ms, default=None)
            start = min([start, *(each.start for each in overlapping)])
            found = DamagedRange(
                start=start,
                end=max([end, *(each.end for each in overlapping)]),
                since_ms=since_ms if oldest is None else oldest.since_ms,
                reason=reason,
                path=self.log.path(start),
                position=start % self.log.segment_size,
            )
            kept = [each for each in self.ranges if each not in overlapping]
            self._replace([*kept, found])
        logger.error("log.damaged from=%d to=%d file=%s at=%d reason=%s",
                     found.start, found.end, found.path, found.position, found.reason)  # fmt: skip
        self.on_found(found)

    def shrink(self, found: DamagedRange, start: int) -> None:
        """Put the front of a range back into service, up to `start`."""
        with self._lock:
            if not any(old.start <= found.start < old.end for old in self._healed):
                self._healed = (*self._healed, found)
            kept = [each for each in self.ranges if each != found]
            if start < found.end:
                position = start % self.log.segment_size
                kept.append(replace(found, start=start, position=position))
            self._replace(kept)

    def forget_before(self, log_start: int) -> None:
        """Forget the ranges whose files were deleted."""
        self._healed = tuple(each for each in self._healed if each.end > log_start)
        if self.ranges and self.ranges[0].end <= log_start:
            with self._lock:
                self._replace([each for each in self.ranges if each.end > log_start])

    def truncate(self, log_end: int) -> None:
        """Forget what lies at or behind the log's new end."""
        with self._lock:
            self._healed = tuple(
                replace(each, end=min(each.end, log_end))
                for each in self._healed
                if each.start < log_end
            )
            kept = [each for each in self.ranges if each.start < log_end]
            if kept and kept[-1].end > log_end:
                kept[-1] = replace(kept[-1], end=log_end)
            if len(kept) < len(self.ranges) or list(self.ranges) != kept:
                self._replace(kept)

    def _replace(self, ranges: list[DamagedRange]) -> None:
        ranges.sort(key=lambda each: each.start)
        self.ranges = tuple(ranges)

    # Look-ups

    def at(self, log_offset: int) -> DamagedRange | None:
        """Return the range that a log offset lies in."""
        ranges = self.ranges
        if not ranges:
            return None
        index = bisect_right(ranges, log_offset, key=lambda each: each.start) - 1
        return ranges[index] if index >= 0 and log_offset < ranges[index].end else None

    def first_in(self, start: int, end: int) -> DamagedRange | None:
        """Return the first range that begins or goes on within some log offsets."""
        return next((each for each in self.ranges if each.start < end and start < each.end), None)

    def bytes_in(self, start: int, end: int) -> int:
        """Return how much of some log offsets is damaged."""
        each = (min(found.end, end) - max(found.start, start) for found in self.ranges)
        return sum(size for size in each if size > 0)

    @property
    def may_lose(self) -> bool:
        """Whether readers may meet lost messages."""
        return self.gaps or bool(self.ranges)

    def last_in(self, start: int, end: int) -> DamagedRange | None:
        """Return the last such range."""
        found = (each for each in reversed(self.ranges) if each.start < end and start < each.end)
        return next(found, None)

    def may_heal(self, log_offset: int) -> bool:
        """Whether damage is so new that another member may still send its bytes."""
        found = self.at(log_offset) if self.others else None
        return found is not None and 0 <= self.clock() - found.since_ms < HEALING_MS

    def note_gap(self) -> None:
        """Note that a queue has lost units for offsets that no record ever had."""
        self.gaps = True

    def skip(self, log_offset: int, count: int) -> None:
        """Count messages that a reader skipped; log each range once."""
        self.skipped += count
        found = self.at(log_offset)
        start = log_offset if found is None else found.start
        if start not in self._told:
            self._told.add(start)
            logger.warning("log.skipped log_offset=%d messages=%d range=%s", start, count, found)
