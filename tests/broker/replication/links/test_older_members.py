"""A follower that understands less than the cluster uses is refused, and says why."""

from __future__ import annotations

import logging
from struct import pack
from typing import TYPE_CHECKING

import pytest

from imago_broker.replication.follower import follower_session
from imago_broker.service.puts.put_status import PutStatus
from imago_testing.clusters.shard_brokers import ShardBrokers, until
from imago_wire.replication.frames import FEATURE_LEVEL, Hello

if TYPE_CHECKING:
    from pathlib import Path


async def test_a_follower_of_an_older_version_is_refused_once_the_level_is_above_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="imago_broker.replication")
    shard = ShardBrokers(tmp_path)
    try:
        await shard.start(0)
        await shard.led()
        # As version 0.1 greets: with an extension that nobody knows, or none.
        monkeypatch.setattr(follower_session, "FEATURE_LEVEL", FEATURE_LEVEL + 1)
        await shard.start(1)
        await until(lambda: "at feature level 2, this version understands 1" in caplog.text)
        assert await shard.put(0, b"alone") == [PutStatus.TOO_FEW_IN_SYNC]
        monkeypatch.setattr(follower_session, "FEATURE_LEVEL", FEATURE_LEVEL)
        await shard.all_in_sync(0, 1)
        assert await shard.put(0, b"together") == [PutStatus.OK]
    finally:
        await shard.close()


@pytest.mark.parametrize(
    ("said", "level"),
    [
        ((), 1),
        (((FEATURE_LEVEL, pack(">H", 7)),), 7),
        (((FEATURE_LEVEL, b""),), 1),
        (((FEATURE_LEVEL, bytes(2)),), 1),
        (((FEATURE_LEVEL, bytes(9)), (9, b"x")), 1),
    ],
)
def test_a_greeting_says_a_level_or_means_the_first(
    said: tuple[tuple[int, bytes], ...], level: int
) -> None:
    hello = Hello(
        epoch=0,
        cluster_id="c",
        shard=0,
        uuid="u",
        incarnation=1,
        epochs=(),
        log_start=0,
        log_end=0,
        extensions=said,
    )
    assert hello.feature_level == level
