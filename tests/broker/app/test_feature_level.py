"""What an older broker would misread waits until the cluster's feature level allows it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from imago_broker.app import ticking
from imago_broker.cluster.coordinator import TreeCoordinator
from imago_broker.features.tiered import tier
from imago_broker.model.feature_level import FIRST, LIGHT_QUEUES, PUBLISHED_BY_MARK, TIERED
from imago_client import Message
from imago_client.blocking import Client
from imago_client.core.sending.staging import MicroBatch
from imago_client.errors import BrokerError
from imago_client.message_queue import MessageQueue
from imago_testing.clusters.brokers import running_broker
from imago_testing.peers.light import A, put
from imago_testing.peers.remoting import RemotingPeer
from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from imago_broker.model.registry.cluster import ClusterView

MESSAGES = 40
BODY = 9000


class Cluster:
    """What the registry says of the level."""

    level = FIRST


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    found = Cluster()

    def view(of: TreeCoordinator) -> ClusterView:
        return replace(of._reader.view, feature_level=found.level)

    monkeypatch.setattr(TreeCoordinator, "view", view)
    return found


async def test_a_sink_publishes_from_its_level_on(cluster: Cluster, tmp_path: Path) -> None:
    batch, queue = MicroBatch("sink", 1), MessageQueue("orders", "shard-0", 0)

    def stages(bootstrap: str) -> None:
        with Client(bootstrap) as client:
            assert client.producer().stage(batch, "one", 0, queue, [Message("orders", b"row")])

    async with running_broker(tmp_path) as broker:
        bootstrap = f"127.0.0.1:{broker.ports.namesrv_port}"
        with pytest.raises(BrokerError, match=r"feature level 1, this needs 2: once every broker"):
            await asyncio.to_thread(stages, bootstrap)
        cluster.level = PUBLISHED_BY_MARK
        await asyncio.to_thread(stages, bootstrap)


async def test_light_queues_are_made_from_their_level_on(cluster: Cluster, tmp_path: Path) -> None:
    async with running_broker(tmp_path, "rocketmq.light_queues=true") as broker:
        peer = await RemotingPeer.connect(broker.rocketmq_port)
        sent = await put(peer, b"x", A)
        assert sent.code != ResponseCode.SUCCESS
        assert "feature level 1, this needs 2" in (sent.remark or "")
        assert (await peer.put("T", b"x")).code == ResponseCode.SUCCESS, "others are taken"
        cluster.level = LIGHT_QUEUES
        assert (await put(peer, b"x", A)).code == ResponseCode.SUCCESS
        await peer.close()


async def test_old_files_stay_on_the_disk_until_all_read_them_from_the_bucket(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ticking, "TICK_SECONDS", 0.05)
    monkeypatch.setattr(tier, "LOOK_S", 0.05)
    bucket, data = tmp_path / "bucket", tmp_path / "data"
    bucket.mkdir()
    settings = (
        "store.segment_bytes_max=65536",
        "rocketmq.message_bytes_max=20000",
        "metaq.message_bytes_max=20000",
        f"tier.url=file://{bucket}",
        "tier.local_retention_bytes_max=131072",
    )
    async with running_broker(data, *settings) as broker:
        peer = await RemotingPeer.connect(broker.rocketmq_port)
        for number in range(MESSAGES):
            assert (await peer.put("T", b"%d" % number + b"." * BODY)).code == ResponseCode.SUCCESS
        archived = bucket / "imago" / "shard-0" / "log"
        await until(lambda: len(list(archived.glob("*.log"))) >= 4)
        for _ in range(10):
            await asyncio.sleep(0.05)
            assert broker.store.log_start == 0, "nothing has left the disk"
        cluster.level = TIERED
        await until(lambda: broker.store.log_start > 0)
        await peer.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  parts that tell nobody
            await asyncio.sleep(0.02)
