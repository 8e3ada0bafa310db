"""The asyncio face of forwarding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_client.core.sending.forwarding import forward

if TYPE_CHECKING:
    from imago_client.config import ProducerConfig
    from imago_client.core.effects import Runner
    from imago_client.core.sending.forwarding import Forwarded
    from imago_client.core.state import ClientState
    from imago_client.message_queue import MessageQueue
    from imago_client.messages import SendResult


class Forwarder:
    """Sends another cluster's messages on, as they are; made by `Client.forwarder`."""

    def __init__(self, state: ClientState, driver: Runner, config: ProducerConfig) -> None:
        self._state, self._driver, self._config = state, driver, config

    async def send(self, forwarded: Forwarded, queue: MessageQueue) -> SendResult:
        """Send once; the offset is the first message's, -1 where it was stored before."""
        return await self._driver.run(forward(self._state, self._config, forwarded, queue))
