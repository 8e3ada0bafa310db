"""Members whose disks are full: said to the others, and led by only while nobody has room."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from imago_broker.replication import troubles
from imago_broker.service.put_status import PutStatus
from imago_log.store import MessageStore
from imago_testing.clusters.shard_brokers import ShardBrokers, until

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> set[Path]:
    """Data folders on disks that take no messages."""
    folders: set[Path] = set()
    monkeypatch.setattr(
        MessageStore, "full", property(lambda store: store.config.data_dir in folders)
    )
    monkeypatch.setattr(troubles, "FULL_LEADS_MS", 200)
    return folders


async def test_a_master_without_room_gives_leadership_to_a_member_that_has_some(
    tmp_path: Path, full: set[Path]
) -> None:
    shard = ShardBrokers(tmp_path)
    await shard.start(0, 1, 2)
    await shard.all_in_sync(0, 1, 2)
    full.update({tmp_path / "member-0", tmp_path / "member-2"})
    assert await shard.led(but=0) == 1
    assert await shard.put(1, b"one") == [PutStatus.OK]
    view = shard.brokers[1].coordinator.view
    await until(lambda: sum(record.full for record in view().members(0)) == 2)
    full.add(tmp_path / "member-1")
    await until(lambda: all(record.full for record in view().members(0)))
    await asyncio.sleep(5 * troubles.FULL_LEADS_MS / 1000)
    assert await shard.led() == 1, "nobody has room: leadership does not go round"
    full.remove(tmp_path / "member-2")
    assert await shard.led(but=1) == 2
    await shard.close()
