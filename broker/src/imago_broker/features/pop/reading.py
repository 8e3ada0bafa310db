"""Taking messages out of queues for a POP: those whose time is up first, then new ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from imago_log.results import ReadStatus
from imago_wire.record_format.layout import AFTER_STORE_HOST
from imago_wire.record_format.record_fields import read_layout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from imago_broker.features.pop.service import Popped, PopService, Queue
    from imago_log.reading.by_properties import Wanted
    from imago_log.results import ReadResult
    from imago_log.store import MessageStore

_QUEUE_ID_AT, _QUEUE_OFFSET_AT = 12, 20
ATTEMPT_SIZE = 64
"""Characters of what a client calls a try; the rest does not count."""
_MOVES_MAX = 4
"""Reads of one queue in one look: messages before the first stored one, or filtered out."""


class PopAsk(NamedTuple):
    """What one request asks for. Times are milliseconds."""

    group: str
    topic: str
    queue_ids: Sequence[int]
    """In the order in which they are read."""
    messages_max: int
    bytes_max: int
    invisible_ms: int
    from_end: bool = False
    """Where a new group begins."""
    in_order: bool = False
    tags: frozenset[int] | None = None
    wanted: Wanted | None = None
    attempt: str = ""
    """What a client calls this try of its own: it asks so again where no answer has come."""


@dataclass(slots=True)
class QueueTake:
    """What one queue gives."""

    popped: Popped
    times: dict[int, int] = field(default_factory=dict)
    """By offset, ascending: how often each message was handed out before."""
    records: list[bytes] = field(default_factory=list)
    """One or more in each."""
    size: int = 0
    next_offset: int = 0
    more: bool = False
    """Whether the queue was not read to its end."""

    @property
    def queue_id(self) -> int:
        return self.popped.key[2]

    def add(self, offset: int, times: int, record: bytes) -> None:
        self.times[offset] = times
        self.records.append(record)
        self.size += len(record)

    def add_run(self, first: int, count: int, records: bytes) -> None:
        """Add messages that follow each other and were never handed out."""
        times = dict.fromkeys(range(first, first + count), 0)
        self.times = self.times | times if self.times else times
        self.records.append(records)
        self.size += len(records)


class PopTake(NamedTuple):
    """What a request gets; nothing: it may wait."""

    stamp: int
    queues: list[QueueTake]
    rest: int
    """Messages that nobody of the group has been given yet."""
    more: bool
    """Whether asking again at once may find something."""


class PopReader:
    """Reads for `PopService`, whose state it changes."""

    def __init__(
        self,
        store: MessageStore,
        pops: PopService,
        *,
        first_in_memory: Callable[[str, int], bool],
    ) -> None:
        """`first_in_memory`: whether a queue's first message counts as recent, and is stored."""
        self._store, self._pops = store, pops
        self._first_in_memory = first_in_memory

    def take(self, ask: PopAsk, now_ms: int) -> PopTake:
        """Hand out what there is; the caller answers once it is written. `rest` is not counted."""
        looks = self._looks(ask, now_ms, keep=True)
        found = _taken(looks, now_ms)
        for look in looks:
            self._hand_out(ask, look, found.stamp, now_ms + ask.invisible_ms)
        return found

    def take_each(self, asks: Iterable[PopAsk], now_ms: int) -> PopTake:
        """Hand out together what several topics have, as the first of them asks.

        Each ask that is taken is looked into.
        """
        looks: list[QueueTake] = []
        of_looks: list[PopAsk] = []
        count_left = bytes_left = 1
        for ask in asks:
            if not looks:
                count_left, bytes_left = ask.messages_max, ask.bytes_max
            wanted = ask._replace(messages_max=count_left, bytes_max=bytes_left)
            for look in self._looks(wanted, now_ms, keep=True):
                looks.append(look)
                of_looks.append(ask)
                count_left -= len(look.times)
                bytes_left -= look.size
            if count_left <= 0 or bytes_left <= 0:
                break
        found = _taken(looks, now_ms)
        for ask, look in zip(of_looks, looks, strict=True):
            self._hand_out(ask, look, found.stamp, now_ms + ask.invisible_ms)
            look.records = [
                _placed(record, offset)
                for offset, record in zip(look.times, look.records, strict=True)
            ]
        return found

    def peek(self, ask: PopAsk, now_ms: int) -> PopTake:
        """Return what there is, and hand out nothing: no group begins by it."""
        looks = self._looks(ask, now_ms, keep=False)
        rest = 0
        for queue_id in ask.queue_ids:
            end = self._store.queue_range(ask.topic, queue_id)[1]
            rest += max(0, end - self._popped(ask, queue_id, keep=False).state.next_offset)
        return _taken(looks, now_ms)._replace(rest=rest)

    def _looks(self, ask: PopAsk, now_ms: int, *, keep: bool) -> list[QueueTake]:
        """Look at the queues until the request has enough; `keep`: the group begins by it."""
        looks: list[QueueTake] = []
        count_left, bytes_left = ask.messages_max, ask.bytes_max
        for queue_id in ask.queue_ids:
            if count_left <= 0 or bytes_left <= 0:
                break
            popped = self._popped(ask, queue_id, keep=keep)
            look = self._look(ask, popped, now_ms, count_left, bytes_left)
            looks.append(look)
            count_left -= len(look.times)
            bytes_left -= look.size
        return looks

    def end_of(self, topic: str, queue_id: int) -> int:
        """Return the offset of the next message of a queue."""
        return self._store.queue_range(topic, queue_id)[1]

    def waits(self, ask: PopAsk, now_ms: int) -> bool:
        """Whether there is anything to take, without taking it."""
        for queue_id in ask.queue_ids:
            popped = self._popped(ask, queue_id, keep=False)
            state = popped.state
            if ask.in_order and state.blocked(now_ms):
                continue
            if state.expired(now_ms, 1):
                return True
            more = self._store.queue_range(ask.topic, queue_id)[1] > state.next_offset
            if more and self._pops.room(popped) > 0:
                return True
        return False

    def _popped(self, ask: PopAsk, queue_id: int, *, keep: bool) -> Popped:
        key: Queue = (ask.group, ask.topic, queue_id)
        state_of = self._pops.of if keep else self._pops.glance
        return state_of(key, lambda: self._begin(ask, queue_id))

    def _begin(self, ask: PopAsk, queue_id: int) -> int:
        """Return where a new group begins. Of a young queue it misses nothing, as RocketMQ's."""
        low, end = self._store.queue_range(ask.topic, queue_id)
        if not ask.from_end or self._first_in_memory(ask.topic, queue_id):
            return max(0, low)
        return max(0, low, end - 1)

    def _look(
        self, ask: PopAsk, popped: Popped, now_ms: int, count_max: int, bytes_max: int
    ) -> QueueTake:
        look = QueueTake(popped, next_offset=popped.state.next_offset)
        if ask.in_order and popped.state.blocked(now_ms):
            if not ask.attempt or popped.attempt[0] != ask.attempt:
                return look
            # Its answer was lost: the same again, which is no other try of the messages.
            popped.state.take_back(popped.attempt[1], now_ms)
            if popped.state.blocked(now_ms):
                return look
        self._look_at_expired(ask, look, now_ms, count_max, bytes_max)
        room = min(count_max - len(look.times), self._pops.room(popped))
        if room > 0 and look.size < bytes_max:
            self._look_at_new(ask, look, room, bytes_max - look.size)
        return look

    def _look_at_expired(
        self, ask: PopAsk, look: QueueTake, now_ms: int, count_max: int, bytes_max: int
    ) -> None:
        state = look.popped.state
        for offset, times in state.expired(now_ms, count_max).items():
            if look.size >= bytes_max:
                return
            found = self._store.read(ask.topic, look.queue_id, offset, messages_max=1, bytes_max=1)
            if found.count and _first_offset(found) == offset:
                record = _with_count(found.body, times)
                look.add(offset, times, _placed(record, offset) if found.offsets else record)
            elif offset < found.min_offset or found.next_offset > offset:
                # Gone with the oldest file, or lost in damage of the log.
                state.drop(offset)
                self._pops.counts.lost += 1
                self._pops.changed(look.popped)

    def _look_at_new(self, ask: PopAsk, look: QueueTake, room: int, bytes_max: int) -> None:
        for _ in range(_MOVES_MAX):
            found = self._store.read(
                ask.topic,
                look.queue_id,
                look.next_offset,
                messages_max=room,
                bytes_max=bytes_max,
                tags=ask.tags,
                wanted=ask.wanted,
            )
            if found.status is ReadStatus.OFFSET_OVERFLOW_BADLY:
                # The log has lost its end since: what the group was told of it is void.
                if self._pops.known(look.popped.key) is look.popped:
                    look.popped = self._pops.begin_again(look.popped.key, found.max_offset)
                look.times.clear()
                look.records.clear()
                look.size, look.next_offset = 0, found.max_offset
                return
            moved = found.next_offset > look.next_offset
            look.next_offset = max(look.next_offset, found.next_offset)
            if found.count:
                first = _first_offset(found)
                if not found.offsets and first + found.count == found.next_offset:
                    look.add_run(first, found.count, found.body)
                    return
                for index, (offset, record) in enumerate(_split(found.body)):
                    look.add(found.offsets[index] if found.offsets else offset, 0, record)
                return
            if not moved or look.next_offset >= found.max_offset:
                return
        look.more = True

    def _hand_out(self, ask: PopAsk, look: QueueTake, stamp: int, due_ms: int) -> None:
        state = look.popped.state
        if not look.times and look.next_offset == state.next_offset:
            return
        state.hand_out(look.times, stamp=stamp, due_ms=due_ms, next_offset=look.next_offset)
        if ask.in_order:
            look.popped.attempt = (ask.attempt, stamp)
        self._pops.counts.handed_out += len(look.times)
        self._pops.counts.again += len(look.times) - list(look.times.values()).count(0)
        self._pops.changed(look.popped)

    def rest(self, ask: PopAsk) -> int:
        """Return how many messages nobody of the group has been given yet."""
        rest = 0
        for queue_id in ask.queue_ids:
            known = self._pops.known((ask.group, ask.topic, queue_id))
            if known is not None:
                end = self._store.queue_range(ask.topic, queue_id)[1]
                rest += max(0, end - known.state.next_offset)
        return rest


def _taken(looks: Sequence[QueueTake], now_ms: int) -> PopTake:
    stamp, more = now_ms, False
    for look in looks:
        stamp = max(stamp, look.popped.state.next_stamp(now_ms))
        more = more or look.more
    return PopTake(stamp, [look for look in looks if look.times], 0, more)


def _first_offset(found: ReadResult) -> int:
    return found.offsets[0] if found.offsets else _offset_of(found.body)


def _offset_of(record: bytes) -> int:
    return int.from_bytes(record[_QUEUE_OFFSET_AT : _QUEUE_OFFSET_AT + 8], "big")


def _split(body: bytes) -> Iterable[tuple[int, bytes]]:
    """Yield the records of a read and their queue offsets."""
    at = 0
    while at < len(body):
        size = int.from_bytes(body[at : at + 4], "big")
        record = bytes(body[at : at + size])
        yield _offset_of(record), record
        at += size


def _placed(record: bytes, offset: int) -> bytes:
    """Return a light queue's record that says where in it the message is.

    Clients look into its properties for that only where it was never handed out before.
    """
    at = _QUEUE_OFFSET_AT
    placed = bytearray(record)
    placed[_QUEUE_ID_AT : _QUEUE_ID_AT + 4] = bytes(4)
    placed[at : at + 8] = offset.to_bytes(8, "big")
    return bytes(placed)


def _with_count(record: bytes, times: int) -> bytes:
    """Return a record that says how often it was handed out; clients check the body alone."""
    body_at = read_layout(record, 0).body_at
    at = body_at - AFTER_STORE_HOST.size
    count = int.from_bytes(record[at : at + 4], "big") + times
    return record[:at] + count.to_bytes(4, "big") + record[at + 4 :]
