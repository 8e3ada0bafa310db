"""A sealed topic over MetaQ: puts are refused as to closed partitions, gets go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.model.topics.sealing import DRAIN
from imago_testing.peers.metaq import MetaqPeer, put_place, value_body

if TYPE_CHECKING:
    from imago_broker.app import Broker


async def test_puts_are_refused_and_what_is_stored_is_read(broker: Broker, peer: MetaqPeer) -> None:
    place = put_place(await peer.put("test", 1, b"hello"))
    for linger_ms, head in ((600_000, b"result 200 "), (0, b"result 403 ")):
        until_ms = broker.clock.epoch_ms() + linger_ms
        broker.topics.seal("test", until_ms=until_ms, cause=DRAIN)
        answer = b""
        for partition in (1, -1):
            answer = await peer.put("test", partition, b"late")
            assert answer.startswith(head)
        if not linger_ms:
            url = f"meta://127.0.0.1:{broker.metaq_port}"
            assert f"[broker '{url}'] [partition 'test-".encode() in answer
            assert b"failed.Detail:partition[0-" in answer
            assert answer.endswith(b"has been closed")
        broker.topics.unseal("test")
    broker.topics.seal("test", until_ms=0, cause=DRAIN)
    stored = value_body(await peer.get("test", 1, place[2]))
    assert stored.startswith(stored[:20] + b"hello")
