"""The asyncio producer of transactions."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Self

from imago_client.core.sending import sending, transacting
from imago_client.core.sending.transacting import CHECKS_MAX, HEARTBEAT_S, Decision
from imago_client.errors import ClientError
from imago_wire.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from imago_client.config import ProducerConfig
    from imago_client.core.state import ClientState
    from imago_client.message_queue import MessageQueue
    from imago_client.messages import Message, SendResult
    from imago_client.received import ReceivedMessage
    from imago_client.rocketmq.driver import Driver
    from imago_client.rocketmq.tracing import Tracer
    from imago_wire.remoting.command import RemotingCommand

    Checker = Callable[[ReceivedMessage], Awaitable[Decision]]

log = logging.getLogger(__name__)


class OpenTransaction:
    """One message that nobody reads yet: `commit` or `rollback` it.

    Who does neither is asked by the broker, through the producer's checker.
    """

    def __init__(self, producer: TransactionProducer, sent: SendResult) -> None:
        self._producer = producer
        self.sent = sent
        """Where the half message is; a commit gives the message a place of its own."""

    async def commit(self) -> None:
        """Have the message delivered, once. It may be said again after an error."""
        await self._producer._end(self.sent, Decision.COMMIT)  # noqa: SLF001  its producer made it

    async def rollback(self) -> None:
        """Have the message never delivered. It may be said again after an error."""
        await self._producer._end(self.sent, Decision.ROLLBACK)  # noqa: SLF001  as above


class TransactionProducer:
    """Sends messages in transactions; made by `Client.transaction_producer`, used as `async with`.

    `checker` is called with a message whose transaction was left open, of this producer or of
    another of its group, and says what becomes of it. Whatever it raises counts as UNKNOWN, and so
    does what is no Decision.
    """

    def __init__(
        self,
        state: ClientState,
        driver: Driver,
        config: ProducerConfig,
        checker: Checker,
        forget: Callable[[TransactionProducer], None],
        tracer: Tracer | None = None,
    ) -> None:
        self._state, self._driver, self.config = state, driver, config
        self._tracer = tracer
        self._checker, self._forget = checker, forget
        self._rotations = sending.Rotations(state.rng.getrandbits(16))
        self._topics: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._beats: asyncio.Task[None] | None = None

    async def begin(
        self, message: Message, *, queue: MessageQueue | None = None
    ) -> OpenTransaction:
        """Send a message that nobody reads before its transaction is committed.

        The errors are those of `Producer.send`; of BrokerError also too many open transactions.
        """
        outgoing = transacting.prepare_half(self._state, self.config, message)
        operation = sending.send(self._state, self.config, self._rotations, outgoing, queue)
        began_s = self._state.clock_s()
        async with self._driver.admission.room(len(outgoing.body)):
            sent = await self._driver.run(operation)
        if self._tracer is not None:
            self._tracer.note_sent(self.config.group, outgoing, sent, began_s)
        if message.topic not in self._topics:
            await self._join(message.topic)  # now at the latest the topic has brokers
        return OpenTransaction(self, sent)

    async def close(self) -> None:
        """Be asked no more. What is open stays open for the others of the group."""
        self._forget(self)
        for task in [*self._tasks, *([self._beats] if self._beats else [])]:
            task.cancel()
        self._beats = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    def asked(self, address: str, command: RemotingCommand) -> None:
        """Have the checker decide about a message, and tell the broker that asks."""
        if len(self._tasks) >= CHECKS_MAX:
            return
        task = asyncio.create_task(self._check(address, command), name="transaction check")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _check(self, address: str, command: RemotingCommand) -> None:
        try:
            asked, message = transacting.read_check(command)
            decision = transacting.judge(self.config, await self._checker(message))
        except ProtocolError as error:
            log.warning("transaction_check_unreadable broker=%s error=%s", address, error)
            return
        except Exception:
            log.exception("transaction_checker_failed group=%s", self.config.group)
            return  # the broker asks again
        if decision is Decision.UNKNOWN:
            return
        try:
            operation = transacting.answer_check(self.config, address, asked, decision)
            await self._driver.run(operation)
        except ClientError as error:
            log.warning("transaction_check_unanswered broker=%s error=%s", address, error)

    async def _end(self, sent: SendResult, decision: Decision) -> None:
        await self._driver.run(transacting.end(self._state, self.config, sent, decision))

    async def _join(self, topic: str) -> None:
        self._topics.add(topic)
        await self._beat()
        if self._beats is None:
            self._beats = asyncio.create_task(self._keep_beating(), name="producer's heart beats")

    async def _keep_beating(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            await self._beat()

    async def _beat(self) -> None:
        operation = transacting.heartbeat(self._state, self.config, sorted(self._topics))
        for error in await self._driver.run(operation):
            log.warning("heartbeat_failed group=%s error=%s", self.config.group, error)
