"""Texts that a client gets for a message and hands back: POP receipts, recall handles."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass

from imago_wire.errors import ProtocolError


@dataclass(frozen=True, slots=True)
class PopReceipt:
    """What names one delivery by POP; times in ms. `retry`: 0 the topic itself, 1 or 2 its retry
    topic in either naming."""

    start_offset: int
    pop_time: int
    invisible_time: int
    revive_queue_id: int
    retry: str
    broker_name: str
    queue_id: int
    queue_offset: int

    def __str__(self) -> str:
        return (
            f"{self.start_offset} {self.pop_time} {self.invisible_time} {self.revive_queue_id} "
            f"{self.retry} {self.broker_name} {self.queue_id} {self.queue_offset}"
        )


def parse_pop_receipt(text: str) -> PopReceipt:
    """Return the parts of a receipt (the property POP_CK, the field extraInfo)."""
    match text.split(" "):
        case [start, pop_time, invisible_time, revive, retry, broker_name, queue_id, offset]:
            return PopReceipt(
                _number(start),
                _number(pop_time),
                _number(invisible_time),
                _number(revive),
                retry,
                broker_name,
                _number(queue_id),
                _number(offset),
            )
        case parts:
            raise ProtocolError(f"receipt of {len(parts)} parts")


@dataclass(frozen=True, slots=True)
class RecallHandle:
    """What names a delayed message that may still be called back."""

    topic: str
    broker_name: str
    deliver_ms: int
    message_id: str

    def __str__(self) -> str:
        text = f"v1 {self.topic} {self.broker_name} {self.deliver_ms} {self.message_id}"
        return base64.urlsafe_b64encode(text.encode()).decode()


def parse_recall_handle(text: str) -> RecallHandle:
    """Return the parts of a recall handle."""
    try:
        decoded = base64.b64decode(text.encode(), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise ProtocolError("recall handle is no Base64 of UTF-8") from None
    match decoded.split(" "):
        case ["v1", topic, broker_name, deliver_ms, message_id]:
            return RecallHandle(topic, broker_name, _number(deliver_ms), message_id)
        case _:
            raise ProtocolError("recall handle is not of version v1 with five parts")


def _number(text: str) -> int:
    if text.isascii() and text.removeprefix("-").isdigit() and len(text) < 20:
        return int(text)
    raise ProtocolError(f"{text[:32]!r} is no number")
