"""The first master of a shard: what it makes can be found when it says that it serves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_testing.clusters.shard_brokers import ShardBrokers

if TYPE_CHECKING:
    from pathlib import Path

TOPICS = [f"declared-{number:02d}" for number in range(40)]


async def test_clients_find_declared_topics_when_the_start_is_over(tmp_path: Path) -> None:
    declared = [f"topics.{name}.queues=3" for name in TOPICS]
    shard = ShardBrokers(tmp_path, *declared, replicas=1)
    try:
        await shard.start(0)
        assert set(TOPICS) <= set(shard.brokers[0].coordinator.view().topics)
        for name in TOPICS:
            node = shard.ensemble.get(f"/meta/brokers/topics-pub/{name}/0-m", None)
            assert node is not None, f"MetaQ's producers do not find {name}"
    finally:
        await shard.close()
