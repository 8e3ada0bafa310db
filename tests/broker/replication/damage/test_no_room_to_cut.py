"""A member that has to cut its log and has no room for that waits for some, and then follows."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from imago_broker.core.puts.acknowledgement import Acknowledgement
from imago_broker.service.puts.put_status import PutStatus
from imago_log.disk.space import PROBE_BYTES
from imago_log.disk.vfs import OsVfs
from imago_testing.clusters.shard_brokers import ShardBrokers, take_nothing, until

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


async def test_a_member_without_room_to_cut_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = ShardBrokers(tmp_path)
    await shard.start(0, 1, 2)
    await shard.all_in_sync(0, 1, 2)
    assert await shard.put(0, b"one") == [PutStatus.OK]
    for number in (1, 2):
        session = shard.shell(number).executor.following
        assert session is not None
        assert session.session is not None
        monkeypatch.setattr(session.session, "received", take_nothing)
    assert await shard.put(0, b"cut off", level=Acknowledgement.LEADER) == [PutStatus.OK]
    await shard.kill(0)
    successor = await shard.led()
    assert await shard.put(successor, b"two") == [PutStatus.OK]
    allocate, full = OsVfs.allocate, [True]

    def no_room(vfs: OsVfs, fd: int, size: int) -> None:
        if full[0] and size >= PROBE_BYTES:  # what a start needs was kept for it
            raise OSError(errno.ENOSPC, "No space left on device")
        allocate(vfs, fd, size)

    monkeypatch.setattr(OsVfs, "allocate", no_room)
    await shard.start(0)
    await until(lambda: "waits for room" in str(shard.shell(0).executor.notes))
    assert "no room to cut" in shard.shell(0).obstacle
    assert not shard.shell(0).executor.failed
    assert not shard.brokers[0].failed.done(), "the process stays"
    full[0] = False
    await shard.all_in_sync(0, 1, 2)
    await shard.same_logs()
    assert shard.bodies(0) == [b"one", b"two"]
    await shard.close()
