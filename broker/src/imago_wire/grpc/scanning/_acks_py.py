"""Acknowledgements of SDKs, from a request's bytes to what they name, and their answer.

This is the plain Python reference; `_acks_c` is its compiled twin, with the same results on every
input. `twins` chooses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imago_wire.errors import ProtocolError
from imago_wire.grpc.answers import framed
from imago_wire.grpc.messages import encoded, make, parse

if TYPE_CHECKING:
    from imago_wire.grpc.scanning.items import PlainAcks

WORDS: Final = 9
"""Of a handle: POP's receipt, and the message's place in the log."""
_POP_TIME, _INVISIBLE, _RETRY, _BROKER, _QUEUE, _OFFSET = 1, 2, 4, 5, 6, 7
DIGITS: Final = 18
"""Of a number, at most."""


def plain_acks(
    data: bytes, broker_name: bytes, now_ms: int, limits: tuple[int, int]
) -> PlainAcks | None:
    """Return what an AckMessageRequest acknowledges; None: it needs a closer look.

    That does one with a handle that is none, is over, or is of another broker. `limits` are those
    of entries, and of a handle's bytes.
    """
    try:
        request = parse("AckMessageRequest", data)
    except ProtocolError:
        return None
    if not 0 < len(request.entries) <= limits[0]:
        return None
    offsets: dict[tuple[int, int], list[int]] = {}
    for entry in request.entries:
        delivery = _delivery(entry.receipt_handle.encode(), broker_name, now_ms, limits[1])
        if delivery is None or entry.HasField("lite_topic"):
            return None
        queue_id, stamp, offset = delivery
        offsets.setdefault((queue_id, stamp), []).append(offset)
    status = make("Status", code=20000, message="OK")
    entries = [
        make(
            "AckMessageResultEntry",
            message_id=entry.message_id,
            receipt_handle=entry.receipt_handle,
            status=status,
        )
        for entry in request.entries
    ]
    answer = framed([encoded(make("AckMessageResponse", status=status, entries=entries))])
    return request.group.name, request.topic.name, offsets, answer


def _delivery(
    handle: bytes, broker_name: bytes, now_ms: int, size_max: int
) -> tuple[int, int, int] | None:
    """Return queue, stamp and offset of a handle; None: it needs a closer look."""
    words = handle.split(b" ")
    if len(handle) > size_max or len(words) != WORDS:
        return None
    if words[_RETRY] != b"0" or words[_BROKER] != broker_name:
        return None
    numbers = [word for index, word in enumerate(words) if index not in (_RETRY, _BROKER)]
    if not all(word.isdigit() and len(word) <= DIGITS for word in numbers):
        return None
    stamp = int(words[_POP_TIME])
    over = stamp + int(words[_INVISIBLE]) < now_ms
    return None if over else (int(words[_QUEUE]), stamp, int(words[_OFFSET]))
