"""Which records the log must keep, since a message still has to come of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from imago_broker.service.delays.levels import DelayService
    from imago_broker.service.delays.timers import TimerService
    from imago_broker.service.metaq_transactions.notes import MetaqTransactionNotes
    from imago_broker.service.pop.service import PopService
    from imago_broker.service.transactions.service import TransactionService
    from imago_log.store import MessageStore


class NeededRecords:
    """Those of timers, delayed messages and open transactions, on one leader.

    What groups have out by POP keeps nothing: it is forgotten with its records.
    """

    def __init__(
        self,
        store: MessageStore,
        delay: DelayService,
        transactions: TransactionService,
        timers: TimerService,
        metaq_transactions: MetaqTransactionNotes,
        pops: PopService,
    ) -> None:
        self._store = store
        self._delay, self._transactions, self._timers = delay, transactions, timers
        self._metaq_transactions, self._pops = metaq_transactions, pops
        self._log_start = store.log_start

    def needed_from(self) -> int:
        """Return the log offset of the oldest of them; 0 until all that waits is known.

        Nobody knows what is in records that are not visible yet.
        """
        return min(
            self._store.high_watermark,
            self._delay.needed_from(),
            self._transactions.needed_from(),
            self._timers.needed_from(),
            self._metaq_transactions.needed_from(),
        )

    def look(self) -> None:
        """See whether the log lost some of them: call it after each tick of the store."""
        self._metaq_transactions.note_now_and_then()
        if self._store.log_start != self._log_start:
            self._log_start = self._store.log_start
            self._transactions.log_shortened()
            self._timers.log_shortened()
            self._metaq_transactions.log_shortened()
            self._pops.log_shortened()
