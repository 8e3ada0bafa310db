"""The asyncio producer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_client.core.sending import sending
from imago_client.core.sending.lanes import ProducerLanes
from imago_client.core.sending.outgoing import prepare, prepare_batch
from imago_client.errors import UsageError
from imago_client.rocketmq.joining import Joining

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping, Sequence

    from imago_client.config import ProducerConfig
    from imago_client.core.sending.outgoing import Outgoing
    from imago_client.core.sending.packed import Packed
    from imago_client.core.sending.staging import MicroBatch, Parts
    from imago_client.core.state import ClientState
    from imago_client.message_queue import MessageQueue
    from imago_client.messages import Message, SendResult
    from imago_client.received import ReceivedMessage
    from imago_client.rocketmq.driver import Driver
    from imago_client.rocketmq.tracing import Tracer


class Producer:
    """Sends messages. Any number of sends may run at once; made by `Client.producer`.

    Of those, as many as `ClientConfig.sends_max` and `sends_bytes_max` allow are under way;
    the others wait their turn, and their time-outs begin with it.

    Sends to one queue that wait together leave in one request, each with a result or an error of
    its own (`ProducerConfig.joined_max`).

    Messages without a queue or an ordering key go round the topic's write queues. A send returns
    once a broker acknowledged it; it is tried again on other shards as the original clients do,
    so a message whose acknowledgement got lost may be stored twice, unless the producer is
    idempotent: then every try goes to the same queue, which stores the message once.
    """

    def __init__(
        self,
        state: ClientState,
        driver: Driver,
        config: ProducerConfig,
        tracer: Tracer | None = None,
    ) -> None:
        self._state, self._driver, self._config = state, driver, config
        self._tracer = tracer
        self._rotations = sending.Rotations(state.rng.getrandbits(16))
        lanes = ProducerLanes(config, state.rng)
        self._joining = Joining(state, driver, config, self._rotations, lanes)

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues of a topic that take messages, sorted, also of shards that elect now.

        NoRouteError: there is none.
        """
        operation = sending.write_queues(self._state, self._config, topic)
        return await self._driver.run(operation)

    async def send(self, message: Message, *, queue: MessageQueue | None = None) -> SendResult:
        """Send one message; `queue` overrides the choice of its queue.

        SendFailedError: not acknowledged in any try. BrokerError: refused, and would be again;
        of an idempotent producer also ProducerFencedError and OutOfOrderSequenceError.
        """
        outgoing = prepare(self._state, self._config, message)
        if self._tracer is None:  # as `_send`: for every message
            return await self._joining.send(outgoing, queue)
        return await self._send(outgoing, queue)

    async def submit(
        self, message: Message, *, queue: MessageQueue | None = None
    ) -> asyncio.Task[SendResult]:
        """Begin to send a message; return what its result, or its error, comes in: await it later.

        It returns once the message has room among those under way (`ClientConfig.sends_max`,
        `sends_bytes_max`). Messages to one queue leave in the order in which they were submitted;
        `Client.close` waits for all of them. UsageError: the message cannot be sent.
        """
        outgoing = prepare(self._state, self._config, message)
        submissions = self._driver.submissions
        return await submissions.begin(len(outgoing.body), lambda: self._send(outgoing, queue))

    async def send_batch(
        self, messages: Sequence[Message], *, queue: MessageQueue | None = None
    ) -> SendResult:
        """Send messages of one topic to one queue in one request: all are stored, or none.

        `imago_client.batches` cuts any number of messages into such batches.
        """
        return await self._send(prepare_batch(self._state, self._config, messages), queue)

    async def recall(self, handle: str) -> str:
        """Take back a message that is not due yet, by its result's `recall_handle`; return its id.

        BrokerError: it is due already, or the broker allows no recalls.
        """
        from imago_client.core.sending import recalling

        return await self._driver.run(recalling.recall(self._state, self._config, handle))

    async def reply(
        self, request: ReceivedMessage, body: bytes, *, properties: Mapping[str, str] | None = None
    ) -> SendResult:
        """Reply to a request that a consumer received: its requester gets the body.

        SendFailedError: the requester is gone, or does not take the reply; UsageError: the message
        is no request.
        """
        from imago_client.core.sending.requesting import prepare_reply

        outgoing = prepare_reply(self._state, self._config, request, body, properties)
        return await self._send(outgoing, None)

    async def send_oneway(
        self, message: Message, *, queue: MessageQueue | None = None
    ) -> MessageQueue:
        """Send without asking for an acknowledgement: the message may be lost unnoticed.

        Return the queue that it was addressed to.
        """
        if self._config.idempotent:
            raise UsageError("send_oneway: an idempotent producer needs acknowledgements")
        outgoing = prepare(self._state, self._config, message)
        return await self._driver.run(
            sending.send_oneway(self._state, self._config, self._rotations, outgoing, queue)
        )

    async def stage(
        self,
        batch: MicroBatch,
        attempt: str,
        part: int,
        queue: MessageQueue,
        messages: Sequence[Message] | Packed,
    ) -> int:
        """Store messages that nobody reads before their micro-batch is published.

        Return how many bytes; 0: it was published before. The same attempt and part are stored
        once. ProducerFencedError: a later micro-batch of the sink was published.
        """
        from imago_client.core.sending import staging

        return await self._driver.run(
            staging.stage(self._state, self._config, batch, attempt, part, queue, messages)
        )

    async def publish_staged(
        self, batch: MicroBatch, topic: str, parts: Parts, *, only: str | None = None
    ) -> Parts:
        """Have readers see what attempts have staged, so many parts of each on each shard.

        Of each shard readers see all of it or nothing. Return what was published: another call may
        have done so before. After an error say it again: it may have been decided. `only`: of this
        sink nothing is ever staged on another shard.
        """
        from imago_client.core.sending import staging

        return await self._driver.run(
            staging.publish(self._state, self._config, batch, topic, parts, only)
        )

    async def forget_staged(
        self, batch: MicroBatch, topic: str, *, only: str | None = None
    ) -> None:
        """Remove what is staged of a micro-batch that nobody has tried to publish."""
        from imago_client.core.sending import staging

        await self._driver.run(staging.roll_back(self._state, self._config, batch, topic, only))

    async def _send(self, outgoing: Outgoing, queue: MessageQueue | None) -> SendResult:
        began_s = self._state.clock_s()
        result = await self._joining.send(outgoing, queue)
        if self._tracer is not None:
            self._tracer.note_sent(self._config.group, outgoing, result, began_s)
        return result
