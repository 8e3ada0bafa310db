"""What a client that traces tells of its messages, in the form of RocketMQ's clients."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

from imago_client.messages import Message
from imago_wire.errors import ProtocolError
from imago_wire.record_format import properties as names
from imago_wire.record_format.layout import SYS_TRANSACTION_MASK
from imago_wire.records.stored import host_text
from imago_wire.remoting.texts.message_ids import parse_offset_message_id
from imago_wire.remoting.texts.trace import TraceRecord, encode_trace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from imago_client.core.sending.outgoing import Outgoing
    from imago_client.messages import SendResult
    from imago_client.received import ReceivedMessage

GROUP: Final = "_INNER_TRACE_PRODUCER"
RECORDS_MAX: Final = 100
"""In one message, whose keys are those of all of them."""
KEYS_BYTES_MAX: Final = 16 << 10
"""Of one message; properties have room for twice that."""
RECORDS_BYTES_MAX: Final = 128 << 10
"""Of one message, as in the Java client; a single record may be larger."""
NORMAL, HALF, DELAYED = 0, 1, 3
SUCCESS, FAILED = 0, 4
"""How a handler ended."""


class Trace(NamedTuple):
    """One record, and what it is looked up by."""

    topic: str
    keys: tuple[str, ...]
    record: TraceRecord


def sent(group: str, outgoing: Outgoing, result: SendResult, took_ms: int) -> list[Trace]:
    """Return what is told of a send that a broker acknowledged: of each message of a batch."""
    if result.trace_region is None:
        return []
    stored = result.stored_id.split(",")
    if outgoing.entries:
        parts = [(entry.properties, len(entry.body)) for entry in outgoing.entries]
    else:
        parts = [(outgoing.properties.encode(), len(outgoing.body))]
    traces = []
    for number, (encoded, size) in enumerate(parts):
        found = names.decode(encoded)
        message_id, keys = found.get(names.UNIQ_KEY, ""), found.get(names.KEYS, "")
        fields: dict[str, str | int] = {
            "timeStamp": outgoing.born_ms,
            "regionId": result.trace_region,
            "groupName": group,
            "topic": outgoing.topic,
            "msgId": message_id,
            "tags": found.get(names.TAGS, ""),
            "keys": keys,
            "storeHost": _address(stored[0]),
            "bodyLength": size,
            "costTime": took_ms,
            "msgType": _kind(outgoing, found),
            "offsetMsgId": stored[min(number, len(stored) - 1)],
            "isSuccess": "true",
        }
        traces.append(_trace(outgoing.topic, message_id, keys, "Pub", fields))
    return traces


def before(
    group: str, request_id: str, messages: Sequence[ReceivedMessage], now_ms: int
) -> list[Trace]:
    """Return what is told of messages before a handler gets them."""
    return [
        _trace(
            message.topic,
            message.message_id,
            " ".join(message.keys),
            "SubBefore",
            {
                "timeStamp": now_ms,
                "regionId": message.properties.get(names.MSG_REGION, ""),
                "groupName": group,
                "requestId": request_id,
                "msgId": message.message_id,
                "retryTimes": message.reconsume_times,
                "keys": " ".join(message.keys),
            },
        )
        for message in messages
        if _is_wanted(message)
    ]


def after(
    group: str,
    request_id: str,
    messages: Sequence[ReceivedMessage],
    now_ms: int,
    took_ms: int,
    *,
    succeeded: bool,
) -> list[Trace]:
    """Return what is told of messages when their handler has ended."""
    return [
        _trace(
            message.topic,
            message.message_id,
            " ".join(message.keys),
            "SubAfter",
            {
                "requestId": request_id,
                "msgId": message.message_id,
                "costTime": took_ms,
                "isSuccess": "true" if succeeded else "false",
                "keys": " ".join(message.keys),
                "contextCode": SUCCESS if succeeded else FAILED,
                "timeStamp": now_ms,
                "groupName": group,
            },
        )
        for message in messages
        if _is_wanted(message)
    ]


def parts(traces: Iterable[Trace]) -> Iterator[list[Trace]]:
    """Yield what is told in one message each: records of one topic."""
    by_topic = sorted(traces, key=lambda trace: trace.topic)
    for _, of_topic in groupby(by_topic, key=lambda trace: trace.topic):
        part: list[Trace] = []
        body_bytes = keys_bytes = 0
        for trace in of_topic:
            of_body, of_keys = len(encode_trace([trace.record])), _size(trace.keys)
            large = (
                body_bytes + of_body > RECORDS_BYTES_MAX or keys_bytes + of_keys > KEYS_BYTES_MAX
            )
            if part and (large or len(part) == RECORDS_MAX):
                yield part
                part, body_bytes, keys_bytes = [], 0, 0
            part.append(trace)
            body_bytes, keys_bytes = body_bytes + of_body, keys_bytes + of_keys
        if part:
            yield part


def message(part: Sequence[Trace], trace_topic: str) -> Message:
    """Return the message that tells this: its keys are those of all records, if there is room."""
    keys: dict[str, None] = {}
    size = 0
    for key in dict.fromkeys(key for trace in part for key in trace.keys):
        if size + _size([key]) <= KEYS_BYTES_MAX:
            keys[key] = None
            size += _size([key])
    return Message(trace_topic, encode_trace(trace.record for trace in part), keys=tuple(keys))


def _size(keys: Iterable[str]) -> int:
    return sum(len(key.encode()) + 1 for key in keys)


def _address(stored_id: str) -> str:
    try:
        return host_text(parse_offset_message_id(stored_id)[0])
    except ProtocolError:
        return ""  # an id of another kind: the send went well all the same


def _is_wanted(message: ReceivedMessage) -> bool:
    return message.properties.get(names.TRACE_ON) != "false"


def _kind(outgoing: Outgoing, found: dict[str, str]) -> int:
    if outgoing.sys_flag & SYS_TRANSACTION_MASK:
        return HALF
    waits = (names.DELAY, names.TIMER_DELAY_MS, names.TIMER_DELIVER_MS)
    return DELAYED if any(name in found for name in waits) else NORMAL


def _trace(
    topic: str, message_id: str, keys: str, kind: str, fields: dict[str, str | int]
) -> Trace:
    record = TraceRecord(kind, {name: str(value) for name, value in fields.items()})
    return Trace(topic, (*message_id.split(), *keys.split()), record)
