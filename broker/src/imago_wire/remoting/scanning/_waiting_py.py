"""Sends that do not simply go to their queue, into entries: the plain Python reference.

A delay level, a time of its own, the beginning of a transaction, the number of an idempotent
producer: one of these, in properties as the known clients write them. The compiled twin is part of
`_remoting_c`. Whatever is written in another way is left for a closer look.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from imago_wire.record_format.layout import BODY_BYTES_MAX, HOST_V4_SIZE, HOST_V6_SIZE, SYS_PREPARED
from imago_wire.record_format.properties import NOT_SENDERS
from imago_wire.record_format.sequences import Sequence, stored_property
from imago_wire.records._record_py import make_entry
from imago_wire.remoting.header import decode_raw_header
from imago_wire.remoting.headers.send import read_send_header
from imago_wire.remoting.scanning.waiting import DIGITS_MAX, PROPERTIES_MAX, WORD_MAX

if TYPE_CHECKING:
    from imago_wire.record_format.entries import Entry, QueueTail
    from imago_wire.remoting.scanning.items import AskedSend, SendItem
    from imago_wire.remoting.scanning.waiting import Parking

    Taken = tuple[Entry, AskedSend]

_TIMES: Final = ((b"TIMER_DELAY_SEC", 1000), (b"TIMER_DELAY_MS", 1), (b"TIMER_DELIVER_MS", 1))
_NUMBERS: Final = (b"__IMAGO_PID", b"__IMAGO_EPOCH", b"__IMAGO_SEQ")
_WANTED: Final = frozenset(
    {b"UNIQ_KEY", b"DELAY", b"TRAN_MSG", b"PGROUP", *(name for name, _ in _TIMES), *_NUMBERS}
)
_ODD: Final = NOT_SENDERS | {
    b"CLUSTER",
    b"CHECK_IMMUNITY_TIME_IN_SECONDS",
    b"__transactionId__",
}
"""What the broker writes, and what clients seldom do."""
_RESERVED: Final = (b"__IMAGO_", b"__METAQ_", b"__UNIT_TAG", b"__CRC32#")
_WORD: Final = re.compile(rb"[!-~]{1,%d}\Z" % WORD_MAX)
_DIGITS: Final = re.compile(rb"[0-9]{1,%d}\Z" % DIGITS_MAX)
_PRODUCER: Final = re.compile(rb"[0-9a-f]{16}\Z")


def take_waiting(
    item: SendItem,
    tail: QueueTail,
    born_host: bytes,
    suffix: bytes,
    parking: Parking,
    index: int,
    tag: str = "",
) -> Taken | None:
    """Return the entry of such a send, and what its answer needs; None: it needs a closer look.

    `tail` is the queue that it asks for, `index` that of its entry, `tag` that of its user.
    """
    if len(item.body) > BODY_BYTES_MAX or len(born_host) not in {HOST_V4_SIZE, HOST_V6_SIZE}:
        return None
    wanted = _wanted(item.properties)
    unique = b"" if wanted is None else wanted.get(b"UNIQ_KEY", b"")
    if wanted is None or not _WORD.match(unique):
        return None
    waiting = _Waiting(item, wanted, unique, tail, suffix, parking, tag)
    made = waiting.entry(index)
    if made is None:
        return None
    target, properties, unit_tag, recall = made
    entry = make_entry(
        target,
        item.body,
        properties,
        flag=item.flag,
        born_ms=item.born_ms,
        born_host=born_host,
        unit_tag=unit_tag,
    )
    return entry, (item.opaque, item.serialize, item.queue_id, unique, item.oneway, recall)


def _wanted(properties: bytes) -> dict[bytes, bytes] | None:
    """Return the properties that say what is wanted; None: not as the known clients write them."""
    if len(properties) > PROPERTIES_MAX:
        return None
    wanted: dict[bytes, bytes] = {}
    for part in _parts(properties):
        name, separator, value = part.partition(b"\x01")
        if not name or not separator or name in _ODD:
            return None
        if name in _WANTED:
            if name in wanted:
                return None
            wanted[name] = value
        elif name.startswith(_RESERVED):
            return None
    return wanted


def _parts(properties: bytes) -> list[bytes]:
    parts = properties.split(b"\x02")
    if not parts[-1]:
        parts.pop()
    return parts


_Made = tuple["QueueTail", bytes, int | None, bytes]
"""The queue, the properties, what the unit holds, the recall handle."""


@dataclass(eq=False)
class _Waiting:
    """One send on its way aside."""

    item: SendItem
    wanted: dict[bytes, bytes]
    unique: bytes
    tail: QueueTail
    suffix: bytes
    parking: Parking
    tag: str

    def __post_init__(self) -> None:
        self._space = self.parking.space or self.parking.look()

    def entry(self, index: int) -> _Made | None:
        wanted = self.wanted
        delayed = b"DELAY" in wanted
        timed = any(name in wanted for name, _ in _TIMES)
        numbered = any(name in wanted for name in _NUMBERS)
        if self.item.sys_flag or b"TRAN_MSG" in wanted:
            return None if delayed or timed or numbered else self._half(index)
        if numbered:
            return None if delayed or timed else self._numbered(index)
        if delayed:
            return self._delayed()
        return self._timed() if timed else None

    def _delayed(self) -> _Made | None:
        text, space = self.wanted[b"DELAY"], self._space
        level = min(int(text), len(space.delays_ms)) if _DIGITS.match(text) else 0
        if not 0 < level <= len(space.level_tails):
            return None  # also where the topic has fewer queues than there are levels
        tail = space.level_tails[level - 1] or self.parking.level_tail(level)
        where = b"DELAY\x01%d\x02" % level + self._belonging()
        dropped = (b"DELAY", *(name for name, _ in _TIMES))
        due_ms = space.now_ms + space.delays_ms[level - 1]
        return tail, self._kept(dropped) + self.suffix + where, due_ms, b""

    def _timed(self) -> _Made | None:
        space = self._space
        name, unit_ms = next(each for each in _TIMES if each[0] in self.wanted)
        text = self.wanted[name]
        if not _DIGITS.match(text):
            return None
        due_ms = int(text) * unit_ms + (space.now_ms if name != b"TIMER_DELIVER_MS" else 0)
        if not 0 < due_ms - space.now_ms <= space.timer_delay_ms_max:
            return None
        bucket = due_ms // space.bucket_ms % space.bucket_count
        if bucket >= len(space.bucket_tails):
            return None
        tail = space.bucket_tails[bucket] or self.parking.bucket_tail(bucket)
        where = b"TIMER_OUT_MS\x01%d\x02" % due_ms + self._belonging()
        return tail, self._kept(()) + self.suffix + where, due_ms, self._recall(due_ms)

    def _recall(self, due_ms: int) -> bytes:
        topic, broker_name = self.tail.topic, self._space.broker_name.encode()
        text = b"v1 %b %b %d %b" % (topic, broker_name, due_ms, self.unique)
        return base64.urlsafe_b64encode(text)

    def _half(self, index: int) -> _Made | None:
        space, wanted, owner = self._space, self.wanted, self.parking.owner
        said = wanted.get(b"TRAN_MSG")
        if self.item.sys_flag not in {0, SYS_PREPARED} or (said or b"true").lower() != b"true":
            return None
        if said is not None and not said:
            return None
        if not owner or space.half_tail is None or len(space.halves) >= space.half_room:
            return None
        group, added = wanted.get(b"PGROUP"), b""
        if group is None:
            command = decode_raw_header(self.item.raw_header, b"")
            group = read_send_header(command.ext).producer_group.encode()
            added = b"PGROUP\x01%b\x02" % group
        if not _WORD.match(group):
            return None
        space.halves.append((index, group.decode(), owner))
        named = b"__transactionId__\x01%b\x02" % self.unique
        properties = self._kept(()) + self.suffix + added + self._belonging() + named
        return space.half_tail, properties, None, b""

    def _numbered(self, index: int) -> _Made | None:
        parts = _parts(self.item.properties)
        names = tuple(part.partition(b"\x01")[0] for part in parts[-3:])
        if names != _NUMBERS or self.item.oneway:
            return None
        producer, epoch_text, number_text = (self.wanted[name] for name in _NUMBERS)
        if not _PRODUCER.match(producer) or not (
            _DIGITS.match(epoch_text) and _DIGITS.match(number_text)
        ):
            return None
        key, epoch, number = producer.decode() + self.tag, int(epoch_text), int(number_text)
        parking, tail = self.parking, self.tail
        expected = parking.expected.get((key, tail)) or parking.expect(key, tail)
        if expected != [epoch, number]:
            return None
        expected[1] += 1
        self._space.numbered.append((index, key, epoch, number))
        sent = stored_property(Sequence(key, epoch, number))
        return tail, self._kept(_NUMBERS) + sent + self.suffix, None, b""

    def _kept(self, dropped: tuple[bytes, ...]) -> bytes:
        return b"".join(
            [
                part + b"\x02"
                for part in _parts(self.item.properties)
                if part.partition(b"\x01")[0] not in dropped
            ]
        )

    def _belonging(self) -> bytes:
        return b"REAL_TOPIC\x01%b\x02REAL_QID\x01%d\x02" % (self.tail.topic, self.item.queue_id)
