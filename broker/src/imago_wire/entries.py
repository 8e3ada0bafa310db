"""Messages on their way into the log, and the places they got: tuples, with names for their parts.

They are tuples, made and taken apart by compiled code, so that a put makes no other object.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from imago_wire.errors import LimitExceededError, ProtocolError
from imago_wire.layout import TOPIC_BYTES_MAX

QUEUE_ID_MAX: Final = 0x7FFF_FFFF


class QueueTail:
    """The mutable end of one queue. The log owns it; the builder advances it."""

    __slots__ = (
        "dual",
        "next_offset",
        "next_position",
        "positions",
        "queue_id",
        "topic",
        "units",
    )

    topic: bytes
    queue_id: int
    dual: bool
    """Records of this queue get a MetaQ position and id."""
    next_offset: int
    """Queue offset that the next record gets."""
    next_position: int
    """MetaQ byte position that the next record gets, where dual."""
    units: bytearray
    """20-byte consume-queue units that build() appended. Must have no exported buffer meanwhile."""
    positions: bytearray
    """12-byte units (position, size with header) beside the others, where dual."""

    def __init__(
        self,
        topic: bytes,
        queue_id: int,
        *,
        dual: bool,
        next_offset: int = 0,
        next_position: int = 0,
    ) -> None:
        if not 0 < len(topic) <= TOPIC_BYTES_MAX:
            raise LimitExceededError("topic", size=len(topic), size_max=TOPIC_BYTES_MAX)
        if not 0 <= queue_id <= QUEUE_ID_MAX:
            raise ProtocolError(f"queue id {queue_id}")
        self.topic, self.queue_id, self.dual = topic, queue_id, dual
        self.next_offset, self.next_position = next_offset, next_position
        self.units, self.positions = bytearray(), bytearray()


Entry: TypeAlias = tuple[
    QueueTail,
    bytes,
    bytes,
    int,
    int,
    int,
    bytes,
    int,
    int,
    int | None,
    tuple[int, int] | int | None,
    int,
]
"""tail, body, properties, flag, sys flag, born ms, born host, reconsume times, prepared offset,
unit tag, MetaQ shape, crc31 of the body or -1: made by make_entry() or metaq_entry() alone.

The shape is length and checksum of a compressed body, inflated; or the MetaQ id of a message that
has one already; None of all others."""

ENTRY_TAIL: Final = 0
ENTRY_BODY: Final = 1
ENTRY_PROPERTIES: Final = 2
ENTRY_SYS_FLAG: Final = 4
ENTRY_BORN_HOST: Final = 6
ENTRY_UNIT_TAG: Final = 9
ENTRY_SHAPE: Final = 10

Placed: TypeAlias = tuple[int, int, int, int, int]
"""Queue offset, physical offset, record size, MetaQ position or -1, MetaQ id or -1."""

PLACED_QUEUE_OFFSET: Final = 0
PLACED_PHYSICAL_OFFSET: Final = 1
PLACED_SIZE: Final = 2
