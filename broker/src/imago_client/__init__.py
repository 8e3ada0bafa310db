"""Clients of both protocols: asyncio here, plain blocking sockets in `imago_client.blocking`.

    async with imago_client.Client("127.0.0.1:9876") as client:
        sent = await client.producer().send(imago_client.Message("orders", b"hello"))

Importing this package opens nothing and loads only what is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from imago_client.config import ClientConfig, ConsumerConfig, ProducerConfig, StartFrom
    from imago_client.core.administration.administration import QueueBounds
    from imago_client.core.administration.group_administration import (
        GroupDescription,
        GroupProgress,
        Member,
    )
    from imago_client.core.administration.group_resets import ResetTo
    from imago_client.core.administration.shards import MissingShard, ShardInfo
    from imago_client.core.consuming.popping import PoppedMessage
    from imago_client.core.consuming.subscriptions import Sql
    from imago_client.core.sending.outgoing import batches
    from imago_client.core.sending.requesting import ReceivedReply
    from imago_client.core.sending.transacting import Decision
    from imago_client.errors import (
        AnswerError,
        BodyError,
        BrokerError,
        ClientClosedError,
        ClientError,
        ConnectionLostError,
        HalfDoneError,
        HidesMessagesError,
        KindError,
        NoReplyError,
        NoRouteError,
        NoTopicError,
        OutOfOrderSequenceError,
        ProducerFencedError,
        RequestTimeoutError,
        SendFailedError,
        TopicExistsError,
        TryAgainError,
        UsageError,
    )
    from imago_client.message_queue import MessageQueue
    from imago_client.messages import Message, PullStatus, SendResult, SendStatus
    from imago_client.observing.interceptors import Interceptor
    from imago_client.observing.watch import ClientCounters
    from imago_client.received import Pulled, ReceivedMessage
    from imago_client.rocketmq.admin import Admin
    from imago_client.rocketmq.client import Client
    from imago_client.rocketmq.pop_consumer import PopConsumer
    from imago_client.rocketmq.producer import Producer
    from imago_client.rocketmq.pull_consumer import PullConsumer
    from imago_client.rocketmq.push.push_consumer import PushConsumer
    from imago_client.rocketmq.push.queue_reader import RetryLater
    from imago_client.rocketmq.push.subscriber import Subscriber
    from imago_client.rocketmq.requests import Requester
    from imago_client.rocketmq.transactions import OpenTransaction, TransactionProducer

_HOMES = {
    "rocketmq.admin": ("Admin",),
    "rocketmq.client": ("Client",),
    "config": ("ClientConfig", "ConsumerConfig", "ProducerConfig", "StartFrom"),
    "core.administration.administration": ("QueueBounds",),
    "core.administration.shards": ("MissingShard", "ShardInfo"),
    "core.administration.group_administration": (
        "GroupDescription",
        "GroupProgress",
        "Member",
    ),
    "core.administration.group_resets": ("ResetTo",),
    "core.sending.outgoing": ("batches",),
    "core.consuming.popping": ("PoppedMessage",),
    "core.sending.requesting": ("ReceivedReply",),
    "core.consuming.subscriptions": ("Sql",),
    "core.sending.transacting": ("Decision",),
    "errors": (
        "AnswerError",
        "BodyError",
        "BrokerError",
        "ClientClosedError",
        "ClientError",
        "ConnectionLostError",
        "HalfDoneError",
        "HidesMessagesError",
        "NoReplyError",
        "NoRouteError",
        "NoTopicError",
        "OutOfOrderSequenceError",
        "ProducerFencedError",
        "RequestTimeoutError",
        "SendFailedError",
        "TopicExistsError",
        "TryAgainError",
        "UsageError",
        "KindError",
    ),
    "message_queue": ("MessageQueue",),
    "messages": ("Message", "PullStatus", "SendResult", "SendStatus"),
    "rocketmq.pop_consumer": ("PopConsumer",),
    "rocketmq.producer": ("Producer",),
    "rocketmq.pull_consumer": ("PullConsumer",),
    "rocketmq.push.push_consumer": ("PushConsumer",),
    "rocketmq.push.queue_reader": ("RetryLater",),
    "rocketmq.push.subscriber": ("Subscriber",),
    "observing.interceptors": ("Interceptor",),
    "observing.watch": ("ClientCounters",),
    "received": ("Pulled", "ReceivedMessage"),
    "rocketmq.requests": ("Requester",),
    "rocketmq.transactions": ("OpenTransaction", "TransactionProducer"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Admin",
    "AnswerError",
    "BodyError",
    "BrokerError",
    "Client",
    "ClientClosedError",
    "ClientConfig",
    "ClientCounters",
    "ClientError",
    "ConnectionLostError",
    "ConsumerConfig",
    "Decision",
    "GroupDescription",
    "GroupProgress",
    "HalfDoneError",
    "HidesMessagesError",
    "Interceptor",
    "KindError",
    "Member",
    "Message",
    "MessageQueue",
    "MissingShard",
    "NoReplyError",
    "NoRouteError",
    "NoTopicError",
    "OpenTransaction",
    "OutOfOrderSequenceError",
    "PopConsumer",
    "PoppedMessage",
    "Producer",
    "ProducerConfig",
    "ProducerFencedError",
    "PullConsumer",
    "PullStatus",
    "Pulled",
    "PushConsumer",
    "QueueBounds",
    "ReceivedMessage",
    "ReceivedReply",
    "RequestTimeoutError",
    "Requester",
    "ResetTo",
    "RetryLater",
    "SendFailedError",
    "SendResult",
    "SendStatus",
    "ShardInfo",
    "Sql",
    "StartFrom",
    "Subscriber",
    "TopicExistsError",
    "TransactionProducer",
    "TryAgainError",
    "UsageError",
    "batches",
]


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value
