"""When MetaQ's clients learn of a planned change of master.

A MetaQ client that hears of a change below `topics-pub/<t>` or `topics-sub/<t>` closes its
connections to all brokers of the topic, whoever changed, and opens them again. To a request on its
way it answers a time-out itself. A connection that its other producers or consumers use as well
stays, and whoever changes over goes on without an error. So after a handover, while the former
master still passes requests on:

- nobody hears of it at first, until what was held back during the change has been answered;
- then producers hear of it, whose connections their consumers keep open;
- then, when those have moved, consumers, and old connections end with nothing on its way. Their
  time counts from the moment at which producers could hear of it, however late that is.

After the death of a master everybody hears at once: its connections are dead already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.model.registry.cluster import Role

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_broker.model.registry.shard import ShardState

PLANNED = "handover"
"""Cause of an election in which the former master gave its place away."""
QUIET_MS = 300
"""The held requests are answered 20 to 100 ms after the change."""
PRODUCERS_MS = 1000
"""A client of many topics reads one after the other."""


class Succession:
    """The times of one member's last change of role."""

    def __init__(self, relay_ms: int, now_ms: Callable[[], int]) -> None:
        """`relay_ms`: how long former masters pass requests on; no wait is longer than that."""
        self._quiet_ms = min(QUIET_MS, relay_ms // 4)
        self._producers_ms = min(PRODUCERS_MS, relay_ms // 4)
        self._now_ms = now_ms
        self._epoch = -1
        self._quiet_until = self._consumers_from = 0
        self._producers_first = False
        """Whether we lead by a planned change that producers have not been told of."""

    def begin(self, role: Role, state: ShardState) -> None:
        """Note that our role is this from now on; once an epoch."""
        if state.epoch == self._epoch:
            return
        self._epoch = state.epoch
        now = self._now_ms()
        self._quiet_until = self._consumers_from = now
        self._producers_first = False
        last = state.history[-1] if state.history else None
        if last is None or last.epoch != state.epoch or last.cause != PLANNED:
            return
        self._consumers_from += self._quiet_ms + self._producers_ms
        if role is Role.MASTER:
            self._quiet_until += self._quiet_ms
            self._producers_first = True
        else:
            # The former master's own place as slave comes last: consumers would look around.
            self._consumers_from += self._producers_ms

    def producers_told(self) -> None:
        """Note that producers can hear that we lead: give them time, then tell consumers."""
        if self._producers_first:
            self._producers_first = False
            self._consumers_from = self._now_ms() + self._producers_ms

    @property
    def quiet(self) -> bool:
        """Whether nobody has heard of it yet."""
        return self._now_ms() < self._quiet_until

    def consumers_wait(self, role: Role) -> bool:
        """Whether consumers are not told yet, while clients know us by this role."""
        before_producers = self._producers_first and role is Role.MASTER
        return before_producers or self._now_ms() < self._consumers_from

    @property
    def due_ms(self) -> int | None:
        """In how many milliseconds somebody else may be told; None: nobody waits."""
        now = self._now_ms()
        waits = [at - now for at in (self._quiet_until, self._consumers_from) if at > now]
        return min(waits, default=None)
