"""Files on their way to the bucket and out of it: ended at every step, and masters that follow."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.features.tiered import archiving
from imago_broker.features.tiered import bucket as bucket_module
from imago_broker.features.tiered.archiving import (
    Archive,
    NotMasterError,
    TierRules,
    WrongClusterError,
)
from imago_broker.features.tiered.bucket import FencedTierError, ShardBucket, WrongTierError
from imago_log import MessageStore
from imago_objects import ObjectsConfig, open_objects
from imago_testing.stores.in_memory import FakeClock, Model, folder_config

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from imago_log.tier.manifest import TierManifest
    from imago_objects import Objects


class KilledError(Exception):
    """The process ended here."""


class KillingBucket:
    """A bucket whose user is killed before or behind one of its changes."""

    def __init__(self, objects: Objects, at: int = -1, *, behind: bool = False) -> None:
        self._objects, self._at, self._behind = objects, at, behind
        self.url, self.changes = objects.url, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._objects, name)

    async def put(self, name: str, data: bytes | Path) -> None:
        await self._change(self._objects.put(name, data))

    async def put_if_absent(self, name: str, data: bytes) -> bool:
        return bool(await self._change(self._objects.put_if_absent(name, data)))

    async def delete(self, names: list[str]) -> None:
        for name in names:
            await self._change(self._objects.delete([name]))

    async def _change(self, change: Any) -> object:
        self.changes += 1
        if self.changes - 1 != self._at:
            return await change
        if self._behind:
            await change
        change.close()
        raise KilledError


class ManualClock:
    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock

    def epoch_ms(self) -> int:
        return self._clock()

    monotonic_ms = epoch_ms


@dataclass
class Shard:
    """A store with some whole files, and masters of it."""

    store: MessageStore
    clock: FakeClock
    objects: Objects
    retention_ms: int = 60_000

    def archive(self, objects: object, epoch: int, cluster: str = "id") -> Archive:
        return Archive(
            self.store,
            ShardBucket(objects, "c", "shard-0"),  # type: ignore[arg-type]
            ManualClock(self.clock),
            cluster_id=cluster,
            epoch=epoch,
            rules=TierRules(
                left_out=lambda _: False, retention_ms=self.retention_ms, retention_bytes=0
            ),
        )

    async def latest(self) -> TierManifest:
        found = await ShardBucket(self.objects, "c", "shard-0").latest()
        assert found is not None
        return found

    async def check(self, *, swept: bool) -> None:
        """Every object that the manifest names is there; `swept`: and none else."""
        manifest = await self.latest()
        named = {name for each in manifest.segments for name in (each.log, each.index)}
        stored = {each.name: each.size for each in await self.objects.list("c/shard-0/log")}
        assert named <= stored.keys()
        if swept:
            assert stored.keys() == named
        for each in manifest.segments:
            assert stored[each.log] == each.size
            data = await self.objects.get(each.log)
            assert data == self.store.components.storage.log.read(each.base, each.size)


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[Shard]:
    clock = FakeClock()
    store = MessageStore.open(folder_config(tmp_path), clock=clock, threaded=False)
    store.create_topic("t", {"queues": 1})
    for _ in range(40):
        clock.now_ms += 1000
        Model().send(store, [("t", 0, 300)])
    store.request_sync(urgent=True)
    assert store.durable_end > 3 * 4096
    yield Shard(store, clock, open_objects(ObjectsConfig("memory://")))
    store.close()


async def life(shard: Shard, archive: Archive) -> None:
    """Claim, take all there, have the older half expire."""
    await archive.claim()
    await archive.sweep()
    while await archive.step():
        pass
    # As if the disk had let go of them: what it has is never deleted in the bucket.
    shard.store.components.storage.log.start = archive.manifest.segments[1].end
    shard.clock.now_ms += 35_000
    try:
        await archive.retire()
    finally:
        shard.store.components.storage.log.start = 0
        shard.clock.now_ms -= 35_000


@pytest.mark.parametrize("behind", [False, True])
async def test_a_kill_at_any_step_loses_nothing_and_leaves_nothing(
    shard: Shard, monkeypatch: pytest.MonkeyPatch, *, behind: bool
) -> None:
    monkeypatch.setattr(archiving, "REST_S", 0, raising=False)
    for step in range(200):
        shard.objects = open_objects(ObjectsConfig("memory://"))
        killed = shard.archive(KillingBucket(shard.objects, step, behind=behind), 1)
        try:
            await life(shard, killed)
        except KilledError:
            pass
        else:
            assert step > 12
            break
        if await ShardBucket(shard.objects, "c", "shard-0").latest() is not None:
            assert killed.trusted_end <= (await shard.latest()).end  # what it may delete here
            await shard.check(swept=False)
        after = shard.archive(shard.objects, 2)
        await after.claim()
        await after.sweep()
        while await after.step():
            pass
        await shard.check(swept=True)
        assert (await shard.latest()).end == shard.store.durable_end // 4096 * 4096
    else:
        raise AssertionError("it never came to its end")


async def test_a_former_master_can_change_nothing(shard: Shard) -> None:
    former, later = shard.archive(shard.objects, 1), shard.archive(shard.objects, 2)
    await former.claim()
    assert await former.step()
    await later.claim()
    assert later.manifest.segments == former.manifest.segments
    with pytest.raises(FencedTierError, match="another master wrote"):
        await former.step()
    with pytest.raises(NotMasterError, match="knows epoch 2, this master has 1"):
        await shard.archive(shard.objects, 1).claim()
    assert await later.step()
    assert await later.sweep() == 2  # what the former one uploaded in vain
    await shard.check(swept=True)


async def test_a_master_that_slept_for_long_can_change_nothing(
    shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_module, "GENERATIONS_KEPT", 2)
    former = shard.archive(shard.objects, 1)
    await former.claim()
    for epoch in range(2, 8):
        await shard.archive(shard.objects, epoch).claim()
    with pytest.raises(FencedTierError, match="is newer"):
        await former.step()
    assert (await shard.latest()).epoch == 7
    assert len(await shard.objects.list("c/shard-0/manifest")) == 2


async def test_one_of_two_masters_of_one_moment_claims(shard: Shard) -> None:
    both = [shard.archive(shard.objects, 3), shard.archive(shard.objects, 4)]
    claims = await asyncio.gather(*(each.claim() for each in both), return_exceptions=True)
    assert sum(claim is None for claim in claims) >= 1
    assert all(claim is None or isinstance(claim, FencedTierError) for claim in claims)


async def test_what_arrived_otherwise_does_not_count(
    shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = shard.archive(shard.objects, 1)
    await archive.claim()
    put = shard.objects.put

    async def spoilt(_: Objects, name: str, data: bytes | Path) -> None:
        whole = data if isinstance(data, bytes) else await asyncio.to_thread(data.read_bytes)
        await put(name, whole[:-1] + b"!" if name.endswith(".log") else whole)

    monkeypatch.setattr(type(shard.objects), "put", spoilt)
    with pytest.raises(WrongTierError, match="other bytes than were sent"):
        await archive.step()
    assert archive.manifest.end == 0 == (await shard.latest()).end


async def test_a_damaged_file_stays_and_says_why(shard: Shard) -> None:
    archive = shard.archive(shard.objects, 1)
    await archive.claim()
    assert await archive.step()
    log = shard.store.components.storage.log
    file = log.file_of(4096)
    whole = file.vfs.pread(file.fd, 4096, 0)
    file.vfs.pwrite(file.fd, b"\xff" * 50, 900)
    assert not await archive.step()
    assert "log offset" in archive.refused
    file.vfs.pwrite(file.fd, whole, 0)
    assert await archive.step()
    assert archive.refused == ""


async def test_expiry_goes_step_by_step_and_spares_what_the_disk_has(
    shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = shard.archive(shard.objects, 1)
    await archive.claim()
    while await archive.step():
        pass
    shard.clock.now_ms += 1_000_000
    assert await archive.retire() == 0
    shard.store.components.storage.log.start = archive.manifest.end
    monkeypatch.setattr(archiving, "RETIRED_MAX", 2)
    count = len(archive.manifest.segments)
    assert [await archive.retire() for _ in range(2)] == [2, min(2, count - 2)]
    await shard.check(swept=True)
    shard.store.components.storage.log.start = 0


async def test_the_size_in_the_bucket_is_bounded(shard: Shard) -> None:
    archive = shard.archive(shard.objects, 1)
    await archive.claim()
    while await archive.step():
        pass
    shard.store.components.storage.log.start = archive.manifest.end
    archive.rules = replace(archive.rules, retention_bytes=archive.manifest.size - 1)
    assert await archive.retire() == 1
    shard.store.components.storage.log.start = 0


async def test_what_the_log_has_lost_is_in_no_bucket_either(shard: Shard) -> None:
    archive = shard.archive(shard.objects, 1)
    await archive.claim()
    while await archive.step():
        pass
    log = shard.store.components.storage.log
    whole, log.end = log.end, 9000
    again = shard.archive(shard.objects, 2)
    await again.claim()
    log.end = whole
    assert again.manifest.end == 8192


async def test_only_what_both_have_alike_may_go_here(shard: Shard) -> None:
    former = shard.archive(shard.objects, 1)
    await former.claim()
    while await former.step():
        pass
    count = len(former.manifest.segments)
    later = shard.archive(shard.objects, 2)
    await later.claim()
    assert later.trusted_end == 0
    assert await later.trust()
    assert later.trusted_end == 4096
    # As if the members had gone on from an older copy, which wrote something else there.
    bucket = ShardBucket(shard.objects, "c", "shard-0")
    third = replace(later.manifest.segments[2], crc=1)
    told = [*later.manifest.segments[:2], third, *later.manifest.segments[3:]]
    await bucket.write(later.manifest.next(2, told))
    latest = shard.archive(shard.objects, 3)
    await latest.claim()
    while await latest.trust():
        pass
    assert latest.is_trusted
    assert latest.trusted_end == latest.manifest.end == 2 * 4096
    await latest.sweep()
    while await latest.step():
        pass
    assert len(latest.manifest.segments) == count
    assert latest.trusted_end == latest.manifest.end
    await shard.check(swept=True)


async def test_a_damaged_file_here_costs_nothing_there(shard: Shard) -> None:
    former = shard.archive(shard.objects, 1)
    await former.claim()
    while await former.step():
        pass
    file = shard.store.components.storage.log.file_of(4096)
    file.vfs.pwrite(file.fd, b"\xff" * 50, 900)
    later = shard.archive(shard.objects, 2)
    await later.claim()
    assert await later.trust()
    assert not await later.trust()
    assert (later.trusted_end, later.is_trusted) == (4096, False)
    assert later.refused
    assert later.manifest.segments == former.manifest.segments


async def test_another_cluster_and_another_format_are_refused(shard: Shard) -> None:
    await shard.archive(shard.objects, 1).claim()
    with pytest.raises(WrongClusterError, match="another cluster"):
        await shard.archive(shard.objects, 9, "other").claim()
    (name,) = [each.name for each in await shard.objects.list("c/shard-0/manifest")]
    written = await shard.objects.get(name)
    await shard.objects.put(name, written.replace(b'"version":1', b'"version":7'))
    with pytest.raises(WrongTierError, match="has version 7, this broker knows 1: update"):
        await shard.archive(shard.objects, 9).claim()
    await shard.objects.put(name, b"nothing")
    with pytest.raises(WrongTierError, match="damaged"):
        await shard.archive(shard.objects, 9).claim()
