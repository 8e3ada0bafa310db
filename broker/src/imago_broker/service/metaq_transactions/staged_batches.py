"""What sinks have staged: batches that nobody reads before their micro-batch is published.

A staged batch is a prepared XA transaction with a key of our own. A sink's micro-batch is published
by one mark: it names the attempts that count, all their messages follow it in the same append, and
what else the sink has staged up to then is rolled back. So readers of the shard see all of it or
nothing, and a leader that finds the mark without its messages puts them.

A micro-batch is decided once. Who asks again, with whatever attempts, is told what was decided;
that is kept for each sink with its newest micro-batch, and says what other shards have to publish.
What nobody decides about goes after a week.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from imago_broker.core.transactions.metaq_transaction import (
    STAGED_PREFIX,
    MetaqOutcome,
    MetaqTransactionError,
    TransactionMessage,
    TransactionPhase,
    TransactionProblem,
)
from imago_broker.model import names
from imago_broker.service.metaq_transactions.decided import DecidedBatch
from imago_broker.service.metaq_transactions.staged_marks import put_meta
from imago_broker.service.metaq_transactions.term import Unseen, lost, refusal_of
from imago_broker.service.metaq_transactions.transaction_log import (
    STAGED_MARK,
    OutcomeMark,
    staged_rows,
)
from imago_broker.service.puts.put_status import PutStatus
from imago_wire.remoting.messages import encode_batch

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator, Mapping, Sequence

    from imago_broker.core.transactions.metaq_transaction import MetaqTransaction
    from imago_broker.ports import Clock
    from imago_broker.service.metaq_transactions.service import MetaqTransactions
    from imago_broker.service.metaq_transactions.term import EndTold, MetaqTerm
    from imago_broker.service.metaq_transactions.writer import Written
    from imago_broker.service.puts.messages import MessageService
    from imago_wire.records.record import Placed
    from imago_wire.remoting.messages import BatchEntry

logger = logging.getLogger(__name__)

GIVEN_UP_MS: Final = 7 * 24 * 3600 * 1000
"""After which what is staged goes, and what a sink has published last is forgotten."""
SWEEP_S: Final = 600.0


class StagedKey(NamedTuple):
    """Which batch it is."""

    sink: str
    batch: int
    """Number of the micro-batch."""
    attempt: str
    part: int
    topic: str = ""

    def __str__(self) -> str:
        return f"{STAGED_PREFIX}{self.batch}.{self.attempt}.{self.part}:{self.topic}:{self.sink}"

    @classmethod
    def of(cls, transaction: MetaqTransaction) -> StagedKey:
        """Read the key of a staged batch."""
        numbers, topic, sink = transaction.key.removeprefix(STAGED_PREFIX).split(":", 2)
        batch, attempt, part = numbers.split(".")
        return cls(sink, int(batch), attempt, int(part), topic)


class BatchDecidedError(Exception):
    """This micro-batch, or a later one, was published before."""

    def __init__(self, decided: DecidedBatch) -> None:
        super().__init__(f"micro-batch {decided.batch} was published")
        self.decided = decided


@dataclass(slots=True, kw_only=True)
class _Ended:
    """Staged batches that end together."""

    sink: str
    batch: int
    blocks: Sequence[MetaqTransaction]
    losers: Sequence[MetaqTransaction]
    mark: OutcomeMark | None
    """Which publishes `blocks`; None: there are none."""
    told: EndTold

    @property
    def all(self) -> list[MetaqTransaction]:
        """Those that are published and the others."""
        return [*self.blocks, *self.losers]

    def begin(self, term: MetaqTerm) -> None:
        """Let nobody else end them, or anything of the sink."""
        term.publishing.add(self.sink)
        for each in self.blocks:
            term.open.ending(each, MetaqOutcome.COMMITTED)
        for each in self.losers:
            term.open.ending(each, MetaqOutcome.ROLLED_BACK)

    def end(self, term: MetaqTerm, *, written: bool) -> None:
        """Forget them, or have them wait as before."""
        term.publishing.discard(self.sink)
        for each in self.all:
            if written:
                term.open.drop(each)
            else:
                term.open.not_ended(each)
            each.resume()


class StagedBatches:
    """Stages batches and publishes them, on a shard's leader."""

    def __init__(
        self,
        transactions: MetaqTransactions,
        messages: MessageService,
        *,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._transactions, self._messages = transactions, messages
        self._clock, self._loop = clock, loop
        self._sweep: asyncio.TimerHandle | None = None
        self._publishing: deque[Iterator[None]] = deque()
        """Steps of those that are being written down, the first of them now."""

    def start(self) -> None:
        """Look from now on for what nobody decides about."""
        self._sweep = self._loop.call_later(SWEEP_S, self._swept)

    def stop(self) -> None:
        """Do so no more."""
        if self._sweep is not None:
            self._sweep.cancel()

    def stage(
        self,
        key: StagedKey,
        queue_id: int,
        entries: Sequence[BatchEntry],
        *,
        user: str,
        born_ms: int,
        born_host: bytes,
        told: EndTold,
    ) -> None:
        """Write a batch down, then call `told`.

        BatchDecidedError, MetaqTransactionError: it is not taken.
        """
        term = self._transactions.term
        self._refuse_decided(term, key.sink, key.batch)
        known = term.open.find(str(key))
        if known is not None:
            self._repeated(known, key, told)
            return
        message = TransactionMessage(
            key.topic,
            queue_id,
            0,
            encode_batch(entries),
            self._messages.store.take_metaq_id(),
            born_ms,
            born_host,
            rows=len(entries),
        )
        self._transactions.begin(str(key), key.sink, self, 0, user=user)
        made = term.open.get(str(key), self)

        def done(status: PutStatus | MetaqTransactionError) -> None:
            if made.phase is TransactionPhase.OPEN:  # else nobody would ever drop it
                term.open.drop(made)
            told(status)

        try:
            term.open.check_room(made, message.cost)
            for row in staged_rows([message]):
                self._transactions.writer.entry(row)  # what cannot be put is refused now
            term.open.add(made, message)
            self._transactions.prepare(str(key), self, done)
        except Exception:
            term.open.drop(made)
            raise

    def publish(
        self,
        sink: str,
        batch: int,
        parts: Mapping[str, int],
        said: str,
        told: EndTold,
        *,
        user: str,
    ) -> None:
        """Have readers see what these attempts have staged of a micro-batch, so many parts each.

        That of no part that says nothing, as of others elsewhere, is none, and nothing is kept of
        it. `user` is of whose share that is. BatchDecidedError: it is published, or a later one.
        MetaqTransactionError: not all of it is there.
        """
        if not parts and not said:
            self.roll_back(sink, batch, told)
            return
        term = self._transactions.term
        self._refuse_decided(term, sink, batch)
        if sink in term.publishing:
            raise MetaqTransactionError(TransactionProblem.FAILED, "it is being published")
        staged = self._staged(term, sink, batch)
        chosen: dict[tuple[str, int], MetaqTransaction] = {}
        for each in staged:
            key = StagedKey.of(each)
            if key.batch == batch and key.part < parts.get(key.attempt, 0):
                chosen[key.attempt, key.part] = each
        found = Counter(attempt for attempt, _ in chosen)
        for attempt, count in sorted(parts.items()):
            there = found[attempt]
            if there < count:
                raise lost(
                    f"of attempt {attempt} of micro-batch {batch} {there} of {count} parts are"
                    " staged: the others were given up, or went with the log's oldest files"
                )
        blocks = [chosen[place] for place in sorted(chosen)]
        counted = set(blocks)
        losers = [each for each in staged if each not in counted]
        name = f"{STAGED_MARK}{batch}:{sink}"
        numbers = tuple(each.number for each in blocks)
        mark = OutcomeMark(MetaqOutcome.COMMITTED, 0, 0, 0, name, numbers, said, user)
        self._write(
            term,
            _Ended(sink=sink, batch=batch, blocks=blocks, losers=losers, mark=mark, told=told),
        )

    def roll_back(self, sink: str, batch: int, told: EndTold) -> None:
        """Forget what a sink has staged up to a micro-batch that was not published."""
        term = self._transactions.term
        self._refuse_decided(term, sink, batch)
        if sink in term.publishing:
            raise MetaqTransactionError(TransactionProblem.FAILED, "it is being published")
        losers = self._staged(term, sink, batch)
        if losers:
            self._write(
                term,
                _Ended(sink=sink, batch=batch, blocks=[], losers=losers, mark=None, told=told),
            )
        else:
            told(PutStatus.OK)

    def topics_of(self, sink: str, batch: int) -> set[str]:
        """Return the topics for which a sink has staged something up to a micro-batch."""
        term = self._transactions.term
        return {StagedKey.of(each).topic for each in self._staged(term, sink, batch)}

    def confirm(self, told: EndTold) -> None:
        """Answer once all that is in the log is as safe as what was published before."""
        topic = names.METAQ_OUTCOME_TOPIC.encode()
        self._messages.confirm(topic, (), None, lambda _, status, __: told(status), None)

    def _refuse_decided(self, term: MetaqTerm, sink: str, batch: int) -> None:
        decided = term.decided.get(sink)
        if decided is not None and decided.batch >= batch:
            raise BatchDecidedError(decided)

    def _repeated(self, known: MetaqTransaction, key: StagedKey, told: EndTold) -> None:
        """Answer who stages the same again, since its first answer was lost."""
        if known.phase is TransactionPhase.PREPARED:
            self.confirm(told)
            return

        def resume() -> None:
            term = self._transactions.term
            again = term.open.find(str(key))
            if again is known and known.phase is TransactionPhase.PREPARED:
                self.confirm(told)
            else:
                told(PutStatus.BUSY)

        known.waiting.append(resume)

    def _staged(self, term: MetaqTerm, sink: str, batch: int) -> list[MetaqTransaction]:
        """Return what waits to be published, of micro-batches up to this one."""
        return [
            each
            for each in term.open
            if each.owner == sink
            and each.key.startswith(STAGED_PREFIX)
            and each.phase is TransactionPhase.PREPARED
            and StagedKey.of(each).batch <= batch
        ]

    def _write(self, term: MetaqTerm, ended: _Ended) -> None:
        """Write down how these end, once their records can be read."""
        ended.begin(term)

        def done(status: PutStatus, placed: Sequence[Placed]) -> None:
            ended.end(term, written=bool(placed))
            if placed and ended.mark is not None:
                mark, now_ms = ended.mark, self._clock.epoch_ms()
                decided = DecidedBatch(ended.batch, mark.said, now_ms, mark.user)
                self._transactions.counts.published += 1
                # Its mark tells it, too, until the log has many more.
                put_meta(self._messages.store, term.decided.note(ended.sink, decided))
            ended.told(status)

        def write() -> None:
            self._publishing.append(self._steps(term, ended, done))
            if len(self._publishing) == 1:
                self._go_on()

        end = max((each.log_end for each in ended.all), default=0)
        self._messages.when_visible(end, Unseen(term.unseen, write))

    def _steps(self, term: MetaqTerm, ended: _Ended, done: Written) -> Iterator[None]:
        """Write down how these end, a little at each step."""
        steps = self._transactions.writer.publish(
            term, ended.sink, ended.blocks, ended.losers, ended.mark, done
        )
        try:
            while not term.over:
                next(steps)
                yield
        except StopIteration:
            return
        except Exception as error:
            ended.end(term, written=False)
            ended.told(refusal_of(error))
        else:
            done(PutStatus.NOT_WRITABLE, ())

    def _go_on(self) -> None:
        """Take one step a turn, of one after the other: the messages of each are in memory."""
        try:
            next(self._publishing[0])
        except StopIteration:
            self._publishing.popleft()
        if self._publishing:
            self._loop.call_soon(self._go_on)

    def _swept(self) -> None:
        """Roll back what nobody has decided about for a week, and forget sinks that are silent."""
        self._sweep = self._loop.call_later(SWEEP_S, self._swept)
        term, before_ms = self._transactions.term, self._clock.epoch_ms() - GIVEN_UP_MS
        if not term.ready:
            return
        old: dict[str, list[MetaqTransaction]] = {}
        for each in term.open:
            if (
                each.key.startswith(STAGED_PREFIX)
                and each.phase is TransactionPhase.PREPARED
                and each.begun_ms < before_ms
            ):
                old.setdefault(each.owner, []).append(each)
        for sink, given_up in old.items():
            if sink not in term.publishing:
                logger.warning("staged_batches_given_up sink=%s count=%d", sink, len(given_up))
                self._write(
                    term,
                    _Ended(
                        sink=sink,
                        batch=-1,
                        blocks=[],
                        losers=given_up,
                        mark=None,
                        told=_told_nobody,
                    ),
                )
        put_meta(self._messages.store, term.decided.forget_silent(before_ms))


def _told_nobody(_: object) -> None:
    """Nobody waits."""
