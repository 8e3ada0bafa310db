"""The blocking producer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_client.core.sending import idempotent, sending
from imago_client.core.sending.lanes import ProducerLanes
from imago_client.core.sending.outgoing import prepare, prepare_batch
from imago_client.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from imago_client.blocking.rocketmq.driver import BlockingDriver
    from imago_client.config import ProducerConfig
    from imago_client.core.effects import Operation
    from imago_client.core.sending.outgoing import Outgoing
    from imago_client.core.sending.packed import Packed
    from imago_client.core.sending.staging import MicroBatch, Parts
    from imago_client.core.state import ClientState
    from imago_client.message_queue import MessageQueue
    from imago_client.messages import Message, SendResult
    from imago_client.received import ReceivedMessage


class Producer:
    """Sends messages. Any number of sends may run at once; made by `Client.producer`.

    Messages without a queue or an ordering key go round the topic's write queues. A send returns
    once a broker acknowledged it; it is tried again on other shards as the original clients do,
    so a message whose acknowledgement got lost may be stored twice, unless the producer is
    idempotent: then every try goes to the same queue, which stores the message once.
    """

    def __init__(self, state: ClientState, driver: BlockingDriver, config: ProducerConfig) -> None:
        self._state, self._driver, self._config = state, driver, config
        self._rotations = sending.Rotations(state.rng.getrandbits(16))
        self._lanes = ProducerLanes(config, state.rng)

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues of a topic that take messages, sorted, also of shards that elect now.

        NoRouteError: there is none.
        """
        operation = sending.write_queues(self._state, self._config, topic)
        return self._driver.run(operation)

    def send(self, message: Message, *, queue: MessageQueue | None = None) -> SendResult:
        """Send one message; `queue` overrides the choice of its queue.

        SendFailedError: not acknowledged in any try. BrokerError: refused, and would be again;
        of an idempotent producer also ProducerFencedError and OutOfOrderSequenceError.
        """
        outgoing = prepare(self._state, self._config, message)
        return self._driver.run(self._sending(outgoing, queue))

    def send_batch(
        self, messages: Sequence[Message], *, queue: MessageQueue | None = None
    ) -> SendResult:
        """Send messages of one topic to one queue in one request: all are stored, or none.

        `imago_client.batches` cuts any number of messages into such batches.
        """
        outgoing = prepare_batch(self._state, self._config, messages)
        return self._driver.run(self._sending(outgoing, queue))

    def send_packed(self, packed: Packed, *, queue: MessageQueue) -> SendResult:
        """Send messages that were packed before, as `send_batch` does; interceptors see none."""
        from imago_client.core.sending.packed import prepare_packed

        outgoing = prepare_packed(self._state, self._config, packed)
        return self._driver.run(self._sending(outgoing, queue))

    def recall(self, handle: str) -> str:
        """Take back a message that is not due yet, by its result's `recall_handle`; return its id.

        BrokerError: it is due already, or the broker allows no recalls.
        """
        from imago_client.core.sending import recalling

        return self._driver.run(recalling.recall(self._state, self._config, handle))

    def reply(
        self, request: ReceivedMessage, body: bytes, *, properties: Mapping[str, str] | None = None
    ) -> SendResult:
        """Reply to a request that a consumer received: its requester gets the body.

        SendFailedError: the requester is gone, or does not take the reply; UsageError: the message
        is no request.
        """
        from imago_client.core.sending.requesting import prepare_reply

        outgoing = prepare_reply(self._state, self._config, request, body, properties)
        return self._driver.run(self._sending(outgoing, None))

    def send_oneway(self, message: Message, *, queue: MessageQueue | None = None) -> MessageQueue:
        """Send without asking for an acknowledgement: the message may be lost unnoticed.

        Return the queue that it was addressed to.
        """
        if self._config.idempotent:
            raise UsageError("send_oneway: an idempotent producer needs acknowledgements")
        outgoing = prepare(self._state, self._config, message)
        return self._driver.run(
            sending.send_oneway(self._state, self._config, self._rotations, outgoing, queue)
        )

    def stage(
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

        return self._driver.run(
            staging.stage(self._state, self._config, batch, attempt, part, queue, messages)
        )

    def publish_staged(self, batch: MicroBatch, topic: str, parts: Parts) -> Parts:
        """Have readers see what attempts have staged, so many parts of each on each shard.

        Of each shard readers see all of it or nothing. Return what was published: another call may
        have done so before. After an error say it again: it may have been decided.
        """
        from imago_client.core.sending import staging

        return self._driver.run(staging.publish(self._state, self._config, batch, topic, parts))

    def forget_staged(self, batch: MicroBatch, topic: str) -> None:
        """Remove what is staged of a micro-batch that nobody has tried to publish."""
        from imago_client.core.sending import staging

        self._driver.run(staging.roll_back(self._state, self._config, batch, topic))

    def _sending(self, outgoing: Outgoing, queue: MessageQueue | None) -> Operation[SendResult]:
        parts = (self._state, self._config, self._rotations)
        if self._config.idempotent:
            return idempotent.send(*parts, self._lanes, outgoing, queue)
        return sending.send(*parts, outgoing, queue)
