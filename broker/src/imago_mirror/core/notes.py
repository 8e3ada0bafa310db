"""What a mirror knows, as it keeps it at the target: the newest note in a topic of its own counts.

Nothing in it is needed for what is stored to be right: copies say themselves where they came from.
A note bounds how much of the target a mirror that starts has to read, and says where queues stand
of which the target has kept no copy, and whether the mirror had failed over.

An order is a message of the same topic, by `imago mirror failover`.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from imago_mirror.core.assignment import QueuePlace
from imago_mirror.core.offsets import CopiedRange, OffsetMap, Part
from imago_mirror.core.origins import SourceQueue
from imago_mirror.core.positions import CopyPosition

TOPIC_PREFIX: Final = "imago-mirror-"
NOTE_BYTES_MAX: Final = 3 << 20
"""Deflated; with more the parts of maps go, the oldest first."""
INFLATED_BYTES_MAX: Final = 64 << 20
COPYING: Final = "copying"
SUSPENDED: Final = "suspended"
FAILED_OVER: Final = "failed-over"
STATES: Final = (COPYING, SUSPENDED, FAILED_OVER)


@dataclass(slots=True)
class CopiedQueue:
    """What is known of one source queue, and of its place at the target."""

    target: QueuePlace
    target_incarnation: int
    position: CopyPosition


@dataclass(slots=True)
class MirrorNote:
    """All that a mirror knows."""

    number: int = 0
    """Of the note: the greatest one counts."""
    state: str = COPYING
    lanes: dict[SourceQueue, CopiedQueue] = field(default_factory=dict)
    maps: dict[tuple[str, QueuePlace], OffsetMap] = field(default_factory=dict)
    """By topic and queue of the target."""
    at_ms: int = 0
    report: dict[str, Any] = field(default_factory=dict)
    """What a failover found."""
    order: int = 0
    """Number of the last order that was taken."""


def encode(note: MirrorNote) -> bytes:
    """Return the note as a message's body."""
    parts_max: int | None = None
    while True:
        data = zlib.compress(json.dumps(_to_json(note, parts_max)).encode(), 1)
        if len(data) <= NOTE_BYTES_MAX or parts_max == 0:
            return data
        parts_max = 16 if parts_max is None else parts_max // 2


def _to_json(note: MirrorNote, parts_max: int | None) -> dict[str, Any]:
    return {
        "note": note.number,
        "state": note.state,
        "at": note.at_ms,
        "report": note.report,
        "order": note.order,
        "lanes": [
            [*queue, *lane.target, lane.target_incarnation, *lane.position]
            for queue, lane in note.lanes.items()
        ],
        "maps": [
            [topic, *place, found.life, _newest(found.parts, parts_max)]
            for (topic, place), found in note.maps.items()
        ],
    }


def _newest(parts: tuple[Part, ...], parts_max: int | None) -> tuple[Part, ...]:
    return parts if parts_max is None else parts[max(0, len(parts) - parts_max) :]


def decode(data: bytes) -> MirrorNote | None:
    """Return a note; None: it is none."""
    try:
        inflater = zlib.decompressobj()
        found = json.loads(inflater.decompress(data, INFLATED_BYTES_MAX))
        return MirrorNote(
            number=int(found["note"]),
            state=str(found["state"]),
            at_ms=int(found["at"]),
            report=dict(found["report"]),
            order=int(found["order"]),
            lanes={
                SourceQueue(*row[:5]): CopiedQueue(
                    QueuePlace(*row[5:7]), row[7], CopyPosition(*row[8:])
                )
                for row in found["lanes"]
            },
            maps={
                (topic, QueuePlace(shard, queue_id)): OffsetMap(
                    (
                        Part(first, end, tuple(CopiedRange(*need) for need in needs))
                        for first, end, needs in parts
                    ),
                    life=life,
                )
                for topic, shard, queue_id, life, parts in found["maps"]
            },
        )
    except (zlib.error, ValueError, KeyError, TypeError):
        return None


class Order(NamedTuple):
    """What a mirror shall do from now on; one with a higher number was given later."""

    number: int
    state: str


def encode_order(order: Order) -> bytes:
    """Return an order as a message's body."""
    return json.dumps({"order": order.number, "state": order.state}).encode()


def decode_order(data: bytes) -> Order | None:
    """Return an order; None: it is none."""
    try:
        found = json.loads(data)
        order = Order(int(found["order"]), found["state"])
    except (ValueError, KeyError, TypeError):
        return None
    return order if order.state in STATES else None
