"""Messages that a consumer gets, from the log's records to the bytes of an answer.

This is the plain Python reference; `_told_c` is its compiled twin, with the same results on every
input, the order of a message's own properties aside. `twins` chooses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_wire.grpc.answers import framed

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_wire.grpc.scanning.items import SharedDelivery


def told_records(
    body: bytes, delivery: SharedDelivery, careful: Callable[[bytes, str], bytes | None]
) -> tuple[bytes, list[str]]:
    """Return an answer with records as its messages, and the handle of each.

    `careful` gets a record and its handle, and returns its message, or None: it is left out. The
    compiled twin asks it for those alone that are not ordinary.
    """
    messages, handles, at = [], [], 0
    while len(body) - at >= 36:
        size = int.from_bytes(body[at : at + 4], "big", signed=True)
        if size <= 0:
            break
        record = body[at : at + size]
        at += size
        handle = handle_of(record, delivery)
        message = careful(record, handle)
        if message is not None:
            messages.append(message)
            handles.append(handle)
    return delivery.begin + framed(messages) + delivery.end, handles


def handle_of(record: bytes, delivery: SharedDelivery) -> str:
    """Return what names a delivery: POP's receipt, and the message's place in the log."""
    queue_id = int.from_bytes(record[12:16], "big", signed=True)
    offset = int.from_bytes(record[20:28], "big", signed=True)
    place = int.from_bytes(record[28:36], "big", signed=True)
    start = delivery.starts.get(queue_id, offset)
    return f"{start} {delivery.words} {queue_id} {offset} {place}"
