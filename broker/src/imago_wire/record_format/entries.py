"""Messages on their way into the log, and the places they got: tuples, with names for their parts.

They are tuples, made and taken apart by compiled code, so that a put makes no other object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from imago_wire.errors import LimitExceededError, ProtocolError
from imago_wire.record_format.layout import TOPIC_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

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


class EntryRun:
    """Messages that stand side by side in the log: one entry, and one place, for all of them.

    Made by restore_run() alone. The compiled one has no entries, but the records that they are
    made from.
    """

    __slots__ = ("count", "end", "entries", "places", "tails")

    count: int
    places: bytes
    """Where each waited, as firing records name it."""
    end: int
    """Where, in what was read, the last one ended."""
    tails: set[QueueTail]

    def __init__(self, entries: Sequence[Entry], places: bytes, end: int) -> None:
        self.entries, self.places, self.end = entries, places, end
        self.count = len(entries)
        self.tails = {entry[ENTRY_TAIL] for entry in entries}

    @staticmethod
    def each(entry: Entry | EntryRun) -> Sequence[Entry]:
        """Return those that one entry stands for."""
        return entry.entries if isinstance(entry, EntryRun) else (entry,)


Entries: TypeAlias = "Sequence[Entry | EntryRun]"

ENTRY_TAIL: Final = 0
ENTRY_BODY: Final = 1
ENTRY_PROPERTIES: Final = 2
ENTRY_SYS_FLAG: Final = 4
ENTRY_BORN_HOST: Final = 6
ENTRY_UNIT_TAG: Final = 9
ENTRY_SHAPE: Final = 10

Placed: TypeAlias = tuple[int, int, int, int, int]
"""Queue offset, physical offset, record size, MetaQ position or -1, MetaQ id or -1.

Of a run the first two are those of its first message, the size is that of all, the others -1.
"""

PLACED_QUEUE_OFFSET: Final = 0
PLACED_PHYSICAL_OFFSET: Final = 1
PLACED_SIZE: Final = 2
