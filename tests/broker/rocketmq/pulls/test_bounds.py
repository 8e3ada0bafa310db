"""Where all queues of a topic begin and end, asked for at once."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from imago_broker.model.topics.topics import TopicConfig
from imago_broker.processors.rocketmq.groups import offsets
from imago_testing.peers.remoting import send_ext
from imago_wire.remoting.codes import RequestCode

if TYPE_CHECKING:
    import pytest

    from imago_broker.app import Broker
    from imago_testing.peers.remoting import RemotingPeer


async def told(peer: RemotingPeer, topic: str, first: int = 0) -> list[tuple[int, int]]:
    ext = {"topic": topic, "queueId": first, "imagoIncarnation": "true", "imagoBounds": "true"}
    answer = await peer.call(RequestCode.GET_MAX_OFFSET, ext)
    assert ("imagoTopicId" in answer.ext) == (topic == "T")
    return list(struct.iter_unpack(">qq", answer.body))


async def test_an_answer_holds_so_many_queues(
    broker: Broker, peer: RemotingPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offsets, "BOUNDS_MAX", 3)
    broker.topics.create_or_update(TopicConfig(name="T", read_queues=4, write_queues=2))
    await peer.put("T", b"1")
    await peer.put("T", b"2")
    assert await told(peer, "T") == [(0, 2), (0, 0), (0, 0)]
    assert await told(peer, "T", 3) == [(0, 0)], "the fourth is only read"
    assert await told(peer, "T", 4) == []
    assert await told(peer, "none") == []
    plain = await peer.call(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": 0})
    assert not plain.body


async def test_they_end_where_every_member_in_sync_has_come_to(
    broker: Broker, peer: RemotingPeer
) -> None:
    await peer.put("T", b"1")
    broker.store.set_high_watermark(broker.store.log_end)
    peer.send(310, send_ext("T"), b"2")
    assert (await told(peer, "T"))[0] == (0, 1)
    assert broker.store.log_end > broker.store.high_watermark, "it is stored, and not yet for all"
    broker.store.set_high_watermark(broker.store.log_end)
    assert (await told(peer, "T"))[0] == (0, 2)
