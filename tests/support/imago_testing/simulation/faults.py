"""What goes wrong in a run: seeded, one fault after the other, some while others last."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.core.shard import events as ev
from imago_broker.core.shard.values import MachineRole

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from imago_testing.simulation.world import SimulatedRun

COORDINATOR = -1


class Faults:
    """Breaks a world and heals it again."""

    def __init__(self, world: SimulatedRun, weights: Mapping[str, int] | None = None) -> None:
        self.world = world
        weights = weights or WEIGHTS
        self.names = list(weights)
        self.weights = list(weights.values())
        # Most runs have a theme: rare combinations of a few kinds come up sooner.
        if world.rng.random() < 0.6:
            chosen = world.rng.sample(self.names, min(4, len(self.names)))
            self.weights = [w if n in chosen else 0 for n, w in weights.items()]
            if not any(self.weights):
                self.weights = list(weights.values())
        self.every_ms = world.rng.choice((300, 600, 1200))
        self.active = True
        self.requests = 0

    def begin(self) -> None:
        world = self.world
        world.at(world.now + world.rng.randint(50, 2 * self.every_ms), self.strike)

    def strike(self) -> None:
        if not self.active:
            return
        world = self.world
        name = world.rng.choices(self.names, self.weights)[0]
        world.checker.faults += 1
        world.note("world", "fault", name)
        FAULTS[name](self)
        world.at(world.now + world.rng.randint(10, 2 * self.every_ms), self.strike)

    def heal(self) -> None:
        """End all faults: every member runs and reaches every other."""
        world = self.world
        self.active = False
        world.note("world", "fault", "all heals")
        world.checker.faults += 1
        world.cut.clear()
        world.slow.clear()
        for disk in world.disks:
            disk.damaged = {}  # as if put back from a backup: nobody else may have it
        for index, process in enumerate(world.processes):
            if process is None:
                world.start(index)
            elif process.paused:
                world.resume(process)

    # ---- kinds -------------------------------------------------------------------------------

    def someone(self) -> int:
        """A member; the leader more often than others."""
        world = self.world
        if world.rng.random() < 0.5:
            for process in world.processes:
                if process is not None and process.machine.state.role is MachineRole.LEADING:
                    return process.index
        return world.rng.randrange(len(world.disks))

    def kill(self) -> None:
        index = self.someone()
        self.world.kill(index)
        self.restart(index)

    def kill_all(self) -> None:
        for index in range(len(self.world.disks)):
            self.world.kill(index)
            self.restart(index)

    def tear(self) -> None:
        """Everybody is killed, and what one of them had not synced is gone without a trace."""
        torn = self.world.rng.randrange(len(self.world.disks))
        for index in range(len(self.world.disks)):
            self.world.kill(index)
            if index == torn:
                self.world.tear(index)
            after = self.world.rng.randint(20, 200 if index == torn else 2500)
            self.world.at(self.world.now + after, self.world.start, index)

    def damage(self) -> None:
        """A record of a member's log cannot be read any more."""
        disk = self.world.disks[self.someone()]
        if disk.damage(self.world.rng, self.world.now):
            self.world.note(disk.uuid, "fault", f"has damage in {sorted(disk.damaged)}")

    def power(self) -> None:
        index = self.someone()
        self.world.power_off(index)
        self.restart(index)

    def power_all(self) -> None:
        for index in range(len(self.world.disks)):
            self.world.power_off(index)
            self.restart(index)

    def restart(self, index: int) -> None:
        world = self.world
        after = world.rng.choice((20, 100, 600, 2500, 6000))
        world.at(world.now + after, world.start, index)

    def pause(self) -> None:
        session = self.world.session_ms
        for_ms = self.world.rng.choice((100, 700, session * 3 // 4, session + 500, 2 * session))
        self.world.pause(self.someone(), for_ms)

    def cut(self, ways: Sequence[tuple[int, int]]) -> None:
        """Block ways for a while. The ends of an open connection notice by silence only."""
        world = self.world
        world.cut.update(ways)
        world.note("world", "cut", ways)
        for_ms = world.rng.choice((150, 600, 2500, world.session_ms + 1500))
        world.at(world.now + for_ms, self.uncut, ways)

    def uncut(self, ways: Sequence[tuple[int, int]]) -> None:
        self.world.cut.difference_update(ways)
        self.world.hinder(*{index for way in ways for index in way if index != COORDINATOR})

    def partition(self) -> None:
        one, other = self.pair()
        self.cut([(one, other), (other, one)])

    def one_way(self) -> None:
        one, other = self.pair()
        self.cut([(one, other)])

    def isolate(self) -> None:
        """Cut a member off from its peers; half of the time from the coordinator too."""
        index = self.someone()
        others = [i for i in range(len(self.world.disks)) if i != index]
        if self.world.rng.random() < 0.5:
            others.append(COORDINATOR)
        self.cut([way for other in others for way in ((index, other), (other, index))])

    def no_coordinator(self) -> None:
        index = self.someone()
        ways = [(index, COORDINATOR), (COORDINATOR, index)]
        if self.world.rng.random() < 0.4:
            ways = [self.world.rng.choice(ways)]
        self.cut(ways)

    def coordinator_down(self) -> None:
        every = range(len(self.world.disks))
        self.cut([way for i in every for way in ((i, COORDINATOR), (COORDINATOR, i))])

    def pair(self) -> tuple[int, int]:
        count = len(self.world.disks)
        one = self.someone()
        other = self.world.rng.randrange(count)
        return one, (one + 1) % count if other == one else other

    def expire(self) -> None:
        process = self.world.processes[self.someone()]
        if process is not None and process.session.session is not None:
            process.session.session.closed = True
            self.world.end_session(process.session.session)

    def forget(self) -> None:
        """A person deletes the state's node, whether somebody leads or not; or just when one has
        written who leads next."""
        way = self.world.rng.choice(("now", "next election", "handover"))
        if way == "now":
            self.world.forget_state()
            return
        self.world.coordinator.forgets_next = True
        if way == "handover":
            self.handover()

    def drop(self) -> None:
        """A session's connection breaks; what it had asked is in doubt."""
        process = self.world.processes[self.someone()]
        if process is not None:
            self.world.deliver(process, process.session.lose_connection)

    def reset_connection(self) -> None:
        self.world.break_connection(*self.pair())

    def slow(self) -> None:
        index = self.someone()
        self.world.slow.add(index)
        self.world.at(self.world.now + self.world.rng.choice((500, 3000)), self.quick, index)

    def quick(self, index: int) -> None:
        self.world.slow.discard(index)
        self.world.hinder(index)

    def stop(self) -> None:
        process = self.world.processes[self.someone()]
        if process is not None:
            self.world.deliver(process, process.tell, ev.StopAsked())

    def handover(self) -> None:
        self.requests += 1
        process = self.world.processes[self.someone()]
        if process is not None:
            event = ev.HandoverAsked(f"r{self.requests}")
            self.world.deliver(process, process.tell, event)

    def expire_records(self) -> None:
        """Retention takes old records at one member."""
        index = self.someone()
        disk = self.world.disks[index]
        disk.expire(self.world.rng.randint(1, 10))

    def clock(self) -> None:
        """The wall clock of a machine jumps."""
        index = self.someone()
        self.world.wall_ms[index] += self.world.rng.choice((-3_600_000, 3_600_000))

    def force(self) -> None:
        """A person gives up waiting and allows loss."""
        self.requests += 1
        for process in self.world.processes:
            if process is not None:
                event = ev.ElectAsked(f"r{self.requests}", allow_data_loss=True)
                self.world.deliver(process, process.tell, event)


FAULTS: dict[str, Callable[[Faults], None]] = {
    "kill": Faults.kill,
    "kill_all": Faults.kill_all,
    "tear": Faults.tear,
    "damage": Faults.damage,
    "power": Faults.power,
    "power_all": Faults.power_all,
    "pause": Faults.pause,
    "partition": Faults.partition,
    "one_way": Faults.one_way,
    "isolate": Faults.isolate,
    "no_coordinator": Faults.no_coordinator,
    "coordinator_down": Faults.coordinator_down,
    "expire": Faults.expire,
    "forget": Faults.forget,
    "drop": Faults.drop,
    "reset_connection": Faults.reset_connection,
    "slow": Faults.slow,
    "stop": Faults.stop,
    "handover": Faults.handover,
    "expire_records": Faults.expire_records,
    "clock": Faults.clock,
    "force": Faults.force,
}
WEIGHTS = {
    "kill": 6,
    "kill_all": 1,
    "tear": 1,
    "damage": 2,
    "power": 5,
    "power_all": 1,
    "pause": 5,
    "partition": 4,
    "one_way": 3,
    "isolate": 4,
    "no_coordinator": 4,
    "coordinator_down": 1,
    "expire": 4,
    "forget": 1,
    "drop": 4,
    "reset_connection": 4,
    "slow": 2,
    "stop": 3,
    "handover": 3,
    "expire_records": 1,
    "clock": 1,
    "force": 1,
}
