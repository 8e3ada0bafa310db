"""What a broker asks of a client over the connection that the client opened."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from imago_client.message_queue import MessageQueue
from imago_client.received import received
from imago_wire.errors import ProtocolError
from imago_wire.records.stored import decode_record
from imago_wire.remoting.bodies.client import (
    ConsumeMessageDirectlyResult,
    ConsumeResult,
    ConsumerRunningInfo,
    SubscriptionData,
)
from imago_wire.remoting.bodies.client import MessageQueue as WireQueue
from imago_wire.remoting.bodies.stats import GetConsumerStatusBody, ResetOffsetBody
from imago_wire.remoting.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_client.rocketmq.connection import Connection
    from imago_client.rocketmq.push.push_consumer import PushConsumer
    from imago_wire.remoting.command import RemotingCommand


def answer_request(
    connection: Connection, command: RemotingCommand, consumers: Mapping[str, PushConsumer]
) -> None:
    """Do what the broker asks, and answer unless it wants none."""
    group = command.ext.get("consumerGroup") or command.ext.get("group") or ""
    consumer = consumers.get(group)
    if command.code == RequestCode.CONSUME_MESSAGE_DIRECTLY and consumer is not None:
        consumer.spawn(
            lambda: _consume_directly(connection, command, consumer), "consume on demand"
        )
        return
    try:
        answer = _answer(command, group, consumer)
    except ProtocolError as error:
        answer = command.answer(ResponseCode.SYSTEM_ERROR, str(error))
    if not command.is_oneway:
        connection.answer(answer)


def _answer(command: RemotingCommand, group: str, consumer: PushConsumer | None) -> RemotingCommand:
    if command.code not in _KNOWN:
        return command.answer(
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {command.code} not supported"
        )
    if consumer is None:
        return command.answer(ResponseCode.SYSTEM_ERROR, f"this client is not in group {group}")
    body = _KNOWN[command.code](command, consumer)
    return command.answer(ResponseCode.SUCCESS, body=body)


def _members_changed(command: RemotingCommand, consumer: PushConsumer) -> bytes:
    del command
    consumer.rebalance_soon()
    return b""


def _reset(command: RemotingCommand, consumer: PushConsumer) -> bytes:
    table = ResetOffsetBody.decode(command.body).offset_table
    consumer.reset_soon(
        {
            MessageQueue(queue.topic, queue.broker_name, queue.queue_id): offset
            for queue, offset in table.items()
        }
    )
    return b""


def _status(command: RemotingCommand, consumer: PushConsumer) -> bytes:
    topic = command.ext.get("topic")
    table = {
        WireQueue(queue.topic, queue.shard, queue.queue_id): offset
        for queue, offset in consumer.positions().items()
        if queue.topic == topic
    }
    return GetConsumerStatusBody(message_queue_table=table).encode()


def _running(command: RemotingCommand, consumer: PushConsumer) -> bytes:
    del command
    return ConsumerRunningInfo(
        properties={
            "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
            "PROP_CONSUMEORDERLY": "true" if consumer.config.orderly else "false",
            "PROP_NAMESERVER_ADDR": ";".join(consumer.state.config.bootstrap),
            "PROP_THREADPOOL_CORE_SIZE": str(consumer.config.concurrency),
        },
        mq_table={
            WireQueue(queue.topic, queue.shard, queue.queue_id): {"commitOffset": offset}
            for queue, offset in consumer.positions().items()
        },
        subscription_set=tuple(
            SubscriptionData(
                topic=one.topic,
                sub_string=one.expression,
                sub_version=one.version,
                expression_type=one.kind,
            )
            for one in consumer.subscriptions
        ),
    ).encode()


async def _consume_directly(
    connection: Connection, command: RemotingCommand, consumer: PushConsumer
) -> None:
    """Consume one message that an administrator chose; answer how it went."""
    began = time.monotonic()
    result, remark = ConsumeResult.CR_SUCCESS, None
    try:
        stored = decode_record(command.body)
        shard = command.ext.get("brokerName", "")
        await consumer.consume_now(
            received(MessageQueue(stored.topic, shard, stored.queue_id), stored)
        )
    except asyncio.CancelledError:
        if consumer.tasks.is_cancelled():
            raise
        result, remark = ConsumeResult.CR_THROW_EXCEPTION, "the handler was cancelled"
    except Exception as error:
        result, remark = ConsumeResult.CR_THROW_EXCEPTION, f"{type(error).__name__}: {error}"
    body = ConsumeMessageDirectlyResult(
        consume_result=result,
        order=consumer.config.orderly,
        remark=remark,
        spent_time_mills=int((time.monotonic() - began) * 1000),
    ).encode()
    connection.answer(command.answer(ResponseCode.SUCCESS, body=body))


_KNOWN = {
    int(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED): _members_changed,
    int(RequestCode.RESET_CONSUMER_CLIENT_OFFSET): _reset,
    int(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT): _status,
    int(RequestCode.GET_CONSUMER_RUNNING_INFO): _running,
}
