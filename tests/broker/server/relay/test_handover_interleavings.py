"""Clients' connections over handovers, whatever comes before whatever else.

Sessions, relays and ports are the real ones; network and time are the test's, so that everything
that can happen next may be what happens next: a part of some bytes arrives, a connection is opened,
answers are replicated, the next step of a handover is made.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from imago_broker.server.client_ports import HOLD_SECONDS_MAX
from imago_testing.searching import examples, seldom
from imago_testing.virtual.loop import VirtualLoop
from imago_testing.virtual.relaying import Client, RelayingWorld, happen

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

LINGER_MS = 35_000
SEEDS = 400
MASTER = "c"
STORED = {0, 200}


def run(test: Callable[[VirtualLoop], Coroutine[object, object, None]]) -> None:
    """Run a test on a loop of its own."""
    loop = VirtualLoop()
    try:
        loop.run_until_complete(test(loop))
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
    finally:
        loop.close()


def handover(
    world: RelayingWorld, former: str, following: str, rng: random.Random
) -> Iterator[None]:
    """Make the steps of a planned handover, one each time."""
    old, new = world.members[former], world.members[following]
    old.ports.hold_puts()
    yield
    old.replicated(True)
    old.leads = False
    steps = ["relay", "lead"]
    if rng.random() < 0.3:
        steps.reverse()
    for step in steps:
        if step == "lead":
            lead(world, following)
        else:
            old.ports.relay_to(new.record, LINGER_MS)
        yield


def lead(world: RelayingWorld, name: str) -> None:
    member = world.members[name]
    member.leads = True
    member.ports.release()


async def shard(loop: VirtualLoop) -> tuple[RelayingWorld, list[Client]]:
    """Return three members, all but the last of which pass requests on, and clients of each."""
    world = RelayingWorld(loop, "abc")
    lead(world, "a")
    for former, following in ("ab", "bc"):
        for _ in handover(world, former, following, random.Random(0)):
            pass
        while world.members[former].ports.waiting:
            await asyncio.sleep(0.001)
            await world.settle()
    clients = [
        world.client(f"{kind}-{at}", at, framed=kind == "framed")
        for kind in ("framed", "text")
        for at in "abc"
    ]
    return world, clients


class Chance:
    """Lets things happen in an order that a seed gives."""

    def __init__(self, world: RelayingWorld, seed: int) -> None:
        self.world, self.rng = world, random.Random(seed)

    async def step(self) -> None:
        """Let one thing happen, or time pass where nothing can."""
        rng, world = self.rng, self.world
        for _ in range(rng.randrange(3)):
            await asyncio.sleep(0)
        pending = world.network.pending
        if rng.random() < 0.2:
            rng.choice(list(world.members.values())).replicated(True)
        if not pending:
            await asyncio.sleep(0.001)
            return
        happen(rng.choice(pending), rng.choice((1, 5, 40, 1 << 20)))

    async def handovers(self, clients: list[Client], count: int) -> None:
        """Have the mastership go round while clients send."""
        rng, world = self.rng, self.world
        names, master = list(world.members), MASTER
        for _ in range(count):
            following = rng.choice([name for name in names if name != master])
            for _ in handover(world, master, following, rng):
                for _ in range(rng.randrange(12)):
                    self.ask(clients)
                    await self.step()
            master = following
            for _ in range(rng.choice((0, 5, 60))):
                self.ask(clients)
                await self.step()

    def ask(self, clients: list[Client]) -> None:
        """Have some client ask for something."""
        client = self.rng.choice(clients)
        if client.connected and self.rng.random() < 0.4:
            (client.poll if self.rng.random() < 0.2 else client.send)()


@pytest.mark.parametrize("part", seldom(range(4)))
def test_planned_handovers_leave_no_request_unanswered_refused_or_out_of_order(part: int) -> None:
    for seed in range(part, examples(SEEDS), 4):

        async def go(loop: VirtualLoop, seed: int = seed) -> None:
            world, clients = await shard(loop)
            await Chance(world, seed).handovers(clients, 6)
            began_s = loop.now_s
            await world.settle()
            assert world.faults() + world.out_of_order() == [], seed
            assert loop.now_s - began_s < HOLD_SECONDS_MAX, seed
            for client in clients:
                assert not client.closed, (seed, client.name)
                refused = {n: codes for n, codes in client.told.items() if not fine(codes)}
                assert refused == {}, (seed, client.name)

        run(go)


def fine(codes: list[int]) -> bool:
    """Whether a request was served, as a send or as a poll that found nothing."""
    return codes[0] in (*STORED, 19, 20)


@pytest.mark.parametrize("part", seldom(range(4)))
def test_whoever_dies_every_request_has_an_answer_or_its_connection_an_end(part: int) -> None:
    for seed in range(part, examples(SEEDS), 4):

        async def go(loop: VirtualLoop, seed: int = seed) -> None:
            world, clients = await shard(loop)
            chance = Chance(world, seed)
            await chance.handovers(clients, chance.rng.randrange(4))
            victim = chance.rng.choice("abc")
            world.kill(victim)
            world.members[victim].leads = False
            for _ in range(30):
                chance.ask(clients)
                await chance.step()
            await world.settle()
            assert world.faults() == [], seed
            closed = {client.name for client in clients if client.closed}
            assert closed <= {f"framed-{victim}", f"text-{victim}"}, (seed, victim)

        run(go)


@pytest.mark.parametrize("framed", [True, False], ids=["framed", "text"])
@pytest.mark.parametrize("stage", seldom([2, 4, 0, 1, 3, 5], often=2))
def test_requests_cut_at_any_byte_at_any_stage_are_served_once(framed: bool, stage: int) -> None:
    size = 3 * 250 if framed else 3 * 60
    for cut in range(1, size):

        async def go(loop: VirtualLoop, cut: int = cut) -> None:
            world = RelayingWorld(loop, "ab")
            client = world.client("client", "a", framed=framed)
            lead(world, "a")
            await world.settle()
            wire = world.network.wires[0]
            steps = stages(world)
            for _ in range(stage):
                next(steps)
                await turns()
            for _ in range(3):
                client.send()
            if wire.ready:
                wire.deliver(cut)
            await turns()
            for _ in steps:
                await turns()
            await world.settle()
            assert world.faults() + world.out_of_order() == [], cut
            assert [client.told.get(number) for number in (1, 2, 3)] in ([[0]] * 3, [[200]] * 3), (
                cut
            )

        run(go)


def stages(world: RelayingWorld) -> Iterator[None]:
    """Go from a to b and back, step by step."""
    rng = random.Random(0)
    yield from handover(world, "a", "b", rng)
    yield from handover(world, "b", "a", rng)


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)
