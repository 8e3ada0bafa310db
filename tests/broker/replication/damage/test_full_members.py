"""Members whose disks fill up: others lead, others are waited for, and nothing unread goes.

The disks are told how full they are; everything else is a real shard of three brokers.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from prometheus_client import generate_latest

from imago_broker.app import ticking
from imago_broker.core.shard.expendable import has_room_elsewhere
from imago_broker.replication import failover_policy
from imago_broker.service import readers
from imago_broker.service.puts.put_status import PutStatus
from imago_log.disk.pressure import DiskLevel
from imago_log.disk.vfs import DiskUsage, OsVfs
from imago_testing.chaos.checker import check
from imago_testing.chaos.cluster.full_disks import forced_in, note_forced_out
from imago_testing.chaos.planted import good_history
from imago_testing.chaos.violations import Broken
from imago_testing.clusters.shard_brokers import TOPIC, ShardBrokers, until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SEGMENT_BYTES = 64 << 10
ENOUGH, CROWDED, FULL = 50, 87, 97
"""Used parts of a disk, in percent."""


class FillingShard(ShardBrokers):
    """Three members, two of which have to be in sync, on disks that are as full as is said."""

    def __init__(self, folder: Path, *overrides: str) -> None:
        super().__init__(
            folder,
            "store.disk_clean_ratio=0.75",
            "store.disk_force_ratio=0.85",
            "store.disk_full_ratio=0.9",
            "store.retention_ms=0",
            f"store.segment_bytes_max={SEGMENT_BYTES}",
            "rocketmq.message_bytes_max=16384",
            "metaq.message_bytes_max=16384",
            *overrides,
        )
        self._used: dict[Path, int] = {}

    def use(self, **percents: int) -> None:
        """Say how full the disks are: `m1=95`."""
        for member, percent in percents.items():
            self._used[self.folder / f"member-{member[1:]}"] = percent

    def usage(self, path: Path) -> DiskUsage:
        return DiskUsage(total=100, used=self._used.get(path, ENOUGH))

    async def start_all(self) -> None:
        await self.start(0, 1, 2)
        await self.all_in_sync(0, 1, 2)

    async def fill(self, number: int, files: int = 4) -> Sequence[bytes]:
        """Write whole files of the log through a member; return the bodies."""
        bodies = [b"%06d" % at + bytes(4000) for at in range(files * SEGMENT_BYTES // 4096)]
        assert set(await self.put(number, *bodies)) == {PutStatus.OK}
        return bodies

    def starts(self) -> list[int]:
        return [self.store(number).log_start for number in sorted(self.brokers)]

    async def ticks(self, count: int) -> None:
        """Let so many rounds of housekeeping pass on every member."""
        await asyncio.sleep(count * ticking.TICK_SECONDS)


@pytest.fixture
def shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FillingShard:
    monkeypatch.setattr(failover_policy, "CROWDED_LEADS_MS", 200)
    monkeypatch.setattr(ticking, "TICK_SECONDS", 0.05)
    monkeypatch.setattr(readers, "RETURN_MS", 200)
    shard = FillingShard(tmp_path)
    monkeypatch.setattr(OsVfs, "disk_usage", lambda _self, path: shard.usage(path))
    return shard


async def test_a_master_without_room_gives_leadership_to_a_member_that_has_some(
    shard: FillingShard,
) -> None:
    await shard.start_all()
    assert await shard.put(0, b"first") == [PutStatus.OK]
    shard.use(m0=FULL, m2=FULL)
    assert await shard.led(but=0) == 1
    view = shard.brokers[1].coordinator.view
    await until(lambda: sum(record.full for record in view().members(0)) == 2)
    await until(lambda: not shard.gate(1).replicated)
    before = shard.store(1).log_end
    assert await shard.put(1, b"one") == [PutStatus.TOO_FEW_IN_SYNC]
    assert shard.store(1).log_end == before, "refused at once: too few have room for a copy"
    shard.use(m1=FULL)
    await until(lambda: all(record.full for record in view().members(0)))
    await asyncio.sleep(5 * failover_policy.CROWDED_LEADS_MS / 1000)
    assert await shard.led() == 1, "nobody has room: leadership does not go round"
    shard.use(m2=ENOUGH)
    assert await shard.led(but=1) == 2
    shard.use(m1=ENOUGH)
    await until(lambda: shard.gate(2).replicated)
    assert await shard.put(2, b"two") == [PutStatus.OK]
    await shard.close()


async def test_a_crowded_master_deletes_nothing_while_another_has_room(
    shard: FillingShard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failover_policy, "CROWDED_LEADS_MS", 1500)
    await shard.start_all()
    bodies = await shard.fill(0)
    shard.brokers[0].offsets.commit("group", TOPIC, 0, len(bodies))
    shard.use(m0=CROWDED, m1=CROWDED)
    assert await shard.led(but=0) == 2, "the one that has room, though another is not full"
    await shard.ticks(20)
    assert shard.starts() == [0, 0, 0], "not what is read, either"
    assert shard.bodies(2) == bodies
    await shard.close()


async def test_the_checker_of_chaos_sees_a_broker_that_deletes_though_another_has_room(
    shard: FillingShard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted fault is this master's alone; what it shows is what runs of chaos look at."""
    monkeypatch.setattr(failover_policy, "CROWDED_LEADS_MS", 600_000)
    monkeypatch.setattr(failover_policy, "has_room_elsewhere", lambda *_: False)
    await shard.start_all()
    bodies = await shard.fill(0)
    history = good_history()

    def looked() -> list[Broken]:
        metrics = generate_latest(shard.brokers[0].admin_services().registry).decode()
        note_forced_out(history, "crowd_leader", {"m0": forced_in(metrics)})
        return [each.broken for each in check(history)]

    assert looked() == []
    shard.use(m0=CROWDED)
    shard.brokers[0].offsets.commit("group", TOPIC, 0, len(bodies))
    await until(lambda: shard.starts()[0] > 0)
    assert looked() == [Broken.FORCED_OUT]
    await shard.close()


async def test_what_everybody_has_read_stays_until_nobody_has_room(
    shard: FillingShard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the master keeps the leadership."""
    monkeypatch.setattr(failover_policy, "CROWDED_LEADS_MS", 600_000)
    await shard.start_all()
    bodies = await shard.fill(0)
    master, machine = shard.brokers[0], shard.shell(0).machine
    shard.use(m0=CROWDED, m1=CROWDED, m2=CROWDED)
    master.offsets.commit("group", TOPIC, 0, 20)
    await until(lambda: all(start == SEGMENT_BYTES for start in shard.starts()))
    shard.use(m2=ENOUGH)

    def has_room() -> bool:
        state = machine.state
        return has_room_elsewhere(state.shard, state.live, state.uuid)

    await until(has_room)
    master.offsets.commit("group", TOPIC, 0, len(bodies))
    await until(lambda: master.rocketmq.readers.read_to(TOPIC, 0) == len(bodies))
    await shard.ticks(30)
    assert shard.starts() == [SEGMENT_BYTES] * 3
    shard.use(m2=CROWDED)
    await until(lambda: min(shard.starts()) > SEGMENT_BYTES)
    await shard.close()


async def test_without_room_anywhere_what_is_read_goes_and_the_rest_is_kept(
    shard: FillingShard,
) -> None:
    await shard.start_all()
    bodies = await shard.fill(0)
    shard.use(m0=CROWDED, m1=CROWDED, m2=CROWDED)
    await shard.ticks(30)
    assert await shard.led() == 0
    assert shard.starts() == [0, 0, 0], "nobody has read it"
    shard.brokers[0].offsets.commit("group", TOPIC, 0, 20)
    await until(lambda: all(start == SEGMENT_BYTES for start in shard.starts()))
    await shard.ticks(20)
    assert shard.starts() == [SEGMENT_BYTES] * 3
    assert bodies[20] in shard.bodies(0)
    notes = " ".join(text for _, text in shard.shell(0).executor.notes)
    assert f"log offsets 0 to {SEGMENT_BYTES} went for want of room" in notes
    went = shard.store(0).forced.newest()
    assert [shard.store(number).forced.newest() for number in (1, 2)] == [went, went]
    assert went is not None
    assert (went.start, went.end) == (0, SEGMENT_BYTES)
    assert went.messages == shard.store(0).forced.counts.messages > 0
    shard.use(m0=FULL, m1=FULL, m2=FULL)
    await until(lambda: shard.store(0).disk_level is DiskLevel.FULL)
    assert await shard.put(0, b"more") == [PutStatus.DISK_FULL]
    await shard.close()


async def test_full_members_free_room_together(shard: FillingShard) -> None:
    """Followers take the leader's word of it, above the level at which it refuses messages."""
    await shard.start_all()
    bodies = await shard.fill(0)
    shard.use(m0=FULL - 5, m1=FULL - 5, m2=FULL - 5)
    await until(
        lambda: all(shard.store(number).disk_level is DiskLevel.FULL for number in range(3))
    )
    shard.brokers[0].offsets.commit("group", TOPIC, 0, len(bodies))
    await until(lambda: min(shard.starts()) >= 3 * SEGMENT_BYTES)
    shard.use(m0=ENOUGH, m1=ENOUGH, m2=ENOUGH)
    await until(
        lambda: shard.gate(0).replicated and shard.store(0).disk_level is not DiskLevel.FULL
    )
    assert await shard.put(0, b"more") == [PutStatus.OK]
    await shard.close()


async def test_who_asks_for_it_loses_the_oldest_once_nobody_has_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shard: FillingShard
) -> None:
    shard = FillingShard(tmp_path, "store.disk_force_deletes=oldest")
    monkeypatch.setattr(OsVfs, "disk_usage", lambda _self, path: shard.usage(path))
    await shard.start_all()
    await shard.fill(0)
    shard.use(m0=CROWDED, m1=CROWDED)
    assert await shard.led(but=0) == 2
    await shard.ticks(20)
    assert shard.starts() == [0, 0, 0]
    shard.use(m2=CROWDED)
    await until(lambda: min(shard.starts()) >= 3 * SEGMENT_BYTES)
    await shard.close()


async def test_a_full_follower_leaves_the_set_while_enough_stay(shard: FillingShard) -> None:
    await shard.start_all()
    shard.use(m2=FULL)
    await until(lambda: shard.in_sync(0) == {0, 1})
    assert await shard.put(0, b"one") == [PutStatus.OK]
    await asyncio.sleep(0.5)
    assert shard.in_sync(0) == {0, 1}, "it does not come and go"
    shard.use(m1=FULL)
    await until(lambda: shard.store(1).disk_level is DiskLevel.FULL)
    await shard.ticks(20)
    assert shard.in_sync(0) == {0, 1}, "nobody could take its place"
    assert not shard.gate(0).replicated
    shard.use(m2=ENOUGH)
    await until(lambda: shard.in_sync(0) == {0, 2})
    assert await shard.put(0, b"two") == [PutStatus.OK]
    shard.use(m1=ENOUGH)
    await shard.all_in_sync(0, 1, 2)
    await shard.same_logs()
    await shard.close()
