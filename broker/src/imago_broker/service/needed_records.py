"""Which records the log must keep, since a message still has to come of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from imago_broker.service.metaq_transactions.notes import MetaqTransactionNotes
    from imago_log.store import MessageStore


class KeepsRecords(Protocol):
    """What has something to make of records still, or has to know that the log lost its oldest."""

    @property
    def needed_from(self) -> Callable[[], int]: ...

    @property
    def log_shortened(self) -> Callable[[], None]: ...


class NeededRecords:
    """Those of features, as delayed messages and open transactions, and of MetaQ, on one leader."""

    def __init__(
        self,
        store: MessageStore,
        metaq_transactions: MetaqTransactionNotes,
        features: Sequence[KeepsRecords],
    ) -> None:
        self._store = store
        self._metaq_transactions, self._features = metaq_transactions, features
        self._log_start = store.log_start

    def needed_from(self) -> int:
        """Return the log offset of the oldest of them; 0 until all that waits is known.

        Nobody knows what is in records that are not visible yet.
        """
        return min(
            self._store.high_watermark,
            self._metaq_transactions.needed_from(),
            *(feature.needed_from() for feature in self._features),
        )

    def look(self) -> None:
        """See whether the log lost some of them: call it after each tick of the store."""
        self._metaq_transactions.note_now_and_then()
        if self._store.log_start != self._log_start:
            self._log_start = self._store.log_start
            self._metaq_transactions.log_shortened()
            for feature in self._features:
                feature.log_shortened()
