"""One seeded run from its first event to its verdict."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from imago_broker.core.shard.values import MachineRole
from imago_log.errors import StoreError
from imago_testing.simulation.faults import Faults
from imago_testing.simulation.telling import told as tell
from imago_testing.simulation.verdict import judge
from imago_testing.simulation.winners import InvariantBrokenError
from imago_testing.simulation.world import Setup, SimulatedRun

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_testing.simulation.member import Process

EVENTS_BROKEN = 600
"""Events that happen before the faults end."""

REJOIN_MS_MAX = 60_000
STORY_LINES_MAX = 400


@dataclass(frozen=True, slots=True)
class Result:
    """What a run amounted to."""

    seed: int
    events: int
    faults: int
    elections: int
    acks: int
    excused: int
    """How often records were lost that the promises allow to be lost."""


class Run:
    """A world, its faults and its clients."""

    def __init__(self, setup: Setup, weights: Mapping[str, int] | None = None) -> None:
        self.world = SimulatedRun(setup)
        self.faults = Faults(self.world, weights)
        self.acks_before = 0
        self.looked = 0

    def clients_act(self) -> None:
        world = self.world
        world.client.act()
        world.at(world.now + world.rng.randint(5, 120), self.clients_act)

    def play(self, events: int) -> Result:
        """Break things for a number of events, heal, and wait for all to be well."""
        world = self.world
        world.at(100, self.clients_act)
        self.faults.begin()
        world.run(600_000, events)
        self.faults.heal()
        healed_ms = world.now
        self.acks_before = world.client.acks
        writes_ms = 2 * world.session_ms + world.limits.lag_ms_max
        if not world.run(healed_ms + writes_ms, 100_000, self.writes):
            raise InvariantBrokenError(
                17, f"no put was acknowledged {writes_ms} ms after all healed"
            )
        if not world.run(healed_ms + REJOIN_MS_MAX, 100_000, self.all_well):
            raise InvariantBrokenError(17, f"not all in sync: {world.coordinator.state}")
        leader = self.leader()
        assert leader is not None
        judge(world, leader.disk)
        checker = world.checker
        return Result(
            world.setup.seed,
            world.events,
            checker.faults,
            checker.elections,
            world.client.acks,
            checker.excused,
        )

    def writes(self) -> bool:
        return self.world.client.acks > self.acks_before

    def leader(self) -> Process | None:
        leader = self.world.coordinator.state.leader
        if leader is None:
            return None
        return self.world.processes[self.world.index_of(leader.uuid)]

    def all_well(self) -> bool:
        """Every member is in sync and holds what the leader has committed."""
        self.looked += 1
        if self.looked % 8:
            return False
        state = self.world.coordinator.state
        leader = self.leader()
        if leader is None or leader.machine.state.role is not MachineRole.LEADING:
            return False
        if not all(
            process is leader or follows(process, leader) for process in self.world.processes
        ):
            return False  # a member of the elected set may still have to cut what only it has
        return len(state.in_sync) == len(self.world.disks) and all(
            (entry := self.world.coordinator.registered.get(member.uuid)) is not None
            and entry[0].incarnation == member.incarnation
            for member in state.in_sync
        )


def follows(process: Process | None, leader: Process) -> bool:
    """Whether a member's log has been compared with the leader's of now."""
    if process is None:
        return False
    state = process.machine.state
    return state.reconciled and state.epoch == leader.machine.state.epoch


def simulate(
    setup: Setup, *, events: int = EVENTS_BROKEN, weights: Mapping[str, int] | None = None
) -> Result:
    """Run one seed. `InvariantBrokenError` names the seed and tells the story."""
    run = Run(setup, weights)
    try:
        return run.play(events)
    except Exception as error:
        error.add_note(f"seed {setup.seed}, event {run.world.events}, at {run.world.now} ms")
        if not setup.story:
            error.add_note(story(setup, events=events, weights=weights))
        raise


def story(
    setup: Setup, *, events: int = EVENTS_BROKEN, weights: Mapping[str, int] | None = None
) -> str:
    """Play a seed again and return what happened, a line an event."""
    run = Run(replace(setup, story=True), weights)
    ending = "all was well"
    try:
        run.play(events)
    except (AssertionError, ValueError, KeyError, StoreError) as error:
        ending = f"{type(error).__name__}: {error}"
    told = run.world.story or []
    lines = [f"{at:>7} {who:<6} {what:<10} {tell(value)}" for at, who, what, value in told]
    return "\n".join([*lines[-STORY_LINES_MAX:], ending])
