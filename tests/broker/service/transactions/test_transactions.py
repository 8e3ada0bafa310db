"""Transactions through crashes and failovers: what is committed arrives once, nothing else does.

Every leader begins with what the last one left, cut at some record behind all that was confirmed:
inside an append, too. Producers repeat themselves, say nothing, or something else in the end.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from imago_broker.core.transactions import transactions as core_transactions
from imago_broker.core.transactions.transactions import Outcome, OutcomeVerdict
from imago_broker.model import names
from imago_broker.service.puts.copies import read_copy
from imago_broker.service.puts.put_status import PutStatus
from imago_broker.service.transactions import checks as transaction_checks
from imago_broker.service.transactions import outcome_writer, transaction_log
from imago_broker.service.transactions import service as transactions
from imago_broker.service.transactions.half_messages import half_entry
from imago_log.errors import UnreadableError
from imago_log.results import ReadResult, ReadStatus
from imago_testing.searching import examples
from imago_testing.stores.bare_brokers import Succession
from imago_testing.stores.hiding import hidden_queues
from imago_testing.stores.transaction_leaders import (
    INTERVAL_MS,
    TransactionCase,
    TransactionLeader,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


TINY: dict[Any, dict[str, int]] = {
    transactions: {"HELD_MAX": 2, "NOTE_EVERY": 2},
    transaction_log: {"PIECE": 2, "LOOK_BACK": 1, "READ_MAX": 2, "READ_BYTES_MAX": 300},
    transaction_checks: {"SLICE": 2, "SLICE_BYTES": 300},
    outcome_writer: {"MARKED_MAX": 3, "MARKED_BYTES_MAX": 300},
    core_transactions: {"REMEMBERED_MAX": 4},
}


class TransactionWorld(Succession[TransactionLeader]):
    """Leaders that follow each other, producers, and what they may expect."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, TransactionLeader)
        self.cases: list[TransactionCase] = []
        self.hidden: set[tuple[str, int]] = set()
        self.confirm()

    # What happens

    def begin(self) -> None:
        case = TransactionCase(
            f"m{len(self.cases)}", self.rng.choice([Outcome.COMMITTED, Outcome.ROLLED_BACK])
        )
        leader = self.leader
        entry = half_entry(
            leader.transactions.half_tail(),
            topic="T",
            queue_id=0,
            group="P",
            body=case.name.encode().ljust(self.rng.choice([8, 300]), b"."),
            properties=b"TRAN_MSG\x01true\x02UNIQ_KEY\x01%b\x02" % case.name.encode(),
            flag=0,
            sys_flag=0,
            born_ms=1,
            born_host=bytes(8),
            shape=None,
        )

        def done(_: object, status: PutStatus, placed: Sequence[Any]) -> None:
            assert status is PutStatus.OK
            case.offset, case.log_offset = placed[0][0], placed[0][1]
            case.sent_end = leader.store.log_end

        leader.transactions.put_half(entry, "P", (500, False), None, done, None)
        self.cases.append(case)

    def end(self, case: TransactionCase, outcome: Outcome | None = None) -> OutcomeVerdict | None:
        """Report an outcome, as the processor passes it on; None: it is not the message's place."""
        leader, wanted = self.leader, outcome or case.outcome
        if not leader.transactions.ready or case.offset < 0:
            return None
        half = leader.transactions.halves.get(case.offset)
        record = leader.store.record_at(case.log_offset)
        unique = half.unique.decode() if half is not None else ""
        if not unique and record is not None:
            copy = read_copy(record)
            unique = copy.text(b"UNIQ_KEY") if copy.topic == names.HALF_TOPIC else ""
        if unique != case.name:
            return None

        def ended(status: PutStatus | str) -> None:
            if status is PutStatus.OK and wanted is case.outcome:
                case.ended_end = leader.store.log_end

        if self.rng.random() < 0.5 and leader.end_straight(case, wanted, ended):
            return OutcomeVerdict.END
        return leader.transactions.end(case.offset, wanted, ended)

    def answer_checks(self, share: float = 0.5) -> None:
        asked, self.leader.asked = self.leader.asked, []
        for offset, log_offset in asked:
            for case in self.cases:
                if (case.offset, case.log_offset) == (offset, log_offset) and case.sent_end:
                    if self.rng.random() < share:
                        self.end(case)
                    break
            else:
                # Sent, but its producer heard of it no more: only the message says who it was.
                self._answer_unheard(offset, log_offset)

    def _answer_unheard(self, offset: int, log_offset: int) -> None:
        record = self.leader.store.record_at(log_offset)
        assert record is not None
        name = read_copy(record).text(b"UNIQ_KEY")
        case = next(case for case in self.cases if case.name == name)
        case.offset, case.log_offset = offset, log_offset
        self.end(case)

    def confirm(self) -> None:
        self.confirm_log()
        for case in self.cases:
            if case.ended_end and case.ended_end <= self.confirmed_end:
                case.confirmed = True

    def fail_over(self) -> None:
        """Kill the leader; another one has a part of what was not confirmed."""
        cut = self.next_leader()
        for case in self.cases:
            if case.sent_end > cut:  # its producer has a number that may be another's by now
                case.sent_end = 0
            if case.ended_end > cut:
                case.ended_end = 0
        if self.rng.random() < 0.8:
            self.confirm()

    # What must hold

    def check(self) -> None:
        told = self.leader.bodies("T")
        assert len(told) == len(set(told)), "each is delivered once"
        decided = {case.name: case for case in self.cases}
        for name in told:
            assert decided[name].outcome is Outcome.COMMITTED, f"{name} was rolled back"
        if self.leader.store.high_watermark < self.confirmed_end:
            return  # this leader cannot know yet what readers may see
        for case in self.cases:
            if case.confirmed and case.outcome is Outcome.COMMITTED:
                assert case.name in told, f"{case.name} was acknowledged"

    def step(self) -> None:
        """Let one thing happen, and look."""
        self.happen(
            (0.3, self._begin_some),
            (0.6, self._end_some),
            (0.75, self.confirm),
            (0.83, self._ask),
            (0.88, self._note),
            (0.92, self._hide_or_show),
            (1.0, self.fail_over),
        )
        self.check()

    def _begin_some(self) -> None:
        for _ in range(self.rng.randint(1, 4)):
            self.begin()
        self.maybe_end_turn()

    def _end_some(self) -> None:
        for case in self.rng.choices(self.cases, k=self.rng.randint(1, 6)) if self.cases else ():
            self.end(case)
            if case.confirmed and self.rng.random() < 0.3:
                verdict = self.end(case, _other(case.outcome))
                # One that is not remembered any more has no effect either.
                forgotten = core_transactions.REMEMBERED_MAX <= 4 and OutcomeVerdict.UNKNOWN
                assert verdict in (OutcomeVerdict.CONTRADICTED, None, forgotten)
        self.maybe_end_turn()

    def _ask(self) -> None:
        self.pass_time(INTERVAL_MS)
        self.answer_checks()

    def _note(self) -> None:
        self.leader.loop.run()
        if self.leader.transactions.ready:
            self.leader.transactions.note()

    def _hide_or_show(self) -> None:
        """For a while something in the log cannot be read."""
        self.hidden ^= {(self.rng.choice((names.HALF_TOPIC, names.TRANSACTION_MARK_TOPIC)), 0)}
        if self.rng.random() < 0.5:
            for offset in self.leader.transactions.halves:
                half = self.leader.transactions.halves.get(offset)
                if half is not None:
                    self.leader.transactions.term.recent.drop(half)

    def settle(self) -> None:
        """Have everybody answer until nothing is open; then nothing is left to come."""
        self.hidden.clear()
        for _ in range(20):
            self.confirm()
            self.pass_time(INTERVAL_MS + 600)
            self.answer_checks(share=1.0)
            self.confirm()
            if self.leader.transactions.ready and not len(self.leader.transactions.halves):
                break
        assert not len(self.leader.transactions.halves)
        assert not self.leader.lane.running, "each report was answered"
        self.check()
        stored = self.stored()
        told = set(self.leader.bodies("T"))
        for case in self.cases:
            if case.outcome is Outcome.COMMITTED and case.name in stored:
                assert case.name in told, f"{case.name} was never delivered"

    def stored(self) -> set[str]:
        """Return the transactions whose half message is in the log."""
        store, found, at = self.leader.store, set(), 0
        _, end = store.queue_range(names.HALF_TOPIC, 0)
        while at < end:
            block = store.read(names.HALF_TOPIC, 0, at, messages_max=1000, bytes_max=1 << 24)
            place = 0
            while place < len(block.body):
                copy = read_copy(block.body, place)
                found.add(copy.text(b"UNIQ_KEY"))
                place += copy.size
            at = block.next_offset
        return found


def _other(outcome: Outcome) -> Outcome:
    return Outcome.ROLLED_BACK if outcome is Outcome.COMMITTED else Outcome.COMMITTED


@pytest.mark.parametrize("seed", range(examples(60)))
def test_each_transaction_ends_as_its_producer_says_through_failovers(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As shipped no life of a leader meets a limit; with odd seeds each one does."""
    if seed % 2:
        for module, limits in TINY.items():
            for name, value in limits.items():
                assert getattr(module, name) > value
                monkeypatch.setattr(module, name, value)
    world = TransactionWorld(seed)
    world.hidden = hidden_queues(monkeypatch)
    for _ in range(60):
        world.step()
    world.settle()


@pytest.mark.parametrize("cut_at", range(4))
def test_messages_that_a_crash_cut_off_their_mark_are_put_by_the_next_leader(cut_at: int) -> None:
    world = TransactionWorld(0)
    for _ in range(3):
        world.begin()
    for case in world.cases:
        case.outcome = Outcome.COMMITTED
    world.confirm()
    for case in world.cases:
        world.end(case)
    world.leader.loop.run()
    borders = world.borders()
    assert len(borders) == 5  # the mark and three messages
    world.rng = cast("Any", SimpleNamespace(choice=lambda _: borders[1 + cut_at], random=lambda: 0))
    world.fail_over()
    world.confirm()
    assert world.leader.bodies("T") == ["m0", "m1", "m2"]
    world.rng = Random(1)
    world.settle()
    assert world.leader.bodies("T") == ["m0", "m1", "m2"]


def unreadable_world(
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[TransactionWorld, TransactionCase, list[Any]]:
    """Return one with an open transaction that only the log has, and what its reads give now."""
    world, given = TransactionWorld(3), list[Any]()
    world.begin()
    world.confirm()
    (case,) = world.cases
    case.outcome = Outcome.COMMITTED
    leader = world.leader
    half = leader.transactions.halves.get(case.offset)
    assert half is not None
    leader.transactions.term.recent.drop(half)
    real = leader.store.read

    def read(topic: str, queue_id: int, offset: int, **how: Any) -> Any:
        if topic != names.HALF_TOPIC or not given:
            return real(topic, queue_id, offset, **how)
        if isinstance(given[0], Exception):
            raise given[0]
        return ReadResult(ReadStatus.MESSAGE_WAS_REMOVING, given[0], 0, 1)

    monkeypatch.setattr(leader.store, "read", read)
    return world, case, given


@pytest.mark.parametrize("why", [0, UnreadableError(Path("x"), 0, 0), OSError("unforeseen")])
def test_half_message_that_cannot_be_read_now_is_asked_about_and_copied_later(
    monkeypatch: pytest.MonkeyPatch, why: int | Exception
) -> None:
    world, case, given = unreadable_world(monkeypatch)
    transactions, told = world.leader.transactions, list[PutStatus | str]()
    given.append(why)
    world.pass_time(3 * INTERVAL_MS)
    assert (len(transactions.halves), transactions.counts.checks) == (1, 0)
    given.clear()
    world.pass_time(2 * INTERVAL_MS)
    assert transactions.counts.checks, "the rounds go on"
    given.append(0)
    assert transactions.end(case.offset, case.outcome, told.append) is OutcomeVerdict.END
    world.pass_time(1000)
    assert not told
    assert not world.leader.bodies("T")
    given.clear()
    world.pass_time(1000)
    world.confirm()
    assert (told, world.leader.bodies("T")) == ([PutStatus.OK], [case.name])
    assert transactions.counts.lost == 0


def test_outcome_whose_half_message_stays_unreadable_is_refused_and_may_come_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outcome_writer, "BUSY_TRIES_MAX", 3)
    world, case, given = unreadable_world(monkeypatch)
    transactions, told = world.leader.transactions, list[PutStatus | str]()
    given.append(0)
    transactions.end(case.offset, case.outcome, told.append)
    world.pass_time(outcome_writer.RETRY_MS * (outcome_writer.BUSY_TRIES_MAX + 2))
    assert told == [PutStatus.BUSY]
    given.clear()
    assert transactions.end(case.offset, case.outcome, told.append) is OutcomeVerdict.END
    world.confirm()
    assert (told[1:], world.leader.bodies("T")) == ([PutStatus.OK], [case.name])


@pytest.mark.parametrize("by", ["a round", "an outcome"])
def test_half_message_that_the_log_has_lost_is_open_no_longer_and_counted_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, by: str
) -> None:
    world, case, given = unreadable_world(monkeypatch)
    transactions, told = world.leader.transactions, list[PutStatus | str]()
    given.append(case.offset + 1)  # the store goes on behind it
    if by == "an outcome":
        transactions.end(case.offset, case.outcome, told.append)
    world.pass_time(3 * INTERVAL_MS)
    assert (len(transactions.halves), transactions.counts.lost) == (0, 1)
    assert caplog.text.count("half_message_lost") == 1
    assert told == ["Find prepared transaction message failed"][: by == "an outcome"]


def test_unit_of_outcomes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcome_writer, "MARKED_MAX", 2)
    world = TransactionWorld(3)
    for _ in range(5):
        world.begin()
    world.confirm()
    for case in world.cases:
        case.outcome = Outcome.COMMITTED
        world.end(case)
    world.confirm()
    assert world.leader.bodies("T") == [f"m{n}" for n in range(5)]
    assert world.leader.store.queue_range(names.TRANSACTION_MARK_TOPIC, 0) == (0, 3)


def test_outcome_that_cannot_be_written_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    world = TransactionWorld(3)
    for _ in range(3):
        world.begin()
    world.confirm()
    writer = world.leader.transactions._writer
    real, failing = writer._entry, world.cases[1].offset

    def entry(term: Any, ending: Any) -> Any:
        if ending.offset == failing:
            raise OSError("unforeseen")
        return real(term, ending)

    def restore(*_: object) -> Any:
        raise MemoryError("unforeseen")

    monkeypatch.setattr(writer, "_entry", entry)
    monkeypatch.setattr(outcome_writer, "restore_halves", restore)
    for case in world.cases:
        case.outcome = Outcome.COMMITTED
        world.end(case)
    world.confirm()
    assert world.leader.bodies("T") == ["m0", "m2"]
    monkeypatch.undo()
    world.end(world.cases[1])
    world.confirm()
    assert world.leader.bodies("T") == ["m0", "m2", "m1"]
