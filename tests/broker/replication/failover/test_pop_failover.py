"""Masters are killed while a group consumes by POP: nothing is lost, nothing done comes again."""

from __future__ import annotations

import asyncio
import random
from functools import partial
from typing import TYPE_CHECKING

import pytest

from imago_client import Client, ClientConfig, ClientError, Message
from imago_testing.clusters.shard_processes import SECONDS_MAX, TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_client import PoppedMessage
    from imago_testing.clusters.shard_processes import Members

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]
COUNT, MEMBERS, INVISIBLE_S = 400, 4, 20.0
CERTAIN_S = INVISIBLE_S / 2
"""A receipt counts for longer than this, whoever leads: an acknowledgement within it is no void."""


class Group:
    """Members of one group, and what they were told."""

    def __init__(self, client: Client, seed: int) -> None:
        self._client, self._rng = client, random.Random(seed)
        self._stopped = False
        self.seen: set[bytes] = set()
        self.done: set[bytes] = set()
        """Acknowledged, and that was confirmed while the receipt counted."""
        self.again: list[bytes] = []
        """Given out although they were done when that was asked for."""

    async def live(self) -> None:
        loop, consumer = asyncio.get_running_loop(), self._client.pop_consumer("poppers")
        while not self._stopped:
            done_before, popped_at = set(self.done), loop.time()
            try:
                messages = await consumer.pop(
                    TOPIC, messages_max=8, invisible_s=INVISIBLE_S, poll_s=0.5
                )
                self.again += [one.body for one in messages if one.body in done_before]
                self.seen |= {one.body for one in messages}
                taken = [one for one in messages if self._rng.random() < 0.7]
                self._rng.shuffle(taken)
                for some in (taken[:1], taken[1:]):
                    await consumer.acknowledge(some)
                    if loop.time() - popped_at < CERTAIN_S:
                        self.done |= {one.body for one in some}
                for left in (one for one in messages if one not in taken):
                    await self._leave(left)
            except ClientError:
                await asyncio.sleep(0.1)

    async def _leave(self, message: PoppedMessage) -> None:
        """Give a message back, or forget it: its time ends."""
        if self._rng.random() < 0.8:
            await self._client.pop_consumer("poppers").postpone(message, 0.0)

    def has_done(self, count: int) -> bool:
        return len(self.done) >= count

    def stop(self) -> None:
        self._stopped = True


async def reached(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(2 * SECONDS_MAX):
        while not condition():  # noqa: ASYNC110  told by other tasks
            await asyncio.sleep(0.05)


@pytest.mark.full
async def test_killed_masters_lose_no_message_and_no_acknowledgement(members: Members) -> None:
    for number in range(3):
        members.start(number)
        await members.serve(number)
    config = ClientConfig(bootstrap=tuple(members.bootstrap.split(",")), route_age_max_s=1.0)
    async with Client(config) as client:
        leader = await members.leader(client)
        producer, sent = client.producer(), {b"%04d" % number for number in range(COUNT)}
        await asyncio.gather(*(producer.send(Message(TOPIC, body)) for body in sent))
        group = Group(client, seed=7)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(MEMBERS):
                tasks.create_task(group.live())
            for share in (COUNT // 4, COUNT // 2):
                await reached(partial(group.has_done, share))
                members.processes[leader].kill()  # with messages out, and requests on their way
                killed, leader = leader, await members.leader(client, but=leader)
                members.start(killed)
                await members.serve(killed)
            await reached(partial(group.has_done, COUNT))
            group.stop()
        assert group.again == []
        assert group.seen == sent
        consumer = client.pop_consumer("poppers")
        assert await consumer.pop(TOPIC, invisible_s=INVISIBLE_S) == []
        progress = (await client.admin.describe_group("poppers")).progress
        assert {queue.lag for queue in progress} == {0}
