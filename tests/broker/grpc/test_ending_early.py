"""Transactions that end before the half message is with the other members.

At the levels that wait for nobody a send is answered earlier than its message can be read.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.model.topics.topics import TopicConfig
from imago_testing.clusters.shard_brokers import ShardBrokers
from imago_testing.peers.sdk_calls import asks, message, named, received, sends
from imago_testing.peers.sdk_peer import SdkPeer
from imago_wire.grpc.codes import SdkCode
from imago_wire.grpc.messages import make

if TYPE_CHECKING:
    from pathlib import Path


async def test_the_end_waits_until_the_half_message_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = ShardBrokers(
        tmp_path, "rocketmq.grpc_port=0", "acknowledgement.level=leader", replicas=2
    )
    await shard.start(0, 1)
    try:
        first = await shard.led()
        await shard.all_in_sync(0, 1)
        broker = shard.brokers[first]
        half = {"message.type": "TRANSACTION"}
        broker.topics.create_or_update(
            TopicConfig(name="half", read_queues=1, write_queues=1, attributes=half)
        )
        await shard.same_logs()
        peer = await SdkPeer.connect(broker.ports.grpc_port)
        with monkeypatch.context() as held:
            held.setattr(broker.store, "set_high_watermark", lambda _: None)
            ends = [await begun(peer, f"0{number}") for number in range(2)]
            assert broker.store.high_watermark < broker.store.log_end
            calls = [peer.start("EndTransaction", end) for end in ends]
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(peer.step(), 0.2)
        store = broker.store
        store.set_high_watermark(store.log_end)
        broker.messages.acknowledgements.progressed()
        for number in calls:
            (answer,) = await peer.answers(number, "EndTransactionResponse")
            assert answer.status.code == SdkCode.OK, answer
        _, got = await received(peer, asks(topic="half"))
        assert [one.system_properties.message_id for one in got] == ["00", "01"]
        await peer.close()
    finally:
        await shard.close()


async def begun(peer: SdkPeer, name: str) -> Any:
    """Begin a transaction; return what commits it."""
    sent = await peer.call("SendMessage", sends(message("half", message_type=4, message_id=name)))
    assert sent.status.code == SdkCode.OK, sent
    return make(
        "EndTransactionRequest",
        topic=named("half"),
        message_id=name,
        transaction_id=sent.entries[0].transaction_id,
        resolution=1,
        source=1,
    )
