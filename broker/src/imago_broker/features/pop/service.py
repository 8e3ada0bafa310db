"""POP consumption: the broker keeps what each group has taken and not acknowledged yet.

`core.popping` has the rules. All state is in the log's metadata: an entry for each handout, one
for each queue of a group, and the group's committed offset, which is that below which everything
is acknowledged. What changes during a turn of the loop is written at its end as one change, and
nobody is answered before every in-sync member has it. So a restart or another master hands nothing
out early, loses nothing that is out and forgets no acknowledgement that was answered.

Whoever sets the committed offset from outside (an administrator, a consumer that pulls) starts the
group again there.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from imago_broker.core.transactions.packed_offsets import pack, unpack
from imago_broker.features.pop.popping import Handout, PopChanges, PopQueue
from imago_broker.features.pop.room import AwaitedRoom
from imago_broker.service.groups.offsets import KIND as OFFSET_KIND
from imago_broker.service.groups.offsets import key_of, parse_key
from imago_broker.service.puts.put_status import PutStatus
from imago_log.errors import StoreError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from imago_broker.service.groups.offsets import ConsumerOffsets
    from imago_broker.service.puts.messages import MessageService
    from imago_log.metadata.changes import Change

logger = logging.getLogger(__name__)

KIND = "pop"
KEEPERS = "pop_keeper"
"""The clients for which handouts are kept out for longer, so that the next master goes on."""
OUT_MAX = 10_000
"""Messages that a group may have out of one queue; RocketMQ's popInflightMessageThreshold."""
OUT_ALL_MAX = 500_000
"""Messages that all groups together may have out."""
SHARE = 8
"""One of so many parts of those is left for groups that have few out."""
FEW_MAX = 1000
"""Messages of a group that still leave it the right to that part."""
RETRY_SECONDS = 1.0
"""After which what the disk had no room for is tried again."""

Queue = tuple[str, str, int]
"""Group, topic, queue."""
Keeper = tuple[str, str, int]
"""A client's user and id, and since when it has a handout."""
Written = Callable[[PutStatus], None]
"""Told once what was changed is in the log of every in-sync member, or why it is not."""


@dataclass(slots=True, eq=False)
class Popped:
    """One group in one queue."""

    key: Queue
    state: PopQueue
    told: int | None
    """The committed offset as it was written last, or found; None: there was none."""
    counted: int = 0
    attempt: tuple[str, int] = ("", 0)
    """What the client that was given messages in order last called its try, and their stamp."""
    keepers: dict[int, Keeper] = field(default_factory=dict)
    """By stamp: of what was kept out for longer."""

    def written(self, committed: int, changes: PopChanges) -> None:
        """Note what the log has."""
        self.told = committed
        if self.keepers:
            for stamp, handout in changes.handouts.items():
                if handout is None:
                    self.keepers.pop(stamp, None)


@dataclass(slots=True)
class PopCounts:
    """What has happened since the start."""

    handed_out: int = 0
    again: int = 0
    acknowledged: int = 0
    void: int = 0
    """Receipts that did not count any more."""
    lost: int = 0
    """Messages that were gone from the log before they were acknowledged."""


@dataclass(slots=True)
class _Turn:
    changed: dict[Popped, None] = field(default_factory=dict)
    waiting: list[Written] = field(default_factory=list)


class PopService:
    """All groups' state; of a master. All methods belong to the event loop's thread."""

    def __init__(
        self,
        messages: MessageService,
        offsets: ConsumerOffsets,
        *,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.counts = PopCounts()
        self.ready = False
        """Whether this broker is the master and knows what is out."""
        self.out = 0
        """Messages that are out."""
        self._out_of: Counter[str] = Counter()
        """The same of each group."""
        self.on_stop: list[Callable[[], None]] = []
        self.awaited_room = AwaitedRoom(loop, self._has_room)
        self._messages = messages
        self._store = messages.store
        self._offsets = offsets
        self._loop = loop
        self._queues: dict[Queue, Popped] = {}
        self._turn: _Turn | None = None
        self._unwritten: dict[Popped, None] = {}
        """What the disk had no room for: nobody is told that all is safe before it is written."""
        offsets.on_forgotten.append(self._forget)
        offsets.on_set.append(self._forget)

    def start(self) -> None:
        """Read what is out."""
        self._queues.clear()
        self._unwritten.clear()
        self.out = 0
        self._out_of.clear()
        for key, (state, told) in _stored(self._store.meta(KIND)).items():
            popped = self._queues[key] = Popped(key, state, told)
            self._count(popped)
        for key, stamp, keeper in _stored_keepers(self._store.meta(KEEPERS)):
            if key in self._queues and self._queues[key].state.left(stamp):
                self._queues[key].keepers[stamp] = keeper
        self.ready = True
        self.log_shortened()
        if self.out:
            logger.info("pop_begins queues=%d messages=%d", len(self._queues), self.out)

    def stop(self) -> None:
        """Serve no more: another member decides now, or nobody."""
        if not self.ready:
            return
        self.ready = False
        turn, self._turn = self._turn, None
        if turn is not None:
            self._write(turn)
        self._queues.clear()
        self._unwritten.clear()
        self.awaited_room.clear()
        self.out = 0
        self._out_of.clear()
        for listener in self.on_stop:
            listener()

    def of(self, key: Queue, begin: Callable[[], int]) -> Popped:
        """Return a group's state in a queue; `begin` says where a new group begins."""
        committed = self._offsets.query(*key)
        popped = self._queues.get(key)
        if popped is not None and popped.told == committed:
            return popped
        return self.begin_again(key, begin() if committed is None else committed)

    def glance(self, key: Queue, begin: Callable[[], int]) -> Popped:
        """Return the same as `of`, and keep nothing of a group that has not begun."""
        committed = self._offsets.query(*key)
        popped = self._queues.get(key)
        if popped is not None and popped.told == committed:
            return popped
        return Popped(key, PopQueue(begin() if committed is None else committed), committed)

    def begin_again(self, key: Queue, offset: int) -> Popped:
        """Forget what is out and hand out from an offset on."""
        old = self._queues.pop(key, None)
        if old is not None:
            logger.info("pop_begins_anew group=%s topic=%s queue=%d offset=%d", *key, offset)
            self._drop(old)
        popped = self._queues[key] = Popped(key, PopQueue(offset), self._offsets.query(*key))
        self.changed(popped)
        return popped

    def known(self, key: Queue) -> Popped | None:
        """Return a group's state in a queue where there is any."""
        return self._queues.get(key)

    def room(self, popped: Popped) -> int:
        """Return how many messages more the group may take out of a queue.

        Where it may take none, `awaited_room` tells once it may.
        """
        free = OUT_ALL_MAX - self.out
        # The rest is for groups that have few: or one could keep all others from theirs for days.
        own = max(free - OUT_ALL_MAX // SHARE, FEW_MAX - self._out_of[popped.key[0]])
        room = max(0, min(OUT_MAX - len(popped.state), free, own))
        if not room:
            self.awaited_room.lacked(popped.key)
        return room

    def take_back(self, popped: Popped, stamp: int, now_ms: int) -> None:
        """Note that messages reached nobody: they can be handed out again."""
        if self._queues.get(popped.key) is popped:
            popped.state.take_back(stamp, now_ms)
            self.changed(popped)

    def prolong(self, key: Queue, stamp: int, due_ms: int, keeper: Keeper) -> int:
        """Have what is left of a handout out until then, for a client; return how much that is.

        Receipts stay as they are: what is acknowledged meanwhile counts, here and at the next
        master.
        """
        popped = self._queues.get(key) if self.ready else None
        left = 0 if popped is None else popped.state.left(stamp)
        if popped is not None and left:
            popped.state.prolong(stamp, due_ms)
            popped.keepers[stamp] = keeper
            self.changed(popped)
        return left

    def kept(self) -> Iterator[tuple[Queue, int, Keeper]]:
        """Return what was kept out for longer, by queue and stamp, and for whom."""
        for key, popped in self._queues.items():
            for stamp, keeper in popped.keepers.items():
                yield key, stamp, keeper

    def log_shortened(self) -> None:
        """Forget what went with the log's oldest files: nobody may ever ask for it again."""
        if not self.ready:
            return
        for (_, topic, queue_id), popped in self._queues.items():
            if popped.counted:
                lost = popped.state.drop_below(self._store.queue_range(topic, queue_id)[0])
                if lost:
                    self.counts.lost += lost
                    self.changed(popped)

    def changed(self, popped: Popped) -> None:
        """Have a state written at the turn's end."""
        self._count(popped)
        self._current().changed[popped] = None

    def when_written(self, then: Written) -> None:
        """Call `then` once all that was changed in this turn is safe."""
        self._current().waiting.append(then)

    def _current(self) -> _Turn:
        if self._turn is None:
            self._turn = _Turn(changed=self._unwritten)
            self._unwritten = {}
            self._loop.call_soon(self._end_turn)
        return self._turn

    def _end_turn(self) -> None:
        turn, self._turn = self._turn, None
        if turn is not None:
            self._write(turn)

    def _write(self, turn: _Turn) -> None:
        if not self._store.leading:
            _tell(turn.waiting, PutStatus.NOT_WRITABLE, ())
            return
        try:
            self._write_all([each for each in turn.changed if self._queues.get(each.key) is each])
        except StoreError as error:
            logger.warning("pop_not_written queues=%d reason=%s", len(turn.changed), error)
            _tell(turn.waiting, PutStatus.DISK_FULL, ())
            self._unwritten |= turn.changed
            self._loop.call_later(RETRY_SECONDS, self._again)
            return
        if turn.waiting:
            self._messages.acknowledgements.when_replicated(_tell, turn.waiting)

    def _again(self) -> None:
        if self.ready and self._unwritten:
            self._current()

    def _write_all(self, changed: Iterable[Popped]) -> None:
        """Write what has changed; of a queue the newest handouts first, should it be cut.

        Nothing of it counts where somebody else has set the committed offset meanwhile.
        """
        rows: list[Change] = []
        written: dict[str, tuple[Popped, PopChanges, int]] = {}
        for popped in changed:
            if self._offsets.query(*popped.key) != popped.told:
                continue
            changes, name = popped.state.changes(), key_of(popped.key)
            written[name] = popped, changes, popped.state.committed
            rows += _rows(popped, changes)
        if not rows:
            return
        try:
            self._store.put_meta(rows)
        except StoreError:
            for popped, changes, _ in written.values():
                popped.state.unwritten(changes)
            raise
        self._offsets.refresh(written)
        for popped, changes, committed in written.values():
            popped.written(committed, changes)

    def _drop(self, popped: Popped) -> None:
        """Take a state out of the log."""
        name = key_of(popped.key)
        rows: list[Change] = [(KIND, f"{name}@{stamp}", None) for stamp in popped.state.written()]
        rows += [(KEEPERS, f"{name}@{stamp}", None) for stamp in popped.keepers]
        self._note_out(popped, 0)
        try:
            self._store.put_meta([*rows, (KIND, f"{name}@", None)])
        except StoreError as error:
            logger.warning("pop_not_forgotten queue=%s reason=%s", name, error)

    def _forget(self, gone: Iterable[Queue]) -> None:
        if not self.ready:
            return
        for key in gone:
            popped = self._queues.pop(key, None)
            if popped is not None:
                self._drop(popped)

    def _count(self, popped: Popped) -> None:
        self._note_out(popped, len(popped.state))

    def _note_out(self, popped: Popped, count: int) -> None:
        group, more = popped.key[0], count - popped.counted
        popped.counted = count
        self.out += more
        self._out_of[group] += more
        if not self._out_of[group]:
            del self._out_of[group]
        if more < 0:
            self.awaited_room.freed()

    def _has_room(self, key: Queue) -> bool:
        popped = self._queues.get(key)
        return popped is None or self.room(popped) > 0


def _rows(popped: Popped, changes: PopChanges) -> list[Change]:
    """Return what the log gets of one queue."""
    state, name = popped.state, key_of(popped.key)
    rows: list[Change] = [
        (KIND, f"{name}@{stamp}", _handout_text(handout))
        for stamp, handout in changes.handouts.items()
    ]
    for stamp, handout in changes.handouts.items() if popped.keepers else ():
        if stamp in popped.keepers:
            text = None if handout is None else json.dumps(popped.keepers[stamp])
            rows.append((KEEPERS, f"{name}@{stamp}", text))
    if changes.moved:
        rows.append((KIND, f"{name}@", f"{state.next_offset} {state.committed}"))
        rows.append((OFFSET_KIND, name, state.committed))
    return rows


def _tell(waiting: list[Written], status: PutStatus, _: Sequence[object]) -> None:
    for then in waiting:
        try:
            then(status)
        except Exception:
            # One answer that fails costs the others nothing.
            logger.exception("pop_answer_failed status=%s", status.value)


def _handout_text(handout: Handout | None) -> str | None:
    if handout is None:
        return None
    return f"{handout.due_ms} {pack(sorted(handout.times), handout.times)}"


def _stored(meta: Mapping[str, Any]) -> dict[Queue, tuple[PopQueue, int]]:
    """Return the states that the metadata holds, and the committed offsets that go with them."""
    places: dict[Queue, tuple[int, int]] = {}
    handouts: dict[Queue, dict[int, Handout]] = {}
    for entry, value in meta.items():
        name, _, stamp = entry.rpartition("@")
        try:
            key = parse_key(name)
            first, _, rest = str(value).partition(" ")
            if stamp:
                handouts.setdefault(key, {})[int(stamp)] = Handout(int(first), unpack(rest))
            else:
                places[key] = (int(first), int(rest))
        except ValueError:
            # One entry that nobody understands must not keep a broker from serving.
            logger.warning("pop_unreadable entry=%r value=%r", entry, value)
    found: dict[Queue, tuple[PopQueue, int]] = {}
    for key, (next_offset, committed) in places.items():
        found[key] = (PopQueue(next_offset, handouts.get(key)), committed)
    return found


def _stored_keepers(meta: Mapping[str, Any]) -> Iterator[tuple[Queue, int, Keeper]]:
    for entry, value in meta.items():
        name, _, stamp = entry.rpartition("@")
        try:
            user, client_id, since_ms = json.loads(value)
            yield parse_key(name), int(stamp), (str(user), str(client_id), int(since_ms))
        except (TypeError, ValueError):
            logger.warning("pop_unreadable entry=%r value=%r", entry, value)
