"""Writing down how transactions end: what a turn has brought goes into the log together."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from imago_broker.core.transactions.transactions import Outcome
from imago_broker.model import names
from imago_broker.service.puts.put_status import PutStatus
from imago_broker.service.transactions.half_messages import NoPlaceError, committed_entry
from imago_broker.service.transactions.recent_halves import copy_of
from imago_broker.service.transactions.term import Term, TransactionRefusedError
from imago_broker.service.transactions.transaction_log import NoHalf, mark_entry, read_half
from imago_wire.hot import Half, restore_half, restore_halves
from imago_wire.records.record import ENTRY_BODY, ENTRY_TAIL, PLACED_QUEUE_OFFSET, make_entry

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping, Sequence

    from imago_broker.core.puts.acknowledgement import Acknowledgement
    from imago_broker.ports import Clock
    from imago_broker.service.delays.levels.levels import DelayService
    from imago_broker.service.puts.copies import StoredCopy
    from imago_broker.service.puts.messages import MessageService
    from imago_broker.service.topics.topics import TopicService
    from imago_broker.service.transactions.term import TransactionCounts
    from imago_wire.records.record import Entry, Placed, QueueTail

logger = logging.getLogger(__name__)

MARKED_MAX = 512
"""Outcomes in one mark."""
MARKED_BYTES_MAX = 4 << 20
"""Bytes of messages that are put behind the marks of one turn; one larger message still is."""
RETRY_MS = 500
_COMMITTED = Outcome.COMMITTED  # bound once: an enumeration finds its members again each time
BUSY_TRIES_MAX = 20


class _NotVisibleError(Exception):
    """A half message cannot be read yet: it is above the high watermark."""

    def __init__(self, log_offset: int) -> None:
        super().__init__(log_offset)
        self.log_offset = log_offset


class _UnreadableNowError(Exception):
    """A half message cannot be read now: what is wrong there is being looked at."""


@dataclass(kw_only=True, eq=False)
class OutcomeWriter:
    """Puts marks and their messages. Calls `written_down` after each append of outcomes."""

    messages: MessageService
    topics: TopicService
    delay: DelayService
    loop: asyncio.AbstractEventLoop
    clock: Clock
    counts: TransactionCounts
    written_down: Callable[[], None]
    _answer: Callable[[list[Half], PutStatus | str], None] = field(
        default_factory=lambda: _answer_nobody, init=False
    )
    _levels: dict[QueueTail, Acknowledgement] = field(default_factory=dict, init=False)
    """Of the queues that one turn's outcomes put messages to."""

    def answer_by(self, answer: Callable[[list[Half], PutStatus | str], None]) -> None:
        """Have this tell those who report how half messages end what becomes of that."""
        self._answer = answer

    def write(self, term: Term, half: Half) -> None:
        """Write down how a half message ends when the turn does."""
        term.queue.append(half)
        self.schedule(term)

    def lose(self, term: Term, offset: int) -> None:
        """Forget a half message whose record nobody can read any more."""
        logger.error("half_message_lost offset=%d", offset)
        self.counts.lost += 1
        half = term.halves.end(offset, None)
        if half is not None:
            term.recent.drop(half)

    def finish(
        self, term: Term, missing: Sequence[tuple[int, Outcome]], then: Callable[[], None]
    ) -> None:
        """Put the messages that the last mark of the log promises, before any other mark.

        `then` is called when they are in the log.
        """
        if term.over:
            return

        def again() -> None:
            self.finish(term, missing, then)

        halves = {offset: read_half(self.messages.store, offset) for offset, _ in missing}
        if NoHalf.LATER in halves.values():
            self.loop.call_later(RETRY_MS / 1000, again)
            return
        entries, ended = self._missing_entries(missing, halves)
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
                self.loop.call_later(RETRY_MS / 1000, again)

        self.messages.put(entries, None, done, None)

    def _missing_entries(
        self, missing: Sequence[tuple[int, Outcome]], halves: Mapping[int, StoredCopy | NoHalf]
    ) -> tuple[list[Entry], list[Half]]:
        """Return the messages that are missing, and how their half messages end by that."""
        entries: list[Entry] = []
        ended: list[Half] = []
        for offset, outcome in missing:
            half = halves[offset]
            if isinstance(half, NoHalf):
                logger.error("half_message_lost offset=%d outcome=%s", offset, outcome.name)
                self.counts.lost += 1
                continue
            one = Half(offset)
            try:
                entries.append(self._message(half, outcome))
                one.ending = outcome
            except NoPlaceError as error:
                logger.warning("transaction_given_up offset=%d reason=%s", offset, error)
                entries.append(self._message(half, Outcome.GIVEN_UP))
                one.ending = Outcome.GIVEN_UP
            ended.append(one)
        return entries, ended

    def schedule(self, term: Term) -> None:
        """Have what stands in the queue written down when the turn ends."""
        if not term.scheduled and not term.over:
            term.scheduled = True
            self.loop.call_soon(lambda: self._write_down(term))

    def _write_down(self, term: Term) -> None:
        """Put what was reported: a mark a level, as much in a turn as the limits allow."""
        term.scheduled = False
        term.turn += 1
        if term.over:
            return
        for level, (halves, entries) in self._units(term).items():
            self._put_unit(term, level, halves, entries)
        if term.queue:
            self.schedule(term)

    def _units(self, term: Term) -> dict[Acknowledgement, tuple[list[Half], list[Entry]]]:
        """Take from the queue what this turn writes down: by level, and with the messages."""
        taken, at, size = term.queue[:MARKED_MAX], 0, 0
        units: dict[Acknowledgement, tuple[list[Half], list[Entry]]] = {}
        level: Acknowledgement | None = None
        self._levels.clear()
        while at < len(taken) and size < MARKED_BYTES_MAX:
            if level is not None:
                halves, entries = units[level]
                first = at
                at, size = self._take_usual(taken, at, size, level, entries)
                if at > first:
                    halves += taken[first:at]
                    continue
            half = taken[at]
            at += 1
            found = self._take_careful(term, half)
            if found is not None:
                level, entry = found
                halves, entries = units.setdefault(level, ([], []))
                halves.append(half)
                if entry is not None:
                    entries.append(entry)
                    size += len(entry[ENTRY_BODY])
        del term.queue[:at]
        return units

    def _take_usual(
        self,
        halves: list[Half],
        at: int,
        size: int,
        level: Acknowledgement,
        entries: list[Entry],
    ) -> tuple[int, int]:
        """Make entries of those from `at` on that are committed, as `restore_halves` does."""
        count, tails = len(entries), self.topics.handles.open_tails
        try:
            return restore_halves(
                halves, at, size, MARKED_BYTES_MAX, _COMMITTED, tails, self._levels, level, entries
            )
        except Exception:  # whatever it is: each is tried alone
            logger.exception("transactions_not_taken offset=%d", halves[at].offset)
            del entries[count:]
            return at, size

    def _take_careful(self, term: Term, half: Half) -> tuple[Acknowledgement, Entry | None] | None:
        """Return level and message of one; None: it is not written down in this turn."""
        try:
            return self._entry(term, half)
        except _NotVisibleError as hidden:
            self._wait_until_visible(term, half, hidden)
        except _UnreadableNowError:
            self._try_again(term, [half])
        except (NoPlaceError, TransactionRefusedError) as error:
            self._failed(half, str(error))
        except Exception as error:  # whatever it is: those behind it go on
            logger.exception("transaction_end_failed offset=%d", half.offset)
            self._failed(half, str(error) or type(error).__name__)
        return None

    def _entry(self, term: Term, half: Half) -> tuple[Acknowledgement, Entry | None]:
        """Return the level that an outcome waits for, and the message that it puts."""
        outcome: Outcome = half.ending
        handles = self.topics.handles
        if not outcome.has_message:
            return handles.level_of(names.TRANSACTION_MARK_TOPIC.encode()), None
        if half.entry is not None and outcome is _COMMITTED:
            entry = restore_half(half.entry, half.physical_offset, handles.open_tails)
            if entry is not None:
                tail = entry[ENTRY_TAIL]
                level = self._levels.get(tail)
                if level is None:
                    level = self._levels[tail] = handles.level_of(tail.topic)
                return level, entry
        copy = self._copy(term, half)
        level = handles.level_of(copy.text(b"REAL_TOPIC").encode())
        return level, self._message(copy, outcome)

    def _copy(self, term: Term, half: Half) -> StoredCopy:
        """Return a half message from memory, or from the log."""
        if half.entry is not None:
            return copy_of(half, half.entry)
        store = self.messages.store
        copy = read_half(store, half.offset)
        if not isinstance(copy, NoHalf):
            return copy
        if half.physical_offset >= store.high_watermark:
            raise _NotVisibleError(half.physical_offset)
        if copy is NoHalf.LATER:
            raise _UnreadableNowError
        self.lose(term, half.offset)
        raise TransactionRefusedError("Find prepared transaction message failed")

    def _wait_until_visible(self, term: Term, half: Half, hidden: _NotVisibleError) -> None:
        """Write an outcome down once the log can be read so far."""

        def visible() -> None:
            self.write(term, half)

        self.messages.when_visible(hidden.log_offset + 1, visible)

    def _message(self, half: StoredCopy, outcome: Outcome) -> Entry:
        if outcome is Outcome.COMMITTED:
            return committed_entry(self.messages.store, self.delay, self.topics, half)
        return make_entry(
            self.messages.store.tail(names.GIVEN_UP_TOPIC, 0),
            half.body,
            half.properties,
            flag=half.flag,
            sys_flag=half.sys_flag,
            born_ms=half.born_ms,
            born_host=half.born_host,
            reconsume_times=half.reconsume_times,
            prepared_offset=half.physical_offset,
        )

    def _mark(self, ended: list[Half]) -> Entry:
        store = self.messages.store
        return mark_entry(store, ended, self.clock.epoch_ms(), store.config.store_host)

    def _put_unit(
        self, term: Term, level: Acknowledgement, halves: list[Half], entries: list[Entry]
    ) -> None:
        """Put a mark and its messages, which are one append."""
        entries.insert(0, self._mark(halves))
        ticket = term.mark_border.begin()

        def done(_: object, status: PutStatus, placed: Sequence[Placed]) -> None:
            term.mark_border.report(ticket, placed[0][PLACED_QUEUE_OFFSET] + 1 if placed else 0)
            if placed:
                self._written(term, halves, status)
            elif status is PutStatus.BUSY and not term.over:
                self._try_again(term, halves)
            else:
                for half in halves:
                    self._failed(half, status)

        self.messages.put(entries, level, done, None)

    def _written(self, term: Term, halves: list[Half], status: PutStatus) -> None:
        closed = term.halves.end_all(halves)
        term.recent.have_left(closed.kept, closed.size)
        for outcome, count in closed.outcomes:
            self.counts.ended(outcome, count)
        term.ended_end = max(term.ended_end, closed.end)
        self._answer(halves, status)
        for half in closed.waiting:
            self._tell(half, status)
        term.since_note += len(halves)
        if not term.over:
            self.written_down()

    def _try_again(self, term: Term, halves: Sequence[Half]) -> None:
        """Leadership may be on its way to another member, or damage be looked at: try a while."""
        kept: list[Half] = []
        for half in halves:
            half.tries += 1
            if half.tries > BUSY_TRIES_MAX:
                self._failed(half, PutStatus.BUSY)
            else:
                kept.append(half)

        def again() -> None:
            term.queue += kept
            self.schedule(term)

        if kept:
            self.loop.call_later(RETRY_MS / 1000, again)

    def give_up(self, term: Term) -> None:
        """Tell all who wait that this member leads no more: nothing is written down from now on."""
        for half in list(term.halves.by_offset.values()):
            if half.ending is not None:
                self._answer([half], PutStatus.NOT_WRITABLE)
                self._tell(half, PutStatus.NOT_WRITABLE)

    def _failed(self, half: Half, why: PutStatus | str) -> None:
        half.ending, half.tries = None, 0
        self._answer([half], why)
        self._tell(half, why)

    def _tell(self, half: Half, status: PutStatus | str) -> None:
        waiting, half.waiting = half.waiting, None
        for told in waiting or ():
            told(status)


def _answer_nobody(_halves: list[Half], _status: PutStatus | str) -> None:
    """Stand in where no reports come from connections."""
