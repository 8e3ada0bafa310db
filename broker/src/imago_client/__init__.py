"""Clients of both protocols: asyncio here, plain blocking sockets in `imago_client.blocking`.

    async with imago_client.Client("127.0.0.1:9876") as client:
        sent = await client.producer().send(imago_client.Message("orders", b"hello"))

Importing this package opens nothing and loads only what is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from imago_client.admin import Admin
    from imago_client.client import Client
    from imago_client.config import ClientConfig, ConsumerConfig, ProducerConfig, StartFrom
    from imago_client.core.administration import QueueBounds, ShardInfo
    from imago_client.core.group_administration import (
        GroupDescription,
        GroupProgress,
        Member,
        ResetTo,
    )
    from imago_client.core.outgoing import batches
    from imago_client.core.popping import PoppedMessage
    from imago_client.core.requesting import ReceivedReply
    from imago_client.core.subscriptions import Sql
    from imago_client.core.transacting import Decision
    from imago_client.errors import (
        AnswerError,
        BodyError,
        BrokerError,
        ClientClosedError,
        ClientError,
        ConnectionLostError,
        HalfDoneError,
        HidesMessagesError,
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
    from imago_client.pop_consumer import PopConsumer
    from imago_client.producer import Producer
    from imago_client.pull_consumer import PullConsumer
    from imago_client.push_consumer import PushConsumer
    from imago_client.queue_reader import RetryLater
    from imago_client.received import Pulled, ReceivedMessage
    from imago_client.requests import Requester
    from imago_client.transactions import OpenTransaction, TransactionProducer

_HOMES = {
    "admin": ("Admin",),
    "client": ("Client",),
    "config": ("ClientConfig", "ConsumerConfig", "ProducerConfig", "StartFrom"),
    "core.administration": ("QueueBounds", "ShardInfo"),
    "core.group_administration": ("GroupDescription", "GroupProgress", "Member", "ResetTo"),
    "core.outgoing": ("batches",),
    "core.popping": ("PoppedMessage",),
    "core.requesting": ("ReceivedReply",),
    "core.subscriptions": ("Sql",),
    "core.transacting": ("Decision",),
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
    ),
    "message_queue": ("MessageQueue",),
    "messages": ("Message", "PullStatus", "SendResult", "SendStatus"),
    "pop_consumer": ("PopConsumer",),
    "producer": ("Producer",),
    "pull_consumer": ("PullConsumer",),
    "push_consumer": ("PushConsumer",),
    "queue_reader": ("RetryLater",),
    "received": ("Pulled", "ReceivedMessage"),
    "requests": ("Requester",),
    "transactions": ("OpenTransaction", "TransactionProducer"),
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
    "ClientError",
    "ConnectionLostError",
    "ConsumerConfig",
    "Decision",
    "GroupDescription",
    "GroupProgress",
    "HalfDoneError",
    "HidesMessagesError",
    "Member",
    "Message",
    "MessageQueue",
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
