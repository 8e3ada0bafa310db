"""Why a group is behind, in a sentence, out of two looks at it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from imago_cli.output import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_client import GroupDescription, GroupProgress, MessageQueue

LOOK_S: Final = 6.0
"""Members commit every 5 s: a shorter look finds nothing, or far too much."""
SLOW_S: Final = 3600.0
"""A group that needs longer than this for what it has not read does not catch up."""
MOST: Final = 0.9
"""The share of a lag from which on one queue has it."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Messages a second of one queue between two looks."""

    read: float
    came: float


def rates(
    before: GroupDescription, after: GroupDescription, seconds: float
) -> dict[MessageQueue, Rates]:
    """Return how fast each queue was read and written to."""
    known = {one.queue: one for one in before.progress}
    found = {}
    for one in after.progress:
        if (old := known.get(one.queue)) is not None:
            read, came = one.committed - old.committed, one.max_offset - old.max_offset
            found[one.queue] = Rates(max(0, read) / seconds, max(0, came) / seconds)
    return found


def why_behind(
    found: GroupDescription,
    speeds: Mapping[MessageQueue, Rates],
    owners: Mapping[MessageQueue, str] | None = None,
) -> str:
    """Return the sentence; speeds are only there where a second look was worth it.

    `owners`: which member reads which queue; None: not all of them tell.
    """
    behind = [one for one in found.progress if one.lag]
    if not behind:
        again = f"imago message scheduled --topic %RETRY%{found.group}"
        return f"it is not behind; {again} lists what it may have to try again"
    if not found.members:
        return "nobody reads: no member is connected"
    unread = sorted({one.queue.topic for one in behind} - found.subscriptions.keys())
    if unread and len(unread) == len({one.queue.topic for one in behind}):
        return f"no member that is connected reads {', '.join(unread)}"
    lag = sum(one.lag for one in behind)
    read = sum(speeds[one.queue].read for one in behind if one.queue in speeds)
    came = sum(speeds[one.queue].came for one in behind if one.queue in speeds)
    where = _place(behind, lag)
    if not speeds:
        return f"it is {lag:,} messages behind{where}; how fast it reads, a look says (--look 6)"
    if not read:
        connected = f"{counted(len(found.members), 'member')} connected, but"
        if owners is not None and not all(one.queue in owners for one in behind):
            return f"{connected} {_no_reader(behind, owners)}"
        return f"{connected} nothing was committed{where}: handlers hang or fail, or wait to commit"
    return _at_speed(lag, read, came, where)


def _at_speed(lag: int, read: float, came: float, where: str) -> str:
    if read <= came:
        return f"more comes ({came:,.0f}/s) than it reads ({read:,.0f}/s){where}"
    left_s = lag / (read - came)
    if left_s > SLOW_S:
        return f"it catches up in {left_s / 3600:,.1f} hours at {read:,.0f}/s{where}"
    return f"it catches up in {left_s:,.0f} s at {read:,.0f}/s{where}"


def _no_reader(behind: list[GroupProgress], owners: Mapping[MessageQueue, str]) -> str:
    """Say which queues nobody has taken, though members are connected."""
    unowned = [one for one in behind if one.queue not in owners]
    first = max(unowned, key=lambda one: one.lag).queue
    more = f" and {counted(len(unowned) - 1, 'other queue')}" if len(unowned) > 1 else ""
    rest = "" if len(unowned) == len(behind) else "; of the others nothing was committed, either"
    return f"none reads {first.topic}/{first.shard}/{first.queue_id}{more}{rest}"


def _place(behind: list[GroupProgress], lag: int) -> str:
    """Name the one queue that has most of the lag, of several; "": it is spread."""
    most = max(behind, key=lambda one: one.lag)
    if len(behind) == 1 or most.lag < MOST * lag:
        return ""
    return f", most of it in {most.queue.topic}/{most.queue.shard}/{most.queue.queue_id}"
