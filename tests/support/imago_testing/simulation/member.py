"""The shell of the model: one process around the real core, as the broker's own shell is one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.core.shard import effects as fx
from imago_broker.core.shard import events as ev
from imago_broker.core.shard.member import ShardMachine
from imago_broker.core.shard.reconcile import last_epoch
from imago_broker.core.shard.values import MemberInfo, Role
from imago_testing.simulation.client import Level, Put
from imago_testing.simulation.disk import Record
from imago_testing.simulation.frames import Ack, Data, Fetch, Frame, Hello, Refuse, Welcome
from imago_testing.simulation.session import SessionClient

if TYPE_CHECKING:
    from imago_broker.core.shard.effects import Effect
    from imago_broker.core.shard.events import Event
    from imago_broker.model.shard import Member
    from imago_testing.simulation.disk import Disk
    from imago_testing.simulation.world import World

FRAME_RECORDS_MAX = 8
TICK_MS_MIN = 40
HEARTBEAT_MS = 400
SILENCE_MS_MAX = 1200
PUT_TIMEOUT_MS = 2500


class Peer:
    """A follower's connection, at the leader."""

    __slots__ = ("connection", "heard_ms", "member", "sent")

    def __init__(self, member: Member, connection: int, sent: int, now_ms: int) -> None:
        self.member, self.connection, self.sent = member, connection, sent
        self.heard_ms = now_ms


class Process:
    """One life of one member. What it knows dies with it; its disk does not."""

    def __init__(self, world: World, index: int, disk: Disk, rate: float) -> None:
        self.world, self.index, self.disk = world, index, disk
        self.uuid = disk.uuid
        self.rate = rate
        """Speed of our monotonic clock."""
        self.alive = True
        self.paused = False
        self.inbox: list[tuple[object, tuple[object, ...]]] = []
        disk.boot_up()
        self.machine = ShardMachine(
            disk.uuid,
            world.limits,
            epoch_seen=disk.epoch_seen,
            unclean=disk.unclean,
            rules=world.rules,
        )
        self.session = SessionClient(world, self)
        self.connection = 0
        """Of us as a follower, to the leader; 0: none."""
        self.leader_index = -1
        self.welcomed = False
        self.leader_heard_ms = 0
        self.heartbeat_ms = 0
        self.peers: dict[str, Peer] = {}
        self.pending: list[tuple[int, Put]] = []
        self.accepting = ""
        self.sync_running = False
        self.told_end = 0
        self.session.open()
        self.tick_due()

    def now(self) -> int:
        """Our own monotonic clock."""
        return int(self.world.now * self.rate) + 1000 * self.index

    def info(self) -> MemberInfo:
        log = self.disk.log()
        return MemberInfo(0, self.index, self.disk.unclean, last_epoch(log), log.end)

    # ---- core ----------------------------------------------------------------------------

    def tell(self, event: Event) -> None:
        """Give the core an event and carry out what it wants."""
        if self.world.story is not None and not isinstance(event, ev.Tick | ev.LeaseRenewed):
            self.world.note(self.uuid, "event", event)
        self.run(self.machine.handle(event, self.now()))

    def tick(self) -> None:
        self.run(self.machine.tick(self.now()))
        role = self.machine.state.role
        if role is Role.LEADING:
            self.lead_on()
        elif role is Role.FOLLOWING:
            self.follow_on()
        self.tick_due()

    def tick_due(self) -> None:
        after = self.machine.tick_after_ms()
        self.world.later(self, min(500, max(TICK_MS_MIN, 2 * after)), self.tick)

    def run(self, effects: list[Effect]) -> None:
        for effect in effects:
            if self.world.story is not None:
                self.world.note(self.uuid, "effect", effect)
            _EFFECTS[type(effect)](self, effect)
        self.moved()

    def moved(self) -> None:
        """The high watermark may have risen: answer who waited, tell the checker."""
        if not self.machine.state.led:
            return
        value = self.machine.watermark.value
        if value > self.disk.high_watermark:
            self.disk.high_watermark = value
            self.world.checker.committed(self, value)
        if self.pending:
            self.answer()

    # ---- effects -------------------------------------------------------------------------

    def propose(self, effect: fx.Propose) -> None:
        self.session.propose(effect.shard, effect.expected_version, effect.ticket)

    def read_view(self, effect: fx.ReadView) -> None:
        self.session.read(effect.ticket)

    def promise(self, effect: fx.Promise) -> None:
        self.world.checker.promised(self, effect.epoch)
        self.disk.epoch_seen = effect.epoch

    def lead(self, effect: fx.Lead) -> None:
        disk = self.disk
        self.world.checker.promised(self, effect.epoch)
        disk.epoch_seen = effect.epoch
        disk.begin_epoch(effect.epoch, disk.end)
        self.peers = {}
        self.world.checker.leads(self, effect.epoch)
        self.told_end = disk.end
        self.tell(ev.Led(effect.epoch, disk.log(), disk.synced, disk.high_watermark))

    def step_down(self, _: fx.StepDown) -> None:
        self.accepting = ""
        self.peers = {}
        failed, self.pending = self.pending, []
        for _, put in failed:
            self.world.client.failed(put)

    def follow(self, effect: fx.Follow) -> None:
        self.leader_index = self.world.index_of(effect.leader.uuid)
        self.connect()

    def connect(self) -> None:
        member = self.machine.state.member
        if member is None:
            return
        self.connection = self.world.new_connection()
        self.welcomed = False
        self.leader_heard_ms = self.now()
        self.send(self.leader_index, Hello(member, self.connection, self.disk.epoch_seen))

    def unfollow(self, _: fx.Unfollow) -> None:
        self.connection = 0

    def hangup(self, _: fx.Hangup) -> None:
        self.connection = -1
        self.leader_heard_ms = self.now()

    def truncate(self, effect: fx.Truncate) -> None:
        self.disk.truncate(effect.end)
        self.world.checker.changed(self)

    def reset(self, effect: fx.Reset) -> None:
        self.disk.lost_incarnation = max(self.disk.lost_incarnation, self.disk.incarnation - 1)
        self.disk.reset(effect.start)
        self.world.checker.changed(self)

    def fetch_from(self, effect: fx.FetchFrom) -> None:
        member = self.machine.state.member
        if member is not None:
            self.send(
                self.leader_index,
                Fetch(
                    member,
                    self.connection,
                    self.machine.state.epoch,
                    effect.offset,
                    effect.epoch,
                    self.disk.chain_at(effect.offset) or 0,
                ),
            )

    def accept_puts(self, effect: fx.AcceptPuts) -> None:
        self.accepting = "replicated" if effect.replicated else "leader"

    def hold_puts(self, _: fx.HoldPuts) -> None:
        self.accepting = ""

    def mark(self, effect: fx.Mark) -> None:
        self.disk.unclean = effect.unclean

    def describe(self, effect: fx.Describe) -> None:
        self.session.describe(effect.unclean, effect.log_epoch, effect.log_end)

    def leave(self, _: fx.Leave) -> None:
        self.world.stopped(self)

    def answer_request(self, effect: fx.Answer) -> None:
        self.world.answers.append(effect)

    def nothing(self, _: Effect) -> None:
        """Notes are for the story."""

    # ---- replication: leader -------------------------------------------------------------

    def send(self, to: int, frame: Frame) -> None:
        self.world.send(self.index, to, frame)

    def take(self, sender: int, frame: Frame) -> None:
        """A frame of another member has arrived."""
        if self.world.story is not None:
            self.world.note(self.uuid, f"frame of {sender}", frame)
        _FRAMES[type(frame)](self, sender, frame)

    def on_hello(self, sender: int, frame: Hello) -> None:
        problem = self.machine.greeting_problem(frame.epoch_seen)
        if problem is None:
            epoch = self.machine.state.epoch
            self.send(sender, Welcome(frame.connection, epoch, self.disk.log()))
            return
        self.send(sender, Refuse(frame.connection, self.disk.epoch_seen, problem))
        if frame.epoch_seen > self.disk.epoch_seen:
            self.tell(ev.EpochHeard(frame.epoch_seen))

    def on_fetch(self, sender: int, frame: Fetch) -> None:
        disk = self.disk
        problem = self.machine.fetch_problem(
            frame.member, frame.epoch, frame.offset, frame.offset_epoch, disk.log(), self.now()
        )
        if problem is not None:
            self.world.checker.fetch_refused(self, frame, problem)
            self.send(sender, Refuse(frame.connection, disk.epoch_seen, problem))
            return
        self.world.checker.fetched(self, frame)
        peer = Peer(frame.member, frame.connection, frame.offset, self.now())
        self.peers[frame.member.uuid] = peer
        self.push(sender, peer, beat=True)
        self.moved()

    def push(self, to: int, peer: Peer, *, beat: bool = False) -> None:
        """Send what the follower lacks, a frame of it; or where we are."""
        disk = self.disk
        if peer.sent < disk.start:
            return  # retention was faster: the follower will greet again
        first = disk.index_after(peer.sent)
        records = tuple(disk.records[first : first + FRAME_RECORDS_MAX])
        if not records and not beat:
            return
        waits = any(put.level is Level.REPLICATED_FSYNC for _, put in self.pending)
        self.send(
            to,
            Data(
                peer.connection,
                self.machine.state.epoch,
                peer.sent,
                records,
                disk.epochs,
                self.machine.watermark.value,
                disk.chain_at(peer.sent) or 0,
                waits,
            ),
        )
        if records:
            peer.sent = records[-1].end

    def push_all(self, *, beat: bool = False) -> None:
        for uuid, peer in self.peers.items():
            self.push(self.world.index_of(uuid), peer, beat=beat)

    def on_ack(self, sender: int, frame: Ack) -> None:
        self.machine.acked(frame.member, frame.epoch, frame.end, frame.durable, self.now())
        peer = self.peers.get(frame.member.uuid)
        if peer is not None and peer.connection == frame.connection:
            peer.heard_ms = self.now()
            if self.machine.state.led and peer.sent < self.disk.end:
                self.push(sender, peer)
        self.moved()

    def lead_on(self) -> None:
        """What a leader does from time to time."""
        now = self.now()
        if now - self.heartbeat_ms >= HEARTBEAT_MS:
            self.heartbeat_ms = now
            self.push_all(beat=True)
            self.sync_soon()
        for peer in list(self.peers.values()):
            if now - peer.heard_ms > SILENCE_MS_MAX:
                self.drop_peer(peer)
        self.expire_pending()

    def drop_peer(self, peer: Peer) -> None:
        self.machine.left(peer.member, self.now())
        del self.peers[peer.member.uuid]

    def connection_lost(self, other: int) -> None:
        """The network says that a connection with this member is gone."""
        peer = self.peers.get(self.world.uuid_of(other))
        if peer is not None:
            self.drop_peer(peer)
        if other == self.leader_index and self.connection > 0:
            self.connection = -1
            self.leader_heard_ms = self.now()

    # ---- replication: follower -----------------------------------------------------------

    def on_refuse(self, _: int, frame: Refuse) -> None:
        if frame.connection == self.connection:
            self.connection = -1
            self.leader_heard_ms = self.now()

    def on_welcome(self, _: int, frame: Welcome) -> None:
        if frame.connection != self.connection or self.welcomed:
            return
        self.welcomed = True
        self.leader_heard_ms = self.now()
        self.tell(ev.Welcomed(frame.epoch, frame.log, self.disk.log()))

    def on_data(self, sender: int, frame: Data) -> None:
        """Take what continues our log. Frames of former connections have to be told by their
        epoch: the world delivers them late."""
        disk = self.disk
        if not self.machine.takes_data(frame.epoch):
            return
        self.leader_heard_ms = self.now()
        if frame.offset > disk.end:
            self.hangup(fx.Hangup("gap"))
            return
        member = self.machine.state.member
        if frame.records and frame.offset == disk.end:
            if not disk.ends:
                disk.base_chain = frame.chain
            starts = dict(frame.epochs)
            for record in frame.records:
                disk.begin_epoch(record.epoch, starts[record.epoch])
                disk.append(record)
            self.world.checker.changed(self, frame.epoch)
        # Only what the leader sent, or what was compared before, is known to be the leader's.
        high_watermark = min(frame.high_watermark, disk.end)
        if high_watermark > disk.high_watermark:
            disk.high_watermark = high_watermark
            self.world.checker.changed(self)
        if member is not None:
            end = disk.end
            self.send(sender, Ack(member, frame.connection, frame.epoch, end, disk.synced))
        if frame.sync or not frame.records:
            self.sync_soon()

    def follow_on(self) -> None:
        """What a follower does from time to time: connect again when nothing is heard."""
        silent = self.now() - self.leader_heard_ms
        if silent > SILENCE_MS_MAX or (self.connection < 0 and silent > 100):
            self.connect()

    # ---- disk ----------------------------------------------------------------------------

    def sync_soon(self) -> None:
        if not self.sync_running and self.disk.synced < self.disk.end:
            self.sync_running = True
            self.world.later(self, self.world.rng.randint(1, 15), self.synced, self.disk.end)

    def synced(self, end: int) -> None:
        """A sync that began at this end is done, if the log was not cut below since."""
        disk = self.disk
        self.sync_running = False
        disk.synced = max(disk.synced, min(end, disk.end))
        state = self.machine.state
        if state.led:
            self.machine.watermark.synced(disk.synced)
            self.moved()
        elif state.reconciled and state.member is not None and self.connection > 0:
            ack = Ack(state.member, self.connection, state.epoch, disk.end, disk.synced)
            self.send(self.leader_index, ack)

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
        end = disk.end + put.size
        disk.append(Record(end, self.machine.state.epoch, put.ident))
        self.pending.append((end, put))
        put.deadline_ms = self.now() + PUT_TIMEOUT_MS
        self.machine.appended(end)
        self.world.checker.appended(self, put)
        if put.level.synced:
            self.sync_soon()
        self.push_all()
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
        enough = machine.may_acknowledge_replicated(now)
        left = []
        for end, put in self.pending:
            if end > ends[put.level]:
                left.append((end, put))
            elif put.level.replicated and not enough:
                self.world.client.failed(put)
            else:
                self.world.checker.acked(self, put, end)
                self.world.client.acked(put)
        self.pending = left

    def expire_pending(self) -> None:
        now = self.now()
        while self.pending and self.pending[0][1].deadline_ms < now:
            self.world.client.failed(self.pending.pop(0)[1])


_EFFECTS = {
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
_FRAMES = {
    Hello: Process.on_hello,
    Fetch: Process.on_fetch,
    Ack: Process.on_ack,
    Refuse: Process.on_refuse,
    Welcome: Process.on_welcome,
    Data: Process.on_data,
}
