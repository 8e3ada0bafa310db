"""Names and messages that clients may send, in the order and with the codes of RocketMQ's proxy."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from imago_broker.model import names
from imago_broker.processors.grpc.calls import CallError
from imago_wire.grpc.codes import SdkCode
from imago_wire.grpc.messages import MessageType, milliseconds
from imago_wire.record_format import properties as props
from imago_wire.system_topics import SYSTEM_TOPICS

if TYPE_CHECKING:
    from collections.abc import Mapping

TOPIC_SIZE_MAX = 127
GROUP_SIZE_MAX = 255
PROPERTIES_MAX = 128
"""Of a message's user, by number."""
USER_BYTES_MAX = 16 << 10
MESSAGE_GROUP_BYTES_MAX = 63
LITE_TOPIC_SIZE_MAX = 64
PRIORITY_HIGH: Final = 999_999_999
DELAY_MS_MAX: Final = 24 * 3600 * 1000
RECOVERY_MS_MAX: Final = 3600 * 1000
_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
_LITE: Final = re.compile(r"[a-zA-Z0-9_-]+")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_SYSTEM_GROUPS: Final = frozenset(
    {"TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "SELF_TEST_P_GROUP"}
)


def topic_name(resource: Any) -> str:
    """Return a topic's name; refuse one that no client's topic may have."""
    name: str = resource.name
    if not name.strip():
        raise CallError(SdkCode.ILLEGAL_TOPIC, "the topic has no name")
    if len(name) > (names.topic_size_max(name) if names.is_derived(name) else TOPIC_SIZE_MAX):
        raise CallError(SdkCode.ILLEGAL_TOPIC, f"the topic's name has {len(name)} characters")
    if not _NAME.fullmatch(name):
        raise CallError(SdkCode.ILLEGAL_TOPIC, "a topic's name has letters, digits and %|_- alone")
    if name in SYSTEM_TOPICS or name.startswith(names.SYSTEM_TOPIC_PREFIX):
        raise CallError(SdkCode.ILLEGAL_TOPIC, f"{name} is a topic of the broker's own")
    return name


def group_name(resource: Any) -> str:
    """Return a consumer group's name; refuse one that no client's group may have."""
    name: str = resource.name
    if not name.strip():
        raise CallError(SdkCode.ILLEGAL_CONSUMER_GROUP, "the group has no name")
    if len(name) > GROUP_SIZE_MAX:
        raise CallError(
            SdkCode.ILLEGAL_CONSUMER_GROUP, f"the group's name has {len(name)} characters"
        )
    if not _NAME.fullmatch(name):
        raise CallError(
            SdkCode.ILLEGAL_CONSUMER_GROUP, "a group's name has letters, digits and %|_- alone"
        )
    if name in _SYSTEM_GROUPS or name.startswith("CID_RMQ_SYS_"):
        raise CallError(SdkCode.ILLEGAL_CONSUMER_GROUP, f"{name} is a group of the broker's own")
    return name


def check_message(message: Any, body_bytes_max: int, now_ms: int) -> None:
    """Refuse a message that RocketMQ's proxy refuses before it looks at the topic."""
    told = message.system_properties
    if not message.body:
        raise CallError(SdkCode.MESSAGE_BODY_EMPTY, "the message has no body")
    if len(message.body) > body_bytes_max:
        raise CallError(
            SdkCode.MESSAGE_BODY_TOO_LARGE,
            f"the body has {len(message.body)} bytes, at most {body_bytes_max}",
        )
    size = _check_user_properties(message.user_properties) + _check_marks(told)
    if size > USER_BYTES_MAX:
        raise CallError(
            SdkCode.MESSAGE_PROPERTIES_TOO_LARGE,
            f"the properties have {size} bytes, at most {USER_BYTES_MAX}",
        )
    if not told.message_id.strip():
        raise CallError(SdkCode.ILLEGAL_MESSAGE_ID, "the message has no id")
    _check_waits(told, now_ms)
    if told.HasField("message_group"):
        _check_group(told.message_group)
    if told.HasField("priority") and not 0 <= told.priority <= PRIORITY_HIGH:
        raise CallError(SdkCode.BAD_REQUEST, f"the priority is {told.priority}")
    if told.lite_topic:
        lite_topic_name(told.lite_topic)


def lite_topic_name(name: str) -> str:
    """Return a lite topic's name; refuse one that none may have."""
    if not is_lite_name(name):
        raise CallError(
            SdkCode.ILLEGAL_LITE_TOPIC,
            f"a lite topic's name has 1 to {LITE_TOPIC_SIZE_MAX} letters, digits, - and _ alone",
        )
    return name


def is_lite_name(name: str) -> bool:
    """Whether a lite topic may have this name."""
    return len(name) <= LITE_TOPIC_SIZE_MAX and _LITE.fullmatch(name) is not None


def _check_user_properties(told: Mapping[str, str]) -> int:
    if len(told) > PROPERTIES_MAX:
        raise CallError(
            SdkCode.MESSAGE_PROPERTIES_TOO_LARGE,
            f"{len(told)} properties, at most {PROPERTIES_MAX}",
        )
    size = 0
    for key, value in told.items():
        if not key or props.is_reserved(key):
            raise CallError(
                SdkCode.ILLEGAL_MESSAGE_PROPERTY_KEY,
                f"the property {key[:64]!r} is the broker's own",
            )
        if _CONTROL.search(key) or _CONTROL.search(value):
            raise CallError(
                SdkCode.ILLEGAL_MESSAGE_PROPERTY_KEY,
                f"the property {key[:64]!r} has control characters",
            )
        size += len(key.encode()) + len(value.encode())
    return size


def _check_marks(told: Any) -> int:
    """Refuse a tag or keys that cannot be; return how many bytes they have."""
    size = 0
    if told.HasField("tag"):
        _check_tag(told.tag)
        size += len(told.tag.encode())
    for key in told.keys:
        if not key.strip() or _CONTROL.search(key):
            raise CallError(SdkCode.ILLEGAL_MESSAGE_KEY, "a key is blank or has control characters")
        size += len(key.encode())
    return size


def _check_tag(tag: str) -> None:
    if tag and not tag.strip():
        raise CallError(SdkCode.ILLEGAL_MESSAGE_TAG, "the tag is blank")
    if "|" in tag or _CONTROL.search(tag):
        raise CallError(SdkCode.ILLEGAL_MESSAGE_TAG, "a tag has neither | nor control characters")


def _check_waits(told: Any, now_ms: int) -> None:
    if told.HasField("orphaned_transaction_recovery_duration"):
        wanted_ms = milliseconds(told.orphaned_transaction_recovery_duration)
        if wanted_ms > RECOVERY_MS_MAX:
            raise CallError(
                SdkCode.BAD_REQUEST, f"the time before a check is {wanted_ms} ms, at most an hour"
            )
    due_ms = milliseconds(told.delivery_timestamp) if told.HasField("delivery_timestamp") else 0
    if due_ms - now_ms > DELAY_MS_MAX:
        raise CallError(
            SdkCode.ILLEGAL_DELIVERY_TIME, "the time of delivery is more than 24 hours ahead"
        )


def _check_group(group: str) -> None:
    size = len(group.encode())
    if not group.strip() or size > MESSAGE_GROUP_BYTES_MAX or _CONTROL.search(group):
        raise CallError(
            SdkCode.ILLEGAL_MESSAGE_GROUP,
            f"the message group has {size} bytes: it is 1 to {MESSAGE_GROUP_BYTES_MAX} bytes"
            " without control characters, and not blank",
        )


def type_of(told: Any) -> MessageType:
    """Return what a message is, by its system properties."""
    if told.message_type == MessageType.TRANSACTION:
        return MessageType.TRANSACTION
    if told.HasField("delivery_timestamp"):
        return MessageType.DELAY
    if told.HasField("message_group"):
        return MessageType.FIFO
    if told.HasField("priority"):
        return MessageType.PRIORITY
    return MessageType.LITE if told.lite_topic else MessageType.NORMAL


def check_type(found: MessageType, topic_type: str) -> None:
    """Refuse a message that the topic does not take. `topic_type`: its `message.type`."""
    mixed = topic_type == "MIXED" and found not in (MessageType.LITE, MessageType.PRIORITY)
    if topic_type != found.name and not mixed:
        raise CallError(
            SdkCode.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            f"the message is {found.name}, the topic takes {topic_type}: set the topic's attribute"
            f" message.type={found.name}",
        )
