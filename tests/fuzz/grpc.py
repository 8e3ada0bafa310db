"""Fuzz targets of the gRPC port: what anybody may send there before anybody knows who it is.

Frames and headers end a call or the connection, and messages are refused: nothing else is raised,
and what is held stays in its limits.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from hpack import Encoder

from imago_broker.processors.grpc.calls import CallError
from imago_broker.processors.grpc.checks import (
    check_message,
    group_name,
    lite_topic_name,
    topic_name,
    type_of,
)
from imago_broker.processors.grpc.consuming.receipts import parse_handle
from imago_broker.processors.grpc.lite_topics import lite_option
from imago_broker.processors.grpc.message_forms import stored_properties, told_message, told_topic
from imago_broker.processors.grpc.settings import merged_settings
from imago_testing.frames.records import HOST
from imago_testing.peers.sdk_calls import asks, consumer, entries, message, named, producer, sends
from imago_testing.peers.sdk_peer import HEADERS, SdkFrames, request_headers
from imago_wire.errors import ProtocolError
from imago_wire.grpc import headers as heads
from imago_wire.grpc.answers import framed
from imago_wire.grpc.connection import Http2Connection
from imago_wire.grpc.events import CallCame, CallOpened, Came, Ended, Event
from imago_wire.grpc.frames import END_HEADERS, END_STREAM, PREFACE, window_update
from imago_wire.grpc.header_blocks import BrokenError, HeaderBlocks
from imago_wire.grpc.limits import Http2Limits
from imago_wire.grpc.messages import duration, encoded, make, parse
from imago_wire.grpc.scanning import (  # type: ignore[attr-defined]  # built, not typed
    _acks_c,
    _acks_py,
    _blocks_c,
    _blocks_py,
    _sends_c,
    _sends_py,
    _told_c,
    _told_py,
)
from imago_wire.grpc.scanning.items import SharedDelivery
from imago_wire.record_format import properties as props
from imago_wire.record_format.layout import FIXED_SIZE_V4
from imago_wire.records.record import StoredMessage
from imago_wire.remoting.messages import encode_message

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

LIMITS: Final = Http2Limits(
    streams_max=4,
    header_bytes_max=2048,
    message_bytes_max=4096,
    buffered_bytes_max=8192,
    window_bytes=65_535,
    stream_window_bytes=16_384,
    resets_max=8,
    control_frames_max=16,
)
OUTPUT_BYTES: Final = 1 << 16
"""What a thousand bytes of frames may have a server write: acknowledgements, resets, a farewell."""
BODY_BYTES: Final = 4096
SEND_LIMITS: Final = (BODY_BYTES, 8, 256, 63)
NOW_MS: Final = 1_796_000_000_000
POPPED_MS: Final = 1_795_977_346_262
RECEIPT: Final = f"0 {POPPED_MS} 20000 0 0 shard-0 0 0 1326"
TOLD: Final = SharedDelivery(
    starts={0: 3, 2: 0},
    words=f"{POPPED_MS} 20000 0 0 shard-0",
    resource=encoded(told_topic("space%plain")),
    invisible=encoded(duration(20_000)),
    attempts_max=17,
    begin=b"begin",
    end=b"end",
)


def frames(data: bytes) -> Hashable:
    """Whole or in pieces the same happens; answers leave, and nothing above its limit stays."""
    whole, pieces = Http2Connection(LIMITS), Http2Connection(LIMITS)
    events = _spread(whole.feed(PREFACE + data))
    middle = len(data) // 2
    found = _spread([*pieces.feed(PREFACE + data[:middle]), *pieces.feed(data[middle:])])
    assert (found, pieces.closing) == (events, whole.closing)
    assert len(whole.take_output()) <= OUTPUT_BYTES
    assert whole.buffered <= LIMITS.buffered_bytes_max
    opened = [event.stream for event in events if isinstance(event, CallOpened)]
    assert sum(map(whole.has, opened)) <= LIMITS.streams_max
    for number in opened:
        whole.send(number, framed([b"answer" * 9000]), last=True)
    whole.feed(window_update(0, 1 << 20))
    assert len(whole.take_output()) <= OUTPUT_BYTES + LIMITS.streams_max * 56_000
    came = sum(isinstance(event, Came) for event in events)
    return (len(opened), came, len(events), whole.closing[:24])


def _spread(events: Sequence[Event]) -> list[Event]:
    """Return calls that came whole as they come in pieces."""
    found: list[Event] = []
    for event in events:
        if isinstance(event, CallCame):
            number = event.stream
            found += [
                CallOpened(number, event.headers),
                Came(number, event.message),
                Ended(number),
            ]
        else:
            found.append(event)
    return found


def headers(data: bytes) -> Hashable:
    """Headers are read within their limits, or the connection ends; the next block is, too."""
    blocks = HeaderBlocks(LIMITS)
    middle, found = len(data) // 2, []
    try:
        assert blocks.begin(1, END_STREAM, data[:middle]) is None
        for block in (
            blocks.go_on(END_HEADERS, data[middle:]),
            blocks.begin(3, END_HEADERS, data),
        ):
            assert block is not None
            told = block.headers
            assert sum(len(name) + len(value) for name, value in told.items()) <= 4 * 2048
            credentials = heads.credentials(told)
            signed = credentials is not None and credentials.signed_by(["secret"])
            found.append((len(told), signed, heads.timeout_ms(told) is None))
    except BrokenError as error:
        return (*found, str(error)[:24])
    return tuple(found)


def twins(data: bytes) -> Hashable:
    """Both twins take the same of headers, calls and sends; in any order the properties alone."""
    found = []
    for blocks, of_sends in ((_blocks_py, _sends_py), (_blocks_c, _sends_c)):
        decoder = blocks.HeaderDecoder(LIMITS.header_bytes_max, heads.WANTED)
        seen: list[Any] = [of_sends.plain_send(data, b"peer:1", b"", SEND_LIMITS)]
        if seen[0] is not None:
            seen[0] = (*seen[0][:3], props.decode(seen[0][3]), *seen[0][4:])
        try:
            seen += [decoder.whole_call(data, 0, 0, LIMITS.message_bytes_max), decoder.decode(data)]
        except ProtocolError as error:
            seen.append(str(error))
        found.append(seen)
    assert found[0] == found[1]
    return (found[0][0] is None, len(found[0]), str(found[0][-1])[:24])


def acks(data: bytes) -> Hashable:
    """Both twins read the same acknowledgements."""
    told, found = (
        twin.plain_acks(data, b"shard-0", POPPED_MS + 1, (4, 70)) for twin in (_acks_py, _acks_c)
    )
    assert told == found
    return None if found is None else (len(found[2]), bool(found[0]))


def told_messages(data: bytes) -> Hashable:
    """Both twins tell the same of records whose sizes are right: these are the store's own."""
    if len(data) < FIXED_SIZE_V4:
        return None
    record = len(data).to_bytes(4, "big") + data[4:]
    (plain, handles, asked), found = (
        _told(twin, record + ORDINARY + record) for twin in (_told_py, _told_c)
    )
    assert (plain, handles) == found[:2]
    return (asked - found[2], len(handles), len(plain[0].message.user_properties) if plain else 0)


def _told(twin: Any, body: bytes) -> tuple[list[Any], list[str], int]:
    """Return the messages of an answer, their handles, and how many the slow path has told."""
    asked = 0

    def careful(record: bytes, handle: str) -> bytes | None:
        nonlocal asked
        asked += 1
        try:
            made = told_message(record, handle, 20_000, topic="space%plain")
        except ProtocolError:
            return None
        many = made.system_properties.delivery_attempt > TOLD.attempts_max
        return None if many else encoded(make("ReceiveMessageResponse", message=made))

    answer, handles = twin.told_records(body, TOLD, careful)
    assert (answer[:5], answer[-3:]) == (TOLD.begin, TOLD.end)
    messages, at = [], 5
    while at < len(answer) - 3:
        size = int.from_bytes(answer[at : at + 5], "big")
        messages.append(parse("ReceiveMessageResponse", answer[at + 5 : at + 5 + size]))
        at += 5 + size
    return messages, handles, asked


def _checked(name: str, request: Any) -> Hashable:
    """Have everything read that a call reads before the table is asked."""
    match name:
        case "SendMessageRequest":
            for one in request.messages:
                check_message(one, BODY_BYTES, NOW_MS)
                stored_properties(one, topic_name(one.topic), "127.0.0.1:1")
                type_of(one.system_properties)
        case "TelemetryCommand":
            return len(encoded(merged_settings(request.settings, None, BODY_BYTES))) > 400
        case "AckMessageRequest":
            return [str(parse_handle(one.receipt_handle)) for one in request.entries] == []
        case "HeartbeatRequest":
            group_name(request.group)
        case "SyncLiteSubscriptionRequest":
            lite_option(request)
            return [lite_topic_name(name) for name in request.lite_topic_set] == []
        case _:
            pass
    return name


def messages(data: bytes) -> Hashable:
    """What is read as a message is written so that it reads the same, and is checked or refused."""
    found: list[Hashable] = []
    for name in REQUESTS:
        try:
            request = parse(name, data)
        except ProtocolError:
            found.append("")
            continue
        written = request.SerializeToString(deterministic=True)
        assert parse(name, written).SerializeToString(deterministic=True) == written
        try:
            found.append(_checked(name, request))
        except CallError as error:
            found.append((name, error.code))
    return tuple(found)


def _record(properties: Mapping[str, str]) -> bytes:
    """Return a record as the log has it."""
    told = {"UNIQ_KEY": "01AA", "TAGS": "t", "KEYS": "k1 k2", "a": "b", **properties}
    return encode_message(
        StoredMessage(
            size=0, topic="plain", queue_id=2, queue_offset=7, physical_offset=4096, flag=0,
            sys_flag=0, born_ms=NOW_MS, born_host=HOST, store_ms=NOW_MS, store_host=HOST,
            reconsume_times=0, prepared_offset=0, body=b"body" * 20, body_crc=0, properties=told,
        )
    )  # fmt: skip


ORDINARY: Final = _record({})
SPECIAL: Final = (
    {"__SHARDINGKEY": "g", "TRACE_CONTEXT": "c", "__BORNHOST": "there", "WAIT": "true"},
    {"TIMER_DELIVER_MS": "1795258220883"},
    {"DELAY": "3", "KEYS": "schlüssel", "DLQ_ORIGIN_TOPIC": "x"},
)


def _seeds() -> dict[str, list[bytes]]:
    handled = message()
    handled.system_properties.receipt_handle = RECEIPT
    told: dict[str, Any] = {
        "SendMessageRequest": sends(message(tag="t", keys=["k"], message_group="g")),
        "ReceiveMessageRequest": asks(),
        "TelemetryCommand": producer("plain"),
        "AckMessageRequest": make(
            "AckMessageRequest",
            group=named("readers"),
            topic=named("plain"),
            entries=entries(handled),
        ),
        "HeartbeatRequest": make("HeartbeatRequest", group=named("readers"), client_type=3),
    }
    told["SyncLiteSubscriptionRequest"] = make(
        "SyncLiteSubscriptionRequest",
        topic=named("plain"),
        group=named("readers"),
        lite_topic_set=["ann", "bob"],
        offset_option=make("OffsetOption", tail_n=3),
    )
    streams = []
    for name, request in told.items():
        client = SdkFrames()
        method = name.removesuffix("Request").removesuffix("Command")
        greeting = client.greeting()[len(PREFACE) :]
        streams.append(greeting + b"".join(client.call(method, request)[1] for _ in range(3)))
    signed = {
        **HEADERS,
        "authorization": "MQv2-HMAC-SHA1 Credential=ann, SignedHeaders=date, Signature=0a",
        "grpc-timeout": "3S",
    }
    encoder = Encoder()
    blocks = [encoder.encode(request_headers("SendMessage", signed)) for _ in range(2)]
    return {
        "grpc.frames": streams,
        "grpc.headers": blocks,
        "grpc.twins": [*streams, *blocks, encoded(told["SendMessageRequest"])],
        "grpc.acks": [encoded(told["AckMessageRequest"])],
        "grpc.told": [ORDINARY, *map(_record, SPECIAL)],
        "grpc.messages": [
            *(encoded(request) for request in told.values()),
            encoded(consumer("readers", "plain")),
        ],
    }


REQUESTS: Final = (
    "SendMessageRequest",
    "ReceiveMessageRequest",
    "TelemetryCommand",
    "AckMessageRequest",
    "HeartbeatRequest",
    "QueryRouteRequest",
    "EndTransactionRequest",
    "SyncLiteSubscriptionRequest",
)
TARGETS: Final[Mapping[str, Callable[[bytes], Hashable]]] = MappingProxyType(
    {
        "grpc.frames": frames,
        "grpc.headers": headers,
        "grpc.twins": twins,
        "grpc.acks": acks,
        "grpc.told": told_messages,
        "grpc.messages": messages,
    }
)
SEEDS: Final[Mapping[str, Sequence[bytes]]] = MappingProxyType(_seeds())
