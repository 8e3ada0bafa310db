"""What becomes of messages that were popped: acknowledged, or hidden for longer or less."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.features.pop.pop_requests import (
    IN_ORDER_QUEUE,
    INVISIBLE_MS_MAX,
    NOT_SETTLED,
    unwritten,
)
from imago_broker.processors.rocketmq import rules
from imago_broker.processors.rocketmq.exchange import OK, Exchange, Reply, RequestError
from imago_broker.processors.rocketmq.rows import not_here
from imago_broker.service.puts.put_status import PutStatus
from imago_wire.remoting.bodies.pop import BatchAckMessageRequestBody
from imago_wire.remoting.codes import ResponseCode
from imago_wire.remoting.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
)
from imago_wire.remoting.texts.handles import parse_pop_receipt

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from imago_broker.features.pop.service import PopService, Queue
    from imago_broker.features.pop.waiting import PopWaiting
    from imago_broker.ports import Clock
    from imago_broker.service.topics.topics import TopicService
    from imago_log.store import MessageStore

OF_TOPIC_ITSELF = "0"
BATCH_BITS_MAX = 1 << 18
"""Of all bit sets of one request: clients acknowledge what a few POPs have given."""


class ReceiptProcessor:
    """ACK_MESSAGE, BATCH_ACK_MESSAGE and CHANGE_MESSAGE_INVISIBLETIME."""

    def __init__(
        self,
        *,
        store: MessageStore,
        topics: TopicService,
        pops: PopService,
        waiting: PopWaiting,
        clock: Clock,
    ) -> None:
        self._store, self._topics = store, topics
        self._pops, self._waiting = pops, waiting
        self._clock = clock

    def acknowledge(self, exchange: Exchange) -> Reply | None:
        """ACK_MESSAGE. A receipt that does not count any more changes nothing, as RocketMQ's."""
        header = AckMessageRequestHeader.from_ext(exchange.ext)
        receipt = parse_pop_receipt(header.extra_info)
        if not self._pops.ready:
            return not_here(NOT_SETTLED)
        key = (header.consumer_group, header.topic, header.queue_id)
        self._check(exchange, key, header.offset)
        stamp = receipt.pop_time if receipt.retry == OF_TOPIC_ITSELF else -1
        self._acknowledge(key, (header.offset,), stamp)
        self._answer(exchange)
        return None

    def acknowledge_batch(self, exchange: Exchange) -> Reply | None:
        """BATCH_ACK_MESSAGE: each by itself; those that do not count change nothing."""
        body = BatchAckMessageRequestBody.decode(exchange.command.body)
        if not body.acks:
            raise RequestError(ResponseCode.NO_MESSAGE, "batch ack names no message")
        if not self._pops.ready:
            return not_here(NOT_SETTLED)
        wanted, left = [], BATCH_BITS_MAX
        for ack in body.acks:
            key = (ack.consumer_group, ack.topic, ack.queue_id)
            self._check_queue(exchange, key)
            stamp = ack.pop_time if ack.retry == OF_TOPIC_ITSELF else -1
            wanted.append((key, ack.offsets(count_max=left), stamp))
            left -= ack.size
        for each in wanted:
            self._acknowledge(*each)
        self._answer(exchange)
        return None

    def postpone(self, exchange: Exchange) -> Reply | None:
        """CHANGE_MESSAGE_INVISIBLETIME: out for as long from now on, under a new receipt."""
        header = ChangeInvisibleTimeRequestHeader.from_ext(exchange.ext)
        receipt = parse_pop_receipt(header.extra_info)
        if not self._pops.ready:
            return not_here(NOT_SETTLED)
        key = (header.consumer_group, header.topic, header.queue_id)
        self._check(exchange, key, header.offset)
        if not 0 <= header.invisible_time <= INVISIBLE_MS_MAX:
            raise rules.invalid(f"invisibleTime[{header.invisible_time}] is illegal")
        popped, now_ms = self._pops.known(key), self._clock.epoch_ms()
        stamp = None
        if popped is not None and receipt.retry == OF_TOPIC_ITSELF:
            stamp = popped.state.postpone(
                header.offset,
                receipt.pop_time,
                now_ms=now_ms,
                invisible_ms=header.invisible_time,
                counted=not header.suspend,
            )
        if popped is None or stamp is None:
            self._pops.counts.void += 1
            raise RequestError(
                ResponseCode.NO_MESSAGE,
                "the receipt does not count: the message is acknowledged or was given again",
            )
        self._pops.changed(popped)
        self._waiting.out_until(header.topic, header.queue_id, now_ms + header.invisible_time)
        in_order = receipt.revive_queue_id == IN_ORDER_QUEUE
        answer = ChangeInvisibleTimeResponseHeader(
            pop_time=stamp,
            invisible_time=header.invisible_time,
            revive_qid=IN_ORDER_QUEUE if in_order else receipt.revive_queue_id,
        )
        self._answer(exchange, Reply(ext=answer.to_ext()))
        return None

    def acknowledge_now(
        self,
        group: str,
        topic: str,
        offsets: Mapping[tuple[int, int], Sequence[int]],
        done: Callable[[Reply], None],
    ) -> bool:
        """Acknowledge what another protocol names by queue and stamp; `done` gets the answer.

        False, and nothing was done: one of them has to be refused.
        """
        config = self._topics.get(topic)
        if config is None or not self._pops.ready:
            return False
        for (queue_id, _), some in offsets.items():
            low, end = self._store.queue_range(topic, queue_id)
            if queue_id >= config.read_queues or min(some) < low or max(some) > end:
                return False
        for (queue_id, stamp), some in offsets.items():
            self._acknowledge((group, topic, queue_id), some, stamp)
        self._pops.when_written(
            lambda status: done(OK if status is PutStatus.OK else unwritten(status))
        )
        return True

    def is_kept(self, key: Queue, offset: int, stamp: int, now_ms: int) -> bool:
        """Whether a message is out by a receipt, and its time is not up, whatever that says."""
        popped = self._pops.known(key)
        return popped is not None and popped.state.is_kept(offset, stamp, now_ms)

    def _acknowledge(self, key: Queue, offsets: Sequence[int], stamp: int) -> None:
        popped = self._pops.known(key)
        done = 0 if popped is None else popped.state.acknowledge(offsets, stamp)
        self._pops.counts.void += len(offsets) - done
        if popped is None or not done:
            return
        self._pops.counts.acknowledged += done
        self._pops.changed(popped)
        if not popped.state.blocked(self._clock.epoch_ms()):
            self._waiting.acknowledged(key[1], key[2])

    def _answer(self, exchange: Exchange, reply: Reply = OK) -> None:
        """Answer when all that is known is safe: also what a repeated request said before."""

        def written(status: PutStatus) -> None:
            exchange.answer(reply if status is PutStatus.OK else unwritten(status))

        self._pops.when_written(written)
        return

    def _check_queue(self, exchange: Exchange, key: Queue) -> None:
        _, topic, queue_id = key
        config = self._topics.get(topic)
        if config is None:
            raise rules.unknown_topic(topic)
        if not 0 <= queue_id < config.read_queues:
            raise RequestError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"queueId[{queue_id}] is illegal, topic:[{topic}] "
                f"topicConfig.readQueueNums:[{config.read_queues}] "
                f"consumer:[{exchange.channel.peer}]",
            )

    def _check(self, exchange: Exchange, key: Queue, offset: int) -> None:
        self._check_queue(exchange, key)
        group, topic, queue_id = key
        low, end = self._store.queue_range(topic, queue_id)
        if not low <= offset <= end:
            popped = self._pops.known(key)
            committed = -1 if popped is None else popped.state.committed
            raise RequestError(
                ResponseCode.NO_MESSAGE,
                f"offset is illegal, key:{topic}@{group}@{queue_id}@{offset}, "
                f"commit:{committed}, store:{low}~{end}",
            )
