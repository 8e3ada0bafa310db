"""Transactions of RocketMQ's producers: half messages in, their outcomes into the log.

What is open is known from the log (`transaction_log`) and followed from there on (`core`). Outcomes
of a turn are written down together: one mark, and behind it the messages that it puts, in one
append. While a leader does not know yet what is open, those who report outcomes wait.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from imago_broker.core.transactions.transactions import OpenHalves, Outcome, OutcomeVerdict
from imago_broker.model import names
from imago_broker.service.log_walk import READ_AGAIN_MS, NotReadableNowError
from imago_broker.service.transactions import transaction_log
from imago_broker.service.transactions.half_appends import HalfRun
from imago_broker.service.transactions.outcome_writer import OutcomeWriter
from imago_broker.service.transactions.term import (
    Ended,
    Term,
    TransactionCounts,
    TransactionRefusedError,
)
from imago_broker.service.transactions.transaction_log import Found
from imago_log.errors import StoreError
from imago_wire.record_format.layout import UNIT

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from imago_broker.config.live import LiveSettings
    from imago_broker.config.sections.sections import RocketmqSection
    from imago_broker.core.puts.acknowledgement import Acknowledgement
    from imago_broker.ports import Clock
    from imago_broker.service.delays.levels.levels import DelayService
    from imago_broker.service.puts.acknowledgements import Done
    from imago_broker.service.puts.messages import MessageService
    from imago_broker.service.puts.put_status import PutStatus
    from imago_broker.service.topics.topics import TopicService
    from imago_wire.hot import Half
    from imago_wire.records.record import Entry, Placed, QueueTail
    from imago_wire.remoting.scanning.items import AskedSend

logger = logging.getLogger(__name__)

HELD_MAX = 10_000
"""Outcomes that wait until it is known what is open."""
NOTE_EVERY = 10_000
"""Outcomes after which it is noted what is open."""


class TransactionService:
    """All transactions of a shard's leader. `start` it once all that is in the log is visible."""

    def __init__(
        self,
        messages: MessageService,
        topics: TopicService,
        delay: DelayService,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        settings: LiveSettings[RocketmqSection],
    ) -> None:
        self._messages, self._topics, self._loop = messages, topics, loop
        self._clock, self._settings = clock, settings
        self.term = Term()
        """What is known in this leadership."""
        self.counts = TransactionCounts()
        self._writer = OutcomeWriter(
            messages=messages,
            topics=topics,
            delay=delay,
            loop=loop,
            clock=clock,
            counts=self.counts,
            written_down=self._written_down,
        )
        self.on_ready: list[Callable[[], None]] = []
        """Called when it has become known what is open."""
        self.on_stop: list[Callable[[], None]] = []

    @property
    def halves(self) -> OpenHalves:
        """What is open in this leadership."""
        return self.term.halves

    @property
    def ready(self) -> bool:
        """Whether it is known what is open."""
        return self.term.ready

    # Leadership

    def start(self) -> None:
        """Find in the log what is open, and finish what the leader before could not."""
        store, term = self._messages.store, self.term
        try:
            found = transaction_log.find_open(store)
        except NotReadableNowError as error:
            logger.warning("transactions_wait unreadable=%s", error)
            self._loop.call_later(READ_AGAIN_MS / 1000, lambda: self._start_again(term))
            return
        for offset, checks in found.open.items():
            term.halves.restore(offset, checks)
        term.halves.known_end = found.half_end
        term.half_border.offset = max(term.half_border.offset, found.half_end)
        term.mark_border.offset = found.mark_end
        term.ended_end = found.half_end
        for offset, outcome in found.ended:
            term.halves.end(offset, outcome)
        term.generation = transaction_log.generation_of(store.meta(transaction_log.KIND))
        if found.lost:
            self.counts.lost += len(found.lost)
            logger.error(
                "half_messages_lost first=%d last=%d count=%d reason=%s",
                found.lost[0],
                found.lost[-1],
                len(found.lost),
                "a full disk took their log files: give it room, or shorten store.retention_ms",
            )
        if found.open or found.missing:
            logger.info("transactions_found open=%d cut=%d", len(found.open), len(found.missing))
        self._writer.finish(term, found.missing, lambda: self._is_ready(term))

    def _start_again(self, term: Term) -> None:
        if not term.over:
            self.start()

    def stop(self) -> None:
        """Write nothing down any more; what was not is open for the next leader."""
        term = self.term
        if term.ready:
            self.note()
        term.over = True
        self.term = Term()
        for listener in self.on_stop:
            listener()
        self._writer.give_up(term)
        for held in term.held:
            held()

    def when_ready(self, then: Callable[[], None]) -> bool:
        """Call `then` when it is known what is open, or this member leads no more.

        False: too many wait already.
        """
        if len(self.term.held) >= HELD_MAX:
            return False
        self.term.held.append(then)
        return True

    def _is_ready(self, term: Term) -> None:
        if term.over:
            return
        term.ready = True
        held, term.held = term.held, []
        for listener in self.on_ready:
            listener()
        for each in held:
            each()

    # Half messages

    def require_room(self, group: str, owner: str) -> None:
        """TransactionRefusedError: so many are open that no half message more is taken.

        `owner` is who begins it: `user NAME`, or `address ADDRESS` where nobody has to say who he
        is.
        """
        halves, settings = self.term.halves, self._settings.current
        of_group, of_owner = halves.of_group(group), halves.of_owner(owner)
        if of_owner >= settings.transactions_per_user_max:
            raise TransactionRefusedError(
                f"{of_owner} transactions of {owner} are open, at most "
                f"{settings.transactions_per_user_max} may be: end some, or raise "
                "rocketmq.transactions_per_user_max"
            )
        if len(halves) >= settings.transactions_max:
            raise TransactionRefusedError(
                f"{len(halves)} transactions of this broker are open, at most "
                f"{settings.transactions_max} may be: end some, or raise rocketmq.transactions_max"
            )
        if of_group >= settings.transactions_per_group_max:
            raise TransactionRefusedError(
                f"{of_group} transactions of producer group {group} are open, at most "
                f"{settings.transactions_per_group_max} may be: end some, or raise "
                "rocketmq.transactions_per_group_max"
            )

    def half_tail(self) -> QueueTail:
        """Return the queue of half messages; it and what goes with it is made now if need be."""
        self._topics.ensure_own(
            names.HALF_TOPIC, names.TRANSACTION_MARK_TOPIC, names.GIVEN_UP_TOPIC
        )
        return self._messages.store.tail(names.HALF_TOPIC, 0)

    def put_half(
        self,
        entry: Entry,
        group: str,
        immunity: tuple[int, bool],
        level: Acknowledgement | None,
        done: Done,
        token: object,
        *,
        owner: str = "",
    ) -> None:
        """Put a half message; `immunity`: for how many ms, and whether the message says so."""
        run = self.begin_halves(immunity)
        run.note([(0, group, owner)])

        def put(_: object, status: PutStatus, placed: Sequence[Placed]) -> None:
            self.end_halves(run, [entry], placed)
            done(token, status, placed)

        self._messages.put([entry], level, put, None)

    @property
    def room(self) -> int:
        """How many half messages may come at least, from any producer."""
        halves, settings = self.term.halves, self._settings.current
        return min(
            settings.transactions_max - len(halves),
            min(settings.transactions_per_group_max, settings.transactions_per_user_max)
            - halves.counted,
        )

    def begin_halves(self, immunity: tuple[int, bool]) -> HalfRun:
        """Begin an append that has half messages; the next one may begin when it is on its way."""
        return HalfRun(self.term, self.bounded_immunity_ms(immunity[0]), limited=immunity[1])

    def end_halves(
        self,
        run: HalfRun,
        entries: list[Entry],
        placed: Sequence[Placed],
        asked: list[AskedSend] | None = None,
    ) -> None:
        """Say where the append's entries are; none: they did not get into the log.

        `asked` says of each entry which id its producer gave it; None: its properties do.
        """
        if placed:
            now_ms = self._clock.monotonic_ms()
            self.counts.opened += run.arrived(entries, list(placed), now_ms, asked)
        else:
            run.failed()

    # Outcomes

    def end(self, offset: int, outcome: Outcome, ended: Ended) -> OutcomeVerdict:
        """Write down how an open half message ends, then call `ended`.

        CONTRADICTED, UNKNOWN: it is not told. REPEAT of what is in the log already: neither.
        """
        term = self.term
        verdict, half = term.halves.judge(offset, outcome), term.halves.get(offset)
        if verdict is OutcomeVerdict.REPEAT:
            self.counts.repeated += 1
            if half is not None:
                half.waiting = [*(half.waiting or ()), ended]
                return OutcomeVerdict.END
        if verdict is OutcomeVerdict.END and half is not None:
            half.ending, half.waiting = outcome, [ended]
            self._writer.write(term, half)
        return verdict

    def answer_by(self, answer: Callable[[list[Half], PutStatus | str], None]) -> None:
        """Have this called with half messages that end, or cannot: it answers their askers."""
        self._writer.answer_by(answer)

    def write_soon(self) -> None:
        """Have what was added to the term's queue written down when the turn ends."""
        self._writer.schedule(self.term)

    def lose(self, offset: int) -> None:
        """Forget a half message whose record nobody can read any more."""
        self._writer.lose(self.term, offset)

    # What the log keeps

    @property
    def age_max_ms(self) -> int | None:
        """The age at which an open transaction is given up, since the log keeps it; None: none."""
        retention_ms = self._messages.store.components.deleter.limits.retention_ms
        interval_ms = self._settings.current.transaction_check_interval_ms
        return max(0, retention_ms - interval_ms) if retention_ms else None

    def bounded_immunity_ms(self, immunity_ms: int) -> int:
        """Return how long a half message stays unchecked: no immunity outlasts the highest age."""
        age_max_ms = self.age_max_ms
        return immunity_ms if age_max_ms is None else min(immunity_ms, age_max_ms)

    def needed_from(self) -> int:
        """Return the log offset of the oldest half message that is open."""
        term, store = self.term, self._messages.store
        if not term.ready:
            return 0  # nobody knows yet
        oldest = min(term.halves, default=None)
        if oldest is None:
            return store.log_end
        half, units = term.halves.get(oldest), store.units(names.HALF_TOPIC, 0, oldest, 1)
        if half is not None and half.physical_offset >= 0:
            return half.physical_offset
        return UNIT.unpack(units)[0] if units else store.log_end

    def log_shortened(self) -> None:
        """Forget the half messages that went with the log's oldest files."""
        first = self._messages.store.queue_range(names.HALF_TOPIC, 0)[0]
        halves = self.term.halves
        for offset in [offset for offset in halves if offset < first]:
            half = halves.get(offset)
            if half is not None and half.ending is None:
                self.lose(offset)

    # The note in the metadata

    def note(self) -> None:
        """Note what is open, so that the next start reads only what came after.

        Left for later while a half message has ended of whose forerunners it is not known where
        they are.
        """
        term, store = self.term, self._messages.store
        borders = term.half_border.offset, term.mark_border.offset
        if term.ended_end > borders[0] or (not term.since_note and borders == term.noted):
            return
        halves = term.halves
        checks = {offset: half.checks for offset in halves if (half := halves.get(offset))}
        found = Found(open=checks, half_end=borders[0], mark_end=borders[1])
        try:
            store.put_meta(transaction_log.note_changes(found, term.generation + 1))
            term.generation += 1
            store.put_meta(transaction_log.stale_pieces(store.meta(transaction_log.KIND)))
        except StoreError as error:
            logger.warning("transactions_not_noted reason=%s", error)
            return
        term.since_note, term.noted = 0, borders

    def _written_down(self) -> None:
        if self.term.since_note >= NOTE_EVERY:
            self.note()

    def checked(self) -> None:
        """Say that checks were counted, which the next note has to tell."""
        self.term.since_note += 1
