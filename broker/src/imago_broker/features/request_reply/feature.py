"""Requests and replies as they plug in: their request codes with the rights."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from imago_broker.features.feature import Feature
from imago_broker.features.request_reply.replying import ReplyProcessor
from imago_broker.processors.rocketmq.access.rights import (
    send,
)
from imago_broker.processors.rocketmq.installed import Installed
from imago_broker.processors.rocketmq.rows import Row
from imago_broker.service.access.throttling import Direction
from imago_broker.service.serving_rules import Asks
from imago_wire.remoting.codes import RequestCode as Code

if TYPE_CHECKING:
    from imago_broker.processors.rocketmq.assembly import RocketmqAssembly


def install(parts: RocketmqAssembly) -> Installed:
    """Serve replies."""
    replying = ReplyProcessor(
        messages=parts.broker.messages,
        topics=parts.broker.topics,
        clients=parts.clients.registry,
        clock=parts.broker.clock,
        settings=parts.settings,
        cluster=parts.identity.cluster,
    )
    return Installed(
        parts=None,
        rows=[
            Row(Code.SEND_REPLY_MESSAGE, replying.send_reply, parts.lanes.send, Asks.CHANGE),
            Row(Code.SEND_REPLY_MESSAGE_V2, replying.send_reply, parts.lanes.send, Asks.CHANGE),
        ],
    )


_CODES: Final = (Code.SEND_REPLY_MESSAGE, Code.SEND_REPLY_MESSAGE_V2)
REQUEST_REPLY: Final = Feature(
    rights=MappingProxyType(dict.fromkeys(_CODES, send)),
    limited=MappingProxyType(dict.fromkeys(_CODES, Direction.PRODUCER)),
    install=install,
)
