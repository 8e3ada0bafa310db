"""Topics that sends have made here are made on the other shards too.

The template's route has queues of every shard, and a producer may have chosen one of any of them
before the topic was there. RocketMQ's brokers make it one by one, each at its first send; a
producer that keeps to its queues would look for some of them in vain, since by then the route is
the topic's own. So the shard that makes a topic asks the others for it: the route then shows what
the template's did. A put of MetaQ makes its topic here alone, as an original broker would.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from imago_broker.core.placing.placement import rooms
from imago_broker.model.registry.cluster import shard_name
from imago_broker.model.topics.sealing import takes_messages
from imago_broker.shard_work.calls import own_headers
from imago_broker.shard_work.errors import AdminError
from imago_broker.shard_work.opening import open_on

if TYPE_CHECKING:
    from imago_broker.model.topics.topics import TopicConfig
    from imago_broker.shard_work.services import ShardServices

logger = logging.getLogger(__name__)

AT_ONCE = 8
"""Topics that are spread at the same moment; others wait."""
TRIES_MAX = 10
TRY_AGAIN_SECONDS = 1.0
"""Ten seconds in all: a shard elects its next master in less."""


class Spreader:
    """Works for as long as the broker does, in whichever broker took the send."""

    def __init__(self, services: ShardServices) -> None:
        self._services = services
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Spread what is made from now on."""
        self._services.on_topic_made.append(self._made)

    async def stop(self) -> None:
        """Leave the rest to the first sends on the other shards."""
        self._services.on_topic_made.remove(self._made)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _made(self, config: TopicConfig, template: str) -> None:
        if not self._missing(template, set()):
            return
        task = asyncio.create_task(self._spread(config.name, template))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _spread(self, name: str, template: str) -> None:
        done: set[int] = set()
        problem = ""
        async with self._slots:
            for _ in range(TRIES_MAX):
                config = self._services.topics.get(name)
                if config is None or not takes_messages(config):
                    return  # somebody has taken it back meanwhile
                wanted = sorted(self._missing(template, done))
                said = await asyncio.gather(*(self._open(shard, config) for shard in wanted))
                done |= {shard for shard, failed in zip(wanted, said, strict=True) if not failed}
                problem = next(filter(None, said), "")
                if not problem:
                    return
                await asyncio.sleep(TRY_AGAIN_SECONDS)
        logger.warning("topic_not_spread topic=%s reason=%s", name, problem)

    async def _open(self, shard: int, config: TopicConfig) -> str:
        """Return why the topic could not be opened there; empty when it was."""
        try:
            await open_on(self._services, shard, config, own_headers())
        except AdminError as error:
            return f"{shard_name(shard)}: {error}"
        return ""

    def _missing(self, template: str, done: set[int]) -> set[int]:
        """Return the other shards that the template's route shows, and that take new topics."""
        view = self._services.coordinator.view()
        shown = view.topics.get(template)
        there = set(shown.shards) if shown is not None else set()
        return there & {room.shard for room in rooms(view)} - done - {
            self._services.config.broker.shard
        }
