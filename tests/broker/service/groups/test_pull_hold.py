"""Held requests: one that fails is over, and costs the others nothing."""

from __future__ import annotations

import asyncio

from imago_broker.service.groups.pull_hold import PullHold
from imago_testing.virtual.clocks import ManualClock
from imago_wire.records.record import QueueTail

TAIL = QueueTail(b"t", 0, dual=True)


def fails(_: bool) -> bool:
    raise LookupError("a fault in a held request")


async def test_failing_request_does_not_keep_an_arrival_from_the_others() -> None:
    hold = PullHold(asyncio.get_running_loop(), ManualClock())
    woken: list[bool] = []

    def wake(late: bool) -> bool:
        woken.append(late)
        return False

    hold.hold(b"t", 0, hold_ms=60_000, wake=fails)
    hold.hold(b"t", 0, hold_ms=60_000, wake=wake)
    hold.arrived([TAIL])
    hold.arrived([TAIL])
    assert woken == [False, False]
    assert len(hold) == 1
    hold.release_all()


async def test_failing_request_stops_neither_the_timer_nor_the_end() -> None:
    clock = ManualClock()
    hold = PullHold(asyncio.get_running_loop(), clock)
    late = asyncio.Event()

    def wake(is_late: bool) -> bool:
        assert is_late
        late.set()
        return True

    hold.hold(b"t", 0, hold_ms=1, wake=fails)
    hold.hold(b"t", 1, hold_ms=1, wake=wake)
    clock.advance(1000)
    await late.wait()
    assert len(hold) == 0
    late.clear()
    hold.hold(b"t", 0, hold_ms=60_000, wake=fails)
    hold.hold(b"t", 1, hold_ms=60_000, wake=wake)
    hold.release_all()
    assert late.is_set()
