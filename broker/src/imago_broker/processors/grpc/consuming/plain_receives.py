"""What ordinary ReceiveMessage calls ask for: consumers ask for the same again and again."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from imago_broker.processors.grpc.calls import CallError
from imago_broker.processors.grpc.checks import group_name, topic_name
from imago_wire.errors import ProtocolError
from imago_wire.grpc.messages import SQL, milliseconds, parse

BATCH_MAX = 32
RENEWED_MS = 60_000
"""How long what a push consumer gets is out, before that is prolonged."""
HIDDEN_MS_MIN, HIDDEN_MS_MAX = 10_000, 12 * 3600 * 1000
ASKED_KEPT_MAX = 1024
"""Requests that are known."""
ASKED_BYTES_MAX = 1024
"""Of one that is kept."""
_ATTEMPT: Final = b"\x42\x24"
"""How the field begins that names a try of its own: a UUID, which clients write last."""
_ATTEMPT_SIZE: Final = 38


class PlainReceive(NamedTuple):
    """What is asked for."""

    topic: str
    group: str
    tags: str
    batch: int
    invisible_ms: int
    renewed: bool


def plain_receive(data: bytes) -> PlainReceive | None:
    """Return what a request asks for; None: it needs a closer look, or has to be refused.

    Tries count in order alone, which has no fast path: so they make no requests of their own.
    """
    if data[-_ATTEMPT_SIZE : 2 - _ATTEMPT_SIZE] == _ATTEMPT and data[2 - _ATTEMPT_SIZE :].isascii():
        # Cut off where it was no field, what is left is no message either.
        data = data[:-_ATTEMPT_SIZE]
    return kept_receive(data) if len(data) <= ASKED_BYTES_MAX else None


@lru_cache(maxsize=ASKED_KEPT_MAX)
def kept_receive(data: bytes) -> PlainReceive | None:
    """Return the same of a request without a try."""
    try:
        request = parse("ReceiveMessageRequest", data)
        topic, group = topic_name(request.message_queue.topic), group_name(request.group)
    except (ProtocolError, CallError):
        return None
    renewed, expression = request.auto_renew, request.filter_expression
    invisible_ms = RENEWED_MS if renewed else milliseconds(request.invisible_duration)
    if expression.type == SQL or not HIDDEN_MS_MIN <= invisible_ms <= HIDDEN_MS_MAX:
        return None
    batch = batch_of(request.batch_size)
    return PlainReceive(topic, group, expression.expression or "*", batch, invisible_ms, renewed)


def batch_of(asked: int) -> int:
    """Return how many messages are given at most to who asks for so many."""
    return max(1, min(asked or BATCH_MAX, BATCH_MAX))
