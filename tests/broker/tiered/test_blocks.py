"""Parts of objects on the disk: what is kept, fetched, refused, and who is woken."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from imago_broker.features.tiered import blocks
from imago_broker.features.tiered.blocks import BlockCache
from imago_log.reading.remote import RemoteAwayError, RemoteMissError
from imago_objects import BucketAwayError, ObjectsConfig, open_objects

if TYPE_CHECKING:
    from pathlib import Path

    from imago_objects import Objects

DATA = bytes(range(256)) * 16
SIZE = len(DATA)


class TurnedClock:
    now_ms = 0

    def epoch_ms(self) -> int:
        return self.now_ms

    monotonic_ms = epoch_ms


class Gate:
    """A bucket that answers when it is let, and counts what it is asked at a time."""

    def __init__(self) -> None:
        self.objects: Objects = open_objects(ObjectsConfig("memory://"))
        self.open, self.asked, self.at_once, self.most = asyncio.Event(), list[int](), 0, 0
        self.fails = False

    async def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        self.asked.append(start)
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        try:
            await self.open.wait()
        finally:
            self.at_once -= 1
        if self.fails:
            raise BucketAwayError("memory://", "gone", "wait")
        return await self.objects.get(name, start, length)


class Reader:
    """Reads, and comes again when it is woken."""

    def __init__(self, folder: Path, gate: Gate, bytes_max: int = 1 << 20) -> None:
        self.clock, self.woken = TurnedClock(), list[tuple[str, int]]()
        self.cache = BlockCache(
            gate,  # type: ignore[arg-type]
            folder,
            self.clock,
            bytes_max=bytes_max,
            fetches_max=2,
            wake=self.woken.append,
        )
        self.cache.open()

    def read(self, start: int, length: int, key: tuple[str, int] = ("t", 0)) -> bytes | None:
        try:
            return self.cache.read("a/o", SIZE, start, length)
        except RemoteMissError as error:
            error.wanted_by(key)
            return None

    async def settle(self) -> None:
        async with asyncio.timeout(60):
            while self.cache._fetches or self.cache._wanted:  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.005)


@pytest.fixture
async def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 256)
    found = Gate()
    await found.objects.put("a/o", DATA)
    return found


async def test_a_read_over_blocks_comes_when_all_are_there(gate: Gate, tmp_path: Path) -> None:
    reader = Reader(tmp_path / "cache", gate)
    assert reader.read(200, 600) is None
    await asyncio.sleep(0)
    assert reader.woken == []
    gate.open.set()
    await reader.settle()
    assert reader.read(200, 600) == DATA[200:800]
    assert ("t", 0) in reader.woken
    assert gate.most == 2  # never more, whoever reads
    assert sorted(gate.asked) == [0, 256, 512, 768, 1024, 1280]  # two ahead
    assert reader.read(1024, 512) == DATA[1024:1536]
    assert len(gate.asked) == 6


async def test_what_was_read_longest_ago_goes_first(gate: Gate, tmp_path: Path) -> None:
    reader = Reader(tmp_path / "cache", gate, bytes_max=1024)
    gate.open.set()
    for start in (0, 2048):
        reader.read(start, 10)
        await reader.settle()
    assert reader.cache.size <= 1024
    assert len(list((tmp_path / "cache").iterdir())) == reader.cache.size // 256
    assert reader.read(2048, 10) == DATA[2048:2058]
    assert reader.read(0, 10) is None
    await reader.settle()
    again = Reader(tmp_path / "cache", gate)  # what a former process left is not believed
    assert list((tmp_path / "cache").iterdir()) == []
    again.cache.close()


async def test_who_wants_too_much_waits_for_others_first(
    gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "WANTED_MAX", 3)
    reader = Reader(tmp_path / "cache", gate)
    assert reader.read(0, SIZE, ("many", 0)) is None
    assert reader.read(SIZE - 10, 10, ("late", 0)) is None
    assert len(reader.cache._wanted) <= 3
    gate.open.set()
    found = None
    for _ in range(40):
        await reader.settle()
        found = found or reader.read(0, SIZE, ("many", 0))
    assert found == DATA
    assert ("late", 0) in reader.woken


async def test_a_bucket_that_fails_refuses_for_a_while(gate: Gate, tmp_path: Path) -> None:
    reader = Reader(tmp_path / "cache", gate)
    gate.open.set()
    gate.fails = True
    assert reader.read(0, 10) is None
    await reader.settle()
    assert ("t", 0) in reader.woken  # to hear of it
    with pytest.raises(RemoteAwayError, match="gone"):
        reader.read(0, 10)
    gate.fails = False
    reader.clock.now_ms += blocks.AWAY_MS
    assert reader.read(0, 10) is None
    await reader.settle()
    assert reader.read(0, 10) == DATA[:10]
    assert reader.cache.problem == ""


async def test_a_fetch_that_was_given_up_before_it_began_is_begun_anew(
    gate: Gate, tmp_path: Path
) -> None:
    """The mastership may end in the turn in which somebody wants old messages."""
    reader = Reader(tmp_path / "cache", gate)
    gate.open.set()
    assert reader.read(0, 10) is None
    reader.cache.close()
    await reader.settle()
    assert reader.read(0, 10) is None
    await reader.settle()
    assert reader.read(0, 10) == DATA[:10]


async def test_an_object_that_is_gone_keeps_nobody_from_the_others(
    gate: Gate, tmp_path: Path
) -> None:
    reader = Reader(tmp_path / "cache", gate)
    gate.open.set()

    def lost(start: int, length: int, key: tuple[str, int]) -> None:
        try:
            reader.cache.read("a/gone", SIZE, start, length)
        except RemoteMissError as error:
            error.wanted_by(key)

    lost(0, 2048, ("lost", 0))
    lost(2048, 2048, ("lost", 1))
    await reader.settle()
    assert {("lost", 0), ("lost", 1)} <= {*reader.woken}  # to hear of it
    with pytest.raises(RemoteAwayError, match="a/gone is not in the bucket"):
        lost(0, 10, ("lost", 0))
    assert "a/gone" in reader.cache.problem
    assert reader.read(0, 10) is None
    await reader.settle()
    assert reader.read(0, 10) == DATA[:10]
    await gate.objects.put("a/gone", DATA)
    reader.clock.now_ms += blocks.AWAY_MS
    lost(0, 10, ("lost", 0))
    await reader.settle()
    assert reader.cache.read("a/gone", SIZE, 0, 10) == DATA[:10]


async def test_a_block_that_somebody_removed_is_fetched_anew(gate: Gate, tmp_path: Path) -> None:
    reader = Reader(tmp_path / "cache", gate)
    gate.open.set()
    reader.read(0, 10)
    await reader.settle()
    for path in (tmp_path / "cache").iterdir():
        path.unlink()
    with pytest.raises(RemoteAwayError, match="lost a block"):
        reader.read(0, 10)
    assert reader.read(0, 10) is None
    await reader.settle()
    assert reader.read(0, 10) == DATA[:10]
    reader.cache.forget("a/o")
    assert reader.read(0, 10) is None
    await reader.settle()
