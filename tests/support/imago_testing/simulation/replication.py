"""Both ends of a replication connection, as a shell keeps them."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING

from imago_broker.core.shard import events as ev
from imago_testing.simulation.client import Level
from imago_testing.simulation.frames import Ack, Data, Fetch, Frame, Hello, Refuse, Welcome

if TYPE_CHECKING:
    from imago_broker.core.shard.effects import FetchFrom
    from imago_broker.model.registry.shard import Member
    from imago_testing.simulation.disk import Disk, Record
    from imago_testing.simulation.member import Process

FRAME_RECORDS_MAX = 8
HEARTBEAT_MS = 400
SILENCE_MS_MAX = 1200
RECONNECT_MS = 100


class Peer:
    """A follower's connection, at the leader."""

    __slots__ = ("connection", "heard_ms", "member", "sent")

    def __init__(self, member: Member, connection: int, sent: int, now_ms: int) -> None:
        self.member, self.connection, self.sent = member, connection, sent
        self.heard_ms = now_ms


class LeaderEnd:
    """Serves followers."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.peers: dict[str, Peer] = {}
        self.beat_ms = 0

    def on_hello(self, sender: int, frame: Hello) -> None:
        process = self.process
        problem = process.machine.greeting_problem(frame.epoch_seen)
        if problem is None:
            epoch = process.machine.state.epoch
            process.send(sender, Welcome(frame.connection, epoch, process.disk.log()))
            return
        process.send(sender, Refuse(frame.connection, process.disk.epoch_seen, problem))
        if frame.epoch_seen > process.disk.epoch_seen:
            process.tell(ev.EpochHeard(frame.epoch_seen))

    def on_fetch(self, sender: int, frame: Fetch) -> None:
        process, disk = self.process, self.process.disk
        problem = process.machine.fetch_problem(
            frame.member, frame.epoch, frame.offset, frame.offset_epoch, disk.log(), process.now()
        )
        if problem is not None:
            process.world.checker.fetch_refused(process, frame, problem)
            process.send(sender, Refuse(frame.connection, disk.epoch_seen, problem))
            return
        process.world.checker.fetched(process, frame)
        peer = Peer(frame.member, frame.connection, frame.offset, process.now())
        self.peers[frame.member.uuid] = peer
        self.push(sender, peer, beat=True)
        process.moved()

    def push(self, to: int, peer: Peer, *, beat: bool = False) -> None:
        """Send what the follower lacks, a frame of it; or where we are."""
        process, disk = self.process, self.process.disk
        if peer.sent < disk.start:
            return  # retention was faster: the follower will greet again
        first = disk.index_after(peer.sent)
        records = readable(disk, first)
        data = tuple(disk.bytes_of(index) for index in range(first, first + len(records)))
        if not records and not beat:
            return
        process.send(
            to,
            Data(
                peer.connection,
                process.machine.state.epoch,
                peer.sent,
                records,
                disk.epochs,
                process.machine.watermark.value,
                disk.chain_at(peer.sent) or 0,
                data,
                any(put.level is Level.REPLICATED_FSYNC for _, put in process.pending),
            ),
        )
        if records:
            peer.sent = records[-1].end

    def push_all(self, *, beat: bool = False) -> None:
        for uuid, peer in self.peers.items():
            self.push(self.process.world.index_of(uuid), peer, beat=beat)

    def on_ack(self, sender: int, frame: Ack) -> None:
        process = self.process
        machine = process.machine
        machine.acked(frame.member, frame.epoch, frame.end, frame.durable, process.now())
        peer = self.peers.get(frame.member.uuid)
        if peer is not None and peer.connection == frame.connection:
            peer.heard_ms = process.now()
            if machine.state.leadership.led and peer.sent < process.disk.end:
                self.push(sender, peer)
        process.moved()

    def go_on(self) -> None:
        """What a leader does from time to time."""
        now = self.process.now()
        if now - self.beat_ms >= HEARTBEAT_MS:
            self.beat_ms = now
            self.push_all(beat=True)
            self.process.sync_soon()
        for peer in list(self.peers.values()):
            if now - peer.heard_ms > SILENCE_MS_MAX:
                self.drop(peer)

    def drop(self, peer: Peer) -> None:
        self.process.machine.left(peer.member, self.process.now())
        del self.peers[peer.member.uuid]

    def lost(self, uuid: str) -> None:
        """The network says that the connection of a follower is gone."""
        if uuid in self.peers:
            self.drop(self.peers[uuid])


def readable(disk: Disk, first: int) -> tuple[Record, ...]:
    """Return the records of a frame, up to the first that is damaged."""
    records = tuple(disk.records[first : first + FRAME_RECORDS_MAX])
    if disk.damaged:
        whole = takewhile(lambda record: record.ident not in disk.damaged, records)
        return tuple(whole)
    return records


class FollowerEnd:
    """Follows a leader."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.connection = 0
        """0: none is wanted; below: it is to be made again."""
        self.leader = -1
        self.welcomed = False
        self.heard_ms = 0

    def connect(self) -> None:
        process = self.process
        member = process.machine.state.member
        if member is None:
            return
        self.connection = process.world.new_connection()
        self.welcomed = False
        self.heard_ms = process.now()
        process.send(self.leader, Hello(member, self.connection, process.disk.epoch_seen))

    def broken(self) -> None:
        """Connect again after a while."""
        self.connection = -1
        self.heard_ms = self.process.now()

    def fetch(self, effect: FetchFrom) -> None:
        process = self.process
        state = process.machine.state
        if state.member is not None:
            chain = process.disk.chain_at(effect.offset) or 0
            offset, epoch = effect.offset, effect.epoch
            process.send(
                self.leader,
                Fetch(state.member, self.connection, state.epoch, offset, epoch, chain),
            )

    def on_refuse(self, _: int, frame: Refuse) -> None:
        if frame.connection == self.connection:
            self.broken()

    def on_welcome(self, _: int, frame: Welcome) -> None:
        if frame.connection != self.connection or self.welcomed:
            return
        self.welcomed = True
        self.heard_ms = self.process.now()
        self.process.tell(ev.Welcomed(frame.epoch, frame.log, self.process.disk.log()))

    def on_data(self, sender: int, frame: Data) -> None:
        """Take what continues our log. Frames of former connections have to be told by their
        epoch: the world delivers them late."""
        process, disk = self.process, self.process.disk
        if not process.machine.takes_data(frame.epoch):
            return
        self.heard_ms = process.now()
        if frame.offset > disk.end:
            self.broken()
            return
        if frame.records and frame.offset == disk.end:
            self.take(frame)
        high_watermark = min(frame.high_watermark, disk.end)
        if high_watermark > disk.high_watermark:
            disk.high_watermark = high_watermark
            process.world.checker.changed(process)
        self.acknowledge(sender, frame.connection, frame.epoch)
        if frame.sync or not frame.records:
            process.sync_soon()

    def take(self, frame: Data) -> None:
        disk = self.process.disk
        if not disk.ends:
            disk.base_chain = frame.chain
        starts = dict(frame.epochs)
        for record, data in zip(frame.records, frame.data, strict=True):
            disk.take(record, starts[record.epoch], data)
        self.process.world.checker.changed(self.process, frame.epoch)

    def acknowledge(self, to: int, connection: int, epoch: int) -> None:
        disk, member = self.process.disk, self.process.machine.state.member
        if member is not None:
            self.process.send(to, Ack(member, connection, epoch, disk.end, disk.synced))

    def synced(self) -> None:
        """Our disk holds more: the leader may wait for that."""
        state = self.process.machine.state
        if state.reconciled and self.connection > 0:
            self.acknowledge(self.leader, self.connection, state.epoch)

    def go_on(self) -> None:
        """What a follower does from time to time: connect again when nothing is heard."""
        silent = self.process.now() - self.heard_ms
        if silent > SILENCE_MS_MAX or (self.connection < 0 and silent > RECONNECT_MS):
            self.connect()


def take_frame(process: Process, sender: int, frame: Frame) -> None:
    """Give a frame to the end that it is for."""
    match frame:
        case Hello():
            process.leader_end.on_hello(sender, frame)
        case Fetch():
            process.leader_end.on_fetch(sender, frame)
        case Ack():
            process.leader_end.on_ack(sender, frame)
        case Refuse():
            process.follower_end.on_refuse(sender, frame)
        case Welcome():
            process.follower_end.on_welcome(sender, frame)
        case Data():
            process.follower_end.on_data(sender, frame)
