"""Light queues: the names that a message gives, and the records that stand for it there.

A message with the property INNER_MULTI_DISPATCH is one record of its own queue. In front of it, in
the same append, stands a reference record for each light queue that it names: without a body, with
a property that says where the message is. So every record is in one queue, and a log that ends
between them has lost the message as a whole.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from imago_wire.errors import WrongError
from imago_wire.record_format import properties as props

LIGHT_PREFIX: Final = "%LMQ%"
LITE_PREFIX: Final = "%LMQ%$"
"""Of the light queues that are lite topics of another: `%LMQ%$topic$lite`."""
LIGHT_QUEUE_ID: Final = 0
SEPARATOR: Final = b","

DISPATCH: Final = props.INNER_MULTI_DISPATCH.encode()
OFFSETS: Final = props.INNER_MULTI_QUEUE_OFFSET.encode()
REFERENCE: Final = b"__IMAGO_REF"
"""Of a reference record: queue and queue offset of its message, and the topic."""
ALLOWED: Final = b"__IMAGO_LIGHT"
"""Of a message that waits: its producer may put it into all the light queues that it names."""
ALLOWED_PROPERTY: Final = ALLOWED + b"\x011\x02"

_DIGITS: Final = 19
"""Of the longest number."""


class Reference(NamedTuple):
    """Where the message of a reference record is."""

    topic: str
    queue_id: int
    offset: int
    """Its queue offset, or a lower one: what stands between was appended with it."""


def reference_property(reference: Reference) -> bytes:
    """Return the property that makes a record a reference."""
    topic, queue_id, offset = reference
    return REFERENCE + b"\x01%d,%d,%b\x02" % (queue_id, offset, topic.encode())


def read_reference(properties: bytes) -> Reference | None:
    """Return what a record's properties refer to; None: it is a message itself."""
    value = props.find(properties, REFERENCE)
    if value is None:
        return None
    queue_id, offset, topic = (*value.split(SEPARATOR, 2), b"", b"")[:3]
    try:
        return Reference(topic.decode(), _number(queue_id), _number(offset))
    except ValueError:
        return None


def named_queues(properties: bytes) -> list[str]:
    """Return all that INNER_MULTI_DISPATCH names, as Java splits it; empty: it names nothing."""
    value = props.find(properties, DISPATCH)
    if not value or value.isspace():
        return []
    names = value.decode("utf-8", "replace").split(",")
    while names and not names[-1]:
        names.pop()
    return names


def is_light(name: str) -> bool:
    """Whether a topic is a light queue, or would be one."""
    return name.startswith(LIGHT_PREFIX)


def lite_queue(topic: str, lite: str) -> str:
    """Return the light queue that is a lite topic of a topic."""
    return f"{LITE_PREFIX}{topic}${lite}"


def lite_parent(name: str) -> str:
    """Return the topic whose lite topic a light queue is; empty: it is none's."""
    if not name.startswith(LITE_PREFIX):
        return ""
    topic, _, lite = name.removeprefix(LITE_PREFIX).partition("$")
    return topic if lite and "$" not in lite else ""


def offsets_property(offsets: list[int | None]) -> bytes:
    """Return the property with an offset for each name; none for what is no light queue."""
    value = SEPARATOR.join([b"" if each is None else b"%d" % each for each in offsets])
    return OFFSETS + b"\x01%b\x02" % value


def offset_in(properties: bytes, name: str) -> int | None:
    """Return the offset that a message says it has in a light queue; None: it is not there."""
    offsets = (props.find(properties, OFFSETS) or b"").split(SEPARATOR)
    for index, each in enumerate(named_queues(properties)):
        if each == name:
            try:
                return _number(offsets[index])
            except (IndexError, ValueError):
                return None
    return None


def _number(text: bytes) -> int:
    """Read a number as we write it. ValueError: it is none."""
    if not text.isdigit() or len(text) > _DIGITS:
        raise WrongError(f"{text[:32]!r} is no number")
    return int(text)
