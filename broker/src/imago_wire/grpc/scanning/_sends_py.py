"""Ordinary sends of SDKs, from a request's bytes to what the log takes, and answers to frames.

This is the plain Python reference; `_sends_c` is its compiled twin, with the same results on every
input, the order of properties aside. `twins` chooses.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from imago_wire.errors import ProtocolError
from imago_wire.grpc import answers
from imago_wire.grpc.frames import Http2Frame, frame
from imago_wire.grpc.messages import Encoding, MessageType, encoded, make, milliseconds, parse
from imago_wire.record_format import properties as props
from imago_wire.record_format.layout import CLIENT_PROPERTIES_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_wire.grpc.scanning.items import PlainSend

CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
BORN_MS_BOUND: Final = 1 << 47
_CLOSER: Final = (
    "body_digest", "store_timestamp", "delivery_timestamp", "receipt_handle", "invisible_duration",
    "delivery_attempt", "orphaned_transaction_recovery_duration", "dead_letter_queue", "lite_topic",
    "priority",
)  # fmt: skip
"""What ordinary messages do not say."""


def plain_send(
    data: bytes, peer: bytes, suffix: bytes, limits: tuple[int, int, int, int]
) -> PlainSend | None:
    """Return what a SendMessageRequest asks for; None: it needs a closer look.

    That does one of more than one message, or of one that waits, begins a transaction, is
    compressed, or breaks a rule. `peer` is where it was made if it does not say; `suffix` are
    properties that all messages get; `limits` are those of the body, of the number of properties,
    of the bytes of properties, tag and keys, and of the message group.
    """
    try:
        request = parse("SendMessageRequest", data)
    except ProtocolError:
        return None
    if len(request.messages) != 1:
        return None
    message = request.messages[0]
    told, body = message.system_properties, message.body
    users = _users(message.user_properties, limits[1])
    if users is None or not 0 < len(body) <= limits[0] or _is_special(told):
        return None
    marks = [told.tag, *told.keys]
    size = sum(len(each.encode()) for pair in users.items() for each in pair)
    if size + sum(len(each.encode()) for each in marks) > limits[2] or not _are_right(told):
        return None
    group = told.message_group
    if told.HasField("message_group") and not _is_group(group, limits[3]):
        return None
    born_ms = milliseconds(told.born_timestamp)
    properties = _properties(message, users, peer, born_ms) + suffix
    if len(properties) > CLIENT_PROPERTIES_BYTES_MAX:
        return None
    return message.topic.name, group, told.message_id.encode(), properties, body, born_ms


def _users(told: Mapping[str, str], count_max: int) -> dict[str, str] | None:
    """Return a user's properties; None: they need a closer look."""
    if len(told) > count_max:
        return None
    for key, value in told.items():
        if not key or key.startswith("__") or key == props.INNER_MULTI_DISPATCH:
            return None
        if props.is_reserved(key) or CONTROL.search(key) or CONTROL.search(value):
            return None
    return dict(told)


def _is_special(told: Any) -> bool:
    if told.message_type == MessageType.TRANSACTION or told.body_encoding not in (
        0,
        Encoding.IDENTITY,
    ):
        return True
    return told.store_host != "" or any(told.HasField(name) for name in _CLOSER)


def _are_right(told: Any) -> bool:
    """Whether all texts may be as they are."""
    if told.HasField("tag") and told.tag and ("|" in told.tag or not told.tag.strip()):
        return False
    if not told.message_id.strip() or not all(key.strip() for key in told.keys):
        return False
    texts = (told.tag, *told.keys, told.message_id, told.trace_context, told.born_host)
    born = told.born_timestamp
    return not any(map(CONTROL.search, texts)) and _is_time(born.seconds, born.nanos)


def _is_time(seconds: int, nanos: int) -> bool:
    return 0 <= seconds * 1000 < BORN_MS_BOUND and 0 <= nanos < 1_000_000_000


def _is_group(group: str, bytes_max: int) -> bool:
    size = len(group.encode())
    return bool(group.strip()) and size <= bytes_max and not CONTROL.search(group)


def _properties(message: Any, users: dict[str, str], peer: bytes, born_ms: int) -> bytes:
    told = message.system_properties
    if told.tag:
        users[props.TAGS] = told.tag
    if told.keys:
        users[props.KEYS] = " ".join(told.keys)
    users[props.UNIQ_KEY] = told.message_id
    users[props.RECONSUME_TIME] = "0"
    users[props.PRODUCER_GROUP] = message.topic.name
    if told.HasField("message_group"):
        users[props.SHARDING_KEY] = told.message_group
    if told.trace_context:
        users[props.TRACE_CONTEXT] = told.trace_context
    users[props.BORN_HOST] = told.born_host or peer.decode()
    users[props.BORN_TIMESTAMP] = str(born_ms)
    users[props.WAIT] = "false"
    return b"".join(f"{name}\x01{value}\x02".encode() for name, value in users.items())


def stored_answer(number: int, message_id: bytes, offset: int) -> bytes:
    """Return the frames that answer a stored send in a stream: all of them."""
    status = make("Status", code=20000, message="OK")
    text = message_id.decode()
    entry = make(
        "SendResultEntry", status=status, message_id=text, transaction_id=text, offset=offset
    )
    return whole_answer(
        number, [encoded(make("SendMessageResponse", status=status, entries=[entry]))]
    )


def whole_answer(number: int, messages: list[bytes]) -> bytes:
    """Return the frames of an answer whose messages are no more than a frame takes, all of them."""
    data = answers.framed(messages)
    return b"".join(
        (
            answers.response_headers(number),
            frame(Http2Frame.DATA, 0, number, data),
            answers.trailers(number),
        )
    )
