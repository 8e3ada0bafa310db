"""The invariants, looked at after every event: those of docs/invariants.md, by their numbers.

The reference is the line of committed records: what a leader has raised its high watermark over.
It is shortened only where a promise allows that: a person allowed it, or more members lost power
than the level of a record survives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.core.shard.in_sync import waited_for
from imago_testing.simulation.client import Level
from imago_testing.simulation.disk import Disk, Record, holds
from imago_testing.simulation.winners import (
    SETTLED_MS,
    InvariantBrokenError,
    compared,
    whole,
)

if TYPE_CHECKING:
    from imago_broker.model.registry.shard import Member, ShardState
    from imago_testing.simulation.client import Put
    from imago_testing.simulation.frames import Fetch
    from imago_testing.simulation.member import Process
    from imago_testing.simulation.world import SimulatedRun


class Checker:
    """Knows everything about everybody, and says when it may not be so."""

    def __init__(self, world: SimulatedRun) -> None:
        self.world = world
        self.line = Disk("committed")
        """The committed records, as if a member held exactly them."""
        self.acks: dict[int, tuple[Put, int]] = {}
        """Acknowledged puts that must stay, by ident, with their end."""
        self.acker: dict[int, str] = {}
        self.leaders: dict[int, str] = {}
        self.losses: dict[int, int] = {}
        """How many members have lost a record with their power, by ident."""
        self.delivered: dict[int, int] = {}
        """Which record consumers saw, by its end."""
        self.torn_idents: set[int] = set()
        """Records that a member lost without a trace."""
        self.faults = 0
        self.elections = 0
        self.excused = 0
        self.dirty: list[Process] = []
        self.state_dirty = False

    # ---- what happens ------------------------------------------------------------------------

    def promised(self, process: Process, epoch: int) -> None:
        if epoch <= process.disk.epoch_seen:
            raise InvariantBrokenError(
                5, f"{process.uuid} promised {process.disk.epoch_seen}, then {epoch}"
            )

    def leads(self, process: Process, epoch: int) -> None:
        """A process begins an epoch: from now on it is the one that is compared with."""
        other = self.leaders.setdefault(epoch, process.uuid)
        if other != process.uuid:
            raise InvariantBrokenError(4, f"{other} and {process.uuid} lead in epoch {epoch}")
        state = self.world.coordinator.told
        if state.epoch == epoch:
            self.new_leader(process.disk)
        self.state_dirty = True

    def new_leader(self, disk: Disk) -> None:
        """Compare the log of a new leader with the line; shorten the line where that is excused."""
        shared = self.shared_end(disk)
        if shared < self.line.end:
            self.excuse(disk, shared)
        # What only its former leader acknowledged is gone now, as that level allows.
        for ident, (put, end) in list(self.acks.items()):
            if not put.level.replicated and not holds(disk, ident, end):
                del self.acks[ident]

    def shared_end(self, disk: Disk) -> int:
        """Up to where a log and the line are the same."""
        line = self.line
        end = min(disk.end, line.end)
        if end < disk.start or (
            disk.chain_at(end) is not None and disk.chain_at(end) == line.chain_at(end)
        ):
            return end
        shared = max(disk.start, line.start)
        for record, chain in zip(disk.records, disk.chain, strict=True):
            if record.end <= shared:
                continue
            if line.chain_at(record.end) != chain:
                break
            shared = record.end
        return shared

    def excuse(self, disk: Disk, shared: int) -> None:
        """A leader lacks committed records: each must be one that may be lost."""
        line = self.line
        forced = self.world.coordinator.state.unclean
        gone = line.records[line.index_after(shared) :]
        for record in gone:
            if not forced and self.losses.get(record.ident, 0) < self.losses_needed(record):
                raise InvariantBrokenError(
                    1, f"{disk.uuid} leads without record {record}, which is committed"
                )
        self.excused += 1
        lost = {record.ident for record in gone}
        self.acks = {
            ident: (put, end)
            for ident, (put, end) in self.acks.items()
            if ident not in lost and (not forced or holds(disk, ident, end))
        }
        line.synced = line.end
        line.truncate(shared)
        for other in self.world.disks:
            other.high_watermark = min(other.high_watermark, shared)
        self.delivered = {end: i for end, i in self.delivered.items() if end <= shared}

    def losses_needed(self, record: Record) -> int:
        """How many members must have lost a committed record before the shard may lose it."""
        entry = self.acks.get(record.ident)
        if entry is None or not entry[0].level.replicated:
            return 1
        return 1 << 30 if entry[0].level.synced else self.world.limits.min_in_sync

    def committed(self, process: Process, end: int) -> None:
        """A leader has raised its high watermark."""
        line, disk = self.line, process.disk
        state = process.machine.state
        stored = self.world.coordinator.state
        if self.overruled(process, alone=not state.leadership.waits):
            return
        if end > line.end:
            self.extend(process, end)
        elif disk.chain_at(end) is not None and disk.chain_at(end) != line.chain_at(end):
            raise InvariantBrokenError(3, f"{process.uuid} commits another log below {end}")
        if stored.leads(state.member) and stored.epoch == state.epoch:
            for entry in stored.in_sync:
                other = self.sound(entry)
                if other is None:
                    continue
                if other.end < end or other.epoch_seen < state.epoch:
                    raise InvariantBrokenError(
                        8,
                        f"{process.uuid} raised to {end}: {other.uuid} is at {other.end}"
                        f" of epoch {other.epoch_seen}",
                    )
        self.state_dirty = True

    def extend(self, process: Process, end: int) -> None:
        line, disk = self.line, process.disk
        if not line.ends and line.end < disk.start:
            line.start, line.base_chain = disk.start, disk.base_chain
        if disk.start <= line.end and disk.chain_at(line.end) != (line.chain_at(line.end)):
            raise InvariantBrokenError(3, f"{process.uuid} commits on another log than {line.end}")
        for record in disk.records[disk.index_after(line.end) :]:
            if record.end > end:
                break
            line.append(record)

    def appended(self, process: Process) -> None:
        """A leader has written."""
        self.dirty.append(process)

    def changed(self, process: Process, epoch: int | None = None) -> None:
        """The log or the high watermark of a member changed; `epoch`: by data of that epoch."""
        if epoch is not None and epoch < process.disk.epoch_seen:
            raise InvariantBrokenError(
                5, f"{process.uuid} took data of epoch {epoch} after {process.disk.epoch_seen}"
            )
        self.dirty.append(process)

    def acked(self, process: Process, put: Put, end: int) -> None:
        """A put was acknowledged: the leader that the coordinator knows holds it."""
        epoch = process.machine.state.epoch
        other = self.acker.setdefault(epoch, process.uuid)
        if other != process.uuid:
            raise InvariantBrokenError(
                4, f"{other} and {process.uuid} acknowledged in epoch {epoch}"
            )
        leader = self.world.coordinator.state.leader
        if self.overruled(process, alone=not put.level.replicated):
            return
        if leader is not None:
            disk = self.world.disks[self.world.index_of(leader.uuid)]
            if not holds(disk, put.ident, end):
                raise InvariantBrokenError(
                    1, f"{process.uuid} acknowledged {end}, which the leader {leader.uuid} lacks"
                )
        if put.level.replicated:
            copies = sum(holds(disk, put.ident, end) for disk in self.world.disks)
            copies += self.losses.get(put.ident, 0)
            if copies < self.world.limits.min_in_sync:
                raise InvariantBrokenError(13, f"acknowledged with {copies} copies: {put.value}")
        self.acks[put.ident] = (put, end)

    def lost_power(self, lost: list[Record]) -> None:
        """A member lost these records with its power."""
        for record in lost:
            self.losses[record.ident] = self.losses.get(record.ident, 0) + 1
        for record in lost:
            entry = self.acks.get(record.ident)
            if entry is not None and entry[0].level is Level.LEADER:
                del self.acks[record.ident]
        self.state_dirty = True

    def torn(self, lost: list[Record]) -> None:
        """A member's file lost these records, and it does not know."""
        self.torn_idents |= {record.ident for record in lost}
        self.lost_power(lost)

    def fetched(self, process: Process, frame: Fetch) -> None:
        """A leader sends its log from here on: what is before must be the same."""
        own = process.disk.chain_at(frame.offset)
        if frame.offset > process.disk.start and frame.offset_epoch and own != frame.chain:
            raise InvariantBrokenError(
                10, f"{frame.member.uuid} fetches {frame.offset} after another log"
            )

    def fetch_refused(self, process: Process, frame: Fetch, problem: str) -> None:
        """A follower that has reconciled in this epoch is refused only by retention."""
        state = process.machine.state
        if (
            state.leadership.led
            and frame.epoch == state.epoch
            and frame.offset >= process.disk.start
        ):
            raise InvariantBrokenError(10, f"{frame.member.uuid} reconciled in vain: {problem}")

    def read(self, process: Process, where: float) -> None:
        """A consumer reads a record below the high watermark."""
        if self.overruled(process, alone=not process.machine.state.leadership.waits):
            return
        disk = process.disk
        count = disk.index_after(process.machine.watermark.value)
        if not count:
            return
        record = disk.records[int(where * count)]
        if record.end > self.line.end or (
            self.line.chain_at(record.end) is None and record.end > self.line.start
        ):
            raise InvariantBrokenError(
                8, f"{process.uuid} delivered {record} above what is committed"
            )
        seen = self.delivered.setdefault(record.end, record.ident)
        if seen != record.ident:
            raise InvariantBrokenError(
                12, f"{process.uuid} delivered {record}, it was {seen} before"
            )

    def state_changed(self, before: ShardState, after: ShardState, *, forgotten: bool) -> None:
        """The state was changed, or written again after it was `forgotten`."""
        if after.epoch < before.epoch or (
            after.leader != before.leader and after.leader and after.epoch == before.epoch
        ):
            # An epoch in which nobody has led may be forgotten with its election.
            led = self.leaders.get(after.epoch, "")
            if not forgotten or led or after.epoch <= max(self.leaders, default=0):
                raise InvariantBrokenError(5, f"epoch {before.epoch} became {after.epoch}")
        if after.epoch != before.epoch:
            self.elections += 1
            if self.elections > 3 * (self.faults + 1):
                raise InvariantBrokenError(
                    18, f"{self.elections} elections after {self.faults} faults"
                )
            self.elected(before, after)
        else:
            self.joined(before, after)
        self.state_dirty = True

    def elected(self, before: ShardState, after: ShardState) -> None:
        """The winner may not be one that lost its memory while another did not."""
        leader = after.leader
        assert leader is not None
        disk = self.world.disks[self.world.index_of(leader.uuid)]
        shared = self.shared_end(disk)
        if shared < self.line.end:
            compared(self, before, after, disk, shared)
            self.excuse(disk, shared)
        if disk.damaged and not after.unclean and self.world.now - disk.damaged_ms >= SETTLED_MS:
            whole(self, before, after, leader)

    def joined(self, before: ShardState, after: ShardState) -> None:
        for entry in after.in_sync:
            if entry in before.in_sync:
                continue
            disk = self.sound(entry)
            if disk is not None and self.shared_end(disk) < self.line.end:
                raise InvariantBrokenError(
                    9, f"{entry} joined at {disk.end}, committed is {self.line.end}"
                )
            registered = self.world.coordinator.registered.get(entry.uuid)
            truth = self.world.disks[self.world.index_of(entry.uuid)]
            if registered is not None and registered[0].incarnation == entry.incarnation:
                if truth.lost_incarnation >= entry.incarnation:
                    continue
                if self.shared_end(truth) < self.line.end:
                    raise InvariantBrokenError(11, f"{entry} lost power and is in sync")

    # ---- after every event -------------------------------------------------------------------

    def after_event(self) -> None:
        if self.dirty:
            for process in self.dirty:
                self.check_log(process.disk)
            self.dirty.clear()
            self.state_dirty = True
        if self.state_dirty:
            self.state_dirty = False
            self.check_state()

    def check_log(self, disk: Disk) -> None:
        """Below its high watermark every log is the committed one."""
        line = self.line
        end = min(disk.high_watermark, disk.end, line.end)
        own = disk.chain_at(end)
        if own is None:
            if end > disk.start:
                raise InvariantBrokenError(3, f"{disk.uuid}: {end} is no record border there")
        elif end > max(line.start, disk.start) and own != line.chain_at(end):
            raise InvariantBrokenError(3, f"{disk.uuid} differs from the committed log below {end}")

    def check_state(self) -> None:
        """Every member that could be elected holds all that is committed."""
        world = self.world
        stored = world.coordinator.state
        for entry in stored.in_sync:
            disk = self.sound(entry)
            if disk is not None and not self.complete(disk):
                raise InvariantBrokenError(
                    6, f"{disk.uuid} is in sync and holds {disk.end} of {self.line.end}"
                )
        leader = stored.leader
        if leader is None:
            return
        process = world.processes[world.index_of(leader.uuid)]
        if process is None or not process.machine.state.leadership.led:
            return
        state = process.machine.state
        if state.member == leader and state.epoch == stored.epoch:
            if not self.complete(process.disk):
                raise InvariantBrokenError(1, f"{leader.uuid} leads without {self.line.end}")
            self.check_waiting(process, stored, leader)

    def check_waiting(self, process: Process, stored: ShardState, leader: Member) -> None:
        waits = process.machine.watermark.waiting
        if waits is not None and not waited_for(stored, None, None, leader) <= waits:
            raise InvariantBrokenError(
                7, f"{leader.uuid} waits for {sorted(waits)} of {stored.in_sync}"
            )

    def overruled(self, process: Process, *, alone: bool) -> bool:
        """Whether somebody else leads by an act that no lease and no in-sync set holds against:
        its session was ended before its time (and it acts alone), or a person forced an
        election."""
        stored = self.world.coordinator.told
        state = process.machine.state
        if stored.leads(state.member) and stored.epoch == state.epoch:
            return False
        session = process.session.session
        by_force = alone and session is not None and session.closed
        return by_force or any(
            entry.unclean and entry.epoch > state.epoch for entry in stored.history
        )

    def complete(self, disk: Disk) -> bool:
        """Whether a log holds everything that is committed."""
        line = self.line
        if disk.end < line.end:
            return False
        if line.end <= disk.start:
            return True
        return disk.chain_at(line.end) == line.chain_at(line.end)

    def sound(self, entry: Member) -> Disk | None:
        """The disk of an in-sync member, if it still is what it was when the entry was made."""
        disk = self.world.disks[self.world.index_of(entry.uuid)]
        return disk if entry.incarnation > disk.lost_incarnation else None
