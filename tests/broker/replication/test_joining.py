"""A member that was alone gets others while it runs."""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from imago_broker.service.puts.put_status import PutStatus
from imago_testing.clusters.shard_brokers import ShardBrokers, until

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from imago_broker.config import BrokerConfig

OK = PutStatus.OK


async def test_a_member_that_was_alone_lets_others_join_while_it_serves(tmp_path: Path) -> None:
    """From one member to three, with nobody started again: each put waits for who has joined."""
    shard = ShardBrokers(tmp_path, replicas=1)
    try:
        await shard.start(0)
        await shard.all_in_sync(0)
        assert await shard.put(0, b"alone") == [OK]
        first = shard.brokers[0]
        assert not first.ports.replication.serves
        first.apply(_changed(first.config, replication={"open": True}))
        shard.more = dict.fromkeys((1, 2), ("replication.open=true",))
        await shard.start(1, 2)
        await shard.all_in_sync(0, 1, 2)
        for broker in shard.brokers.values():
            broker.apply(
                _changed(broker.config, broker={"replicas": 3}, replication={"min_in_sync": 2})
            )
        assert await shard.put(0, b"copied") == [OK]
        await until(lambda: all(shard.bodies(n) == [b"alone", b"copied"] for n in range(3)))
        await shard.kill(0)
        await until(lambda: shard.leader in (1, 2))
        leader = shard.leader
        assert leader is not None
        assert shard.bodies(leader) == [b"alone", b"copied"]
    finally:
        await shard.close()


async def test_a_taken_port_keeps_nobody_from_leading_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Others cannot join until it is free and the same is asked again."""
    shard = ShardBrokers(tmp_path, replicas=1)
    taken = socket.socket()
    try:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        shard.more = {0: (f"replication.port={port}",)}
        await shard.start(0)
        await shard.all_in_sync(0)
        taken.listen()
        first = shard.brokers[0]
        opened = _changed(first.config, replication={"open": True})
        first.apply(opened)
        assert not first.ports.replication.serves
        assert "replication_closed" in caplog.text
        assert await shard.put(0, b"alone") == [OK]
        taken.close()
        first.apply(opened)
        assert first.ports.replication.serves
    finally:
        taken.close()
        await shard.close()


def _changed(config: BrokerConfig, **sections: dict[str, Any]) -> BrokerConfig:
    """Return a configuration with other values in some sections."""
    parts = {name: replace(getattr(config, name), **said) for name, said in sections.items()}
    return replace(config, **parts)
