"""How many messages some puts are, and in which queues."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING

from imago_wire.entries import ENTRY_TAIL
from imago_wire.hot import EntryRun

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_broker.service.pair import Job
    from imago_wire.record import Entry, QueueTail

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
