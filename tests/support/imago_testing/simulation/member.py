"""The shell of the model: one process around the real core, as the broker's own shell is one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.core.shard import effects as fx
from imago_broker.core.shard import events as ev
from imago_broker.core.shard.member import ShardMachine
from imago_broker.core.shard.reconcile import last_epoch
from imago_broker.core.shard.values import MachineRole, MemberInfo
from imago_broker.model.registry.shard import stamped
from imago_testing.simulation.client import Level, Put
from imago_testing.simulation.replication import FollowerEnd, LeaderEnd, take_frame
from imago_testing.simulation.session import SessionClient

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_broker.core.shard.effects import Effect
    from imago_broker.core.shard.events import Event
    from imago_testing.simulation.disk import Disk
    from imago_testing.simulation.frames import Frame
    from imago_testing.simulation.world import SimulatedRun

TICK_MS_MIN = 40
HEAL_MS = 2500
"""How long damage lasts at least."""
PUT_TIMEOUT_MS = 2500


class Process:
    """One life of one member. What it knows dies with it; its disk does not."""

    def __init__(self, world: SimulatedRun, index: int, disk: Disk, rate: float) -> None:
        self.world, self.index, self.disk = world, index, disk
        self.uuid = disk.uuid
        self.rate = rate
        """Speed of our monotonic clock."""
        self.alive = True
        self.paused = False
        self.inbox: list[tuple[Callable[..., None], tuple[object, ...]]] = []
        disk.boot_up()
        self.machine = ShardMachine(
            disk.uuid,
            world.limits,
            epoch_seen=disk.epoch_seen,
            unclean=disk.unclean,
            rules=world.rules,
        )
        self.session = SessionClient(world, self)
        self.leader_end = LeaderEnd(self)
        self.follower_end = FollowerEnd(self)
        self.pending: list[tuple[int, Put]] = []
        self.accepting = ""
        self.damage_told = False
        """Whether our registration says that our log is damaged."""
        self.role_told = (True, False)
        """Whether it says that we neither lead nor follow; and that we lead."""
        self.enough, self.alone = False, True
        """Whether replicated puts may be acknowledged, as the core has told."""
        self.syncing_end: int | None = None
        """Up to where the running sync will have synced; None: none is running."""
        self.session.open()
        self.tick_due()

    def now(self) -> int:
        """Our own monotonic clock."""
        return int(self.world.now * self.rate) + 1000 * self.index

    def info(self) -> MemberInfo:
        log = self.disk.log()
        self.damage_told = log.damaged
        self.role_told = (self.standing, self.leads)
        return MemberInfo(
            0,
            self.index,
            self.disk.unclean,
            last_epoch(log),
            log.end,
            damaged=log.damaged,
            epoch_seen=self.disk.epoch_seen,
            standing=self.standing,
            leads=self.leads,
        )

    # ---- core ----------------------------------------------------------------------------

    def tell(self, event: Event) -> None:
        """Give the core an event and carry out what it wants."""
        if self.world.story is not None and not isinstance(event, ev.Tick | ev.LeaseRenewed):
            self.world.note(self.uuid, "event", event)
        self.run(self.machine.handle(event, self.now()))

    def tick(self) -> None:
        self.run(self.machine.tick(self.now()))
        role = self.machine.state.role
        if role is MachineRole.LEADING:
            self.leader_end.go_on()
            self.expire_pending()
        elif role is MachineRole.FOLLOWING:
            self.follower_end.go_on()
        self.heal()
        self.tell_changes()
        self.tick_due()

    def heal(self) -> None:
        """Have other members send what is damaged here."""
        disk, world = self.disk, self.world
        if not disk.damaged or world.now - disk.damaged_ms < HEAL_MS:
            return
        state = self.machine.state
        peers = [world.index_of(uuid) for uuid in self.leader_end.peers]
        if state.role is MachineRole.FOLLOWING and state.reconciled:
            peers = [self.follower_end.leader]
        for peer in peers:
            other = world.disks[peer]
            if world.processes[peer] is None or (peer, self.index) in world.cut:
                continue
            whole = {record.ident for record in other.records} - other.damaged.keys()
            disk.damaged = {i: end for i, end in disk.damaged.items() if i not in whole}

    @property
    def standing(self) -> bool:
        """Whether we neither lead nor follow."""
        return self.machine.state.role not in (MachineRole.LEADING, MachineRole.FOLLOWING)

    @property
    def leads(self) -> bool:
        """Whether we have begun to take puts in this leadership."""
        return self.machine.state.leadership.puts is not None

    def tell_changes(self) -> None:
        """Have our registration say that our log is damaged, or whole again; or our other role."""
        now = (self.disk.log().damaged, (self.standing, self.leads))
        told = (self.damage_told, self.role_told)
        if now != told and self.machine.state.member is not None:
            self.session.describe()

    def tick_due(self) -> None:
        after = self.machine.tick_after_ms()
        self.world.later(self, min(500, max(TICK_MS_MIN, 2 * after)), self.tick)

    def run(self, effects: list[Effect]) -> None:
        for effect in effects:
            if self.world.story is not None:
                self.world.note(self.uuid, "effect", effect)
            _EFFECTS[type(effect)](self, effect)
        self.tell_changes()
        self.moved()

    def moved(self) -> None:
        """The high watermark may have risen: answer who waited, tell the checker."""
        if not self.machine.state.leadership.led:
            return
        value = self.machine.watermark.value
        if value > self.disk.high_watermark:
            self.disk.high_watermark = value
            self.world.checker.committed(self, value)
        if self.pending:
            self.answer()

    # ---- effects -------------------------------------------------------------------------

    def propose(self, effect: fx.Propose) -> None:
        shard = stamped(effect.shard, self.world.wall_ms[self.index] + self.world.now)
        self.session.propose(shard, effect.expected_version, effect.ticket)

    def read_view(self, effect: fx.ReadView) -> None:
        self.session.read(effect.ticket)

    def promise(self, effect: fx.Promise) -> None:
        self.world.checker.promised(self, effect.epoch)
        self.disk.promise(effect.epoch)

    def lead(self, effect: fx.Lead) -> None:
        disk = self.disk
        self.world.checker.promised(self, effect.epoch)
        disk.lead(effect.epoch)
        self.leader_end.peers = {}
        self.world.checker.leads(self, effect.epoch)
        self.tell(ev.Led(effect.epoch, disk.log(), disk.synced, disk.high_watermark))

    def step_down(self, _: fx.StepDown) -> None:
        self.accepting = ""
        self.leader_end.peers = {}
        failed, self.pending = self.pending, []
        for _end, put in failed:
            self.world.client.failed(put)

    def follow(self, effect: fx.Follow) -> None:
        self.follower_end.leader = self.world.index_of(effect.leader.uuid)
        self.follower_end.connect()

    def unfollow(self, _: fx.Unfollow) -> None:
        self.follower_end.connection = 0

    def hangup(self, _: fx.Hangup) -> None:
        self.follower_end.broken()

    def truncate(self, effect: fx.Truncate) -> None:
        self.disk.truncate(effect.end)
        if self.syncing_end is not None:
            self.syncing_end = min(self.syncing_end, effect.end)
        self.world.checker.changed(self)

    def reset(self, effect: fx.Reset) -> None:
        self.disk.lost_incarnation = max(self.disk.lost_incarnation, self.disk.incarnation - 1)
        self.disk.reset(effect.start)
        self.syncing_end = None if self.syncing_end is None else effect.start
        self.world.checker.changed(self)

    def fetch_from(self, effect: fx.FetchFrom) -> None:
        self.follower_end.fetch(effect)

    def accept_puts(self, effect: fx.AcceptPuts) -> None:
        self.accepting = "replicated" if effect.replicated else "leader"
        self.enough, self.alone = effect.replicated, True

    def hold_puts(self, effect: fx.HoldPuts) -> None:
        self.accepting = ""
        self.enough, self.alone = effect.replicated, effect.alone

    def mark(self, effect: fx.Mark) -> None:
        self.disk.unclean = effect.unclean

    def describe(self, effect: fx.Describe) -> None:
        del effect
        self.session.describe()

    def leave(self, _: fx.Leave) -> None:
        self.world.stopped(self)

    def answer_request(self, effect: fx.Answer) -> None:
        self.world.answers.append(effect)

    def nothing(self, _: Effect) -> None:
        """Notes are for the story."""

    # ---- network and disk ------------------------------------------------------------------

    def send(self, to: int, frame: Frame) -> None:
        self.world.send(self.index, to, frame)

    def take(self, sender: int, frame: Frame) -> None:
        """A frame of another member has arrived."""
        if self.world.story is not None:
            self.world.note(self.uuid, f"frame of {sender}", frame)
        take_frame(self, sender, frame)

    def connection_lost(self, other: int) -> None:
        """The network says that connections with this member are gone."""
        self.leader_end.lost(self.world.uuid_of(other))
        if other == self.follower_end.leader and self.follower_end.connection > 0:
            self.follower_end.broken()

    def sync_soon(self) -> None:
        if self.syncing_end is None and self.disk.synced < self.disk.end:
            self.syncing_end = self.disk.end
            self.world.later(self, self.world.rng.randint(1, 15), self.synced)

    def synced(self) -> None:
        """A sync is done, of what was there when it began and is there still."""
        disk, end = self.disk, self.syncing_end
        self.syncing_end = None
        if end is None or end <= disk.synced:
            return
        disk.sync(end)
        if self.machine.state.leadership.led:
            self.machine.watermark.synced(end)
            self.moved()
        else:
            self.follower_end.synced()

    # ---- clients -------------------------------------------------------------------------

    def serves(self) -> bool:
        return self.machine.may_serve(self.now())

    def put(self, put: Put) -> None:
        """A client's put has arrived."""
        ready = self.accepting == "replicated" or (
            self.accepting == "leader" and not put.level.replicated
        )
        if not ready or not self.serves():
            self.world.client.refused(put)
            return
        disk = self.disk
        end = disk.write(self.machine.state.epoch, put.ident, put.size).end
        self.pending.append((end, put))
        put.deadline_ms = self.now() + PUT_TIMEOUT_MS
        self.machine.appended(end)
        self.world.checker.appended(self)
        if put.level.synced:
            self.sync_soon()
        self.leader_end.push_all()
        self.moved()

    def answer(self) -> None:
        """Acknowledge what has reached its level."""
        now, machine, disk = self.now(), self.machine, self.disk
        if not machine.may_serve(now):
            return
        ends = {
            Level.LEADER: disk.end,
            Level.LEADER_FSYNC: disk.synced,
            Level.REPLICATED: machine.watermark.value,
            Level.REPLICATED_FSYNC: machine.watermark.durable,
        }
        left = []
        for end, put in self.pending:
            if end > ends[put.level] or (not put.level.replicated and not self.alone):
                left.append((end, put))
            elif put.level.replicated and not self.enough:
                self.world.client.failed(put)
            else:
                self.world.checker.acked(self, put, end)
                self.world.client.acked(put)
        self.pending = left

    def expire_pending(self) -> None:
        now = self.now()
        while self.pending and self.pending[0][1].deadline_ms < now:
            self.world.client.failed(self.pending.pop(0)[1])


_EFFECTS: dict[type, Callable[..., None]] = {
    fx.Propose: Process.propose,
    fx.ReadView: Process.read_view,
    fx.Promise: Process.promise,
    fx.Lead: Process.lead,
    fx.StepDown: Process.step_down,
    fx.Follow: Process.follow,
    fx.Unfollow: Process.unfollow,
    fx.Truncate: Process.truncate,
    fx.Reset: Process.reset,
    fx.FetchFrom: Process.fetch_from,
    fx.Hangup: Process.hangup,
    fx.AcceptPuts: Process.accept_puts,
    fx.HoldPuts: Process.hold_puts,
    fx.Mark: Process.mark,
    fx.Describe: Process.describe,
    fx.Leave: Process.leave,
    fx.Answer: Process.answer_request,
    fx.Note: Process.nothing,
}
