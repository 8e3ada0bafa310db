"""Many messages as the bytes that a request carries: for who makes them of columns, as Spark does.

They are the entries of a batch request less what the client adds to each: its unique key, and the
numbers of an idempotent producer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from imago_client.core.sending.outgoing import (
    IDEMPOTENT_REFUSAL,
    RETRY_REFUSAL,
    Outgoing,
    check_batch_size,
    encode_own,
    numbers_overhead,
    properties_bytes_max,
)
from imago_client.errors import UsageError
from imago_client.messages import PROPERTIES_BYTES_MAX, body_of
from imago_client.naming import RETRY_PREFIX
from imago_wire.errors import LimitExceededError
from imago_wire.record_format import properties as names
from imago_wire.remoting.codes import RequestCode
from imago_wire.remoting.messages import decode_batch, encode_batch
from imago_wire.remoting.sent_twins import extend_batch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from imago_client.config import ProducerConfig
    from imago_client.core.state import ClientState
    from imago_client.messages import Message

_UNIQUE_HEAD: Final = f"{names.UNIQ_KEY}\x01".encode()


@dataclass(frozen=True, slots=True)
class Packed:
    """Messages of one topic, to one queue."""

    topic: str
    count: int
    entries: bytes
    waits: bool = False
    """Whether one of them is to be delivered later than it is sent."""


def pack_entry(message: Message) -> bytes:
    """Return one message's entry. UsageError: its texts cannot be sent."""
    own = encode_own(message)
    if len(own) > PROPERTIES_BYTES_MAX:
        raise UsageError(f"properties: {len(own)} bytes, the limit is {PROPERTIES_BYTES_MAX}")
    return encode_batch([(body_of(message), own, message.flag)])


def pack(messages: Iterable[Message]) -> Packed:
    """Return messages of one topic as a request carries them."""
    given = list(messages)
    entries = b"".join(map(pack_entry, given))
    waits = any(message.waits for message in given)
    return Packed(given[0].topic, len(given), entries, waits)


def prepare_packed(state: ClientState, config: ProducerConfig, packed: Packed) -> Outgoing:
    """Give messages their ids and their time. UsageError: they cannot travel together."""
    if config.idempotent and (packed.waits or packed.topic.startswith(RETRY_PREFIX)):
        raise UsageError(IDEMPOTENT_REFUSAL)
    now_ms = state.clock_ms()
    key, entries = with_unique_keys(state, config, packed, now_ms)
    if packed.count == 1:
        ((body, properties, flag),) = decode_batch(entries)
        return Outgoing(
            code=RequestCode.SEND_MESSAGE_V2,
            topic=packed.topic,
            message_id=key,
            body=body,
            properties=properties.decode(),
            born_ms=now_ms,
            flag=flag,
        )
    if packed.waits:
        raise UsageError("batch: a delayed message must be sent by itself")
    if packed.topic.startswith(RETRY_PREFIX):
        raise UsageError(RETRY_REFUSAL)
    check_batch_size(config, len(entries) + packed.count * numbers_overhead(config))
    return Outgoing(
        code=RequestCode.SEND_BATCH_MESSAGE,
        topic=packed.topic,
        message_id=key,
        body=entries,
        properties="",
        born_ms=now_ms,
        messages=packed.count,
    )


def with_unique_keys(
    state: ClientState, config: ProducerConfig, packed: Packed, now_ms: int
) -> tuple[str, bytes]:
    """Return the first message's unique key, and the entries with all of them."""
    prefix, first = state.unique_keys.next_run(now_ms, packed.count)
    head = _UNIQUE_HEAD + prefix.encode()
    size_max = properties_bytes_max(config)
    try:
        entries = extend_batch(packed.entries, head, first, b"\x02", True, size_max)
    except LimitExceededError as error:
        numbers = " beside an idempotent producer's numbers" if config.idempotent else ""
        raise UsageError(
            f"properties: {error.size} bytes, the limit is {size_max}{numbers}"
        ) from None
    return f"{prefix}{first:04X}", entries
