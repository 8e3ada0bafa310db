"""What of a pull is copied, and in which requests.

A copy keeps the body as stored, flag, time of birth, keys, tags and all properties that a sender
may set. What only its first broker could say goes, as do delays and transactions: they were over
when the message came to its queue. A message that came from the target is not copied: where it is
there is noted instead, which is how groups find their place when they go back.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from imago_mirror.core.origins import (
    HOPS_MAX,
    PROPERTY,
    Origin,
    SourceQueue,
    hops_of,
    is_proven,
    producer_of,
)
from imago_wire.record_format import properties as names
from imago_wire.record_format.layout import (
    HEAD,
    HOST_V4_SIZE,
    HOST_V6_SIZE,
    SYS_BORN_V6,
    SYS_COMPRESSED,
    SYS_COMPRESSION_MASK,
)
from imago_wire.record_format.sequences import Sequence, read_stored, wire_numbers
from imago_wire.remoting.messages import BatchEntry

if TYPE_CHECKING:
    from collections.abc import Iterable

    from imago_client.received import ReceivedMessage

BATCH_BYTES_MAX: Final = 512 << 10
"""Of one request; a message that is larger goes alone."""
BATCH_MESSAGES_MAX: Final = 1000
_SYS_KEPT: Final = SYS_COMPRESSED | SYS_COMPRESSION_MASK
_LONG: Final = Struct(">q")
_ORIGIN: Final = PROPERTY.encode()
_SENT: Final = b"__IMAGO_SENT"
_DROPPED: Final = names.RESERVED_NAMES | names.NOT_SENDERS | {
    _ORIGIN, b"CLUSTER", b"MSG_REGION", b"TRACE_ON", b"TRAN_MSG", b"DELAY", b"TIMER_DELAY_SEC",
    b"TIMER_DELAY_MS", b"TIMER_DELIVER_MS", b"INNER_MULTI_DISPATCH",
}  # fmt: skip


class Copies(NamedTuple):
    """Messages that travel to the target in one request."""

    first: int
    """Offset of the first one at the source; there may be gaps between them."""
    offsets: tuple[int, ...]
    entries: list[BatchEntry]
    born_ms: list[int]
    sys_flag: int
    store_ms: int
    """When the last one was stored at the source."""

    @property
    def end(self) -> int:
        return self.offsets[-1] + 1


class Returned(NamedTuple):
    """A message that came from the target: its place there, and that of its copy here."""

    offset: int
    there: Origin
    store_ms: int
    is_proven: bool
    """Whether a mirror has sent it; else groups are told nothing of its place."""


Step = Copies | Returned


class Numbering(NamedTuple):
    """Whose numbers copies get, and from which offset on the source's messages are copies."""

    queue: SourceQueue
    epoch: int
    number: int
    copied: int
    """Below it everything is at the target already."""


def steps(
    messages: Iterable[ReceivedMessage],
    numbering: Numbering,
    target_cluster: str,
    user: str | None = None,
) -> list[Step]:
    """Return what to do with messages of one queue, in their order; `user`: the mirrors' there."""
    made: list[Step] = []
    batch = _Batch()
    number = numbering.number
    for message in messages:
        raw = message.tail[message.properties_at :]
        kept, hops = split_properties(raw)
        there = next((hop for hop in hops if hop.queue.cluster == target_cluster), None)
        store_ms = store_ms_of(message)
        if there is not None:
            number += batch.close(made, numbering, number)
            proven = is_proven(read_stored(raw), user)
            made.append(Returned(message.offset, there, store_ms, proven))
            continue
        if message.offset < numbering.copied:
            continue
        sys_flag = message.sys_flag & _SYS_KEPT
        size = len(message.held) + len(kept) + 256
        if batch.is_full(size, sys_flag):
            number += batch.close(made, numbering, number)
        origin = Origin(numbering.queue, message.offset)
        said = ",".join(map(str, (origin, *hops[: HOPS_MAX - 1])))
        properties = kept + b"%b\x01%b\x02" % (_ORIGIN, said.encode())
        batch.add(message, properties, sys_flag, size, store_ms)
    batch.close(made, numbering, number)
    return made


class _Batch:
    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self.offsets: list[int] = []
        self.parts: list[tuple[bytes, bytes, int]] = []
        self.born: list[int] = []
        self.size = self.sys_flag = self.store_ms = 0

    def is_full(self, size: int, sys_flag: int) -> bool:
        return bool(self.parts) and (
            self.sys_flag != sys_flag
            or self.size + size > BATCH_BYTES_MAX
            or len(self.parts) >= BATCH_MESSAGES_MAX
        )

    def add(
        self, message: ReceivedMessage, properties: bytes, sys_flag: int, size: int, store_ms: int
    ) -> None:
        head = HEAD.unpack_from(message.head)
        self.offsets.append(message.offset)
        self.parts.append((message.held, properties, head[4]))
        self.born.append(head[8])
        self.sys_flag, self.store_ms = sys_flag, store_ms
        self.size += size

    def close(self, made: list[Step], numbering: Numbering, number: int) -> int:
        """Append what is gathered as one request; return how many messages that is."""
        count = len(self.parts)
        if count:
            first = Sequence(producer_of(numbering.queue), numbering.epoch, number)
            entries = [
                BatchEntry(body, properties + said, flag)
                for (body, properties, flag), said in zip(
                    self.parts, wire_numbers(first, count), strict=True
                )
            ]
            made.append(
                Copies(
                    self.offsets[0],
                    tuple(self.offsets),
                    entries,
                    self.born,
                    self.sys_flag,
                    self.store_ms,
                )
            )
            self._begin()
        return count


def split_properties(raw: bytes) -> tuple[bytes, tuple[Origin, ...]]:
    """Return what a copy keeps of a stored message's properties, and where that came from."""
    kept: list[bytes] = []
    origin = sent = None
    for part in raw.split(b"\x02"):
        name, separator, value = part.partition(b"\x01")
        if not separator:
            continue
        if name.startswith(b"__IMAGO_"):
            if name == _SENT:
                sent = read_stored(part)
        elif name == _ORIGIN:
            origin = value
        elif name not in _DROPPED and not name.startswith(names.TRANSIENT_PREFIX):
            kept.append(part)
    kept.append(b"")
    return b"\x02".join(kept), hops_of(origin, sent)


def store_ms_of(message: ReceivedMessage) -> int:
    """Return when the source's broker stored a message."""
    born_host = HOST_V6_SIZE if message.sys_flag & SYS_BORN_V6 else HOST_V4_SIZE
    stored: int = _LONG.unpack_from(message.head, HEAD.size + born_host)[0]
    return stored


class Tail(NamedTuple):
    """A copy that is at the target."""

    origin: Origin
    epoch: int
    number: int
    offset: int
    """Its place in the target's queue."""


def tails(messages: Iterable[ReceivedMessage], user: str | None = None) -> Iterable[Tail]:
    """Return what copies among a target queue's messages say of themselves; `user`: whose they
    are. What somebody else has sent under a mirror's numbers says nothing of how far it is."""
    for message in messages:
        raw = message.tail[message.properties_at :]
        sent = read_stored(raw)
        hops = hops_of(names.find(raw, _ORIGIN), sent)
        if hops and sent is not None and is_proven(sent, user):
            yield Tail(hops[0], sent.epoch, sent.number, message.offset)
