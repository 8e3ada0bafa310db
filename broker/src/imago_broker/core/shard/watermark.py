"""How far the members of a shard are: the part of the protocol that moves every loop turn.

The one mutable object of the core. The high watermark is the least written end of the leader and
of the members that it waits for; it never falls, and stands still while one of them has not yet
been heard of in this epoch. The durable watermark is the same for what is synced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.core.shard.values import FollowerProgress, ShardProgress

if TYPE_CHECKING:
    from imago_broker.model.registry.shard import Member


class _Follower:
    __slots__ = ("caught_up_ms", "durable", "end", "joined_ms", "left_ms", "mark_end", "mark_ms")

    def __init__(
        self, end: int, durable: int, leader_end: int, now_ms: int, *, behind_since_ms: int
    ) -> None:
        self.end, self.durable = end, durable
        self.left_ms: int | None = None
        self.joined_ms = behind_since_ms
        self.caught_up_ms = now_ms if end >= leader_end else -1
        # Under load a follower is always behind by what is on its way. It keeps up when it has
        # what the leader had at its last acknowledgement.
        self.mark_end, self.mark_ms = leader_end, now_ms


class Watermark:
    """Own end and acknowledged ends in; high watermark out. Microseconds a call."""

    __slots__ = ("_followers", "_waiting", "durable", "durable_end", "end", "value")

    def __init__(self) -> None:
        self.end = 0
        """Our own log end."""
        self.durable_end = 0
        """Our own durable end."""
        self.value = 0
        """The high watermark."""
        self.durable = 0
        """The durable watermark: below it every in-sync member has synced."""
        self._followers: dict[Member, _Follower] = {}
        self._waiting: frozenset[Member] | None = None

    @property
    def waiting(self) -> frozenset[Member] | None:
        """Whom the watermarks wait for besides ourselves; None: they stand still."""
        return self._waiting

    def lead(self, *, end: int, durable_end: int, high_watermark: int) -> None:
        """Begin an epoch: nothing is known of any follower, and the watermark stands still."""
        self._followers = {}
        self._waiting = None
        self.end, self.durable_end = end, durable_end
        self.value = min(high_watermark, end)
        self.durable = 0

    def stop(self) -> None:
        """End the epoch: nothing moves the watermarks any more, and what they were is past."""
        self.value = self.durable = 0
        self._followers = {}
        self._waiting = None

    def wait_for(self, members: frozenset[Member]) -> int:
        """Wait for these besides ourselves; return the high watermark."""
        self._waiting = members
        return self._raise()

    def appended(self, end: int) -> int:
        """Our own log has grown; return the high watermark."""
        self.end = end
        return self._raise() if not self._waiting else self.value

    def synced(self, durable_end: int) -> int:
        """Our own log is durable up to here; return the durable watermark."""
        self.durable_end = durable_end
        self._raise()
        return self.durable

    def joined(self, member: Member, end: int, durable: int, now_ms: int) -> None:
        """A follower fetches from `end` on: its log is a prefix of ours."""
        # One that connects again and again gets no time for it: behind it is since it was not.
        known = self._followers.get(member)
        since_ms = now_ms if known is None else max(known.joined_ms, known.caught_up_ms)
        self._followers[member] = _Follower(
            end, durable, self.end, now_ms, behind_since_ms=since_ms
        )
        self._raise()

    def acked(self, member: Member, end: int, durable: int, now_ms: int) -> int:
        """A follower has written and synced up to here; return the high watermark.

        A member that did not join in this epoch counts for nothing.
        """
        follower = self._followers.get(member)
        if follower is None or end > self.end:
            return self.value
        follower.end, follower.durable = end, durable
        if end >= self.end:
            follower.caught_up_ms = now_ms
        elif end >= follower.mark_end:
            follower.caught_up_ms = follower.mark_ms
        if end >= follower.mark_end:
            follower.mark_end, follower.mark_ms = self.end, now_ms
        return self._raise()

    def left(self, member: Member, now_ms: int) -> None:
        """The connection of a follower is gone."""
        follower = self._followers.get(member)
        if follower is not None and follower.left_ms is None:
            follower.left_ms = now_ms

    def progress(self) -> ShardProgress:
        """What is known now, as a value."""
        return ShardProgress(
            self.end,
            self.durable_end,
            self.value,
            self.durable,
            {
                member: FollowerProgress(
                    each.end, each.durable, each.joined_ms, each.caught_up_ms, each.left_ms
                )
                for member, each in self._followers.items()
            },
        )

    def _raise(self) -> int:
        if self._waiting is None:
            return self.value
        written, synced = self.end, self.durable_end
        followers = self._followers
        for member in self._waiting:
            follower = followers.get(member)
            if follower is None:
                return self.value
            written = min(written, follower.end)
            synced = min(synced, follower.durable)
        self.value = max(self.value, written)
        self.durable = max(self.durable, synced)
        return self.value
