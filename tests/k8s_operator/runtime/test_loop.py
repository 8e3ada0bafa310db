"""The work: what follows on a look that is done, fails, or never returns."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from imago_operator.errors import BlockedError, InvalidError, OperatorError, RetryError
from imago_operator.reconcile import ObjectKey
from imago_operator.runtime import loop as loops
from imago_operator.runtime.loop import Loop, Sources

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

A, B = ObjectKey("ImagoTopic", "mq", "a"), ObjectKey("ImagoTopic", "mq", "b")


class Scripted:
    """A reconciler that does what a test says, and a clock that a test moves."""

    kind = "ImagoTopic"

    def __init__(self) -> None:
        self.now = 0.0
        self.looks: list[tuple[ObjectKey, float]] = []
        self.does: Callable[[ObjectKey], Awaitable[float | None]] = self.nothing
        self.outcomes: list[str] = []
        self.loop = Loop([self], Sources(clock=lambda: self.now, random=lambda: 0.5), self)

    async def nothing(self, _: ObjectKey) -> float | None:
        return None

    async def reconcile(self, key: ObjectKey) -> float | None:
        self.looks.append((key, self.now))
        return await self.does(key)

    def finished(self, kind: str, outcome: str, seconds: float) -> None:  # noqa: ARG002  a port's
        self.outcomes.append(outcome)

    async def until(self, now: float) -> None:
        """Let time pass, step by step, and all that is due happen."""
        while self.now < now:
            self.now = min(now, self.now + 0.05)
            self.loop._wake.set()
            for _ in range(6):
                await asyncio.sleep(0)


@asynccontextmanager
async def working(script: Scripted) -> AsyncIterator[None]:
    task = asyncio.create_task(script.loop.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_many_events_are_one_look() -> None:
    script = Scripted()
    async with working(script):
        for _ in range(50):
            script.loop.seen(A, gone=False)
        await script.until(2)
    assert [key for key, _ in script.looks] == [A]
    assert script.outcomes == ["done"]


async def test_all_that_is_known_is_looked_at_again_after_five_minutes() -> None:
    script = Scripted()
    async with working(script):
        script.loop.seen(A, gone=False)
        await script.until(650)
    assert [round(at) for _, at in script.looks] == [0, 300, 600]


async def test_what_is_gone_is_looked_at_once_and_forgotten() -> None:
    script = Scripted()
    async with working(script):
        script.loop.seen(A, gone=False)
        await script.until(1)
        script.loop.seen(A, gone=True)
        await script.until(700)
    assert len(script.looks) == 2
    assert script.loop.known == frozenset()


FAILURES: list[tuple[OperatorError | Exception, str, list[int]]] = [
    (RetryError("later", delay_s=2), "retry", [0, 2, 6, 14, 30, 62, 122]),
    (BlockedError("no", until="yes"), "blocked", [0, 30, 90]),
    (ValueError("oops"), "bug", [0, 1, 3, 7, 15, 31, 63, 127]),
    (InvalidError("wrong"), "invalid", [0]),
]


@pytest.mark.parametrize(("error", "outcome", "moments"), FAILURES, ids=[f[1] for f in FAILURES])
async def test_what_fails_is_tried_again_later_and_later(
    error: Exception, outcome: str, moments: list[int]
) -> None:
    script = Scripted()

    async def fail(_: ObjectKey) -> float | None:
        raise error

    script.does = fail
    async with working(script):
        script.loop.seen(A, gone=False)
        await script.until(150)
    assert [pytest.approx(at, abs=1.5) for at in moments] == [at for _, at in script.looks]
    assert set(script.outcomes) == {outcome}


async def test_a_mistake_with_one_object_does_not_stop_the_others() -> None:
    script = Scripted()

    async def fail(key: ObjectKey) -> float | None:
        if key == A:
            raise ZeroDivisionError
        return 1.0

    script.does = fail
    async with working(script):
        script.loop.seen(A, gone=False)
        script.loop.seen(B, gone=False)
        await script.until(5)
    assert sum(key == B for key, _ in script.looks) >= 4


async def test_a_look_that_never_returns_is_found_out() -> None:
    script = Scripted()

    async def hang(key: ObjectKey) -> float | None:
        if key == A:
            await asyncio.Event().wait()
        return None

    script.does = hang
    async with working(script):
        script.loop.seen(A, gone=False)
        script.loop.seen(B, gone=False)
        await script.until(loops.STUCK_S)
        assert script.loop.stuck() == []
        await script.until(loops.STUCK_S + 1)
        assert script.loop.stuck() == [A]
    assert [key for key, _ in script.looks].count(B) == 2  # it goes on beside it


async def test_kinds_that_nobody_works_on_are_no_work() -> None:
    script = Scripted()
    async with working(script):
        script.loop.seen(ObjectKey("ImagoPipeline", "mq", "p"), gone=False)
        await script.until(1)
    assert script.looks == []
    assert script.loop.known == frozenset()


async def test_many_that_wait_are_asked_seldom_and_few_are_not() -> None:
    """A thousand of them would be a hundred looks a second, whatever each one costs."""
    many = loops.WAITING_PER_S * 50
    keys = [ObjectKey("ImagoTopic", "mq", f"t{n}") for n in range(many)]
    script = Scripted()
    for count in (20, many):
        for key in keys[:count]:
            script.loop._spread(key, 10.0)
        found = script.loop._spread(keys[0], 10.0)
        assert found == max(10.0, count / loops.WAITING_PER_S)
    assert script.loop._spread(keys[0], 2.0) == 2.0, "what was done is looked at soon"
    assert script.loop._spread(keys[1], None) is None
    assert script.loop._spread(keys[2], 300.0) == 300.0
    assert script.loop._spread(keys[3], 10.0) == (many - 3) / loops.WAITING_PER_S
