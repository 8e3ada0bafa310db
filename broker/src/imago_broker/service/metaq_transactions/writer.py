"""Writing down how MetaQ's transactions are prepared and how they end: one append for each."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from imago_broker.core.puts.acknowledgement import Acknowledgement
from imago_broker.core.transactions.metaq_transaction import MetaqOutcome, MetaqTransactionError
from imago_broker.model import names
from imago_broker.service.metaq_transactions import transaction_log
from imago_broker.service.metaq_transactions.term import lost
from imago_broker.service.metaq_transactions.transaction_log import OutcomeMark
from imago_broker.service.puts.put_status import PutStatus
from imago_log.errors import StoreError
from imago_wire.errors import ProtocolError
from imago_wire.hot import metaq_entry
from imago_wire.records.record import PLACED_PHYSICAL_OFFSET, PLACED_QUEUE_OFFSET, Placed

if TYPE_CHECKING:
    import asyncio

    from imago_broker.core.transactions.metaq_transaction import (
        MetaqTransaction,
        TransactionMessage,
    )
    from imago_broker.ports import Clock
    from imago_broker.service.metaq_transactions.term import MetaqTerm
    from imago_broker.service.puts.messages import MessageService
    from imago_broker.service.topics.topics import TopicService
    from imago_log.store import MessageStore
    from imago_wire.records.record import Entry

logger = logging.getLogger(__name__)

RETRY_MS = 500

Written = Callable[[PutStatus, Sequence[Placed]], None]
"""Told how it went; the places are empty where nothing is in the log of a leader."""
_LEVELS = (
    Acknowledgement.LEADER,
    Acknowledgement.LEADER_FSYNC,
    Acknowledgement.REPLICATED,
    Acknowledgement.REPLICATED_FSYNC,
)


class MetaqTransactionWriter:
    """Puts prepared records, marks and messages. `written` is told after each append."""

    def __init__(
        self,
        messages: MessageService,
        topics: TopicService,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        written: Callable[[], None],
    ) -> None:
        self._messages, self._topics = messages, topics
        self._loop, self._clock, self._written = loop, clock, written

    def prepare(self, term: MetaqTerm, transaction: MetaqTransaction, done: Written) -> None:
        """Write an open transaction down; `done` is told."""
        self._ensure_topics()
        entries = transaction_log.prepared_entries(self._store, transaction, ends=False)
        level = self._level(transaction.messages)
        self._put(term, entries, done, level=level, prepared=len(entries))

    def commit(self, term: MetaqTerm, transaction: MetaqTransaction, done: Written) -> None:
        """Put the messages of an open transaction, in one step; `done` is told.

        MetaqTransactionError: one cannot be put any more; nothing was.
        """
        messages, store = transaction.messages, self._store
        entries = [self.entry(message) for message in messages]
        level = self._level(messages)
        if len(messages) == 1:
            self._put(term, entries, done, level=level)
            return
        self._ensure_topics()
        written = transaction_log.prepared_entries(store, transaction, ends=True)
        number, count = messages[0].metaq_id, len(messages)
        written.append(
            self._mark(OutcomeMark(MetaqOutcome.COMMITTED, number, 0, count, transaction.key))
        )
        entries = written + entries
        self._put(term, entries, done, level=level, prepared=count, mark_at=count)

    def end(
        self,
        term: MetaqTerm,
        transaction: MetaqTransaction,
        outcome: MetaqOutcome,
        done: Written,
    ) -> None:
        """Write down how a prepared one ends; its records can be read. `done` is told.

        MetaqTransactionError: a message is lost, or cannot be put any more; nothing was.
        """
        number, count = transaction.number, transaction.count
        entries = [self._mark(OutcomeMark(outcome, number, 0, count, transaction.key))]
        level = None
        if outcome.has_messages:
            messages = transaction_log.read_messages(self._store, transaction.offset, count)
            if messages is None:
                raise lost("the log has lost messages of the transaction")
            entries += [self.entry(message) for message in messages]
            level = self._level(messages)
        self._put(term, entries, done, level=level, mark_at=0)

    def finish(
        self,
        term: MetaqTerm,
        missing: tuple[OutcomeMark, list[TransactionMessage]],
        then: Callable[[], None],
    ) -> None:
        """Put what the log's last mark promises and the log lacks, before any other mark.

        `then` is called when it is in the log.
        """
        if term.over:
            return
        mark, messages = missing
        entries = [self._mark(mark)]
        for message in messages:
            try:
                entries.append(self.entry(message))
            except MetaqTransactionError as error:
                logger.warning("transaction_message_lost key=%s reason=%s", mark.key, error)

        def done(status: PutStatus, placed: Sequence[Placed]) -> None:
            if placed:
                then()
            elif not term.over:
                logger.warning("metaq_transaction_not_finished status=%s", status.value)
                self._loop.call_later(RETRY_MS / 1000, lambda: self.finish(term, missing, then))

        self._put(term, entries, done, mark_at=0)

    def entry(self, message: TransactionMessage) -> Entry:
        """Return the entry that puts a message now. MetaqTransactionError: it cannot be."""
        handle = self._topics.handles.of(message.topic)
        if handle is None or not handle.config.dual:
            raise lost(f"topic {message.topic} is not there any more")
        if message.partition >= handle.config.queues:
            raise lost(f"topic {message.topic} has no partition {message.partition}")
        try:
            return metaq_entry(
                self._store.tail(message.topic, message.partition),
                message.body,
                message.flag,
                -1,
                message.born_ms,
                message.born_host,
                message.metaq_id,
            )
        except (KeyError, ProtocolError, StoreError) as error:
            raise lost(str(error)) from error

    @property
    def _store(self) -> MessageStore:
        return self._messages.store

    def _mark(self, mark: OutcomeMark) -> Entry:
        return transaction_log.outcome_entry(self._store, mark, self._clock.epoch_ms())

    def _level(self, messages: Sequence[TransactionMessage]) -> Acknowledgement:
        """Return the level that is safe enough for all topics."""
        topics = {message.topic for message in messages}
        levels = (self._topics.handles.level_of(topic.encode()) for topic in topics)
        return max(levels, key=_LEVELS.index)

    def _ensure_topics(self) -> None:
        self._topics.ensure_own(names.METAQ_PREPARED_TOPIC, names.METAQ_OUTCOME_TOPIC)

    def _put(
        self,
        term: MetaqTerm,
        entries: list[Entry],
        done: Written,
        *,
        level: Acknowledgement | None = None,
        prepared: int = 0,
        mark_at: int | None = None,
    ) -> None:
        """Put entries: the first `prepared` are prepared records, that at `mark_at` is a mark."""
        prepared_ticket = term.prepared_border.begin() if prepared else None
        mark_ticket = term.outcome_border.begin() if mark_at is not None else None

        def put(_: object, status: PutStatus, placed: Sequence[Placed]) -> None:
            if prepared_ticket is not None:
                end = placed[prepared - 1][PLACED_QUEUE_OFFSET] + 1 if placed else 0
                term.prepared_border.report(prepared_ticket, end)
            if mark_ticket is not None and mark_at is not None:
                end = placed[mark_at][PLACED_QUEUE_OFFSET] + 1 if placed else 0
                term.outcome_border.report(mark_ticket, end)
            if placed and (prepared_ticket or mark_ticket):
                term.since_note += len(placed)
                if term.unnoted_from is None:
                    term.unnoted_from = placed[0][PLACED_PHYSICAL_OFFSET]
            if term.over:
                done(PutStatus.NOT_WRITABLE, ())
                return
            done(status, placed)
            self._written()

        self._messages.put_whole(entries, level, put, None)
