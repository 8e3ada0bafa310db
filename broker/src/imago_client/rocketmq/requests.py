"""The asyncio requester: sends messages and waits for the replies of their consumers."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Self

from imago_client.core.sending import requesting, sending
from imago_client.core.sending.transacting import HEARTBEAT_S
from imago_client.errors import ClientError, NoReplyError

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_client.config import ProducerConfig
    from imago_client.core.sending.requesting import AwaitedReplies, ReceivedReply
    from imago_client.core.state import ClientState
    from imago_client.message_queue import MessageQueue
    from imago_client.messages import Message
    from imago_client.rocketmq.driver import Driver

log = logging.getLogger(__name__)


class Requester:
    """Sends requests; made by `Client.requester`, used as `async with`. Any number may be open."""

    def __init__(
        self,
        state: ClientState,
        driver: Driver,
        config: ProducerConfig,
        awaited: AwaitedReplies,
        forget: Callable[[Requester], None],
    ) -> None:
        self._state, self._driver, self.config = state, driver, config
        self._awaited, self._forget = awaited, forget
        self._rotations = sending.Rotations(state.rng.getrandbits(16))
        self._known: asyncio.Task[None] | None = None
        self._beats: asyncio.Task[None] | None = None
        self._told_of = 0
        """How many connections the driver had opened when the brokers were told last."""

    async def request(
        self, message: Message, *, timeout_s: float = 3.0, queue: MessageQueue | None = None
    ) -> ReceivedReply:
        """Send a message and return the reply that its consumer sends.

        NoReplyError: none came in `timeout_s`, in which the message may have been consumed all the
        same. The other errors are those of `Producer.send`.
        """
        outgoing, correlation_id = requesting.prepare_request(
            self._state, self.config, message, timeout_s
        )
        reply: asyncio.Future[ReceivedReply] = asyncio.get_running_loop().create_future()

        def take(found: ReceivedReply) -> None:
            if not reply.done():
                reply.set_result(found)

        self._awaited.expect(correlation_id, take)
        try:
            async with asyncio.timeout(timeout_s):
                await self._be_known()
                operation = sending.send(self._state, self.config, self._rotations, outgoing, queue)
                async with self._driver.admission.room(len(outgoing.body)):
                    await self._driver.run(operation)
                await self._be_known()  # over the connection that the message may have opened
                return await reply
        except TimeoutError:
            raise NoReplyError(message.topic, timeout_s) from None
        finally:
            self._awaited.forget(correlation_id)

    async def close(self) -> None:
        """Wait for replies no longer."""
        self._forget(self)
        for task in (self._known, self._beats):
            if task is not None:
                task.cancel()
        self._known = self._beats = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    async def _be_known(self) -> None:
        """Have told the brokers over the connections that there are now; go on to do so."""
        if self._known is None or (self._known.done() and self._told_of != self._driver.opened):
            self._known = asyncio.create_task(self._beat(), name="requester's heart beat")
        try:
            await asyncio.shield(self._known)
        except ClientError:
            self._known = None  # the next request tries again
            raise
        if self._beats is None:
            self._beats = asyncio.create_task(self._keep_beating(), name="requester's heart beats")

    async def _keep_beating(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            try:
                await self._beat()
            except ClientError as error:
                log.warning("heartbeat_failed group=%s error=%s", self.config.group, error)

    async def _beat(self) -> None:
        for error in await self._driver.run(requesting.heartbeat(self._state, self.config)):
            log.warning("heartbeat_failed group=%s error=%s", self.config.group, error)
        self._told_of = self._driver.opened
