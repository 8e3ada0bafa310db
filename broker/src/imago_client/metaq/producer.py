"""The asyncio MetaQ producer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_client.errors import UsageError
from imago_client.metaq.values import PutResult, put_command, read_put

if TYPE_CHECKING:
    from imago_client.metaq.connection import Asking


class MetaqProducer:
    """Puts messages; made by `MetaqClient.producer`. Any number of sends may run at once.

    Messages go round the brokers, and each broker chooses the partition, as for original clients
    that are given an address; or `server` and `partition` say where. Like the original producer
    it sends once: after an error the caller knows best whether to send again.
    """

    def __init__(self, connections: Asking) -> None:
        self._connections = connections
        self._next = 0

    async def send(
        self,
        topic: str,
        payload: bytes,
        *,
        attribute: str | None = None,
        server: str | None = None,
        partition: int | None = None,
    ) -> PutResult:
        """Put one message. MetaqError: refused. TryAgainError: stored or not, nobody knows."""
        address = server or self._next_server()
        if partition is not None and server is None and len(self._connections.config.servers) > 1:
            raise UsageError("partition: give the server too, every broker counts its own from 0")
        async with self._connections.admission.room(len(payload)):
            answer = await self._connections.ask(
                address,
                lambda opaque: put_command(topic, payload, attribute, partition, opaque),
                timeout_s=self._connections.config.request_timeout_s,
            )
        return read_put(address, topic, answer)

    def _next_server(self) -> str:
        servers = self._connections.config.servers
        self._next = (self._next + 1) % len(servers)
        return servers[self._next]
