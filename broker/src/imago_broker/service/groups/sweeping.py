"""Forgetting clients and queue locks that are over."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from imago_log.errors import StoreError

if TYPE_CHECKING:
    from imago_broker.ports import Clock
    from imago_broker.service.groups.clients import ClientRegistry
    from imago_broker.service.groups.locks import QueueLocks
    from imago_broker.service.serving_rules import ServingRules
    from imago_log.store import MessageStore

logger = logging.getLogger(__name__)

SWEEP_MS = 5_000


class Sweeper:
    """Sweeps clients and locks every few seconds."""

    def __init__(
        self,
        *,
        store: MessageStore,
        clients: ClientRegistry,
        locks: QueueLocks,
        serving_rules: ServingRules,
        clock: Clock,
    ) -> None:
        self._store = store
        self._clients = clients
        self._locks = locks
        self._serving_rules = serving_rules
        self._clock = clock
        self._swept_ms = 0

    def sweep(self) -> None:
        """Forget clients and locks that are over: call it every second or so."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._swept_ms >= SWEEP_MS:
            self._swept_ms = now_ms
            self._clients.sweep(self._clock.epoch_ms())
            self._locks.sweep(now_ms=now_ms)
            if self._serving_rules.leads:
                self._save_locks()

    def _save_locks(self) -> None:
        try:
            self._locks.save(self._store)
        except StoreError as error:
            # Locks that have ended are no harm in a log that takes nothing: the next sweep tries.
            logger.warning("locks_not_saved error=%s", error)
