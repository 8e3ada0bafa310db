"""Transactions of MetaQ's clients on a shard's leader, local and XA.

What may happen when is decided in `core`, and written down by the writer; how it stands in the log
says `transaction_log`. What is open is known to this leader alone and ends with it. A leader
that begins finds what is prepared, and puts what its forerunner's last commit could not, before
anything else is decided.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from imago_broker.core.transactions.metaq_transaction import (
    STAGED_PREFIX,
    MetaqOutcome,
    MetaqTransactionError,
    TransactionLimits,
    TransactionMessage,
    TransactionPhase,
    TransactionProblem,
)
from imago_broker.core.transactions.metaq_transactions import OpenTransactions, check_decisions
from imago_broker.model import names
from imago_broker.service.log_walk import READ_AGAIN_MS, NotReadableNowError
from imago_broker.service.metaq_transactions import transaction_log
from imago_broker.service.metaq_transactions.decided import DecidedBatches
from imago_broker.service.metaq_transactions.notes import MetaqTransactionNotes
from imago_broker.service.metaq_transactions.staged_marks import PublishedMarks
from imago_broker.service.metaq_transactions.term import (
    MetaqTerm,
    MetaqTransactionCounts,
    Unseen,
    lost,
    refusal_of,
)
from imago_broker.service.metaq_transactions.writer import MetaqTransactionWriter
from imago_broker.service.puts.put_status import PutStatus
from imago_broker.service.transactions.transaction_log import generation_of
from imago_wire.records.record import PLACED_PHYSICAL_OFFSET, PLACED_QUEUE_OFFSET

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from imago_broker.config.live import LiveSettings
    from imago_broker.config.sections.metaq_section import MetaqSection
    from imago_broker.core.transactions.metaq_transaction import MetaqTransaction
    from imago_broker.ports import Clock
    from imago_broker.service.metaq_transactions.term import EndTold
    from imago_broker.service.puts.messages import MessageService
    from imago_broker.service.topics.topics import TopicService
    from imago_wire.records.record import Placed

logger = logging.getLogger(__name__)

_WRITING = (TransactionPhase.PREPARING, TransactionPhase.ENDING)


class MetaqTransactions:
    """All of them. `start` it once all that is in the log is visible."""

    def __init__(
        self,
        messages: MessageService,
        topics: TopicService,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        settings: LiveSettings[MetaqSection],
    ) -> None:
        self._messages, self._store = messages, messages.store
        self._loop, self._clock, self._settings = loop, clock, settings
        self.writer = MetaqTransactionWriter(
            messages, topics, loop=loop, clock=clock, written=self._written
        )
        self.counts = MetaqTransactionCounts()
        self.notes = MetaqTransactionNotes(self._store, lambda: self.term, self.counts)
        self.term = self._new_term()
        """What is known in this leadership."""

    @property
    def open(self) -> OpenTransactions:
        """What has not ended in this leadership."""
        return self.term.open

    @property
    def ready(self) -> bool:
        """Whether it is known what is prepared."""
        return self.term.ready

    # Leadership

    def start(self) -> None:
        """Find in the log what is prepared, and finish what the leader before could not."""
        store, term = self._store, self.term
        decided = DecidedBatches()
        published = PublishedMarks(store, decided)
        try:
            found = transaction_log.find_transactions(store, published.take)
        except NotReadableNowError as error:
            logger.warning("metaq_transactions_wait unreadable=%s", error)
            self._loop.call_later(READ_AGAIN_MS / 1000, lambda: self._start_again(term))
            return
        term.prepared_border.offset = found.prepared_end
        term.outcome_border.offset = found.outcome_end
        for mark in found.ended:
            if not mark.outcome.heuristic and mark.key.startswith("XID:"):
                term.open.remember_key(mark.key, mark.outcome)
        term.decided = decided
        published.note()
        for transaction in found.open.values():
            term.open.restore(transaction)
        self.notes.log_shortened()  # some may have gone while nobody led
        term.generation = generation_of(store.meta(transaction_log.KIND))
        store.take_metaq_id(found.highest_id)
        if found.open or found.missing is not None:
            logger.info(
                "metaq_transactions_found prepared=%d unfinished=%s",
                len(found.open),
                found.missing is not None,
            )
        if found.missing is None:
            term.become_ready()
        else:
            self.writer.finish(term, found.missing, term.become_ready)

    def _start_again(self, term: MetaqTerm) -> None:
        if not term.over:
            self.start()

    def stop(self) -> None:
        """Forget what is open; what is prepared is the next leader's."""
        term = self.term
        if term.ready:
            self.notes.note()
        term.over = True
        if term.expiry is not None:
            term.expiry.cancel()
        self.term = self._new_term()
        for each in (*term.unseen, *term.held):
            each()
        term.held.clear()

    def when_ready(self, then: Callable[[], None]) -> None:
        """Call `then` when it is known what is prepared, or this member leads no more."""
        self.term.held.append(then)

    def _new_term(self) -> MetaqTerm:
        return MetaqTerm(OpenTransactions(self._limits))

    def _limits(self) -> TransactionLimits:
        settings = self._settings.current
        return TransactionLimits(
            transactions_max=settings.transactions_max,
            per_owner_max=settings.transactions_per_name_max,
            per_user_max=settings.transactions_per_user_max,
            messages_max=settings.transaction_messages_max,
            bytes_max=settings.transaction_bytes_max,
            total_bytes_max=settings.transactions_bytes_max,
            user_bytes_max=settings.transactions_bytes_per_user_max,
            timeout_ms_max=settings.transaction_timeout_seconds_max * 1000,
        )

    # Open transactions

    def begin(
        self, key: str, owner: str, session: object, timeout_s: int, *, user: str = ""
    ) -> None:
        """Begin one, or take part in one that was begun; `user` is of whose share it is."""
        term = self.term
        term.open.begin(
            key,
            owner,
            session,
            user=user,
            now_ms=self._clock.monotonic_ms(),
            epoch_ms=self._clock.epoch_ms(),
            timeout_s=timeout_s,
        )
        self.counts.begun += 1
        self._schedule_expiry(term)

    def put(
        self,
        transaction: MetaqTransaction,
        *,
        topic: str,
        partition: int,
        flag: int,
        body: bytes,
        born_host: bytes,
    ) -> int:
        """Take a message that is put when its transaction is committed; return its id."""
        opened, born_ms = self.term.open, self._clock.epoch_ms()
        message = TransactionMessage(topic, partition, flag, body, 1, born_ms, born_host)
        opened.check_room(transaction, message.cost)
        self.writer.entry(message)  # what cannot be put is refused now
        message = message._replace(metaq_id=self._store.take_metaq_id())
        opened.add(transaction, message)
        return message.metaq_id

    def lost(self, session: object) -> None:
        """Roll back what is open of a connection that is gone, and of no other."""
        self.counts.abandoned += self.term.open.lost(session)

    def _schedule_expiry(self, term: MetaqTerm) -> None:
        if term.expiry is not None:
            term.expiry.cancel()
            term.expiry = None
        due_ms = term.open.next_expiry_ms
        if due_ms is not None:
            delay_ms = max(0, due_ms - self._clock.monotonic_ms())
            term.expiry = self._loop.call_later(delay_ms / 1000, lambda: self._expire(term))

    def _expire(self, term: MetaqTerm) -> None:
        term.expiry = None
        if not term.over:
            self.counts.expired += term.open.expire(self._clock.monotonic_ms())
            self._schedule_expiry(term)

    # Preparing

    def prepare(self, key: str, session: object, told: EndTold) -> bool:
        """Write an XA transaction down, then call `told`. False: it had no messages and is over."""
        term = self.term
        transaction = term.open.get(key, session)
        if not transaction.xa:
            raise MetaqTransactionError(TransactionProblem.LOCAL)
        if transaction.phase is not TransactionPhase.OPEN:
            raise MetaqTransactionError(TransactionProblem.PREPARED)
        if not transaction.messages:
            term.open.drop(transaction)
            return False
        transaction.phase = TransactionPhase.PREPARING

        def done(status: PutStatus, placed: Sequence[Placed]) -> None:
            if placed:
                self.counts.prepared += 1
                end = placed[-1][PLACED_PHYSICAL_OFFSET] + 1
                term.open.prepared(transaction, placed[0][PLACED_QUEUE_OFFSET], end)
            else:
                term.open.not_prepared(transaction, self._clock.monotonic_ms())
            told(status)
            transaction.resume()

        try:
            self.writer.prepare(term, transaction, done)
        except Exception:
            term.open.not_prepared(transaction, self._clock.monotonic_ms())
            raise
        return True

    # Ending

    def commit(self, key: str, session: object, *, one_phase: bool, told: EndTold) -> None:
        """Put the messages of a transaction; `told` is called with the outcome."""
        term = self.term
        transaction = self._find(term, key, session, MetaqOutcome.COMMITTED, told)
        if transaction is None:
            return
        if transaction.phase in _WRITING:
            again = lambda: self.commit(key, session, one_phase=one_phase, told=told)  # noqa: E731
            _later(transaction, told, again)
        elif transaction.phase is TransactionPhase.PREPARED:
            self._end(term, transaction, MetaqOutcome.COMMITTED, told)
        elif transaction.xa and not one_phase:
            raise MetaqTransactionError(TransactionProblem.NOT_PREPARED)
        elif not transaction.messages:
            term.open.end(transaction, MetaqOutcome.COMMITTED)
            self.counts.committed += 1
            told(PutStatus.OK)
        else:
            self._commit_open(term, transaction, told)

    def roll_back(self, key: str, session: object, told: EndTold) -> None:
        """Forget a transaction; `told` is called with the outcome."""
        term = self.term
        transaction = self._find(term, key, session, MetaqOutcome.ROLLED_BACK, told)
        if transaction is None:
            return
        if transaction.phase in _WRITING:
            _later(transaction, told, lambda: self.roll_back(key, session, told))
        elif transaction.phase is TransactionPhase.PREPARED:
            self._end(term, transaction, MetaqOutcome.ROLLED_BACK, told)
        else:
            term.open.end(transaction, MetaqOutcome.ROLLED_BACK)
            self.counts.rolled_back += 1
            told(PutStatus.OK)

    def decide(self, key: str, outcome: MetaqOutcome, told: EndTold) -> None:
        """End a prepared XA transaction as a person has decided; UNKNOWN: there is none."""
        term = self.term
        if key.startswith(STAGED_PREFIX):
            raise lost("a sink ends what it has staged itself, all of it or nothing")
        decided = term.open.heuristic.get(key)
        if decided is not None:
            if decided.outcome is not outcome:
                raise MetaqTransactionError(TransactionProblem.HEURISTIC, outcome=decided.outcome)
            told(PutStatus.OK)
            return
        transaction = term.open.find(key)
        if transaction is None or transaction.phase is not TransactionPhase.PREPARED:
            raise MetaqTransactionError(TransactionProblem.UNKNOWN)
        check_decisions(len(term.open.heuristic), self._settings.current.transactions_max)
        self._end(term, transaction, outcome, told)

    def forget(self, key: str, told: EndTold) -> None:
        """Forget what a person decided about a transaction; UNKNOWN: there is nothing."""
        term = self.term
        decided = term.open.heuristic.get(key)
        if decided is None:
            raise MetaqTransactionError(TransactionProblem.UNKNOWN)

        def done(status: PutStatus, placed: Sequence[Placed]) -> None:
            if placed:
                term.open.heuristic.pop(key, None)
            told(status)

        self.writer.end(term, decided, MetaqOutcome.FORGOTTEN, done)

    def _find(
        self, term: MetaqTerm, key: str, session: object, outcome: MetaqOutcome, told: EndTold
    ) -> MetaqTransaction | None:
        """Return one that has not ended; None: it has, in the same way, and is answered."""
        try:
            return term.open.get(key, session)
        except MetaqTransactionError as error:
            repeated = term.open.outcome_of(key, session) is outcome
            if error.problem is not TransactionProblem.UNKNOWN or not repeated:
                raise
        topic = names.METAQ_OUTCOME_TOPIC.encode()
        self._messages.confirm(topic, (), None, lambda _, status, __: told(status), None)
        return None

    def _commit_open(self, term: MetaqTerm, transaction: MetaqTransaction, told: EndTold) -> None:
        """Put the messages of a transaction that the log does not have yet."""
        done = self._ending(term, transaction, MetaqOutcome.COMMITTED, told)
        try:
            self.writer.commit(term, transaction, done)
        except Exception:  # whatever it is: left as ending, it would hold up all that follows
            term.open.drop(transaction)
            self.counts.rolled_back += 1
            raise

    def _end(
        self,
        term: MetaqTerm,
        transaction: MetaqTransaction,
        outcome: MetaqOutcome,
        told: EndTold,
    ) -> None:
        """Write down how a prepared one ends, once its records can be read."""
        done = self._ending(term, transaction, outcome, told)

        def write() -> None:
            if term.over:
                done(PutStatus.NOT_WRITABLE, ())
                return
            try:
                self.writer.end(term, transaction, outcome, done)
            except Exception as error:
                term.open.not_ended(transaction)
                told(refusal_of(error))
                transaction.resume()

        self._messages.when_visible(transaction.log_end, Unseen(term.unseen, write))

    def _ending(
        self,
        term: MetaqTerm,
        transaction: MetaqTransaction,
        outcome: MetaqOutcome,
        told: EndTold,
    ) -> Callable[[PutStatus, Sequence[Placed]], None]:
        """Note that an outcome is being written; return what is told how that went."""
        term.open.ending(transaction, outcome)

        def done(status: PutStatus, placed: Sequence[Placed]) -> None:
            if not placed:
                term.open.not_ended(transaction)
            else:
                term.open.end(transaction, outcome)
                if outcome.has_messages:
                    self.counts.committed += 1
                else:
                    self.counts.rolled_back += 1
            told(status)
            transaction.resume()

        return done

    def oldest_prepared_s(self) -> float:
        """Return for how long the oldest prepared one has waited for a decision; 0: none does."""
        begun = [each.begun_ms for each in self.term.open if each.offset >= 0]
        return max(0, self._clock.epoch_ms() - min(begun)) / 1000 if begun else 0

    def _written(self) -> None:
        if self.term.since_note:
            self.notes.note_now_and_then()


def _later(transaction: MetaqTransaction, told: EndTold, again: Callable[[], None]) -> None:
    """Do something when what is being written down is written."""

    def resume() -> None:
        try:
            again()
        except Exception as error:
            told(refusal_of(error))

    transaction.waiting.append(resume)
