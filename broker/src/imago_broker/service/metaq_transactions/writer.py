"""Writing down how MetaQ's transactions are prepared and how they end: one append for each."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from imago_broker.core.puts.acknowledgement import Acknowledgement
from imago_broker.core.transactions.metaq_transaction import (
    MetaqOutcome,
    MetaqTransactionError,
    TransactionProblem,
)
from imago_broker.model import names
from imago_broker.service.delays.levels.levels import asked_level
from imago_broker.service.delays.parking import message_entry
from imago_broker.service.delays.timers.timer_properties import asked_ms, is_timed
from imago_broker.service.metaq_transactions import transaction_log
from imago_broker.service.metaq_transactions.term import lost
from imago_broker.service.metaq_transactions.transaction_log import OutcomeMark
from imago_broker.service.puts.put_status import PutStatus
from imago_log.errors import StoreError
from imago_wire.errors import ProtocolError
from imago_wire.hot import metaq_entry
from imago_wire.record_format import properties as props
from imago_wire.records.record import PLACED_PHYSICAL_OFFSET, PLACED_QUEUE_OFFSET, Placed
from imago_wire.remoting.staged import BYTES_MAX, ROWS_MAX

if TYPE_CHECKING:
    import asyncio

    from imago_broker.core.transactions.metaq_transaction import (
        MetaqTransaction,
        TransactionMessage,
    )
    from imago_broker.ports import Clock
    from imago_broker.service.delays.levels.levels import DelayService
    from imago_broker.service.metaq_transactions.term import MetaqTerm
    from imago_broker.service.puts.messages import MessageService
    from imago_broker.service.topics.topic_handles import TopicHandle
    from imago_broker.service.topics.topics import TopicService
    from imago_log.store import MessageStore
    from imago_wire.records.record import Entry

logger = logging.getLogger(__name__)

RETRY_MS = 500
STEP_ROWS = 500
"""Messages of a micro-batch that are made ready in one turn."""
TOO_MUCH = f"a micro-batch has at most {ROWS_MAX} messages and {BYTES_MAX} bytes on one shard"

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

    delay: DelayService | None = None
    """Where messages wait that are to be delivered later; given once there is one."""

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
        level = self._level({each.topic for each in transaction.messages})
        self._put(term, entries, done, level=level, prepared=len(entries))

    def commit(self, term: MetaqTerm, transaction: MetaqTransaction, done: Written) -> None:
        """Put the messages of an open transaction, in one step; `done` is told.

        MetaqTransactionError: one cannot be put any more; nothing was.
        """
        messages, store = transaction.messages, self._store
        entries = [self.entry(message) for message in messages]
        level = self._level({each.topic for each in messages})
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
            level = self._level({each.topic for each in messages})
        self._put(term, entries, done, level=level, mark_at=0)

    def publish(
        self,
        term: MetaqTerm,
        sink: str,
        blocks: Sequence[MetaqTransaction],
        losers: Sequence[MetaqTransaction],
        mark: OutcomeMark | None,
        done: Written,
    ) -> Iterator[None]:
        """Write down that staged batches end, the messages of `blocks` behind their mark.

        Reads a few messages at each step; the last one puts all of them, and `done` is told.
        MetaqTransactionError: a message is lost, or cannot be put any more; nothing was.
        """
        self._ensure_topics()
        entries, level, step = [], None, STEP_ROWS
        if losers:
            numbers = tuple(each.number for each in losers)
            key = f"{transaction_log.STAGED_MARK}:{sink}"
            entries.append(self._mark(OutcomeMark(MetaqOutcome.ROLLED_BACK, 0, 0, 0, key, numbers)))
        mark_at = len(entries) - 1
        if mark is not None:
            rows: list[Entry] = []
            size, topics = 0, set[str]()
            for each in blocks:
                if len(rows) >= step:
                    yield
                    step = len(rows) + STEP_ROWS
                messages = transaction_log.read_messages(self._store, each.offset, each.count)
                if messages is None:
                    raise lost("the log has lost messages that were staged")
                size += sum(len(message.body) for message in messages)
                count = len(rows) + sum(message.rows for message in messages)
                if count > ROWS_MAX or size > BYTES_MAX:
                    raise MetaqTransactionError(TransactionProblem.LIMIT, TOO_MUCH)
                rows += [self.entry(row) for row in transaction_log.staged_rows(messages)]
                topics.update(message.topic for message in messages)
            mark_at = len(entries)
            entries.append(self._mark(mark._replace(size=len(rows))))
            entries += rows
            level = self._level(topics) if rows else None
        self._put(term, entries, done, level=level, mark_at=mark_at)

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
        if message.properties is not None:
            return self._entry_of_row(message, message.properties, handle)
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

    def _entry_of_row(
        self, message: TransactionMessage, properties: bytes, handle: TopicHandle | None
    ) -> Entry:
        """Return the same of a message of RocketMQ's, which may have to wait for its time."""
        if handle is None or message.partition >= handle.config.queues:
            raise lost(f"{message.topic} has no queue {message.partition} any more: make it again")
        due_ms = asked_ms(properties, self._clock.epoch_ms()) if is_timed(properties) else None
        level = asked_level(props.find(properties, b"DELAY") or b"0")
        if self.delay is None:
            raise lost("this broker delays no messages")
        try:
            return message_entry(
                self._store,
                self.delay,
                level=level or 0,
                due_ms=due_ms if due_ms and due_ms > self._clock.epoch_ms() else 0,
                topic=message.topic,
                queue_id=message.partition,
                body=message.body,
                properties=properties,
                flag=message.flag,
                sys_flag=0,
                born_ms=message.born_ms,
                born_host=message.born_host,
                reconsume_times=0,
            )
        except (KeyError, ProtocolError, StoreError) as error:
            raise lost(str(error)) from error

    @property
    def _store(self) -> MessageStore:
        return self._messages.store

    def _mark(self, mark: OutcomeMark) -> Entry:
        return transaction_log.outcome_entry(self._store, mark, self._clock.epoch_ms())

    def _level(self, topics: Iterable[str]) -> Acknowledgement:
        """Return the level that is safe enough for all topics."""
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
