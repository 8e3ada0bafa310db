"""The blocking POP consumer: it takes messages for a while."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_client.blocking.faces import blocking
from imago_client.blocking.rocketmq.driver import Inline
from imago_client.rocketmq.pop_consumer import PopConsumer as AsyncPopConsumer

if TYPE_CHECKING:
    from imago_client.blocking.rocketmq.driver import BlockingDriver
    from imago_client.core.state import ClientState


class PopConsumer:
    """Takes messages of all queues of a topic; made by `Client.pop_consumer`.

    Members of a group share messages, not queues: any number may take of the same queue. There is
    nothing to join or to leave.
    """

    def __init__(self, state: ClientState, driver: BlockingDriver, group: str) -> None:
        self._face = AsyncPopConsumer(state, Inline(driver), group)
        self.group = group

    pop = blocking(AsyncPopConsumer.pop)
    acknowledge = blocking(AsyncPopConsumer.acknowledge)
    postpone = blocking(AsyncPopConsumer.postpone)
