"""Puts of idempotent producers: together in a turn, repeated while they wait, refused."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.core.puts.acknowledgement import Acknowledgement
from imago_broker.core.puts.sequencing import Numbers, Verdict
from imago_broker.service.puts.messages import MessageService
from imago_broker.service.puts.put_status import PutStatus
from imago_broker.service.puts.sequencing import NOWHERE, SequencedPuts
from imago_log.errors import DiskFullError
from imago_log.metadata.known_producers import RUNS_MAX
from imago_testing.stores.in_memory import HOST, open_store
from imago_testing.stores.vfs import MemoryVfs
from imago_testing.virtual.clocks import ManualClock
from imago_wire.record_format.sequences import Sequence, stored_property
from imago_wire.records.record import make_entry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from collections.abc import Sequence as SequenceOf

    from imago_broker.service.puts.sequencing import SequenceRefusal
    from imago_wire.records.record import Placed

LEADER, REPLICATED = Acknowledgement.LEADER, Acknowledgement.REPLICATED
P = "00000000000000aa"
OK = PutStatus.OK


class Bench:
    """Sequenced puts over a real store in memory, and what they were answered."""

    def __init__(self) -> None:
        self.store = open_store(MemoryVfs(), segment_bytes_max=1 << 20)
        self.store.create_topic("T", {"name": "T"})
        self.clock = ManualClock()
        self.messages = MessageService(
            self.store,
            loop=asyncio.get_running_loop(),
            clock=self.clock,
            level_of=lambda _: LEADER,
        )
        self.puts = SequencedPuts(self.messages)
        self.answers: dict[object, tuple[PutStatus, list[int]]] = {}
        self.told = asyncio.Event()

    def put(
        self,
        token: object,
        first: int,
        *,
        count: int = 1,
        epoch: int = 0,
        queue: int = 0,
        level: Acknowledgement = LEADER,
        producer: str = P,
    ) -> SequenceRefusal | None:
        entries = [
            make_entry(
                self.store.tail("T", queue),
                b"%d" % number,
                stored_property(Sequence(producer, epoch, number)),
                born_ms=1,
                born_host=HOST,
            )
            for number in range(first, first + count)
        ]
        claimed = Numbers(producer, epoch, first, count)
        return self.puts.put(entries, claimed, level, self._done, token)

    def _done(self, token: Any, status: PutStatus, placed: SequenceOf[Placed]) -> None:
        assert token not in self.answers, "answered once"
        self.answers[token] = (status, [place[0] for place in placed])
        self.told.set()

    @property
    def stored(self) -> int:
        return self.store.queue_range("T", 0)[1]


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    yield made
    made.messages.acknowledgements.close()
    made.store.close()


async def turn() -> None:
    await asyncio.sleep(0)


async def test_repeat_within_a_turn_is_answered_with_its_original(bench: Bench) -> None:
    for token, first, count in [("a", 0, 2), ("b", 2, 1), ("b again", 2, 1), ("a again", 0, 2)]:
        assert bench.put(token, first, count=count) is None
    assert bench.answers == {}
    await turn()
    assert bench.answers == {
        "a": (OK, [0, 1]),
        "b": (OK, [2]),
        "b again": (OK, [2]),
        "a again": (OK, [0, 1]),
    }
    assert bench.stored == 3
    assert bench.messages.appends == 1
    assert bench.puts.repeats == 2


async def test_repeat_of_what_is_stored_is_answered_at_once(bench: Bench) -> None:
    bench.put("first", 0, count=3)
    await turn()
    assert bench.put("again", 1, count=2) is None
    assert bench.answers["again"] == (OK, [1, 2])
    assert bench.stored == 3


async def test_repeat_waits_for_the_level_of_its_original(bench: Bench) -> None:
    bench.store.set_high_watermark(bench.store.log_end)
    bench.put("first", 0, level=REPLICATED)
    await turn()
    bench.put("again", 0, level=REPLICATED)
    await turn()
    assert bench.answers == {}, "neither is on the other members"
    bench.store.set_high_watermark(bench.store.log_end)
    bench.messages.acknowledgements.progressed()
    assert bench.answers == {"first": (OK, [0]), "again": (OK, [0])}
    assert bench.stored == 1


async def test_original_that_timed_out_is_confirmed_to_no_repeat_too_early(bench: Bench) -> None:
    bench.store.set_high_watermark(bench.store.log_end)
    bench.messages.acknowledgements.timeout_ms = 10
    bench.put("first", 0, level=REPLICATED)
    await turn()
    bench.clock.advance(11)
    await bench.told.wait()
    assert bench.answers["first"][0] is PutStatus.SLAVE_TIMEOUT
    bench.messages.acknowledgements.timeout_ms = 5000
    bench.put("again", 0, level=REPLICATED)
    await turn()
    assert "again" not in bench.answers
    bench.store.set_high_watermark(bench.store.log_end)
    bench.messages.acknowledgements.progressed()
    assert bench.answers["again"] == (OK, [0])


async def test_refused_puts_leave_no_trace(bench: Bench) -> None:
    bench.put("zero", 0)
    gap = bench.put("two", 2)
    assert gap is not None
    assert gap.verdict is Verdict.OUT_OF_ORDER
    assert gap.state.next == 1, "the turn's own messages count"
    await turn()
    assert bench.put("new life", 0, epoch=1) is None
    old = bench.put("old life", 1)
    assert old is not None
    assert (old.verdict, old.state.epoch) == (Verdict.FENCED, 1)
    elsewhere = bench.put("old life elsewhere", 0, queue=1)
    assert elsewhere is not None
    assert elsewhere.verdict is Verdict.FENCED, "an epoch is over in every queue of the shard"
    await turn()
    assert set(bench.answers) == {"zero", "new life"}
    assert bench.stored == 2
    assert bench.puts.refused == 3


async def test_put_that_was_not_appended_may_come_again(bench: Bench) -> None:
    bench.messages.refuse(PutStatus.NOT_WRITABLE)
    bench.put("a", 0)
    bench.put("b", 1)
    bench.put("a again", 0)
    await turn()
    assert {status for status, _ in bench.answers.values()} == {PutStatus.NOT_WRITABLE}
    bench.messages.refuse(None)
    bench.put("a third time", 0)
    bench.put("b again", 1)
    await turn()
    assert bench.answers["b again"] == (OK, [1])
    assert bench.stored == 2


async def test_what_belongs_together_is_stored_together_or_not(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message may not get into the log when the one before it did not."""
    append = bench.store.append
    full = DiskFullError(used_ratio=1.0, limit_ratio=0.9)

    def failing(entries: Any, **options: bool) -> Any:
        if any(entry[1] == b"0" for entry in entries):
            raise full
        return append(entries, **options)

    monkeypatch.setattr(bench.store, "append", failing)
    bench.put("zero", 0)
    bench.put("one", 1)
    await turn()
    assert {status for status, _ in bench.answers.values()} == {PutStatus.DISK_FULL}
    assert bench.stored == 0


async def test_repeat_of_long_ago_is_confirmed_without_its_place(bench: Bench) -> None:
    for number in range(RUNS_MAX + 2):
        bench.put(number, number)
        bench.put(f"other {number}", number, producer="00000000000000bb")
        await turn()
    assert bench.put("long ago", 0) is None
    assert bench.answers["long ago"] == (OK, [NOWHERE[0]])
    assert bench.stored == 2 * (RUNS_MAX + 2)


async def test_messages_that_nobody_may_put_now_are_not_confirmed_either(bench: Bench) -> None:
    bench.put("first", 0)
    await turn()
    bench.messages.refuse(PutStatus.NOT_WRITABLE)
    bench.put("again", 0)
    assert bench.answers["again"][0] is PutStatus.NOT_WRITABLE
