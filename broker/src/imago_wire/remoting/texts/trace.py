"""Trace records: what clients with tracing on send as ordinary messages.

For tools and clients that read or send traces; a broker stores them unread.

A message body holds records that end in 0x02; a record's fields are separated by 0x01 and the
first one is its kind. The fields of each kind follow in a fixed order.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from imago_wire.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

RECORD_END: Final = "\x02"
FIELD_END: Final = "\x01"

FIELDS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "Pub": (
            "timeStamp", "regionId", "groupName", "topic", "msgId", "tags", "keys", "storeHost",
            "bodyLength", "costTime", "msgType", "offsetMsgId", "isSuccess",
        ),
        "SubBefore": (
            "timeStamp", "regionId", "groupName", "requestId", "msgId", "retryTimes", "keys",
        ),
        "SubAfter": (
            "requestId", "msgId", "costTime", "isSuccess", "keys", "contextCode", "timeStamp",
            "groupName",
        ),
        "EndTransaction": (
            "timeStamp", "regionId", "groupName", "topic", "msgId", "tags", "keys", "storeHost",
            "msgType", "transactionId", "transactionState", "isFromTransactionCheck",
        ),
        "Recall": ("timeStamp", "regionId", "groupName", "topic", "msgId", "isSuccess"),
    }
)  # fmt: skip
"""The fields of each kind of record, in their order."""


class TraceRecord(NamedTuple):
    """One record. Older clients send fewer fields, so some at the end may be missing."""

    kind: str
    fields: Mapping[str, str]


def encode_trace(records: Iterable[TraceRecord]) -> bytes:
    """Return the body that holds these records."""
    parts: list[str] = []
    for kind, fields in records:
        texts = [kind, *(fields[name] for name in FIELDS[kind] if name in fields)]
        parts.append(FIELD_END.join(texts) + RECORD_END)
    return "".join(parts).encode()


def decode_trace(data: bytes) -> list[TraceRecord]:
    """Return the records of a body. ProtocolError: a kind that no client writes."""
    records = []
    for text in data.decode(errors="replace").split(RECORD_END):
        if not text:
            continue
        kind, *values = text.split(FIELD_END)
        if kind not in FIELDS:
            raise ProtocolError(f"trace record of kind {kind[:32]!r}")
        records.append(TraceRecord(kind, dict(zip(FIELDS[kind], values, strict=False))))
    return records
