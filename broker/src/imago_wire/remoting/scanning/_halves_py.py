"""Half messages from when they are in the log until they have ended: the plain Python reference.

The compiled twin is part of `_remoting_c`. These passes go over all that a turn has brought, so
that nothing is done message by message elsewhere.
"""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from imago_wire.record_format.entries import (
    ENTRY_BODY,
    ENTRY_TAIL,
    PLACED_PHYSICAL_OFFSET,
    PLACED_QUEUE_OFFSET,
)
from imago_wire.records.record_twins import restore_half
from imago_wire.remoting.scanning._ending_py import answer_done
from imago_wire.remoting.scanning.halves import ClosedHalves, Half, kept_size
from imago_wire.remoting.scanning.items import ASKED_UNIQUE

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping, Sequence

    from imago_wire.record_format.entries import Entry, Placed, QueueTail
    from imago_wire.remoting.scanning.items import AskedSend


def open_halves(
    noted: Sequence[tuple[int, str, str]],
    entries: Sequence[Entry],
    placed: Sequence[Placed],
    asked: Sequence[AskedSend],
    until_ms: int,
    limited: bool,
    opened: MutableMapping[int, Half],
    kept: list[Half],
) -> int:
    """Add half messages of an append, by queue offset and in their order; return their bytes.

    `noted` says which of the entries they are, the groups of their producers, and who began them.
    """
    size = 0
    for index, group, owner in noted:
        entry, place = entries[index], placed[index]
        offset, unique = place[PLACED_QUEUE_OFFSET], asked[index][ASKED_UNIQUE]
        half = Half(offset, place[PLACED_PHYSICAL_OFFSET], group, unique, until_ms, limited)
        half.owner, half.entry = owner, entry
        opened[offset] = half
        kept.append(half)
        size += kept_size(entry)
    return size


def restore_halves(
    halves: Sequence[Half],
    at: int,
    size: int,
    size_max: int,
    outcome: object,
    tails_of: Mapping[str, Sequence[QueueTail | None]],
    levels: Mapping[QueueTail, object],
    level: object,
    entries: list[Entry],
) -> tuple[int, int]:
    """Make entries of the messages that half messages from `at` on stand for.

    Ends at one that does not end as `outcome` says, whose queue has another level than `level`, or
    that needs a closer look; and when `size`, to which their bodies are added, reaches `size_max`.
    Returns where that was, and the size.
    """
    while at < len(halves) and size < size_max:
        half = halves[at]
        if half.ending is not outcome or half.entry is None:
            break
        entry = restore_half(half.entry, half.physical_offset, tails_of)
        if entry is None or levels.get(entry[ENTRY_TAIL]) is not level:
            break
        entries.append(entry)
        size += len(entry[ENTRY_BODY])
        at += 1
    return at, size


def mark_texts(halves: Sequence[Half]) -> tuple[bytes, bytes]:
    """Return the offsets of half messages, each with a comma behind it, and their outcomes."""
    offsets = b"".join([b"%d," % half.offset for half in halves])
    return offsets, "".join([half.ending.value for half in halves]).encode()


def close_halves(
    halves: Sequence[Half], opened: MutableMapping[int, Half], ended: MutableMapping[int, Any]
) -> ClosedHalves:
    """Take half messages out of those that are open, and add how they end to those that have."""
    whose = [
        (gone.group, gone.owner)
        for half in halves
        if (gone := opened.pop(half.offset, None)) is not None and gone.group
    ]
    outcomes = [half.ending for half in halves]
    kept = [half for half in halves if half.entry is not None]
    size = sum([kept_size(half.entry) for half in kept if half.entry is not None])
    for half in kept:
        half.entry = None
    for half in halves:
        ended[half.offset] = half.ending
    return ClosedHalves(
        whose=[(*group, len(list(each))) for group, each in groupby(whose)],
        outcomes=[(outcome, len(list(each))) for outcome, each in groupby(outcomes)],
        waiting=[half for half in halves if half.waiting],
        kept=len(kept),
        size=size,
        end=1 + max([half.offset for half in halves], default=-1),
    )


def answer_ends(halves: Sequence[Half]) -> list[tuple[Any, bytes, int]]:
    """Return the answers to those who have reported how these end: that this is written down.

    One item for reports of a connection that stand together: it, the frames, how many reports.
    """
    answers = []
    reported = [half for half in halves if half.asker is not None]
    for asker, group in groupby(reported, attrgetter("asker")):
        each = list(group)
        frames = [answer_done(half.opaque, half.form) for half in each if not half.oneway]
        answers.append((asker, b"".join(frames), len(each)))
    for half in reported:
        half.asker = None
    return answers
