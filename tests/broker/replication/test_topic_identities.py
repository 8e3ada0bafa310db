"""What tells a topic from all others in the world stays the same whoever leads its shard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.model.topics.topics import TopicConfig
from imago_log import MessageStore
from imago_testing.clusters.brokers import running_broker
from imago_testing.clusters.shard_brokers import ShardBrokers, until
from imago_testing.peers.remoting import RemotingPeer
from imago_testing.stores.in_memory import FakeClock, folder_config
from imago_wire.remoting.codes import RequestCode

if TYPE_CHECKING:
    from pathlib import Path

    from imago_broker.app import Broker

OLD = 1851
"""Incarnation of a topic that an older version made: a place in its log, as in others."""


def older_log(folder: Path) -> None:
    """Make the log of such a version, with one topic."""
    config = folder_config(folder, segment_bytes_max=16 << 20)
    store = MessageStore.open(config, clock=FakeClock(), threaded=False, draw=lambda: OLD)
    store.create_topic("old", TopicConfig(name="old", read_queues=1, write_queues=1).to_json())
    store.close()


async def told(broker: Broker, topic: str, **asked: object) -> dict[str, str]:
    """Return what a broker says of a topic beside the end of its queue 0."""
    peer = await RemotingPeer.connect(broker.rocketmq_port)
    try:
        ext = {"topic": topic, "queueId": 0, **asked}
        answer = await peer.call(RequestCode.GET_MAX_OFFSET, ext)
    finally:
        await peer.close()
    return {name: text for name, text in answer.ext.items() if name != "offset"}


async def test_the_next_leader_says_the_same(tmp_path: Path) -> None:
    (tmp_path / "member-0").mkdir()
    older_log(tmp_path / "member-0")
    shard = ShardBrokers(tmp_path, replicas=2)
    try:
        await shard.start(0, 1)
        await shard.all_in_sync(0, 1)
        assert await shard.led() == 0
        made = TopicConfig(name="new", read_queues=1, write_queues=1)
        shard.brokers[0].topics.create_or_update(made)
        said = {name: await told(shard.brokers[0], name, imagoIncarnation="true") for name in NAMES}
        await until(lambda: shard.store(1).identities.of("new") is not None)
        assert said["old"]["imagoIncarnation"] == str(OLD)
        assert said["new"]["imagoIncarnation"] == said["new"]["imagoTopicId"]
        unique = {said[name]["imagoTopicId"] for name in NAMES}
        assert len(unique) == 2
        assert all(1 << 62 <= int(number) < 1 << 63 for number in unique)
        assert said["old"]["imagoClusterId"] == shard.brokers[1].coordinator.view().cluster_id
        await shard.stop(0)
        assert await shard.led(but=0) == 1
        for name in NAMES:
            assert await told(shard.brokers[1], name, imagoIncarnation="true") == said[name]
    finally:
        await shard.close()


NAMES = ("old", "new")


async def test_only_who_asks_is_told(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        broker.topics.create_or_update(TopicConfig(name="T", read_queues=1, write_queues=1))
        assert await told(broker, "T") == {}
        first = await told(broker, "T", imagoIncarnation="true")
        assert "imagoTopicId" not in await told(broker, "none", imagoIncarnation="true")
    async with running_broker(tmp_path) as broker:
        assert await told(broker, "T", imagoIncarnation="true") == first
        broker.topics.delete("T")
        broker.topics.create_or_update(TopicConfig(name="T", read_queues=1, write_queues=1))
        again = await told(broker, "T", imagoIncarnation="true")
        assert again["imagoClusterId"] == first["imagoClusterId"]
        assert again["imagoTopicId"] != first["imagoTopicId"]
