"""The asyncio POP consumer: messages for a while, acknowledged one by one in any order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_client.core.consuming import popping
from imago_client.core.consuming.subscriptions import ALL, subscribe

if TYPE_CHECKING:
    from collections.abc import Iterable

    from imago_client.core.consuming.popping import PoppedMessage
    from imago_client.core.effects import Runner
    from imago_client.core.state import ClientState


class PopConsumer:
    """Takes messages of all queues of a topic; made by `Client.pop_consumer`.

    Members of a group share messages, not queues: any number may take of the same queue. There is
    nothing to join or to leave.
    """

    def __init__(self, state: ClientState, driver: Runner, group: str) -> None:
        self._state, self._driver = state, driver
        self.group = group
        self._turns = popping.ShardRotation(state.rng.getrandbits(16))

    async def pop(
        self,
        topic: str,
        *,
        tags: str = ALL,
        messages_max: int = popping.MESSAGES_MAX,
        invisible_s: float = 60.0,
        poll_s: float = 0.0,
        in_order: bool = False,
        from_end: bool = False,
    ) -> list[PoppedMessage]:
        """Return messages that nobody else of the group gets for `invisible_s`, none if none came.

        What is not acknowledged by then is given again, to anybody. `tags`: a TAG expression, or a
        `Sql` filter. `poll_s`: how long to wait for messages. `in_order`: nothing of a queue
        while messages of it are out. `from_end`: where a group begins that never read the queue.
        """
        asked = popping.PopArguments(
            group=self.group,
            subscription=subscribe(topic, tags, self._state.clock_ms()),
            messages_max=messages_max,
            invisible_s=invisible_s,
            poll_s=poll_s,
            in_order=in_order,
            from_end=from_end,
        )
        return await self._driver.run(popping.pop(self._state, asked, self._turns))

    async def acknowledge(self, messages: Iterable[PoppedMessage]) -> None:
        """Say that messages are consumed. A receipt that counts no more changes nothing."""
        await self._driver.run(popping.acknowledge(self._state, self.group, messages))

    async def postpone(self, message: PoppedMessage, invisible_s: float) -> PoppedMessage:
        """Hide a message for so long from now on (0: give it back); return it with its new receipt.

        BrokerError: it is acknowledged, or its time was up and it was given again.
        """
        return await self._driver.run(
            popping.postpone(self._state, self.group, message, invisible_s)
        )
