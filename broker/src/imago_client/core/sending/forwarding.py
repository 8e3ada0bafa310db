"""Sending messages of another cluster on, as they are: one request, one try, all or none.

Whoever forwards has encoded the properties himself, with the numbers of an idempotent producer, and
decides what an error means: nothing is tried again here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from imago_client.core.lookup import find_publish_route
from imago_client.core.sending.outgoing import Outgoing
from imago_client.core.sending.sending import send_to
from imago_client.errors import BrokerError, TryAgainError
from imago_wire.remoting.codes import RequestCode
from imago_wire.remoting.messages import BatchEntry, encode_batch, encode_births

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_client.config import ProducerConfig
    from imago_client.core.effects import Operation
    from imago_client.core.state import ClientState
    from imago_client.message_queue import MessageQueue
    from imago_client.messages import SendResult


@dataclass(frozen=True, slots=True)
class Forwarded:
    """Messages for one queue, in their order."""

    entries: Sequence[BatchEntry]
    born_ms: Sequence[int]
    """When each was born."""
    sys_flag: int = 0
    """Whether, and how, their bodies are compressed."""


def forward(
    state: ClientState, config: ProducerConfig, forwarded: Forwarded, queue: MessageQueue
) -> Operation[SendResult]:
    """Send once, to the queue's master; an offset of -1: stored before, nobody knows where.

    BrokerError: nothing was stored. TryAgainError: perhaps.
    """
    route = yield from find_publish_route(state, queue.topic, config.queues_by_default)
    outgoing = Outgoing(
        code=RequestCode.SEND_BATCH_MESSAGE,
        topic=queue.topic,
        message_id="",
        body=encode_batch(forwarded.entries),
        properties=encode_births(forwarded.born_ms),
        born_ms=forwarded.born_ms[0],
        sys_flag=forwarded.sys_flag,
        messages=len(forwarded.entries),
    )
    try:
        address = route.master(queue.shard)
        return (yield from send_to(state, config, outgoing, queue, address, config.send_timeout_s))
    except (BrokerError, TryAgainError):
        state.drop_route(queue.topic)
        raise
