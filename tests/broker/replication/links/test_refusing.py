"""A follower that refuses what it is sent connects again and again; the others go on without it."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

from imago_broker.replication.follower.receiving import UNFINISHED_BYTES_MAX, Copy
from imago_broker.replication.repair import WHOLE_BYTES_MAX
from imago_broker.service.puts.put_status import PutStatus
from imago_log.metadata.changes import CHANGE_BYTES_MAX, RECORD_BYTES_MAX
from imago_testing.clusters.shard_brokers import ShardBrokers, until
from imago_wire.errors import LimitExceededError

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from imago_wire.replication.frames import Data

AROUND = 1 << 20
"""More than a record has around its body."""


def test_nothing_is_appended_that_a_follower_does_not_take() -> None:
    assert CHANGE_BYTES_MAX + RECORD_BYTES_MAX + AROUND <= UNFINISHED_BYTES_MAX
    assert UNFINISHED_BYTES_MAX == WHOLE_BYTES_MAX


def stalled_at(shard: ShardBrokers, leader: int) -> list[str]:
    """Return what the leader says of its followers."""
    member = shard.brokers[leader].member
    assert member is not None
    return [each.stalled for each in member.shard_status().followers]


def said_of(caplog: pytest.LogCaptureFixture, reason: str) -> list[str]:
    """Return what replication has logged with this reason."""
    lines = [record.getMessage() for record in caplog.records]
    found = [line.partition(" ")[0] for line in lines if reason in line]
    return sorted(event.removeprefix("replication_") for event in found)


async def test_writes_go_on_without_a_follower_that_refuses_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="imago_broker.replication")
    shard = ShardBrokers(tmp_path)
    try:
        await shard.start(0, 1, 2)
        await shard.all_in_sync(0, 1, 2)
        leader = await shard.led()
        assert await shard.put(leader, b"kept") == [PutStatus.OK]
        refusing = next(number for number in (0, 1, 2) if number != leader)
        store, take, refused = shard.store(refusing), Copy.take, []

        def taken(copy: Copy, frame: Data) -> None:
            if frame.data and copy._store is store:
                refused.append(frame.offset)
                raise LimitExceededError("record", size=len(frame.data), size_max=0)
            take(copy, frame)

        monkeypatch.setattr(Copy, "take", taken)
        await shard.put(leader, b"refused")
        await shard.all_in_sync(*({0, 1, 2} - {refusing}))
        await until(lambda: len(refused) > 3)  # it comes again and again
        assert said_of(caplog, "LimitExceeded") == ["disconnected", "distrusted"]
        assert await shard.put(leader, b"goes on") == [PutStatus.OK]
        assert "LimitExceededError" in shard.shell(refusing).obstacle
        (stalled,) = filter(None, stalled_at(shard, leader))
        assert re.search(r"refuses what follows log offset \d+: LimitExceededError: rec", stalled)
        monkeypatch.undo()
        await shard.all_in_sync(0, 1, 2)
        await shard.same_logs()
        assert stalled_at(shard, leader) == ["", ""]
    finally:
        await shard.close()
