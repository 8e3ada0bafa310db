"""A member whose disk has no room to note an epoch does not lead: another one does."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from imago_broker.service.puts.put_status import PutStatus
from imago_log.commitlog.epochs import EpochFile
from imago_log.errors import NoSpaceError
from imago_testing.clusters.shard_brokers import ShardBrokers, until

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


async def test_another_member_leads_where_one_has_no_room_to_note_its_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = ShardBrokers(tmp_path)
    try:
        await shard.start(0, 1, 2)
        await shard.all_in_sync(0, 1, 2)
        assert await shard.led() == 0
        full, lead, refused = shard.store(1).components.storage.epochs, EpochFile.lead, []

        def no_room(epochs: EpochFile, epoch: int, start: int, end: int) -> None:
            if epochs is full:
                refused.append(epoch)
                cause = OSError(errno.ENOSPC, "No space left on device")
                raise NoSpaceError("write", tmp_path, cause)
            lead(epochs, epoch, start, end)

        monkeypatch.setattr(EpochFile, "lead", no_room)
        assert await shard.put(0, b"kept") == [PutStatus.OK]
        await shard.stop(0)
        await until(lambda: shard.shell(2).executor.leading is not None)
        assert refused or shard.shell(1).executor.leading is None
        await shard.all_in_sync(1, 2)
        assert not shard.shell(1).executor.failed
        assert await shard.put(2, b"goes on") == [PutStatus.OK]
        # Nobody else is there: it tries again, and leads once there is room.
        await shard.stop(2)
        await until(lambda: bool(refused))
        assert not shard.shell(1).executor.failed
        monkeypatch.undo()
        await until(lambda: shard.shell(1).executor.leading is not None)
        await shard.same_logs()
    finally:
        await shard.close()
