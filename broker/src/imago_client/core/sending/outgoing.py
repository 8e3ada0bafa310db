"""A message made ready for the wire, once, before the first try to send it."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from imago_client.checks import BODY_BYTES_MAX, refuse
from imago_client.errors import UsageError
from imago_client.messages import (
    PROPERTIES_BYTES_MAX,
    Message,
    SendResult,
    body_of,
    size_of,
)
from imago_client.naming import RETRY_PREFIX
from imago_wire.errors import ProtocolError
from imago_wire.record_format import properties as names
from imago_wire.record_format import sequences
from imago_wire.record_format.layout import SYS_COMPRESSED, SYS_COMPRESSION_ZLIB
from imago_wire.remoting.batches import BatchEntry, encode_batch
from imago_wire.remoting.codes import RequestCode
from imago_wire.remoting.sent_twins import encode_joined, prepare_plain, share_results

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from imago_client.config import ProducerConfig
    from imago_client.core.state import ClientState

BATCH_MESSAGES_MAX: Final = 10_000
_ENTRY_OVERHEAD: Final = 22
"""Bytes around body and properties of one message in a batch."""
_PROPERTIES_OVERHEAD: Final = 64
"""What this client adds to a message's own properties, roughly: its unique key."""
_LAST_NUMBERS: Final = sequences.Sequence("f" * 16, sequences.NUMBER_MAX, sequences.NUMBER_MAX)
_NUMBERS_OVERHEAD: Final = len(sequences.wire_properties(_LAST_NUMBERS))
"""What an idempotent producer adds to that, at most: id, epoch and number."""
IDEMPOTENT_REFUSAL: Final = (
    "idempotent: a delayed message, or one to a retry topic, reaches its queue later than"
    " it is sent; use a producer that is not idempotent"
)
RETRY_REFUSAL: Final = "batch: not possible to a retry topic"
_ZLIB_LEVEL: Final = 5


class Outgoing(NamedTuple):
    """One send request less its queue; `_sent_c` makes them, too."""

    code: RequestCode
    topic: str
    message_id: str
    body: bytes
    properties: str
    born_ms: int
    flag: int = 0
    sys_flag: int = 0
    ordering_key: str | None = None
    entries: tuple[BatchEntry, ...] = ()
    """The messages of a batch, of which an idempotent producer makes the body."""
    wait_stored: bool = True
    may_join: bool = False
    """Whether it may travel in one request with others to its queue."""
    messages: int = 1
    """How many it is."""

    @property
    def is_batch(self) -> bool:
        return self.code == RequestCode.SEND_BATCH_MESSAGE


_PLAIN: Final = (RequestCode.SEND_MESSAGE_V2, 0, ())


def prepare(state: ClientState, config: ProducerConfig, message: Message) -> Outgoing:
    """Give the message its id and its time, encode its properties, deflate a large body."""
    now_ms = state.clock_ms()
    key = state.unique_keys.next_key(now_ms)
    if state.watch.interceptors:
        _check_message(config, message)
        message = state.watch.before_send(message)
    if type(message) is Message:
        bytes_max = config.compress_over_bytes
        whole_max = BODY_BYTES_MAX if bytes_max is None else bytes_max
        properties_max = properties_bytes_max(config)
        plain = prepare_plain(Outgoing, _PLAIN, message, key, now_ms, whole_max, properties_max)
        if plain is not None:
            return plain
    return prepare_with_care(config, message, key, now_ms)


def prepare_with_care(config: ProducerConfig, message: Message, key: str, now_ms: int) -> Outgoing:
    """Have any message ready for the wire. UsageError: it cannot be."""
    _check_message(config, message)
    properties = _encode_properties(config, message, key)
    body, sys_flag = _deflate(body_of(message), config.compress_over_bytes)
    return Outgoing(
        code=RequestCode.SEND_MESSAGE_V2,
        topic=message.topic,
        message_id=key,
        body=body,
        properties=properties.decode(),
        born_ms=now_ms,
        flag=message.flag,
        sys_flag=sys_flag,
        ordering_key=message.ordering_key,
        wait_stored=message.wait_stored,
        may_join=not (sys_flag or _goes_alone(message)),
    )


def _goes_alone(message: Message) -> bool:
    """Whether brokers do with it what they do with no message of a batch."""
    light = names.INNER_MULTI_DISPATCH in message.properties
    return light or message.waits or message.topic.startswith("%")


def join(outgoings: list[Outgoing], *, numbered: bool) -> Outgoing:
    """Return messages to one queue as one request; they agree in `wait_stored`.

    `numbered`: an idempotent producer makes the body, of the entries.
    """
    first = outgoings[0]
    return Outgoing(
        code=RequestCode.SEND_BATCH_MESSAGE,
        topic=first.topic,
        message_id=first.message_id,
        body=b"" if numbered else encode_joined(outgoings),
        properties=_batch_properties(wait_stored=first.wait_stored),
        born_ms=first.born_ms,
        entries=tuple(map(_entry, outgoings)) if numbered else (),
        messages=len(outgoings),
    )


def _entry(one: Outgoing) -> BatchEntry:
    return BatchEntry(one.body, one.properties.encode(), one.flag)


def share(outgoings: list[Outgoing], result: SendResult) -> list[SendResult]:
    """Return what the acknowledgement of joined messages says of each."""
    stored_ids = result.stored_id.split(",")
    if len(stored_ids) != len(outgoings):  # a broker that names none but the first
        stored_ids = [result.stored_id] * len(outgoings)
    return share_results(SendResult, outgoings, stored_ids, result)


def prepare_batch(
    state: ClientState, config: ProducerConfig, messages: Sequence[Message]
) -> Outgoing:
    """Encode messages of one topic as one request. UsageError: they cannot travel together."""
    if not isinstance(messages, Sequence):
        raise refuse("batch", messages, "a list of messages")
    if not messages:
        raise UsageError("batch: it holds no message")
    for message in messages:
        _check_message(config, message)
    if state.watch.interceptors:
        messages = [state.watch.before_send(message) for message in messages]
    first = messages[0]
    for message in messages:
        _check_fits(message, first)
    now_ms = state.clock_ms()
    keys = [state.unique_keys.next_key(now_ms) for _ in messages]
    properties_max = properties_bytes_max(config)
    entries = [
        _batch_entry(config, message, key, now_ms, properties_max)
        for message, key in zip(messages, keys, strict=True)
    ]
    overhead = _ENTRY_OVERHEAD + numbers_overhead(config)
    check_batch_size(
        config, sum(len(body) + len(properties) + overhead for body, properties, _ in entries)
    )
    return Outgoing(
        code=RequestCode.SEND_BATCH_MESSAGE,
        topic=first.topic,
        message_id=keys[0],
        body=b"" if config.idempotent else encode_batch(entries),
        properties=_batch_properties(wait_stored=first.wait_stored),
        born_ms=now_ms,
        ordering_key=first.ordering_key,
        entries=tuple(entries),
        messages=len(entries),
    )


def check_batch_size(config: ProducerConfig, size: int) -> None:
    """UsageError: a batch of so many bytes is too large for one request."""
    if size > config.batch_bytes_max:
        raise UsageError(
            f"batch: {size} bytes, the limit is {config.batch_bytes_max};"
            " cut it with imago_client.batches()"
        )


def _batch_entry(
    config: ProducerConfig, message: Message, key: str, now_ms: int, properties_max: int
) -> BatchEntry:
    if type(message) is Message:
        plain = prepare_plain(
            Outgoing, _PLAIN, message, key, now_ms, BODY_BYTES_MAX, properties_max
        )
        if plain is not None:
            return _entry(plain)
    return BatchEntry(body_of(message), _encode_properties(config, message, key), message.flag)


def _batch_properties(*, wait_stored: bool) -> str:
    return "" if wait_stored else f"{names.WAIT}\x01false\x02"


def batches(messages: Sequence[Message], *, bytes_max: int = 1 << 20) -> Iterator[list[Message]]:
    """Cut messages into batches that one request can carry, in their order.

    A new batch begins where the topic, the ordering key or `wait_stored` changes.
    """
    batch: list[Message] = []
    size = 0
    for message in messages:
        if not isinstance(message, Message):
            raise refuse("message", message, "a Message")
        cost = _size_in_batch(message)
        full = size + cost > bytes_max or len(batch) >= BATCH_MESSAGES_MAX
        if batch and (full or not _travel_together(batch[0], message)):
            yield batch
            batch, size = [], 0
        batch.append(message)
        size += cost
    if batch:
        yield batch


def _size_in_batch(message: Message) -> int:
    own = sum(len(name) + len(value) + 2 for name, value in message.all_properties("").items())
    # Four bytes for a character is what UTF-8 can need at most.
    return _ENTRY_OVERHEAD + size_of(message.body) + _PROPERTIES_OVERHEAD + 4 * own


def _travel_together(first: Message, other: Message) -> bool:
    return (
        other.topic == first.topic
        and other.ordering_key == first.ordering_key
        and other.wait_stored == first.wait_stored
    )


def _check_fits(message: Message, first: Message) -> None:
    if message.topic != first.topic:
        raise UsageError(f"batch: messages of two topics, {first.topic!r} and {message.topic!r}")
    if not _travel_together(first, message):
        raise UsageError("batch: its messages differ in ordering_key or wait_stored")
    if message.waits:
        raise UsageError("batch: a delayed message must be sent by itself")
    if message.topic.startswith(RETRY_PREFIX):
        raise UsageError(RETRY_REFUSAL)


def _check_message(config: ProducerConfig, message: Message) -> None:
    if not isinstance(message, Message):
        raise refuse("message", message, 'a Message: Message("orders", b"hello")')
    if config.idempotent and (message.waits or message.topic.startswith(RETRY_PREFIX)):
        raise UsageError(IDEMPOTENT_REFUSAL)


def marked(config: ProducerConfig, outgoing: Outgoing, marks: Mapping[str, str]) -> Outgoing:
    """Return it with properties that the client sets. UsageError: they have no room in it."""
    properties = names.encode(marks).decode() + outgoing.properties
    _check_properties_size(config, len(properties.encode()))
    return outgoing._replace(properties=properties)


def properties_bytes_max(config: ProducerConfig) -> int:
    """Return how much a message may have before the numbers of an idempotent producer."""
    return PROPERTIES_BYTES_MAX - numbers_overhead(config)


def numbers_overhead(config: ProducerConfig) -> int:
    """Return how many bytes the producer's numbers add to each message, at most."""
    return _NUMBERS_OVERHEAD if config.idempotent else 0


def _check_properties_size(config: ProducerConfig, size: int) -> None:
    size_max = properties_bytes_max(config)
    if size > size_max:
        numbers = " beside an idempotent producer's numbers" if config.idempotent else ""
        raise UsageError(f"properties: {size} bytes, the limit is {size_max}{numbers}")


def encode_own(message: Message) -> bytes:
    """Return a message's properties less its unique key. UsageError: they cannot be sent."""
    properties = message.all_properties("")
    del properties[names.UNIQ_KEY]
    return _encoded(properties)


def _encode_properties(config: ProducerConfig, message: Message, key: str) -> bytes:
    encoded = _encoded(message.all_properties(key))
    _check_properties_size(config, len(encoded))
    return encoded


def _encoded(properties: Mapping[str, str]) -> bytes:
    try:
        return names.encode(properties)
    except ProtocolError as error:
        raise UsageError(str(error)) from None
    except UnicodeEncodeError:
        raise UsageError(
            "tags, keys, ordering_key and properties: must be text that UTF-8 can hold"
        ) from None


def _deflate(body: bytes, over_bytes: int | None) -> tuple[bytes, int]:
    if over_bytes is None or len(body) <= over_bytes:
        return body, 0
    deflated = zlib.compress(body, _ZLIB_LEVEL)
    if len(deflated) >= len(body):
        return body, 0
    return deflated, SYS_COMPRESSED | SYS_COMPRESSION_ZLIB
