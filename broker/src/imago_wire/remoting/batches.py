"""Batch bodies as clients write them, without what reads records.

A batch body (SEND_BATCH_MESSAGE) is entries of, big-endian, i32 entry size, i32 magic 0, i32
checksum 0, i32 flag, i32 body size, body, i16 properties size, properties.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from imago_wire.errors import LimitExceededError
from imago_wire.record_format import properties as names

if TYPE_CHECKING:
    from collections.abc import Iterable

_BATCH_HEAD: Final = Struct(">iiiii")
_SHORT: Final = Struct(">h")


class BatchEntry(NamedTuple):
    """One message of a batch; the topic, queue and times are those of the request."""

    body: bytes
    properties: bytes = b""
    """The property string."""
    flag: int = 0


def encode_batch(entries: Iterable[tuple[bytes, bytes, int]]) -> bytes:
    """Return the body of a batch request, of entries as `BatchEntry` has them."""
    parts: list[bytes] = []
    for body, properties, flag in entries:
        check_sizes(b"", properties)
        size = _BATCH_HEAD.size + len(body) + _SHORT.size + len(properties)
        parts += (
            _BATCH_HEAD.pack(size, 0, 0, flag, len(body)),
            body,
            _SHORT.pack(len(properties)),
            properties,
        )
    return b"".join(parts)


def check_sizes(topic: bytes, properties: bytes) -> None:
    """LimitExceededError: a record has no room for so long a topic or such properties."""
    if len(topic) > 32767:
        raise LimitExceededError("topic", size=len(topic), size_max=32767)
    if len(properties) > names.PROPERTIES_BYTES_MAX:
        raise LimitExceededError(
            "properties", size=len(properties), size_max=names.PROPERTIES_BYTES_MAX
        )
