"""The records of a pull's answer as messages of a consumer, nothing of them decoded yet.

A consumer looks at the body and perhaps at a property: the rest is cut out as bytes, and read when
it is asked for. The reference of `_received_c`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar

from imago_wire.crc import crc31
from imago_wire.errors import ChecksumError
from imago_wire.record_format.record_fields import read_layout

if TYPE_CHECKING:
    from imago_wire.records.stored import StoredMessage


class CutRecord:
    """A record in parts, or one that was decoded already: `stored`."""

    __slots__ = (
        "decoded", "error", "head", "held", "offset", "properties_at", "queue", "sys_flag", "tail",
        "topic",
    )  # fmt: skip

    queue: Any
    """Where it was read, as the caller names it."""
    topic: str
    error: Any
    """Why the body is not what was sent; None: it is."""
    head: bytes
    """The record up to its body; empty where it is decoded."""
    held: bytes
    """The body as it is held: as stored, or inflated."""
    tail: bytes
    """The record behind its body."""
    properties_at: int
    """Where in `tail` the property string begins."""
    offset: int
    """In the queue."""
    sys_flag: int
    decoded: StoredMessage | None

    def __init__(self, queue: Any, topic: str, stored: StoredMessage, error: Any = None) -> None:
        parts = (b"", stored.body, b"", 0, stored.queue_offset, stored.sys_flag)
        _fill(self, queue, topic, error, parts, stored)

    def keep(self, stored: StoredMessage) -> None:
        """Note the record decoded, so that it is decoded once."""
        object.__setattr__(self, "decoded", stored)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"attribute {name!r} of {type(self).__name__!r} cannot be set")

    def __copy__(self) -> Self:
        return self


R = TypeVar("R", bound=CutRecord)


def cut_records(kind: type[R], data: bytes, queue: Any, topic: str) -> list[R]:
    """Return the records of an answer to a pull of `topic`, in their order.

    RecordError, ChecksumError: one of them is damaged.
    """
    found = []
    expected = topic.encode("utf-8", "surrogatepass")
    at = 0
    while at < len(data):
        layout = read_layout(data, at)
        end, body_end = at + layout.size, layout.body_at + layout.body_size
        body = data[layout.body_at : body_end]
        if (checksum := crc31(body)) != layout.body_crc:
            raise ChecksumError(expected=layout.body_crc, actual=checksum)
        parts = (
            data[at : layout.body_at], body, data[body_end:end], layout.properties_at - body_end,
            layout.queue_offset, layout.sys_flag,
        )  # fmt: skip
        name = data[layout.topic_at : layout.topic_at + layout.topic_size]
        own = topic if name == expected else name.decode("utf-8", "replace")
        one = kind.__new__(kind)
        _fill(one, queue, own, None, parts, None)
        found.append(one)
        at = end
    return found


def _fill(
    record: CutRecord,
    queue: Any,
    topic: str,
    error: Any,
    parts: tuple[bytes, bytes, bytes, int, int, int],
    decoded: StoredMessage | None,
) -> None:
    names = ("head", "held", "tail", "properties_at", "offset", "sys_flag")
    values = dict(zip(names, parts, strict=True))
    values |= {"queue": queue, "topic": topic, "error": error, "decoded": decoded}
    for name, value in values.items():
        object.__setattr__(record, name, value)
