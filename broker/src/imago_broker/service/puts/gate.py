"""What the message service has to know of the other members of the shard.

The replication shell writes these values, the message service reads them: whether puts are taken,
how long acknowledgements are safe, and how far the in-sync members are. A broker without other
members has no gate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from imago_broker.ports import Clock
    from imago_log.store import MessageStore


class ShardGate:
    """Closed until this member leads and the shell opens it."""

    __slots__ = (
        "_clock",
        "_frozen",
        "_short_since_ms",
        "_store",
        "alone",
        "durable_end",
        "lease_end_ms",
        "open",
        "replicated",
    )

    def __init__(self, store: MessageStore, clock: Clock) -> None:
        self.open = False
        """Whether this member leads and takes puts."""
        self.replicated = False
        """Whether enough members are in sync for puts that wait for them."""
        self.alone = True
        """Whether puts may be acknowledged that no other member has; False where this member has
        proposed that nobody leads: whoever is elected then cuts them."""
        self.lease_end_ms = 0
        """Until when nobody else can lead: monotonic milliseconds."""
        self.durable_end = 0
        """Log offset below which every in-sync member has synced."""
        self._frozen = 0
        self._short_since_ms = 0
        self._store = store
        self._clock = clock

    def lease_holds(self) -> bool:
        """Whether nobody else can lead by now."""
        return self._clock.monotonic_ms() < self.lease_end_ms

    @property
    def safe(self) -> bool:
        """Whether a put may be taken, or acknowledged, at this moment."""
        return self.open and self._clock.monotonic_ms() < self.lease_end_ms

    @property
    def short(self) -> bool:
        """Whether this member takes puts, but none that waits for members: too few are in sync."""
        return self.open and not self.replicated

    def short_for(self, ms: int) -> bool:
        """Whether it has been `short` for so long: nobody is just about to join."""
        return self.short and self._clock.monotonic_ms() - self._short_since_ms >= ms

    @property
    def replicated_end(self) -> int:
        """Log offset below which puts at `replicated` are done.

        The high watermark; it stands still while too few members are in sync, for it then rises
        on copies that are fewer than was promised.
        """
        return self._store.high_watermark if self.replicated else self._frozen

    @property
    def replicated_durable_end(self) -> int:
        """The same for puts at `replicated-fsync`."""
        return min(self.replicated_end, self.durable_end)

    def accept(self, *, replicated: bool) -> None:
        """Take puts from now on; those that wait for members only when `replicated`."""
        self.count(replicated=replicated)
        self.alone = self.open = True

    def count(self, *, replicated: bool) -> None:
        """Confirm what waits for members only while enough of them are in sync.

        To be called before the high watermark rises because fewer are waited for.
        """
        if not replicated and not self.short:
            self._short_since_ms = self._clock.monotonic_ms()
        if self.replicated and not replicated:
            self._frozen = self._store.high_watermark
        self.replicated = replicated

    def close(self) -> None:
        """Take and acknowledge nothing."""
        self.open = self.replicated = False
