"""What the log keeps for MetaQ's transactions: their records, and notes of what is prepared."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from imago_broker.core.transactions.metaq_transaction import TransactionPhase
from imago_broker.model import names
from imago_broker.service.log_walk import NotReadableNowError
from imago_broker.service.metaq_transactions import transaction_log
from imago_broker.service.transactions.transaction_log import stale_pieces
from imago_log.errors import StoreError
from imago_wire.records.record import PLACED_PHYSICAL_OFFSET

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_broker.service.metaq_transactions.term import MetaqTerm, MetaqTransactionCounts
    from imago_log.store import MessageStore

logger = logging.getLogger(__name__)

NOTE_EVERY = 10_000
"""Records of transactions after which it is noted what is prepared."""


class MetaqTransactionNotes:
    """Writes them into the metadata, so that a start reads only what came after."""

    def __init__(
        self, store: MessageStore, term: Callable[[], MetaqTerm], counts: MetaqTransactionCounts
    ) -> None:
        """`term` gives the leadership of the moment."""
        self._store, self._term, self._counts = store, term, counts

    def needed_from(self) -> int:
        """Return the log offset of the oldest record that is still needed."""
        store, term = self._store, self._term()
        if not term.ready:
            return 0  # nobody knows yet
        places = [store.log_end if term.unnoted_from is None else term.unnoted_from]
        offsets = [each.offset for each in term.open if each.offset >= 0]
        if offsets:
            placed = store.placed(names.METAQ_PREPARED_TOPIC, 0, min(offsets), 1)
            places += [placed[0][PLACED_PHYSICAL_OFFSET]] if placed else []
        return min(places)

    def log_shortened(self) -> None:
        """Forget the prepared ones that went with the log's oldest files."""
        term, first = self._term(), self._store.queue_range(names.METAQ_PREPARED_TOPIC, 0)[0]
        gone = [
            each
            for each in term.open
            if 0 <= each.offset < first and each.phase is TransactionPhase.PREPARED
        ]
        for each in gone:
            reason = "a full disk took its log file: give it room, or shorten store.retention_ms"
            logger.error("metaq_transaction_lost key=%s reason=%s", each.key, reason)
            term.open.drop(each)
            term.since_note += 1
            self._counts.lost += 1

    def note_now_and_then(self) -> None:
        """Note what is prepared where that was long ago."""
        store, term = self._store, self._term()
        if not term.ready:
            return
        # What is not noted keeps its file of the log.
        old = term.unnoted_from is not None and (
            store.log_end - term.unnoted_from > store.config.segment_bytes_max
        )
        if old or term.since_note >= NOTE_EVERY:
            self.note()

    def note(self) -> None:
        """Note what is prepared."""
        store, term = self._store, self._term()
        border = term.prepared_border.offset
        if not term.since_note:
            return
        prepared = [each for each in term.open if 0 <= each.offset < border]
        changes = transaction_log.note_changes(
            prepared,
            term.open.heuristic.values(),
            border,
            term.outcome_border.offset,
            store.take_metaq_id(),
            term.generation + 1,
        )
        try:
            store.put_meta(changes)
            term.generation += 1
            store.put_meta(stale_pieces(store.meta(transaction_log.KIND), transaction_log.KIND))
        except StoreError as error:
            logger.warning("metaq_transactions_not_noted reason=%s", error)
            return
        term.since_note, term.unnoted_from = 0, None

    def topics_of(self, key: str, session: object) -> set[str]:
        """Return the topics for which a transaction that has not ended has messages."""
        transaction = self._term().open.find(key, session)
        if transaction is None:
            return set()
        if not transaction.topics and transaction.offset >= 0:
            place = (transaction.offset, transaction.count)
            try:
                found = transaction_log.read_messages(self._store, *place)
            except NotReadableNowError:
                return set()  # nor can they be put
            transaction.topics.update(message.topic for message in found or ())
        return transaction.topics
