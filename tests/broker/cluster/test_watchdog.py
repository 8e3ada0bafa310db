"""The watch over the event loop: it acts in its own thread, once a hang, and forgives."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, cast

from imago_broker.cluster.session.watchdog import LoopWatchdog

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


class StubbornLoop:
    """Keeps what it is asked to do until it is told to do it."""

    def __init__(self) -> None:
        self.asked: list[Callable[[], None]] = []

    def call_soon_threadsafe(self, call: Callable[[], None]) -> None:
        self.asked.append(call)

    def run(self) -> None:
        for call in self.asked:
            call()
        self.asked.clear()


class Rig:
    def __init__(self) -> None:
        self.now = 0.0
        self.loop = StubbornLoop()
        self.told: list[str] = []
        self.dog = LoopWatchdog(
            cast("asyncio.AbstractEventLoop", self.loop),
            late_seconds=1,
            dead_seconds=6,
            on_late=lambda: self.told.append("late"),
            on_dead=lambda: self.told.append("dead"),
            now=lambda: self.now,
        )

    def after(self, seconds: float) -> list[str]:
        self.now += seconds
        self.dog.look()
        return self.told


def test_a_loop_that_answers_is_left_alone() -> None:
    rig = Rig()
    for _ in range(10):
        rig.after(0.5)
        rig.loop.run()
    assert rig.told == []


def test_a_loop_that_lags_is_told_once_and_one_that_hangs_is_given_up() -> None:
    rig = Rig()
    assert rig.after(0) == []
    assert rig.after(0.9) == []
    assert rig.after(0.2) == ["late"]
    assert rig.after(1) == ["late"]
    assert rig.after(5) == ["late", "dead"]
    assert rig.after(5) == ["late", "dead"]


def test_a_loop_that_came_back_is_watched_anew() -> None:
    rig = Rig()
    rig.after(0)
    assert rig.after(2) == ["late"]
    rig.loop.run()
    assert rig.after(2) == ["late"]
    assert rig.after(2) == ["late", "late"]


async def test_the_thread_ends_when_it_is_stopped() -> None:
    loop, late = asyncio.get_running_loop(), asyncio.Event()
    dog = LoopWatchdog(loop, late_seconds=0.01, dead_seconds=60, on_late=late.set, on_dead=late.set)
    dog.start()
    await asyncio.to_thread(dog.stop)
    assert not dog._thread.is_alive()


def test_a_loop_may_answer_in_the_middle_of_a_look() -> None:
    rig = Rig()
    rig.after(0)

    def answered_meanwhile() -> float:
        rig.loop.run()
        return rig.now

    rig.dog._now = answered_meanwhile
    rig.after(0.5)
    assert rig.told == []


async def test_a_look_that_fails_is_not_the_last(caplog: pytest.LogCaptureFixture) -> None:
    hangs = asyncio.Event()
    loop = asyncio.get_running_loop()
    told: list[str] = []

    def late() -> None:
        told.append("late")
        if len(told) == 1:
            raise ValueError("the first of its kind")

    dog = LoopWatchdog(loop, late_seconds=0.02, dead_seconds=3600, on_late=late, on_dead=hangs.set)
    dog.start()
    while len(told) < 2:
        time.sleep(0.1)  # noqa: ASYNC251  what the watchdog is there for
        await asyncio.sleep(0.05)
    dog.stop()
    assert "the first of its kind" in caplog.text
