"""A whole shard under a seeded scheduler: everything that happens is an event of one queue."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush
from random import Random
from typing import TYPE_CHECKING

from imago_broker.core.shard.state import RULES, Rules
from imago_broker.core.shard.values import MachineRole, ShardLimits
from imago_testing.simulation.checker import Checker
from imago_testing.simulation.client import Clients, Level
from imago_testing.simulation.coordinator import Coordinator
from imago_testing.simulation.disk import Disk
from imago_testing.simulation.member import Process
from imago_testing.simulation.store_disk import StoreDisk

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_broker.core.shard.effects import Answer
    from imago_broker.model.registry.shard import Member, ShardState
    from imago_testing.simulation.coordinator import Session
    from imago_testing.simulation.frames import Frame


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What a seed is run with."""

    seed: int
    rules: Rules = RULES
    limits: ShardLimits | None = None
    members: int | None = None
    levels: tuple[Level, ...] | None = None
    stores: bool = False
    """Whether members have real stores."""
    story: bool = False
    late: float = 0.02
    """Part of the frames that are delivered again, or much later than others."""


MEMBERS = (3, 3, 3, 3, 3, 2, 2, 1, 5)
LEVELS = (
    (Level.REPLICATED, Level.REPLICATED),
    (Level.REPLICATED, Level.LEADER),
    (Level.REPLICATED_FSYNC, Level.REPLICATED),
    (Level.REPLICATED_FSYNC, Level.LEADER_FSYNC),
)


class SimulatedRun:
    """One run. The same setup gives the same run."""

    def __init__(self, setup: Setup) -> None:
        rng = self.rng = Random(setup.seed)
        self.setup = setup
        self.rules = setup.rules
        self.now = 0
        self.events = 0
        self.story: list[tuple[int, str, str, object]] | None = [] if setup.story else None
        self._queue: list[tuple[int, int, Callable[..., None], tuple[object, ...]]] = []
        self._order = 0
        self._connections = 0
        count = setup.members or rng.choice(MEMBERS)
        minimum = 2 if count > 1 and rng.random() < 0.85 else 1
        self.limits = setup.limits or ShardLimits(min_in_sync=minimum)
        self.session_ms = rng.choice((2000, 2000, 2000, 6000))
        levels = setup.levels or rng.choice(LEVELS)
        self.coordinator = Coordinator()
        self.checker = Checker(self)
        self.client = Clients(self, list(levels))
        self.answers: list[Answer] = []
        self.disks = [self.new_disk(f"m{index}") for index in range(count)]
        self._index = {disk.uuid: disk_index for disk_index, disk in enumerate(self.disks)}
        self.processes: list[Process | None] = [None] * count
        self.rates = [rng.choice((1.0, 1.0, 0.9, 1.1)) for _ in range(count)]
        self.wall_ms = [1_700_000_000_000] * count
        """Wall clock of each machine at the beginning of the run."""
        self.cut: set[tuple[int, int]] = set()
        """Ways that no frame passes: (from, to); the coordinator is -1."""
        self.slow: set[int] = set()
        self.hindered_ms = [0] * count
        """When each member was paused, cut off, slow or not registered last."""
        for index in range(count):
            self.at(rng.randint(0, 30), self.start, index)

    # ---- time --------------------------------------------------------------------------------

    def at(self, when: int, act: Callable[..., None], *args: object) -> None:
        self._order += 1
        heappush(self._queue, (when, self._order, act, args))

    def later(self, process: Process, after: int, act: Callable[..., None], *args: object) -> None:
        """A timer of a process: it dies with it, and waits while it is paused."""
        self.at(self.now + after, self.deliver, process, act, *args)

    def deliver(self, process: Process, act: Callable[..., None], *args: object) -> None:
        """Let something happen to a process, unless it is dead; later, if it is paused."""
        if not process.alive:
            return
        if process.paused:
            process.inbox.append((act, args))
            return
        act(*args)

    def run(self, until: int, events_max: int, done: Callable[[], bool] | None = None) -> bool:
        """Run events; return whether `done` came true."""
        queue, checker = self._queue, self.checker
        limit = self.events + events_max
        while queue and self.events < limit:
            when, _, act, args = queue[0]
            if when > until:
                break
            heappop(queue)
            self.now = when
            self.events += 1
            act(*args)
            checker.after_event()
            if done is not None and done():
                return True
        return False

    def delay(self) -> int:
        rng = self.rng
        return rng.randint(1, 4) if rng.random() < 0.9 else rng.randint(5, 60)

    def note(self, who: str, what: str, value: object) -> None:
        if self.story is not None:
            self.story.append((self.now, who, what, value))

    # ---- members -----------------------------------------------------------------------------

    def new_disk(self, uuid: str) -> Disk:
        return StoreDisk(uuid, self.client.meta_ident) if self.setup.stores else Disk(uuid)

    def index_of(self, uuid: str) -> int:
        return self._index[uuid]

    def uuid_of(self, index: int) -> str:
        return self.disks[index].uuid

    def start(self, index: int) -> None:
        if self.processes[index] is None:
            self.note(self.uuid_of(index), "fault", "starts")
            self.processes[index] = Process(self, index, self.disks[index], self.rates[index])

    def stop(self, index: int) -> Process | None:
        """The process is gone; its connections with it."""
        process = self.processes[index]
        if process is None:
            return None
        process.alive = False
        process.disk.crash()
        self.processes[index] = None
        failed, process.pending = process.pending, []
        for _, put in failed:
            self.client.failed(put)
        return process

    def kill(self, index: int) -> None:
        """The process dies; the page cache lives on, and its peers are told at once."""
        if self.stop(index) is not None:
            self.note(self.uuid_of(index), "fault", "is killed")
            for other in self.processes:
                if other is not None:
                    self.at(
                        self.now + self.delay(), self.deliver, other, other.connection_lost, index
                    )

    def power_off(self, index: int) -> None:
        """The machine dies silently, and what was not synced may be gone."""
        self.stop(index)
        disk = self.disks[index]
        lost = disk.lose_power(self.rng)
        self.note(disk.uuid, "fault", f"loses power and {len(lost)} records, back to {disk.end}")
        self.checker.lost_power(lost)

    def stopped(self, process: Process) -> None:
        """An orderly stop is done: what is written is synced, the registration is taken back."""
        disk = process.disk
        disk.synced, disk.clean_stop = disk.end, True
        session = process.session.session
        reached = session is not None and self.reaches_coordinator(process.index)
        if session is not None and reached and self.coordinator.expire(session):
            self.wake_watchers()
        self.stop(process.index)
        self.at(self.now + self.rng.randint(50, 800), self.start, process.index)

    def pause(self, index: int, for_ms: int) -> None:
        process = self.processes[index]
        if process is not None and not process.paused:
            self.note(process.uuid, "fault", f"is paused for {for_ms} ms")
            process.paused = True
            self.at(self.now + for_ms, self.resume, process)

    def resume(self, process: Process) -> None:
        """All that came in the meantime happens at once, in its order."""
        process.paused = False
        self.hinder(process.index)
        waiting, process.inbox = process.inbox, []
        for act, args in waiting:
            self.deliver(process, act, *args)

    def tear(self, index: int) -> None:
        """Files of a process that was killed lose what was not synced, and nothing shows it."""
        lost = self.disks[index].tear(self.rng)
        self.note(self.uuid_of(index), "fault", f"has {len(lost)} records torn off")
        self.checker.torn(lost)

    def hinder(self, *indices: int) -> None:
        """Members cannot do what they should at this moment."""
        for index in indices:
            self.hindered_ms[index] = self.now

    def free(self, index: int, for_ms: int) -> bool:
        """Whether a member has run and reached everybody for so long."""
        process = self.processes[index]
        ways = {way for way in self.cut if index in way}
        hindered = process is None or process.paused or ways or index in self.slow
        return not hindered and self.now - self.hindered_ms[index] >= for_ms

    # ---- network -----------------------------------------------------------------------------

    def new_connection(self) -> int:
        self._connections += 1
        return self._connections

    def send(self, sender: int, to: int, frame: Frame) -> None:
        """Frames are late, lost with their way, repeated, and overtake those of other ways."""
        rng = self.rng
        delay = self.delay() + (150 if sender in self.slow or to in self.slow else 0)
        if rng.random() < self.setup.late:
            self.at(self.now + rng.randint(100, 3000), self.arrive, sender, to, frame)
        self.at(self.now + delay, self.arrive, sender, to, frame)

    def arrive(self, sender: int, to: int, frame: Frame) -> None:
        process = self.processes[to]
        if process is not None and (sender, to) not in self.cut:
            self.deliver(process, process.take, sender, frame)

    def break_connection(self, one: int, other: int) -> None:
        for at, peer in ((one, other), (other, one)):
            process = self.processes[at]
            if process is not None:
                self.at(
                    self.now + self.delay(), self.deliver, process, process.connection_lost, peer
                )

    # ---- coordinator -------------------------------------------------------------------------

    def ways_to_coordinator(self, index: int) -> tuple[bool, bool]:
        return (index, -1) not in self.cut, (-1, index) not in self.cut

    def reaches_coordinator(self, index: int) -> bool:
        return (index, -1) not in self.cut and (-1, index) not in self.cut

    def watch_session(self, session: Session) -> None:
        self.at(self.now + self.session_ms, self.look_at_session, session)

    def look_at_session(self, session: Session) -> None:
        if not session.alive:
            return
        over = session.heard_ms + self.session_ms
        if self.now >= over:
            self.end_session(session)
        else:
            self.at(over, self.look_at_session, session)

    def end_session(self, session: Session) -> None:
        self.note(session.uuid, "coordinator", "session expires")
        if self.coordinator.expire(session):
            self.wake_watchers()

    def forget_state(self) -> None:
        """Somebody deletes the node of the shard's state."""
        self.note("world", "coordinator", "the state is deleted")
        self.coordinator.forget()
        self.wake_watchers()

    def wake_watchers(self) -> None:
        """Watches fire: whoever is connected reads again, at its own time."""
        for process in self.processes:
            if process is not None and process.session.connected:
                self.at(self.now + self.delay(), self.deliver, process, process.session.read, 0)

    def change_state(
        self, process: Process, session: Session, member: Member, shard: ShardState, expected: int
    ) -> ShardState | str:
        before = self.coordinator.told
        result = self.coordinator.change(session, member, shard, expected)
        if not isinstance(result, str):
            self.note(process.uuid, "state", result)
            forgotten = result.version == 0
            self.checker.state_changed(before, result, forgotten=forgotten)
            self.wake_watchers()
            if self.coordinator.forgets_next and result.epoch != before.epoch:
                self.forget_state()
        return result

    # ---- clients -----------------------------------------------------------------------------

    def believed_leader(self, before: int) -> int | None:
        """Whom a client takes for the leader: who says so; sometimes one who no longer is."""
        found = [
            process.index
            for process in self.processes
            if process is not None and process.machine.state.role is MachineRole.LEADING
        ]
        if before in found and self.rng.random() < 0.8:
            return before
        return self.rng.choice(found) if found else None
