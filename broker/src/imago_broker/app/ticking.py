"""What a broker does once a second, and how long a message may be in the page cache only."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from imago_broker.errors import ExitCode, FatalError
from imago_log.errors import LogIOError

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_broker.ports import Clock
    from imago_broker.service.needed_records import NeededRecords
    from imago_log.lifecycle.claims import Claims
    from imago_log.results import StoreHealth
    from imago_log.store import MessageStore

TICK_SECONDS = 1.0


@dataclass(slots=True, kw_only=True, eq=False)
class Ticker:
    """Has the store, and then everybody else, do what is due."""

    health: StoreHealth = field(init=False)
    """The store's, as of the last tick."""

    store: MessageStore
    clock: Clock
    claims: Claims
    needed: NeededRecords
    sync_interval_ms: Callable[[], int]
    sweep: Callable[[], None]
    """Called after each tick of the store."""
    fail: Callable[[FatalError], None]
    """Called where the store's disk fails."""
    _ticks: asyncio.TimerHandle | None = field(default=None, init=False)
    _syncs: asyncio.TimerHandle | None = field(default=None, init=False)
    _synced_ms: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.health = self.store.tick(self.claims)

    def start(self) -> None:
        """Tick from now on."""
        self._ticks = asyncio.get_running_loop().call_later(TICK_SECONDS, self._tick)
        self._synced_ms = self.clock.monotonic_ms()
        self._sync_now_and_then()

    def stop(self) -> None:
        """Tick no more."""
        for timer in (self._ticks, self._syncs):
            if timer is not None:
                timer.cancel()

    def _tick(self) -> None:
        self._ticks = asyncio.get_running_loop().call_later(TICK_SECONDS, self._tick)
        try:
            self.health = self.store.tick(self.claims)
        except LogIOError as error:
            self.fail(FatalError(str(error), exit_code=ExitCode.IO))
            return
        self.needed.look()
        self.sweep()

    def _sync_now_and_then(self) -> None:
        """Bound what a loss of power takes from levels that do not wait for the disk.

        Small syncs, too: a large one keeps the processor from answering for milliseconds.
        """
        loop, interval_ms = asyncio.get_running_loop(), self.sync_interval_ms()
        # Checks at least every tick: a shorter interval that is set meanwhile holds from then on.
        seconds = min(interval_ms / 1000 or TICK_SECONDS, TICK_SECONDS)
        self._syncs = loop.call_later(seconds, self._sync_now_and_then)
        now_ms = self.clock.monotonic_ms()
        due = interval_ms and now_ms - self._synced_ms >= interval_ms - 1  # timers come early
        if due and self.store.durable_end < self.store.log_end:
            self._synced_ms = now_ms
            self.store.request_sync(urgent=False)
