"""Whether this broker may lack users that the cluster has: then it is not ready to refuse anybody.

A shard that is new, or was away, may be asked before it has heard from the others which users there
are, and so may a member whose copy of the log was never whole. What they would refuse, others may
allow: the client is told to try again, there or elsewhere. It is not told so for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from imago_broker.ports import Clock

AWAITED_MS_MAX: Final = 30_000
"""How long other shards are waited for: they may be away, and who asks has to hear why."""
NOT_ASKED: Final = "this broker has just become the master and asks the other shards for users"


class AwaitedUsers:
    """What may be missing yet."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until_ms: int | None = None
        self.copy_lacks: list[Callable[[], Sequence[str]]] = []
        """Each tells why this member's copy of the log is not whole; nothing: it is, or was."""
        self.on_begin: list[Callable[[], None]] = []
        """Called when other shards have to be asked."""

    @property
    def why(self) -> str:
        """Why nobody is to be refused for good now; "": all users are here."""
        if self.of_shards:
            return NOT_ASKED
        return "; ".join(reason for told in self.copy_lacks for reason in told())

    @property
    def of_shards(self) -> bool:
        """Whether other shards are waited for."""
        return self._until_ms is not None and self._clock.monotonic_ms() < self._until_ms

    def begin(self) -> None:
        """Wait for what other shards have: this member leads from now on."""
        self._until_ms = self._clock.monotonic_ms() + AWAITED_MS_MAX
        for asked in self.on_begin:
            asked()

    def end(self) -> None:
        """Wait no more: another shard has answered, there is none, or this member does not lead."""
        self._until_ms = None
