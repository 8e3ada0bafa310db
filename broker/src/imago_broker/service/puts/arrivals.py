"""Telling those who wait for messages which queues have grown, once readers can see it."""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from imago_log.store import MessageStore
    from imago_wire.hot import QueueTail

logger = logging.getLogger(__name__)


class Arrivals:
    """Queues that have grown; those above the high watermark wait until it has passed them."""

    def __init__(self, store: MessageStore, *, alone: bool) -> None:
        """`alone`: there are no other members, so what is written is visible."""
        self.listeners: list[Callable[[Iterable[QueueTail]], None]] = []
        self._store = store
        self._alone = alone
        self._unseen: deque[tuple[int, set[QueueTail]]] = deque()
        """By the end of the append that brought them."""
        self._awaited: list[tuple[int, Callable[[], None]]] = []

    def grown(self, tails: set[QueueTail]) -> None:
        """Note the queues of an append that has just been made; tell what is visible."""
        store = self._store
        if self._alone or (not self._unseen and store.high_watermark >= store.log_end):
            self._tell(tails)
            return
        self._unseen.append((store.log_end, tails))
        self.visible()

    def visible(self) -> None:
        """Tell of what has become visible since."""
        if self._awaited:
            self._tell_awaited()
        unseen = self._unseen
        if not unseen:
            return
        high_watermark, grown = self._store.high_watermark, []
        while unseen and unseen[0][0] <= high_watermark:
            grown.append(unseen.popleft()[1])
        if grown:
            self._tell(grown[0].union(*grown[1:]))

    def when_visible(self, log_offset: int, then: Callable[[], None]) -> None:
        """Call `then` once, when everything below a log offset is visible."""
        self._awaited.append((log_offset, then))
        self._tell_awaited()

    def forget(self) -> None:
        """Drop what waits: it may never become visible."""
        self._unseen.clear()
        self._awaited.clear()

    def _tell_awaited(self) -> None:
        high_watermark = self._store.high_watermark
        due = [then for log_offset, then in self._awaited if log_offset <= high_watermark]
        self._awaited = [each for each in self._awaited if each[0] > high_watermark]
        for then in due:
            then()

    def _tell(self, tails: set[QueueTail]) -> None:
        for listener in self.listeners:
            try:
                listener(tails)
            except Exception:
                # The messages are in the log: their producers hear so whatever readers do.
                logger.exception("arrival_listener_failed listener=%s", listener)
