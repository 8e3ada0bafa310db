"""Members of MetaQ groups in tests: quick ones, what they took, what they committed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from imago_client.metaq import MetaqGroupConsumerConfig

if TYPE_CHECKING:
    from collections.abc import Callable

    from kazoo.client import KazooClient

    from imago_client.metaq import MetaqMessage, MetaqSessionFactory


async def until(holds: Callable[[], Any], what: str) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 - in threads and sockets
            await asyncio.sleep(0.01)
    assert holds(), what


def quick(group: str = "g", **more: Any) -> MetaqGroupConsumerConfig:
    return MetaqGroupConsumerConfig(group=group, delay_s_max=0.1, commit_s=0.1, **more)


class Taken:
    """A handler that keeps what it is given."""

    def __init__(self) -> None:
        self.messages: list[MetaqMessage] = []

    async def __call__(self, message: MetaqMessage) -> None:
        self.messages.append(message)

    @property
    def bodies(self) -> list[bytes]:
        return [each.payload for each in self.messages]


async def put(factory: MetaqSessionFactory, count: int, topic: str = "orders") -> list[bytes]:
    producer, bodies = factory.producer(), [b"m%d" % number for number in range(count)]
    for body in bodies:
        await producer.send(topic, body, attribute="red")
    return bodies


def committed(tree: KazooClient, group: str, topic: str = "orders") -> dict[str, bytes]:
    folder = f"/meta/consumers/{group}/offsets/{topic}"
    names = tree.get_children(folder) if tree.exists(folder) else []
    return {name: tree.get(f"{folder}/{name}")[0] for name in names}
