"""Puts for light queues beside others: order, offsets, and what is refused."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.core.puts.acknowledgement import Acknowledgement
from imago_broker.errors import RequestError
from imago_broker.service.puts.messages import MessageService
from imago_broker.service.puts.put_status import PutStatus
from imago_log.errors import DiskFullError
from imago_testing.stores.in_memory import FakeClock, open_store, split_records
from imago_testing.stores.vfs import MemoryVfs
from imago_testing.virtual.clocks import ManualClock
from imago_wire.records.record import make_entry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_wire.records.record import Entry, Placed

A, B, HOST = "%LMQ%a", "%LMQ%b", bytes(8)


class Bench:
    """A service over a small store, and what its puts were answered."""

    def __init__(self, clock: FakeClock | None = None, retention_ms: int = 0) -> None:
        self.store = open_store(
            MemoryVfs(), clock, message_bytes_max=8000, retention_ms=retention_ms
        )
        self.store.create_topic("T", {})
        self.answers: dict[object, tuple[PutStatus, Sequence[Placed]]] = {}
        self.service = MessageService(
            self.store,
            loop=asyncio.get_running_loop(),
            clock=ManualClock(),
            level_of=lambda _: Acknowledgement.LEADER,
        )
        self.service.light.enabled = True

    def entry(self, body: bytes, *named: str) -> Entry:
        properties = f"INNER_MULTI_DISPATCH\x01{','.join(named)}\x02".encode() if named else b""
        tail = self.store.tail("T", 0)
        entry = make_entry(tail, body, properties, born_ms=1, born_host=HOST)
        return self.service.light.entry(entry, named) if named else entry

    def put(self, body: bytes, *named: str) -> None:
        self.service.put_one(self.entry(body, *named), None, self._done, body)

    def _done(self, token: Any, status: PutStatus, placed: Sequence[Placed]) -> None:
        self.answers[token] = (status, placed)

    def stored(self, topic: str) -> list[bytes]:
        found: list[bytes] = []
        offset = 0
        while (read := self.store.read(topic, 0, offset, messages_max=99, bytes_max=9999)).count:
            found += [record.body for record in split_records(read.body)]
            offset = read.next_offset
        return found


@pytest.fixture
async def bench() -> Bench:
    return Bench()


async def test_one_turn_keeps_the_order_of_all_puts(bench: Bench) -> None:
    for number in range(30):
        named = ((), (A,), (A, B), (B,))[number % 4]
        bench.put(b"%d" % number, *named)
    bench.service.flush_turn()
    assert bench.stored("T") == [b"%d" % number for number in range(30)]
    assert bench.stored(A) == [b"%d" % number for number in range(30) if number % 4 in (1, 2)]
    assert bench.stored(B) == [b"%d" % number for number in range(30) if number % 4 in (2, 3)]
    places = [placed for _, placed in bench.answers.values()]
    assert [[place[0] for place in each] for each in places] == [[n] for n in range(30)]
    assert (bench.service.appended, bench.service.light.pending) == (30, 0)
    bench.put(b"plain")
    before = bench.service.appends
    bench.service.flush_turn()
    assert bench.service.appends == before + 1


@pytest.mark.parametrize("size", [10, 250, 400])
@pytest.mark.parametrize("count", [2, 6, 12])
async def test_retention_takes_a_message_and_its_references_at_once(size: int, count: int) -> None:
    clock = FakeClock()
    bench = Bench(clock, retention_ms=3_600_000)
    ranges = set()
    for turn in range(30):
        for number in range(count):
            bench.put(b"%d-%d" % (turn, number) + b"." * size, A, B)
        bench.service.flush_turn()
        clock.now_ms += 600_000
        bench.store.tick()
        found = {bench.store.queue_range(topic, 0) for topic in ("T", A, B)}
        assert len(found) == 1, "a queue keeps what another has lost"
        ranges |= found
    assert all(status is PutStatus.OK for status, _ in bench.answers.values())
    assert len({first for first, _ in ranges}) > 2, "files went"


async def test_references_that_no_file_holds_are_in_several(bench: Bench) -> None:
    names = [f"%LMQ%{number}" for number in range(12)]
    bodies = [b"%d" % number + b"." * 2600 for number in range(3)]
    for body in bodies:
        start = bench.store.log_end
        bench.put(body, *names)
        bench.service.flush_turn()
        assert bench.store.log_end - start > 4096
    assert [status for status, _ in bench.answers.values()] == [PutStatus.OK] * 3
    for topic in ("T", *names):
        assert bench.stored(topic) == bodies


async def test_one_that_is_too_large_is_refused_alone(bench: Bench) -> None:
    for body in (b"1", b"2" * 5000, b"3"):
        bench.put(body, A, B)
    bench.service.flush_turn()
    statuses = [status for status, _ in bench.answers.values()]
    assert statuses == [PutStatus.OK, PutStatus.TOO_LARGE, PutStatus.OK]
    assert bench.stored("T") == bench.stored(A) == bench.stored(B) == [b"1", b"3"]
    assert bench.store.queue_range(A, 0) == (0, 2)


async def test_full_disk_takes_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.put(b"1", A)
    bench.service.flush_turn()

    def full(*_: object, **__: object) -> None:
        raise DiskFullError(used_ratio=1.0, limit_ratio=0.9)

    bench.put(b"2", A)
    bench.put(b"plain")
    with monkeypatch.context() as patched:
        patched.setattr(bench.store, "append", full)
        bench.service.flush_turn()
    statuses = [status for status, _ in bench.answers.values()]
    assert statuses == [PutStatus.OK, PutStatus.DISK_FULL, PutStatus.DISK_FULL]
    bench.put(b"3", A)
    bench.service.flush_turn()
    assert (bench.stored("T"), bench.stored(A)) == ([b"1", b"3"], [b"1", b"3"])


async def test_refused_turn_leaves_nothing_behind(bench: Bench) -> None:
    bench.service.refuse(PutStatus.BUSY)
    bench.put(b"1", A)
    bench.service.flush_turn()
    assert bench.answers[b"1"] == (PutStatus.BUSY, ())
    assert bench.service.light.pending == 0
    bench.service.refuse(None)
    bench.put(b"2", A)
    bench.service.flush_turn()
    assert bench.stored(A) == [b"2"]


async def test_fault_of_ours_costs_these_puts_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.put(b"plain")
    bench.put(b"light", A)

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("imago_broker.service.puts.messages.expand", broken)
    bench.service.flush_turn()
    assert [status for status, _ in bench.answers.values()] == [PutStatus.OK, PutStatus.BUSY]
    assert bench.stored("T") == [b"plain"]


async def test_queue_that_cannot_be_made_refuses_before_the_put(bench: Bench) -> None:
    bench.service.light.queues_max = 1
    bench.put(b"1", A)
    with pytest.raises(RequestError, match="LMQ_CONSUME_QUEUE_NUM_EXCEEDED"):
        bench.put(b"2", A, B)
    late = bench.service.light.late_entry(bench.entry(b"3"), (B,))
    bench.service.put([late], None, bench._done, b"3")
    bench.service.flush_turn()
    assert (bench.stored("T"), bench.stored(A)) == ([b"1", b"3"], [b"1"])
