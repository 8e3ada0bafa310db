"""What closed connections leave: nothing that only the garbage collector could free.

A broker's collector looks at old objects almost never, so that a cycle is as good as kept.
"""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from typing import TYPE_CHECKING

from imago_testing.clusters.brokers import running_broker
from imago_testing.clusters.shard_brokers import until

if TYPE_CHECKING:
    from pathlib import Path

    from imago_broker.app import Broker

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
CONNECTIONS = 5


def sent(broker: Broker) -> dict[int, tuple[bytes, ...]]:
    """By port: a whole command, and one that has no end."""
    remoting = (b"\0\0\0\x10",)
    return {
        broker.metaq_port: (b"version 1\r\n", b"put t 0 4096 0 7\r\nx"),
        broker.rocketmq_port: remoting,
        broker.ports.fast_port: remoting,
        broker.ports.namesrv_port: remoting,
        broker.ports.admin_port: (HEALTH, HEALTH[:20]),
    }


async def come_and_go(broker: Broker, port: int, data: bytes) -> None:
    for _ in range(CONNECTIONS):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(data)
        await writer.drain()
        await asyncio.sleep(0.01)
        writer.close()
        await writer.wait_closed()
    await until(lambda: broker.ports.places.taken == 0)
    await asyncio.sleep(0.05)


async def test_a_closed_connection_leaves_nothing_to_collect(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        left: dict[tuple[int, bytes], Counter[str]] = {}
        for port, texts in sent(broker).items():
            for data in texts:
                await come_and_go(broker, port, data)  # what is made once is made now
                gc.collect()
                gc.disable()
                gc.set_debug(gc.DEBUG_SAVEALL)
                try:
                    await come_and_go(broker, port, data)
                    gc.collect()
                    names = Counter(type(each).__name__ for each in gc.garbage)
                finally:
                    gc.set_debug(0)
                    gc.garbage.clear()
                    gc.enable()
                left[port, data] = Counter(
                    {name: count for name, count in names.items() if name.endswith("Session")}
                )
        assert set(map(len, left.values())) == {0}, left
