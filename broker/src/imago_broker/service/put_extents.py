"""How many messages some puts are, in which queues, and where they stand in the log."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING

from imago_wire.entries import ENTRY_TAIL, PLACED_PHYSICAL_OFFSET, PLACED_SIZE
from imago_wire.hot import EntryRun

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from imago_broker.service.pair import Job
    from imago_wire.record import Entry, Placed, QueueTail

_tail_of = itemgetter(ENTRY_TAIL)


def grown(
    jobs: Sequence[Job], with_runs: Sequence[list[Entry | EntryRun]]
) -> tuple[int, set[QueueTail]]:
    """Return how many messages these are, and their queues.

    `with_runs` are the entries of those that have runs among them.
    """
    count = 0
    tails: set[QueueTail] = set()
    for entries, *_ in jobs:
        others = entries
        for mixed in with_runs:
            if mixed is entries:
                runs = [each for each in mixed if isinstance(each, EntryRun)]
                others = [each for each in mixed if not isinstance(each, EntryRun)]
                count += sum([run.count for run in runs])
                tails = tails.union(*[run.tails for run in runs])
        count += len(others)
        tails.update(map(_tail_of, others))
    return count, tails


def whole_extents(
    jobs: Sequence[Job], placed: Sequence[Placed], whole: Sequence[list[Entry]] | None
) -> Iterator[tuple[int, int]]:
    """Yield the log offsets between which readers see all at once.

    Of each put with these entries; None: of all puts together.
    """
    if whole is None:
        yield _extent(placed)
        return
    at = 0
    for entries, *_ in jobs:
        places = placed[at : at + len(entries)]
        at += len(entries)
        if any(entries is each for each in whole):
            yield _extent(places)


def _extent(placed: Sequence[Placed]) -> tuple[int, int]:
    first, last = placed[0], placed[-1]
    return first[PLACED_PHYSICAL_OFFSET], last[PLACED_PHYSICAL_OFFSET] + last[PLACED_SIZE]
