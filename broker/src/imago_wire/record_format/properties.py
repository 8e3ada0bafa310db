"""The property string of a record: ``name 0x01 value 0x02`` repeated, UTF-8.

The last 0x02 may be missing (RocketMQ 4.9 clients leave it out). Of a repeated name the last one
counts. A part without 0x01, or with an empty name, is no property: RocketMQ's own decoder drops
it, and so does every function here. A value may be empty; RocketMQ's Java decoder drops such a
property, MetaQ's empty attribute needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imago_wire.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

NAME_END: Final = b"\x01"
VALUE_END: Final = b"\x02"
PROPERTIES_BYTES_MAX: Final = 32767
"""The length is a signed 16-bit field of the record."""

# Set by clients.
TAGS: Final = "TAGS"
KEYS: Final = "KEYS"
UNIQ_KEY: Final = "UNIQ_KEY"
WAIT: Final = "WAIT"
DELAY: Final = "DELAY"
TRAN_MSG: Final = "TRAN_MSG"
PRODUCER_GROUP: Final = "PGROUP"
RECONSUME_TIME: Final = "RECONSUME_TIME"
MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
EXTEND_UNIQ_INFO: Final = "EXTEND_UNIQ_INFO"
SHARDING_KEY: Final = "__SHARDINGKEY"
TRACE_CONTEXT: Final = "TRACE_CONTEXT"
BORN_HOST: Final = "__BORNHOST"
BORN_TIMESTAMP: Final = "BORN_TIMESTAMP"
TRANSACTION_ID: Final = "__transactionId__"
CHECK_IMMUNITY_TIME: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
INSTANCE_ID: Final = "INSTANCE_ID"
CORRELATION_ID: Final = "CORRELATION_ID"
REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
TTL: Final = "TTL"
MESSAGE_TYPE: Final = "MSG_TYPE"
TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
INNER_MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
PRIORITY: Final = "_SYS_MSG_PRIORITY_"
LITE_TOPIC: Final = "__LITE_TOPIC"
IMAGO_PRODUCER_ID: Final = "__IMAGO_PID"
IMAGO_PRODUCER_EPOCH: Final = "__IMAGO_EPOCH"
IMAGO_SEQUENCE: Final = "__IMAGO_SEQ"

# Set by the broker, seen by clients.
TIMER_OUT_MS: Final = "TIMER_OUT_MS"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QID: Final = "REAL_QID"
RETRY_TOPIC: Final = "RETRY_TOPIC"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"
MSG_REGION: Final = "MSG_REGION"
TRACE_ON: Final = "TRACE_ON"
CLUSTER: Final = "CLUSTER"
INNER_NUM: Final = "INNER_NUM"
INNER_BASE: Final = "INNER_BASE"
TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
TRAN_PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
INNER_MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"

# Set by a consumer's client after the pull, but clients echo what they have seen.
POP_CK: Final = "POP_CK"
FIRST_POP_TIME: Final = "1ST_POP_TIME"
MIN_OFFSET: Final = "MIN_OFFSET"
MAX_OFFSET: Final = "MAX_OFFSET"
CONSUME_START_TIME: Final = "CONSUME_START_TIME"

# Written by the record builder alone: fixed width, at the very end, in this order.
UNIT_TAG: Final = "__UNIT_TAG"
"""16 hexadecimal digits: the tag code of the consume-queue unit where it is not that of TAGS."""
METAQ_LEN: Final = "__METAQ_LEN"
"""8 hexadecimal digits: body length in MetaQ's form, where the record does not show it."""
METAQ_CRC: Final = "__METAQ_CRC"
"""8 hexadecimal digits: checksum in MetaQ's form, beside METAQ_LEN."""
METAQ_POS: Final = "__METAQ_POS"
"""16 hexadecimal digits: byte position in MetaQ's virtual log of the queue."""
METAQ_ID: Final = "__METAQ_ID"
"""16 hexadecimal digits: MetaQ's message id."""
CRC32: Final = "__CRC32#"
"""10 decimal digits, least significant first: checksum of the record before this property."""

RESERVED: Final = frozenset({UNIT_TAG, METAQ_LEN, METAQ_CRC, METAQ_POS, METAQ_ID, CRC32})
"""Removed from every incoming message: clients echo the properties of what they consumed."""

RESERVED_NAMES: Final = frozenset(name.encode() for name in RESERVED)

TRANSIENT_PREFIX: Final = b"__RMQ.TRANSIENT."
"""Properties of these names are for the way only: RocketMQ does not store them."""

OF_RETRIES: Final = frozenset(
    {b"RETRY_TOPIC", b"ORIGIN_MESSAGE_ID", b"DLQ_ORIGIN_TOPIC", b"DLQ_ORIGIN_MESSAGE_ID"}
)
"""Where a message came from that was given back: to be believed of retry and dead-letter topics."""

NOT_SENDERS: Final = OF_RETRIES | {
    b"POP_CK", b"POP_CK_OFFSET", b"1ST_POP_TIME", b"MIN_OFFSET", b"MAX_OFFSET",
    b"CONSUME_START_TIME", b"REAL_TOPIC", b"REAL_QID", b"IMAGO_SHAPE", b"TIMER_OUT_MS",
    b"TIMER_ENQUEUE_MS", b"TIMER_DEQUEUE_MS", b"TIMER_ROLL_TIMES", b"TIMER_DELAY_LEVEL",
    b"TRANSACTION_CHECK_TIMES", b"TRAN_PREPARED_QUEUE_OFFSET", b"INNER_NUM", b"INNER_BASE",
    b"INNER_MULTI_QUEUE_OFFSET", b"DUP_INFO", b"PROPERTY_FORWARD_QUEUE_ID",
}  # fmt: skip
"""What only a broker or a receiver says of a message: a sender brings it in the echo of one that it
consumed, or to mislead. The fast ways leave such messages to the careful one, which takes it out:
`_is_special` of `_remoting_c` knows these names as well."""

_RESERVED_TO_JAVA: Final = frozenset(
    {
        "TRACE_ON", "MSG_REGION", "KEYS", "TAGS", "WAIT", "DELAY", "RETRY_TOPIC", "REAL_TOPIC",
        "REAL_QID", "TRAN_MSG", "PGROUP", "MIN_OFFSET", "MAX_OFFSET", "BUYER_ID",
        "ORIGIN_MESSAGE_ID", "TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG", "RECONSUME_TIME",
        "UNIQ_KEY", "MAX_RECONSUME_TIMES", "CONSUME_START_TIME", "POP_CK", "POP_CK_OFFSET",
        "1ST_POP_TIME", "TRAN_PREPARED_QUEUE_OFFSET", "DUP_INFO", "EXTEND_UNIQ_INFO", "INSTANCE_ID",
        "CORRELATION_ID", "REPLY_TO_CLIENT", "TTL", "ARRIVE_TIME", "PUSH_REPLY_TIME", "CLUSTER",
        "MSG_TYPE", "INNER_MULTI_QUEUE_OFFSET", "TIMER_DELAY_MS", "TIMER_DELAY_SEC",
        "TIMER_DELIVER_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_ROLL_TIMES",
        "TIMER_OUT_MS", "TIMER_DEL_UNIQKEY", "TIMER_DELAY_LEVEL", "__BORNHOST", "BORN_TIMESTAMP",
        "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID", "__CRC32#", "_SYS_MSG_PRIORITY_",
        "__LITE_TOPIC",
    }
)  # fmt: skip
_RESERVED_TO_USERS: Final = (
    _RESERVED_TO_JAVA | RESERVED | frozenset(name.decode() for name in NOT_SENDERS)
)

_OF_TIMERS: Final = frozenset({b"TIMER_DELAY_SEC", b"TIMER_DELAY_MS", b"TIMER_DELIVER_MS"})

_STRIP_SIGNS: Final = (b"__METAQ_", b"__CRC32#", b"__UNIT_TAG", TRANSIENT_PREFIX)


def encode(properties: Mapping[str, str]) -> bytes:
    """Return the property string, with its last 0x02. ProtocolError: a name or value cannot be."""
    parts = []
    for name, value in properties.items():
        if not name or "\x01" in name or "\x02" in name or "\x01" in value or "\x02" in value:
            raise ProtocolError(f"property {name[:64]!r} is empty or holds 0x01 or 0x02")
        parts.append(f"{name}\x01{value}\x02")
    return "".join(parts).encode()


def decode(data: bytes) -> dict[str, str]:
    """Return the properties in their order. Bytes that are no UTF-8 become U+FFFD, as in Java."""
    properties = {}
    for part in data.decode("utf-8", "replace").split("\x02"):
        name, separator, value = part.partition("\x01")
        if name and separator:
            properties[name] = value
    return properties


def find(data: bytes, name: bytes) -> bytes | None:
    """Return the value of one property without decoding the others, or None."""
    marker = VALUE_END + name + NAME_END
    at = data.rfind(marker)
    if at < 0:
        if not data.startswith(marker[1:]):
            return None
        at = -1
    start = at + len(marker)
    end = data.find(VALUE_END, start)
    return data[start:] if end < 0 else data[start:end]


def without(data: bytes, names: Collection[bytes]) -> bytes:
    """Return the property string less the named properties; the other bytes stay as they are."""
    kept = [part for part in data.split(VALUE_END) if part.partition(NAME_END)[0] not in names]
    return VALUE_END.join(kept)


def as_sent(data: bytes, *, tried: bool = False) -> bytes:
    """Return the property string less what a sender may not say.

    `tried`: of a message that was given back, which may say where it came from. The echo of a timer
    that was delivered loses its time as well, as it does not wait again.
    """
    names = {part.partition(NAME_END)[0] for part in data.split(VALUE_END)}
    dropped = NOT_SENDERS - OF_RETRIES if tried else NOT_SENDERS
    if names.isdisjoint(dropped):
        return data
    return without(data, dropped | _OF_TIMERS if b"TIMER_OUT_MS" in names else dropped)


def is_reserved(name: str) -> bool:
    """Whether an application may not choose a property of this name, as the Java client refuses it.

    Clients set some of these from what a message is told in other ways.
    """
    return name in _RESERVED_TO_USERS or name.startswith("__IMAGO_")


def strip_reserved(data: bytes) -> bytes:
    """Return the property string less what only the builder may write, and transient ones."""
    if b"__" not in data or not any(sign in data for sign in _STRIP_SIGNS):
        return data
    kept = []
    for part in data.split(VALUE_END):
        name = part.partition(NAME_END)[0]
        if name not in RESERVED_NAMES and not name.startswith(TRANSIENT_PREFIX):
            kept.append(part)
    return VALUE_END.join(kept)
