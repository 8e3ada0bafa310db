"""Messages as clients see them, and as the log has them."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

from imago_wire.errors import ProtocolError
from imago_wire.grpc.messages import MD5, Encoding, MessageType, duration, make, milliseconds
from imago_wire.grpc.messages import timestamp as at
from imago_wire.record_format import properties as props
from imago_wire.record_format.references import lite_queue
from imago_wire.records.record import decode_record, host_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_wire.records.record import StoredMessage

_HIDDEN: Final = frozenset(
    {props.TRANSACTION_ID, props.SHARDING_KEY, props.TRACE_CONTEXT, props.UNIQ_KEY}
)
"""Not reserved to the broker, and told in other fields."""
_TYPES: Final = {
    props.SHARDING_KEY: MessageType.FIFO,
    props.PRIORITY: MessageType.PRIORITY,
    props.LITE_TOPIC: MessageType.LITE,
}
"""What a message is that has one of these, the first one."""
_DELAYS: Final = ("TIMER_DELIVER_MS", "TIMER_DELAY_MS", "TIMER_DELAY_SEC", "DELAY")


def stored_properties(message: Any, topic: str, peer: str) -> dict[str, str]:
    """Return the properties that the log gets of a message."""
    told = message.system_properties
    made = dict(message.user_properties)
    if told.tag:
        made[props.TAGS] = told.tag
    if told.keys:
        made[props.KEYS] = " ".join(told.keys)
    made[props.UNIQ_KEY] = told.message_id
    made |= _of_later(told, topic)
    if told.message_type == MessageType.TRANSACTION:
        made[props.TRAN_MSG] = "true"
        if told.HasField("orphaned_transaction_recovery_duration"):
            seconds = milliseconds(told.orphaned_transaction_recovery_duration) // 1000
            made[props.CHECK_IMMUNITY_TIME] = str(seconds)
    if told.HasField("delivery_timestamp"):
        made[props.TIMER_DELIVER_MS] = str(milliseconds(told.delivery_timestamp))
    made[props.RECONSUME_TIME] = "0"
    made[props.PRODUCER_GROUP] = topic
    if told.HasField("message_group"):
        made[props.SHARDING_KEY] = told.message_group
    if told.trace_context:
        made[props.TRACE_CONTEXT] = told.trace_context
    made[props.BORN_HOST] = told.born_host or peer
    made[props.BORN_TIMESTAMP] = str(milliseconds(told.born_timestamp))
    made[props.WAIT] = "false"
    return made


def _of_later(told: Any, topic: str) -> dict[str, str]:
    """Return the properties of what RocketMQ has since 5.5."""
    made = {}
    if told.HasField("priority"):
        made[props.PRIORITY] = str(told.priority)
    if told.lite_topic:
        made[props.LITE_TOPIC] = told.lite_topic
        made[props.INNER_MULTI_DISPATCH] = lite_queue(topic, told.lite_topic)
    return made


def told_message(
    data: bytes, handle: str = "", invisible_ms: int = 0, *, topic: str = "", half: bool = False
) -> Any:
    """Return a record as clients get it. `half`: of a transaction that is open."""
    record, encoding = _decoded(data)
    found, body = record.properties, record.body
    told = make(
        "SystemProperties",
        message_id=found.get(props.UNIQ_KEY) or record.offset_message_id,
        body_digest=make("Digest", type=MD5, checksum=hashlib.md5(body).hexdigest().upper()),  # noqa: S324  what clients compare, no secret
        body_encoding=int(encoding),
        message_type=int(MessageType.TRANSACTION if half else _type(found)),
        born_timestamp=at(record.born_ms),
        born_host=found.get(props.BORN_HOST) or host_text(record.born_host),
        store_timestamp=at(record.store_ms),
        store_host=host_text(record.store_host),
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        delivery_attempt=record.reconsume_times + 1,
        keys=found.get(props.KEYS, "").split(),
    )
    if handle:
        told.receipt_handle = handle
        told.invisible_duration.CopyFrom(duration(invisible_ms))
    _add_optional(told, found)
    return make(
        "Message",
        topic=told_topic(topic or record.topic),
        user_properties=_users(found),
        system_properties=told,
        body=body,
    )


def told_topic(topic: str) -> Any:
    """Return a topic as messages name it."""
    namespace, _, name = topic.rpartition("%") if not topic.startswith("%") else ("", "", topic)
    return make("Resource", resource_namespace=namespace, name=name)


def _add_optional(told: Any, found: Mapping[str, str]) -> None:
    if tag := found.get(props.TAGS):
        told.tag = tag
    if group := found.get(props.SHARDING_KEY):
        told.message_group = group
    if context := found.get(props.TRACE_CONTEXT):
        told.trace_context = context
    priority = found.get(props.PRIORITY, "")
    if priority.isdecimal() and len(priority) < 10:
        told.priority = int(priority)
    if lite := found.get(props.LITE_TOPIC):
        told.lite_topic = lite
    due = found.get(props.TIMER_DELIVER_MS, "")
    if due.isdecimal() and len(due) < 18:
        told.delivery_timestamp.CopyFrom(at(int(due)))
    topic, message = found.get(props.DLQ_ORIGIN_TOPIC), found.get(props.DLQ_ORIGIN_MESSAGE_ID)
    if topic and message:
        told.dead_letter_queue.topic = topic
        told.dead_letter_queue.message_id = message


def _users(found: Mapping[str, str]) -> dict[str, str]:
    users = {
        name: value
        for name, value in found.items()
        if name not in _HIDDEN and not props.is_reserved(name)
    }
    if props.LITE_TOPIC in found:
        users.pop(props.INNER_MULTI_DISPATCH, None)
    return users


def _type(found: Mapping[str, str]) -> MessageType:
    if found.get(props.TRAN_MSG) == "true":
        return MessageType.TRANSACTION
    if any(name in found for name in _DELAYS):
        return MessageType.DELAY
    for name, kind in _TYPES.items():
        if name in found:
            return kind
    return MessageType.NORMAL


def _decoded(data: bytes) -> tuple[StoredMessage, Encoding]:
    """Return the message, its body plain: not every client knows what other producers use."""
    try:
        return decode_record(data, inflate=True, verify=False), Encoding.IDENTITY
    except ProtocolError:
        # A producer said that it is compressed; its readers find what is wrong.
        return decode_record(data, verify=False), Encoding.GZIP
