"""Where two logs part: decided by epochs alone, never by high watermarks.

One leader writes an epoch, from one start, and never cuts what it wrote. So two logs that both
hold bytes of an epoch are equal up to the end of the shorter part of it, and everything before.
An epoch in which a log holds no byte says nothing, and is left out of every comparison.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from imago_broker.core.shard.values import Epochs, Log


class CutBack(NamedTuple):
    """What a follower has to do before its first fetch."""

    end: int
    """Where its log is to end; with `reset`, where its empty log is to begin."""
    epoch: int
    """Epoch of the byte before `end`, 0 for none."""
    reset: bool = False


def written_epochs(log: Log) -> Epochs:
    """The epochs of which the log holds, or held before retention, at least one byte."""
    ends = [start for _, start in log.epochs[1:]]
    ends.append(log.end)
    return tuple(
        (epoch, start)
        for (epoch, start), end in zip(log.epochs, ends, strict=False)
        if start < min(end, log.end)
    )


def epoch_before(log: Log, offset: int) -> int:
    """Epoch of the byte before `offset`; 0 when nothing is known of it."""
    found = 0
    for epoch, start in log.epochs:
        if start >= offset:
            break
        found = epoch
    return found


def last_epoch(log: Log) -> int:
    """Epoch of the last byte of the log; 0 for an empty one."""
    return epoch_before(log, log.end) if log.end > log.start else 0


def epoch_end(log: Log, epoch: int) -> int:
    """Where the epoch ends in this log."""
    return min((start for other, start in log.epochs if other > epoch), default=log.end)


def reconcile(own: Log, theirs: Log) -> CutBack:
    """Compare a follower's log with its leader's.

    The largest epoch that both hold, at the same start, ends where the logs may part; the
    shorter end of it is the last offset at which they are surely equal. If that is the epoch
    which the leader is filling, nothing is cut: what the follower has of it came from this
    leader, whose log has grown since it told us its end. Where the leader no longer has that
    offset, or nothing is common, the follower begins again.
    """
    again = CutBack(theirs.start, 0, reset=own.start != theirs.start)
    common = set(written_epochs(own)) & set(written_epochs(theirs))
    if not common:
        return again
    epoch, _ = max(common)
    end = epoch_end(own, epoch)
    if epoch != theirs.epochs[-1][0]:
        end = min(end, epoch_end(theirs, epoch))
    if end < max(own.start, theirs.start):
        return again
    return CutBack(end, epoch)


def valid_fetch(log: Log, offset: int, epoch: int) -> bool:
    """Whether a leader may send its log from `offset` on to a follower.

    `epoch` is that of the follower's last byte. The follower has reconciled already; that the
    leader looks again keeps a mistake of either from mixing two logs.
    """
    if not log.start <= offset <= log.end:
        return False
    return epoch_before(log, offset) == epoch or (offset == log.start and epoch == 0)


def takes(frame_epoch: int, epoch: int) -> bool:
    """Whether a replication frame of one epoch counts for a member that is in another.

    Neither older nor newer: both ends of a connection must speak of one leadership.
    """
    return frame_epoch == epoch
