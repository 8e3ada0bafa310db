"""The put path: one append a turn, answers by level, each exactly once."""

from __future__ import annotations

import asyncio
import gc
import sys
from typing import TYPE_CHECKING, Any, cast

import pytest

from imago_broker.core.puts.acknowledgement import Acknowledgement
from imago_broker.service.puts.messages import MessageService
from imago_broker.service.puts.put_status import PutStatus
from imago_log.errors import DiskFullError, LogIOError, StoreClosedError, StoreError
from imago_testing.stores.manual import ManualStore
from imago_testing.virtual.clocks import ManualClock
from imago_wire.records.record import Entry, Placed, QueueTail, make_entry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from imago_log.store import MessageStore
    from imago_wire.hot import EntryRun

LEADER = Acknowledgement.LEADER
FSYNC = Acknowledgement.LEADER_FSYNC
REPLICATED = Acknowledgement.REPLICATED


class Bench:
    """A service over a manual store, and what its puts were answered."""

    def __init__(self) -> None:
        self.store = ManualStore()
        self.clock = ManualClock()
        self.tail = QueueTail(b"t", 0, dual=True)
        self.answers: list[tuple[object, PutStatus, Sequence[Placed]]] = []
        self.rounds = 0
        self.service = MessageService(
            cast("MessageStore", self.store),
            loop=asyncio.get_running_loop(),
            clock=self.clock,
            level_of=lambda topic: FSYNC if topic == b"safe" else LEADER,
            timeout_ms=5000,
            waiting_bytes_max=1000,
        )
        self.service.acknowledgements.on_completed(self._completed)

    def entry(self, tail: QueueTail | None = None) -> Entry:
        return make_entry(tail or self.tail, b"x", born_ms=1, born_host=bytes(8))

    def put(self, token: object, level: Acknowledgement | None = LEADER) -> None:
        self.service.put_one(self.entry(), level, self.done, token)

    def done(self, token: Any, status: PutStatus, placed: Sequence[Placed]) -> None:
        self.answers.append((token, status, placed))

    @property
    def answered(self) -> list[tuple[object, PutStatus]]:
        return [(token, status) for token, status, _ in self.answers]

    def _completed(self) -> None:
        self.rounds += 1


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    yield made
    made.service.acknowledgements.close()


async def turn() -> None:
    """Let everything that was planned for this loop turn happen."""
    await asyncio.sleep(0)


async def test_puts_of_one_turn_are_one_append_and_one_round(bench: Bench) -> None:
    for token in range(5):
        bench.put(token)
    assert bench.answers == []
    await turn()
    assert [len(entries) for entries in bench.store.appended] == [5]
    assert bench.answered == [(token, PutStatus.OK) for token in range(5)]
    assert [placed[0][0] for _, _, placed in bench.answers] == [0, 1, 2, 3, 4]
    assert bench.rounds == 1


async def test_a_put_of_several_is_answered_once_with_all_places(bench: Bench) -> None:
    bench.put("before")
    bench.service.put([bench.entry(), bench.entry()], LEADER, bench.done, "both")
    await turn()
    assert [(token, len(placed)) for token, _, placed in bench.answers] == [
        ("before", 1),
        ("both", 2),
    ]
    assert [place[0] for place in bench.answers[1][2]] == [1, 2]


async def test_leader_level_asks_for_no_sync(bench: Bench) -> None:
    bench.put(1)
    await turn()
    assert bench.store.syncs_requested == 0


async def test_fsync_level_is_answered_when_the_disk_has_it(bench: Bench) -> None:
    bench.put(1, FSYNC)
    await turn()
    assert bench.answers == []
    assert bench.store.syncs_requested == 1
    bench.store.sync_to(99)
    await turn()
    assert bench.answers == []
    bench.store.sync_to(100)
    await turn()
    assert bench.answered == [(1, PutStatus.OK)]
    assert bench.service.acknowledgements.bytes_waiting == 0


async def test_progress_answers_turns_in_order(bench: Bench) -> None:
    for token in range(3):
        bench.put(token, FSYNC)
        await turn()
    bench.store.sync_to(200)
    await turn()
    assert bench.answered == [(0, PutStatus.OK), (1, PutStatus.OK)]
    bench.store.sync_to(300)
    await turn()
    assert bench.answered[2] == (2, PutStatus.OK)


async def test_replicated_level_waits_for_the_high_watermark(bench: Bench) -> None:
    bench.put(1, REPLICATED)
    bench.put(2, Acknowledgement.REPLICATED_FSYNC)
    await turn()
    bench.store.replicate_to(200)
    bench.service.acknowledgements.progressed()
    assert bench.answered == [(1, PutStatus.OK)]
    bench.store.sync_to(200)
    await turn()
    assert bench.answered == [(1, PutStatus.OK), (2, PutStatus.OK)]


async def test_no_level_stands_for_the_topic_s(bench: Bench) -> None:
    safe = QueueTail(b"safe", 0, dual=True)
    bench.service.put_one(bench.entry(safe), None, bench.done, "safe")
    bench.put("plain", None)
    await turn()
    assert bench.answered == [("plain", PutStatus.OK)]


async def test_time_out_is_answered_once_with_its_own_status() -> None:
    bench = Bench()
    bench.service.acknowledgements.timeout_ms = 1
    bench.put("disk", FSYNC)
    bench.put("slave", REPLICATED)
    await turn()
    bench.clock.advance(5)
    answered = asyncio.Event()
    bench.service.acknowledgements.on_completed(answered.set)
    await answered.wait()
    assert set(bench.answered) == {
        ("disk", PutStatus.FLUSH_TIMEOUT),
        ("slave", PutStatus.SLAVE_TIMEOUT),
    }
    assert all(len(placed) == 1 for _, _, placed in bench.answers)
    bench.store.sync_to(200)
    await turn()
    assert len(bench.answers) == 2
    bench.service.acknowledgements.close()


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (DiskFullError(used_ratio=0.95, limit_ratio=0.9), PutStatus.DISK_FULL),
        (StoreClosedError("closed"), PutStatus.STOPPING),
    ],
)
async def test_refusal_of_the_store_is_everybody_s_answer(
    bench: Bench, error: Exception, status: PutStatus
) -> None:
    bench.store.fail_with = error
    bench.put(1)
    bench.put(2, FSYNC)
    await turn()
    assert bench.answers == [(1, status, ()), (2, status, ())]
    bench.put(3)
    await turn()
    assert bench.answered[2] == (3, PutStatus.OK)


async def test_put_that_is_too_large_does_not_take_the_others_with_it(bench: Bench) -> None:
    bench.store.record_bytes_max = 1000
    bench.put(1)
    large = make_entry(bench.tail, bytes(1001), born_ms=1, born_host=bytes(8))
    bench.service.put([bench.entry(), large], LEADER, bench.done, "large")
    bench.put(2, FSYNC)
    bench.put(3)
    await turn()
    assert bench.answered == [
        (1, PutStatus.OK),
        ("large", PutStatus.TOO_LARGE),
        (3, PutStatus.OK),
    ]
    bench.store.sync_to(bench.store.log_end)
    await turn()
    assert bench.answered[3] == (2, PutStatus.OK)


async def test_nobody_is_answered_when_the_write_s_outcome_is_unknown(bench: Bench) -> None:
    bench.store.fail_with = LogIOError("write", cast("Any", "log"), OSError(5, "I/O error"))
    bench.put(1)
    await turn()
    assert bench.answers == []


async def test_too_many_unacknowledged_bytes_are_refused_until_they_are_fewer(
    bench: Bench,
) -> None:
    for token in range(11):
        bench.put(token, FSYNC)
    await turn()
    bench.put("late", LEADER)
    await turn()
    assert bench.answered == [("late", PutStatus.BUSY)]
    bench.store.sync_to(bench.store.log_end)
    await turn()
    bench.put("again", LEADER)
    await turn()
    assert bench.answered[-1] == ("again", PutStatus.OK)


async def test_refusing_answers_everything_with_the_status(bench: Bench) -> None:
    bench.service.refuse(PutStatus.NOT_WRITABLE)
    bench.put(1)
    await turn()
    bench.service.refuse(None)
    bench.put(2)
    await turn()
    assert bench.answered == [(1, PutStatus.NOT_WRITABLE), (2, PutStatus.OK)]


async def test_flushing_early_appends_what_was_gathered_once(bench: Bench) -> None:
    bench.put(1)
    bench.service.flush_turn()
    bench.put(2)
    assert [len(entries) for entries in bench.store.appended] == [1]
    await turn()
    await turn()
    assert [len(entries) for entries in bench.store.appended] == [1, 1]
    assert bench.answered == [(1, PutStatus.OK), (2, PutStatus.OK)]


async def test_listeners_are_told_the_queues_that_grew(bench: Bench) -> None:
    grown: list[set[QueueTail]] = []
    bench.service.on_arrival(lambda tails: grown.append(set(tails)))
    other = QueueTail(b"u", 3, dual=True)
    bench.put(1)
    bench.put(2)
    bench.service.put_one(bench.entry(other), LEADER, bench.done, 3)
    await turn()
    assert grown == [{bench.tail, other}]


async def test_stopping_answers_what_waits(bench: Bench) -> None:
    bench.put(1, FSYNC)
    await turn()
    bench.service.acknowledgements.release_all(PutStatus.STOPPING)
    assert bench.answered == [(1, PutStatus.STOPPING)]
    assert not bench.service.in_flight


def fails(*_: object) -> None:
    raise LookupError("a fault in a listener or in an answer")


@pytest.mark.parametrize("level", [LEADER, FSYNC])
async def test_failing_listener_or_answer_costs_nobody_else_an_answer(
    bench: Bench, level: Acknowledgement, caplog: pytest.LogCaptureFixture
) -> None:
    def arrival_fails(_: Iterable[QueueTail]) -> None:
        fails()

    grown: list[set[QueueTail]] = []
    rounds: list[int] = []
    bench.service.on_arrival(arrival_fails)
    bench.service.on_arrival(lambda tails: grown.append(set(tails)))
    bench.service.acknowledgements.on_completed(fails)
    bench.service.acknowledgements.on_completed(lambda: rounds.append(1))
    bench.put("before", level)
    bench.service.put_one(bench.entry(), level, fails, "broken")
    bench.put("after", level)
    await turn()
    bench.store.sync_to(bench.store.log_end)
    await turn()
    assert bench.answered == [("before", PutStatus.OK), ("after", PutStatus.OK)]
    assert grown == [{bench.tail}]
    assert rounds
    assert not bench.service.in_flight
    assert "a fault in a listener or in an answer" in caplog.text


async def test_failing_answer_stops_neither_time_outs_nor_the_end(bench: Bench) -> None:
    for status in (PutStatus.STOPPING, PutStatus.NOT_WRITABLE):
        bench.service.put_one(bench.entry(), FSYNC, fails, "broken")
        bench.put(status, FSYNC)
        if status is PutStatus.NOT_WRITABLE:
            bench.service.refuse(status)
        await turn()
        bench.service.acknowledgements.release_all(PutStatus.STOPPING)
    assert bench.answered == [
        (PutStatus.STOPPING, PutStatus.STOPPING),
        (PutStatus.NOT_WRITABLE, PutStatus.NOT_WRITABLE),
    ]
    assert not bench.service.in_flight


async def test_fault_of_the_store_is_answered_and_the_next_turn_works(bench: Bench) -> None:
    bench.store.fail_with = KeyError("a fault in the store")
    bench.put(1)
    bench.put(2, FSYNC)
    await turn()
    assert bench.answers == [(1, PutStatus.BUSY, ()), (2, PutStatus.BUSY, ())]
    bench.put(3)
    await turn()
    assert bench.answered[2] == (3, PutStatus.OK)


async def test_put_that_the_store_refuses_does_not_take_the_others_with_it(bench: Bench) -> None:
    refused = QueueTail(b"gone", 0, dual=True)
    bench.store.refused_tails[refused] = StoreError("the queue is no more")
    bench.put(1)
    bench.service.put_one(bench.entry(refused), LEADER, bench.done, "gone")
    bench.put(2)
    await turn()
    assert bench.answered == [(1, PutStatus.OK), ("gone", PutStatus.BUSY), (2, PutStatus.OK)]


@pytest.mark.parametrize("full", [False, True])
async def test_nothing_of_a_turn_is_kept_once_it_is_over(bench: Bench, full: bool) -> None:
    whole, runs = [bench.entry()], [bench.entry()]
    before = sys.getrefcount(whole), sys.getrefcount(runs)
    bench.put("another")
    bench.service.put_whole(whole, LEADER, bench.done, "whole")
    bench.service.put_runs(cast("list[Entry | EntryRun]", runs), bench.done, "runs")
    if full:
        bench.store.fail_with = DiskFullError(used_ratio=0.95, limit_ratio=0.9)
    await turn()
    gc.collect()  # an error and its frames hold each other
    status = PutStatus.DISK_FULL if full else PutStatus.OK
    assert bench.answered == [(of, status) for of in ("another", "whole", "runs")]
    assert (sys.getrefcount(whole), sys.getrefcount(runs)) == before
    assert bench.store.whole == ([] if full else [(100, 200)])
