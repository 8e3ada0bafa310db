"""Writing down how transactions end: what a turn has brought goes into the log together."""

from __future__ import annotations

import logging
from operator import itemgetter
from typing import TYPE_CHECKING

from imago_broker.core.transactions import Outcome
from imago_broker.model import names
from imago_broker.service.put_status import PutStatus
from imago_broker.service.transactions.half_messages import NoPlaceError, committed_entry
from imago_broker.service.transactions.recent_halves import copy_of
from imago_broker.service.transactions.term import Ending, Term, TransactionRefusedError
from imago_broker.service.transactions.transaction_log import mark_entry, read_half
from imago_wire.hot import restore_half
from imago_wire.record import (
    ENTRY_TAIL,
    PLACED_PHYSICAL_OFFSET,
    PLACED_QUEUE_OFFSET,
    make_entry,
)

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from imago_broker.core.acknowledgement import Acknowledgement
    from imago_broker.ports import Clock
    from imago_broker.service.copies import StoredCopy
    from imago_broker.service.delays.levels import DelayService
    from imago_broker.service.messages import MessageService
    from imago_broker.service.topics import TopicService
    from imago_broker.service.transactions.term import TransactionCounts
    from imago_wire.record import Entry, Placed, QueueTail

logger = logging.getLogger(__name__)

MARKED_MAX = 512
"""Outcomes in one mark."""
MARKED_BYTES_MAX = 4 << 20
"""Bytes of messages that are put behind the marks of one turn; one larger message still is."""
RETRY_MS = 500
_offset_of = itemgetter(0)
_COMMITTED = Outcome.COMMITTED  # bound once: an enumeration finds its members anew each time
BUSY_TRIES_MAX = 20


class _NotVisibleError(Exception):
    """A half message cannot be read yet: it is above the high watermark."""

    def __init__(self, log_offset: int) -> None:
        super().__init__(log_offset)
        self.log_offset = log_offset


class OutcomeWriter:
    """Puts marks and their messages. Calls `written_down` after each append of outcomes."""

    def __init__(
        self,
        messages: MessageService,
        topics: TopicService,
        delay: DelayService,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        counts: TransactionCounts,
        written_down: Callable[[], None],
    ) -> None:
        self._messages, self._topics, self._delay = messages, topics, delay
        self._loop, self._clock, self._counts = loop, clock, counts
        self._written_down = written_down
        self._levels: dict[QueueTail, Acknowledgement] = {}
        """Of the queues that one turn's outcomes put messages to."""

    def write(self, term: Term, ending: Ending) -> None:
        """Write an outcome down when the turn ends."""
        term.queue.append(ending)
        self.schedule(term)

    def lose(self, term: Term, offset: int) -> None:
        """Forget a half message whose record nobody can read any more."""
        logger.error("half_message_lost offset=%d", offset)
        self._counts.lost += 1
        term.halves.end(offset, None)
        term.recent.drop(offset)

    def finish(
        self, term: Term, missing: Sequence[tuple[int, Outcome]], then: Callable[[], None]
    ) -> None:
        """Put the messages that the last mark of the log promises, before any other mark.

        `then` is called when they are in the log.
        """
        if term.over:
            return
        entries = []
        ended: list[tuple[int, Outcome]] = []
        for offset, outcome in missing:
            half = read_half(self._messages.store, offset)
            if half is None:
                logger.error("half_message_lost offset=%d outcome=%s", offset, outcome.name)
                continue
            try:
                entries.append(self._message(half, outcome))
                ended.append((offset, outcome))
            except NoPlaceError as error:
                logger.warning("transaction_given_up offset=%d reason=%s", offset, error)
                entries.append(self._message(half, Outcome.GIVEN_UP))
                ended.append((offset, Outcome.GIVEN_UP))
        if not entries:
            then()
            return
        entries.insert(0, self._mark(ended))
        ticket = term.mark_border.begin()

        def done(_: object, status: PutStatus, placed: Sequence[Placed]) -> None:
            term.mark_border.report(ticket, placed[0][PLACED_QUEUE_OFFSET] + 1 if placed else 0)
            if placed:
                then()
            else:
                logger.warning("transactions_not_finished status=%s", status.value)
                self._loop.call_later(RETRY_MS / 1000, lambda: self.finish(term, missing, then))

        self._messages.put(entries, None, done, None)

    def schedule(self, term: Term) -> None:
        """Have what stands in the queue written down when the turn ends."""
        if not term.scheduled and not term.over:
            term.scheduled = True
            self._loop.call_soon(lambda: self._write_down(term))

    def _write_down(self, term: Term) -> None:
        """Put what was reported: a mark a level, as much in a turn as the limits allow."""
        term.scheduled = False
        if term.over:
            return
        size = count = 0
        self._levels.clear()
        units: dict[Acknowledgement, list[tuple[Ending, Entry | None]]] = {}
        while term.queue and size < MARKED_BYTES_MAX and count < MARKED_MAX:
            ending = term.queue.popleft()
            try:
                level, entry = self._entry(term, ending)
            except _NotVisibleError as hidden:
                self._wait_until_visible(term, ending, hidden)
                continue
            except (NoPlaceError, TransactionRefusedError) as error:
                self._failed(term, ending, str(error))
                continue
            except Exception as error:  # whatever it is: those behind it go on
                logger.exception("transaction_end_failed offset=%d", ending.offset)
                self._failed(term, ending, str(error) or type(error).__name__)
                continue
            units.setdefault(level, []).append((ending, entry))
            size += 0 if entry is None else len(entry[1])
            count += 1
        for level, unit in units.items():
            self._put_unit(term, level, unit)
        if term.queue:
            self.schedule(term)

    def _entry(self, term: Term, ending: Ending) -> tuple[Acknowledgement, Entry | None]:
        """Return the level that an outcome waits for, and the message that it puts."""
        outcome = ending.outcome
        if outcome is not _COMMITTED and not outcome.has_message:
            return self._topics.handles.level_of(names.TRANSACTION_MARK_TOPIC.encode()), None
        handles, recent = self._topics.handles, term.recent.get(ending.offset)
        if recent is not None and outcome is _COMMITTED:
            half, placed, _ = recent
            entry = restore_half(half, placed[PLACED_PHYSICAL_OFFSET], handles.open_tails)
            if entry is not None:
                tail = entry[ENTRY_TAIL]
                level = self._levels.get(tail)
                if level is None:
                    level = self._levels[tail] = handles.level_of(tail.topic)
                return level, entry
        copy = self._copy(term, ending.offset)
        level = handles.level_of(copy.text(b"REAL_TOPIC").encode())
        return level, self._message(copy, outcome)

    def _copy(self, term: Term, offset: int) -> StoredCopy:
        """Return a half message from memory, or from the log."""
        recent = term.recent.get(offset)
        if recent is not None:
            return copy_of(*recent[:2])
        store, half = self._messages.store, term.halves.get(offset)
        copy = read_half(store, offset)
        if copy is not None:
            return copy
        if half is not None and half.physical_offset >= store.high_watermark:
            raise _NotVisibleError(half.physical_offset)
        self.lose(term, offset)
        raise TransactionRefusedError("Find prepared transaction message failed")

    def _wait_until_visible(self, term: Term, ending: Ending, hidden: _NotVisibleError) -> None:
        """Write an outcome down once the log can be read so far."""

        def visible() -> None:
            self.write(term, ending)

        self._messages.when_visible(hidden.log_offset + 1, visible)

    def _message(self, half: StoredCopy, outcome: Outcome) -> Entry:
        if outcome is Outcome.COMMITTED:
            return committed_entry(self._messages.store, self._delay, self._topics, half)
        return make_entry(
            self._messages.store.tail(names.GIVEN_UP_TOPIC, 0),
            half.body,
            half.properties,
            flag=half.flag,
            sys_flag=half.sys_flag,
            born_ms=half.born_ms,
            born_host=half.born_host,
            reconsume_times=half.reconsume_times,
            prepared_offset=half.physical_offset,
        )

    def _mark(self, ended: Sequence[tuple[int, Outcome]]) -> Entry:
        store = self._messages.store
        return mark_entry(store, ended, self._clock.epoch_ms(), store.config.store_host)

    def _put_unit(
        self, term: Term, level: Acknowledgement, unit: list[tuple[Ending, Entry | None]]
    ) -> None:
        """Put a mark and its messages, which are one append."""
        ended = [(ending.offset, ending.outcome) for ending, _ in unit]
        entries = [self._mark(ended), *(entry for _, entry in unit if entry is not None)]
        ticket = term.mark_border.begin()

        def done(_: object, status: PutStatus, placed: Sequence[Placed]) -> None:
            term.mark_border.report(ticket, placed[0][PLACED_QUEUE_OFFSET] + 1 if placed else 0)
            if placed:
                self._written(term, unit, status)
            elif status is PutStatus.BUSY and not term.over:
                self._try_again(term, [ending for ending, _ in unit])
            else:
                for ending, _ in unit:
                    self._failed(term, ending, status)

        self._messages.put(entries, level, done, None)

    def _written(
        self, term: Term, unit: Sequence[tuple[Ending, Entry | None]], status: PutStatus
    ) -> None:
        ended = [(ending.offset, ending.outcome) for ending, _ in unit]
        term.halves.end_all(ended)
        term.recent.drop_all(ended)
        self._counts.all_ended(ended)
        term.ended_end = max(term.ended_end, 1 + max(map(_offset_of, ended)))
        endings = term.endings
        for ending, _ in unit:
            endings.pop(ending.offset, None)
            ending.tell(status)
        term.since_note += len(unit)
        if not term.over:
            self._written_down()

    def _try_again(self, term: Term, endings: Sequence[Ending]) -> None:
        """Leadership may just be on its way to another member: try for a while."""
        for ending in endings:
            ending.tries += 1
            if ending.tries > BUSY_TRIES_MAX:
                self._failed(term, ending, PutStatus.BUSY)
            else:
                term.queue.append(ending)
        self._loop.call_later(RETRY_MS / 1000, lambda: self.schedule(term))

    def _failed(self, term: Term, ending: Ending, why: PutStatus | str) -> None:
        term.halves.failed(ending.offset)
        term.endings.pop(ending.offset, None)
        ending.tell(why)
