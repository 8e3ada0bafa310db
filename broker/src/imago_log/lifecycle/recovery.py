"""Read the log again from a known good offset, and find where it ends.

A crash tears the tail: the last write may be there in part, and after a power loss everything
that was not synced may be there in any part. Such a tail is cut. Anything else that is wrong is
damage: behind it lie messages that were acknowledged, so nothing is cut. The damaged range goes
out of service, and reading goes on behind it.

==================================  ==========  ===========================================
what is found                       last stop   outcome
==================================  ==========  ===========================================
a bad record or zeros, a confirmed  any         damage up to there; after a loss of power
border behind it                                only below what was synced
the same or nothing behind it, and  any         damage up to there
it was synced further than this
zeros up to the end                 any         the log ends there
anything behind what was synced     in order    the log ends there: all of it was synced
the front of a record, then zeros   killed      the log ends there: a write was torn
noise, no record that says it       killed      the log ends there: it is not the log's
belongs there, above what was
synced
anything else, none confirmed       killed      damage up to the last byte that is not zero:
                                                the page cache was whole, so it was written
                                                and lost
anything, above what was synced     power lost  the log ends there: each part of it may be
                                                missing
==================================  ==========  ===========================================

What is found by looking is a border only if a witness confirms it: see `commitlog.borders`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_log.commitlog.borders import (
    claimed_end,
    is_left_by_kill,
    is_record,
    known_border,
    segment_end,
    written_end,
)
from imago_log.commitlog.log_reader import LogReader
from imago_log.disk.folder import LastStop
from imago_wire.errors import RecordError
from imago_wire.hot import view_record
from imago_wire.record_format.layout import BLANK_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from imago_log.commitlog.borders import Witness
    from imago_log.commitlog.commit_log import CommitLog
    from imago_log.commitlog.log_reader import Extent
    from imago_wire.records.record import RecordView


def recover(
    log: CommitLog,
    start: int,
    take: Callable[[bytes, int, list[RecordView]], None],
    damaged: Callable[[Extent], None],
    witness: Witness,
    *,
    last_stop: LastStop,
    durable_end: int,
) -> tuple[int, bool]:
    """Hand all whole records from `start` on to `take`; return the end of the log.

    Second: whether there is anything but zeros behind the end. `damaged` receives each damage
    before the records behind it are taken.
    """
    reader = LogReader(log, take)
    while True:
        end, reason = reader.run(start)
        written = written_end(log, end, log.files_end)
        following = _next_border(log, end, witness) if written > end else None
        unsure = last_stop is LastStop.POWER_LOST
        if following is None or (unsure and following > durable_end):
            if end >= durable_end:
                # What was closed in order was synced to its last byte: the rest is not the log's.
                closed = last_stop is LastStop.CLEAN and end == durable_end
                torn = is_left_by_kill(log, end, written)
                if unsure or closed or written == end or torn:
                    return end, written > end
                if segment_end(log, written - 1) - written < BLANK_SIZE:
                    written = segment_end(log, written - 1)
                damaged((end, written, reason or "zeros"))
                return written, False
            following = durable_end
        damaged((end, following, reason or "zeros"))
        start = following


def _next_border(log: CommitLog, damaged: int, witness: Witness) -> int | None:
    """Return the first confirmed border behind damage, in this file or a later one."""
    while damaged < log.files_end:
        file_end = segment_end(log, damaged)
        found = known_border(log, damaged, file_end, witness)
        if found is not None:
            return found
        if file_end < log.files_end and is_record(log, file_end):
            return file_end
        damaged = file_end
    return None


def claimed_records(log: CommitLog, start: int, end: int) -> Iterator[RecordView]:
    """Yield what damaged records say they are, as long as their lengths agree."""
    while start < end:
        following = claimed_end(log, start)
        if following is None or following > end:
            return
        try:
            yield view_record(log.read(start, following - start), 0)
        except RecordError:
            return
        start = following
