"""The puts of one turn: how each is kept until the turn ends, and what they add up to."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Final, cast

from imago_wire.hot import EntryRun
from imago_wire.record_format.entries import ENTRY_TAIL, PLACED_PHYSICAL_OFFSET, PLACED_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from imago_broker.core.puts.acknowledgement import Acknowledgement
    from imago_broker.service.puts.acknowledgements import Done
    from imago_wire.records.record import Entry, Placed, QueueTail

    PutJob = tuple[list[Entry], Acknowledgement | None, Done, object, int]
    """The entries, the level asked for, whom to tell, with which token, of which kind."""

# Kinds of a put, and of a turn: bits, plain numbers as every turn asks for them.
PLAIN = 0
SEQUENCED = 1
"""Messages of idempotent producers, whose numbers the store notes with them."""
WHOLE = 2
"""Readers see all of its messages at once."""
COPY = 4
"""Messages of a master outside of the shard, with the ids that it gave them."""
RUNS = 8
"""Runs of messages are among its entries: who looks at each entry has to know."""

JOB_ENTRIES: Final = 0
JOB_LEVEL: Final = 1
JOB_KIND: Final = 4

_tail_of = itemgetter(ENTRY_TAIL)


def entries_of(jobs: Sequence[PutJob]) -> list[Entry]:
    """Return the entries of all puts, in their order."""
    if len(jobs) == 1:
        return jobs[0][JOB_ENTRIES]
    return [entry for job in jobs for entry in job[JOB_ENTRIES]]


def grown(jobs: Sequence[PutJob]) -> tuple[int, set[QueueTail]]:
    """Return how many messages these are, and their queues."""
    count = 0
    tails: set[QueueTail] = set()
    for entries, _, _, _, kind in jobs:
        others = entries
        if kind & RUNS:
            mixed = cast("list[Entry | EntryRun]", entries)
            runs = [each for each in mixed if isinstance(each, EntryRun)]
            others = [each for each in mixed if not isinstance(each, EntryRun)]
            count += sum([run.count for run in runs])
            tails = tails.union(*[run.tails for run in runs])
        count += len(others)
        tails.update(map(_tail_of, others))
    return count, tails


def whole_extents(
    jobs: Sequence[PutJob], placed: Sequence[Placed], *, together: bool
) -> Iterator[tuple[int, int]]:
    """Yield the log offsets between which readers see all at once.

    Of each put of which they do; `together`: of all these puts as one.
    """
    if together:
        yield _extent(placed)
        return
    at = 0
    for entries, _, _, _, kind in jobs:
        places = placed[at : at + len(entries)]
        at += len(entries)
        if kind & WHOLE:
            yield _extent(places)


def _extent(placed: Sequence[Placed]) -> tuple[int, int]:
    first, last = placed[0], placed[-1]
    return first[PLACED_PHYSICAL_OFFSET], last[PLACED_PHYSICAL_OFFSET] + last[PLACED_SIZE]
