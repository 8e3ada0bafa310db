"""The lease: counted from when a call was sent, begun again in each session, ended by clock."""

from __future__ import annotations

import asyncio

from imago_broker.cluster.memory import MemoryEnsemble, MemoryTree
from imago_broker.cluster.session.session_lease import FOR_EVER, NONE, Lease
from imago_broker.cluster.settings import CoordinatorConfig

CONFIG = CoordinatorConfig(session_timeout_ms=6000)


class SlowTree(MemoryTree):
    """Answers when it is let."""

    def __init__(self) -> None:
        super().__init__(MemoryEnsemble())
        self.answer = asyncio.Event()

    async def sync(self) -> None:
        await super().sync()
        await self.answer.wait()


class Rig:
    def __init__(self, config: CoordinatorConfig = CONFIG) -> None:
        self.now_ms = 1000
        self.tree = SlowTree()
        self.told: list[str] = []
        self.lease = Lease(
            config,
            self.tree,
            now_ms=lambda: self.now_ms,
            on_renewed=lambda: self.told.append("renewed"),
            on_end=lambda: self.told.append("end"),
        )

    async def call(self) -> asyncio.Task[None]:
        """Send one call, of which the answer is awaited."""
        task = asyncio.create_task(self.lease.renew())
        for _ in range(5):
            await asyncio.sleep(0)
        return task

    async def answer(self, task: asyncio.Task[None]) -> None:
        self.tree.answer.set()
        await task
        self.tree.answer.clear()


async def rig() -> Rig:
    made = Rig()
    await made.tree.start()
    return made


async def test_an_answer_that_comes_late_gives_no_longer_lease() -> None:
    made = await rig()
    call = await made.call()
    made.now_ms += 3000
    assert made.lease.end_ms == NONE
    await made.answer(call)
    assert made.lease.end_ms == 1000 + 4000
    made.lease.stop()


async def test_without_a_connection_it_is_not_renewed() -> None:
    made = await rig()
    made.tree.suspend()
    await made.lease.renew()
    assert made.lease.end_ms == NONE
    assert made.told == []


async def test_the_answer_of_an_ended_session_renews_nothing() -> None:
    made = await rig()
    call = await made.call()
    made.tree.expire()
    await made.answer(call)
    assert made.lease.end_ms == NONE


async def test_a_revoked_lease_begins_anew_with_the_next_answer() -> None:
    made = await rig()
    await made.answer(await made.call())
    made.lease.revoke()
    assert made.lease.end_ms == NONE
    made.now_ms += 10
    await made.answer(await made.call())
    assert made.lease.end_ms == 1010 + 4000
    assert made.told == ["renewed", "renewed"]
    made.lease.stop()


async def test_its_end_is_told() -> None:
    made = await rig()
    await made.answer(await made.call())
    made.now_ms = made.lease.end_ms
    made.lease._watch_end()
    assert made.told == ["renewed", "end"]
    assert made.lease.end_ms == NONE


async def test_nobody_can_take_the_place_of_a_broker_alone() -> None:
    made = Rig(CoordinatorConfig(alone=True))
    await made.lease.renew()
    made.lease.revoke()
    assert made.lease.end_ms == FOR_EVER
