"""What is looked at once, at the end of a run: everything promised is there, once, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_testing.simulation.client import META_PRODUCER
from imago_testing.simulation.store_disk import StoreDisk
from imago_testing.simulation.winners import InvariantBrokenError

if TYPE_CHECKING:
    from imago_testing.simulation.disk import Disk
    from imago_testing.simulation.world import SimulatedRun


def judge(world: SimulatedRun, disk: Disk) -> None:
    """Compare the leader's log with what clients were promised."""
    place: dict[int, int] = {}
    for record in disk.records:
        if record.ident in place:
            raise InvariantBrokenError(15, f"put {record.ident} is there twice")
        place[record.ident] = record.end
    acked_are_there(world, disk, place)
    stores_agree(world, disk)
    order_is_kept(world, disk)
    offsets_stay(world, disk)


def acked_are_there(world: SimulatedRun, disk: Disk, place: dict[int, int]) -> None:
    for put, end in world.checker.acks.values():
        if end > disk.start and place.get(put.ident) != end:
            raise InvariantBrokenError(13, f"{put.level.value} {put.value} at {end} is gone")
    for end, ident in world.checker.delivered.items():
        if end > disk.start and place.get(ident) != end:
            raise InvariantBrokenError(12, f"record {ident} was delivered at {end} and is gone")


def stores_agree(world: SimulatedRun, disk: Disk) -> None:
    """Real stores hold the same bytes, and make the same queue of them."""
    puts = world.client.puts
    idents = [r.ident for r in disk.records if puts[r.ident].producer != META_PRODUCER]
    for other in world.disks:
        if isinstance(other, StoreDisk) and isinstance(disk, StoreDisk):
            other.judge(disk, idents)


def order_is_kept(world: SimulatedRun, disk: Disk) -> None:
    """A producer's records of one connection are in their order."""
    last: dict[tuple[int, int], tuple[int, int]] = {}
    for record in disk.records:
        put = world.client.puts[record.ident]
        key, now = (put.producer, put.connection), (put.value, put.ident)
        if last.get(key, (0, 0)) >= now:
            raise InvariantBrokenError(14, f"{now} of producer {key} came after {last[key]}")
        last[key] = now


def offsets_stay(world: SimulatedRun, disk: Disk) -> None:
    """Committed consumer offsets did not go back."""
    if disk.start:
        return
    puts = world.client.puts
    for producer in world.client.producers:
        mine = producer.number
        acked = [put.offset for put, _ in world.checker.acks.values() if put.producer == mine]
        there = [puts[r.ident].offset for r in disk.records if puts[r.ident].producer == mine]
        if max(acked, default=0) > max(there, default=0):
            raise InvariantBrokenError(16, f"{max(acked)} went back to {max(there, default=0)}")
