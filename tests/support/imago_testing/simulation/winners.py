"""Who was elected, and whether somebody better was there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_testing.simulation.disk import Disk, holds

if TYPE_CHECKING:
    from imago_broker.model.registry.shard import Member, ShardState
    from imago_testing.simulation.checker import Checker

SETTLED_MS = 1000
"""What has been so for this long is known to everybody who is not hindered."""
SEEN_MS = 300
"""A member that has been there for this long has been seen by all that reach the coordinator."""


class InvariantBrokenError(AssertionError):
    """A promise of the protocol was not kept."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__(f"I{number}: {text}")
        self.number = number


def compared(
    checker: Checker, before: ShardState, after: ShardState, disk: Disk, shared: int
) -> None:
    """Records that a file lost without a trace are gone when nobody who has them is there."""
    gone = checker.line.records[checker.line.index_after(shared) :]
    torn = [record for record in gone if record.ident in checker.torn_idents]
    if after.unclean or not torn:
        return
    last = torn[-1]
    for other in others(checker, before, disk.uuid, SEEN_MS):
        if holds(checker.world.disks[other], last.ident, last.end):
            raise InvariantBrokenError(
                1, f"{disk.uuid} leads without {last}, which m{other} has, and is there"
            )
    for record in torn:
        checker.losses[record.ident] = 1 << 31


def whole(checker: Checker, before: ShardState, after: ShardState, leader: Member) -> None:
    """A member with damage leads where no whole one could."""
    handed = after.cause == "handover"
    former = None if before.leader is None else checker.world.index_of(before.leader.uuid)
    for other in others(checker, before, leader.uuid):
        disk = checker.world.disks[other]
        if disk.damaged or checker.world.now - disk.damaged_ms < SETTLED_MS:
            continue
        if handed and former is not None and not could_take_over(checker, former, other):
            continue
        raise InvariantBrokenError(
            19, f"{leader.uuid} leads with damage, {disk.uuid} is whole and is there"
        )


def could_take_over(checker: Checker, former: int, other: int) -> bool:
    """Whether a leader could have gone on, or handed over to this member."""
    process = checker.world.processes[former]
    if process is None:
        return False
    if other == former:
        return process.machine.state.stopping_ms is None
    return checker.world.disks[other].uuid in process.leader_end.peers


def others(
    checker: Checker, before: ShardState, winner: str, free_ms: int = SETTLED_MS
) -> list[int]:
    """Members of the last set that were there, and fit to lead, for a while."""
    found = []
    for member in before.in_sync:
        entry = checker.world.coordinator.registered.get(member.uuid)
        index = checker.world.index_of(member.uuid)
        if member.uuid == winner or entry is None or not checker.world.free(index, free_ms):
            continue
        if entry[0].incarnation == member.incarnation or not entry[0].unclean:
            found.append(index)
    return found
