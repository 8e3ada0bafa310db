"""All queues of a store: found on demand, written behind, synced, removed with their topic.

Writing behind is spread out: each round looks at a part of the queues and writes a bounded number
of files, so that ten thousand busy queues cost no more a turn than ten.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

from imago_log.disk.files import FilePool, fatal
from imago_log.errors import NoSpaceError, StoreError
from imago_log.views.consume_queue import POSITION_SIZE, UNIT_SIZE, ConsumeQueue
from imago_log.views.found_ends import PLACE_MAX, FoundEnds, unopened
from imago_log.views.unit_files import BLANK_SIZE_FIELD, LOST_SIZE_FIELD, UnitFiles
from imago_wire.hot import QueueTail
from imago_wire.layout import DEAD_OFFSET

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from imago_log.disk.folder import DataFolder
    from imago_log.metadata.state import Topic

logger = logging.getLogger(__name__)

LOOKED_AT_MAX = 1024
"""Queues that one round looks at."""
WRITES_MAX = 32
"""Queues that one round writes, while memory is not short."""
WRITES_A_MS = (0.05, 0.25)
"""Queues written in a millisecond: as many as QUEUES_A_MS allow, but within these bounds."""
QUEUES_A_MS = 1 / 2000
"""Of some hundred queues each is written every 2 s: rarer and larger writes cost less, and what
is not written yet is read from memory."""
MADE_MAX = 8
"""Queues that get their first files in one round: making folders and files is slow."""


class ViewsInvalidError(StoreError):
    """The queue files do not agree with the log: all views are to be built anew."""


class _Making:
    """The first files of some queues, made by the worker. `done` is set last."""

    def __init__(self, pool: FilePool, queues: list[ConsumeQueue]) -> None:
        self._vfs, self.queues = pool.vfs, queues
        self._paths = [files.first_path for queue in queues for files in queue.files()]
        self.done = False

    def run(self) -> None:
        try:
            for path in self._paths:
                with fatal("create", path):
                    self._vfs.make_folder(path.parent)
                    self._vfs.close(self._vfs.open(path, create=True))
        finally:
            self.done = True


class Queues:
    """Queues by topic and number. `limit` is the log offset up to which files count when found."""

    def __init__(self, folder: DataFolder, pool: FilePool, pending_bytes_max: int) -> None:
        self._folder, self._pool = folder, pool
        self._pending_bytes_max = pending_bytes_max
        self._by_key: dict[tuple[str, int], ConsumeQueue] = {}
        self._order: list[ConsumeQueue] = []
        self._kept_tails: dict[tuple[str, int], QueueTail] = {}
        self._cursor = 0
        self._allowance = float(WRITES_MAX)
        self._hurried = False
        self._trashed = 0
        self.limit = 0
        self.found = FoundEnds()
        self._unopened: list[tuple[str, int]] | None = None
        self.proven: Callable[[ConsumeQueue, bytes, int], bool] | None = None
        """After power loss: whether the log has the record that a unit says it has."""
        self.ends_right: Callable[[ConsumeQueue], bool] = _is_believed
        """Whether the newest unit of a queue's files is that of its record."""
        self.refill: Callable[[ConsumeQueue, Topic], None] | None = None
        """Makes units that files have lost, from the log; None while its end is not known."""
        self.before_cut: Callable[[ConsumeQueue, int], None] = not_told
        """Told of a queue whose files have more than counts, and from which offset on."""
        self.submit: Callable[[Callable[[], None]], None] = _at_once
        self.drain: Callable[[], None] = _nothing
        """The worker's, once there is one."""
        self._making: _Making | None = None

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter(self._order)

    # Finding

    def get(self, topic: Topic, queue_id: int) -> ConsumeQueue:
        """Return a queue, made when it does not exist yet."""
        queue = self._by_key.get((topic.name, queue_id))
        return queue if queue is not None else self._open(topic, queue_id)

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return a queue that is open."""
        return self._by_key.get((topic, queue_id))

    def _open(self, topic: Topic, queue_id: int) -> ConsumeQueue:
        tail = self._kept_tails.pop((topic.name, queue_id), None)
        if tail is None or tail.dual != topic.dual:
            tail = QueueTail(topic.name.encode(), queue_id, dual=topic.dual)
        tail.units.clear()
        tail.positions.clear()
        below = f"{topic.name}/{queue_id}"
        units = UnitFiles(self._pool, self._folder.queues / below, UNIT_SIZE)
        positions = None
        if topic.dual:
            positions = UnitFiles(self._pool, self._folder.positions / below, POSITION_SIZE)
        queue = ConsumeQueue(tail, units, positions)
        self._load(queue, topic)
        self._by_key[topic.name, queue_id] = queue
        self._order.append(queue)
        return queue

    def _load(self, queue: ConsumeQueue, topic: Topic) -> None:
        queue.load()
        short = self._has_lost_files(queue)
        if self._is_stale(queue, topic):
            self.clear(queue)
        end = queue.offset_of_log(self.limit)
        noise = self.proven is None and self._has_noise_behind(queue, end)
        if end < queue.end:
            self.found.note(queue)
            self.before_cut(queue, end)
        if self.proven is not None:
            end = self._proven_end(queue, end)
        queue.truncate(end, torn=self.proven is not None)
        if queue.agrees and (noise or not self._ends_right(queue)):
            self._fill_anew(queue, topic)
        if not queue.agrees and queue.is_bare:
            self.clear(queue)  # a crash while it was to begin elsewhere: it begins again
        if (short or not queue.agrees) and self.refill is not None:
            self._cut_to_agree(queue)
            self.refill(queue, topic)
        if not queue.agrees:
            ends = [(files.first, files.end) for files in queue.files()]
            raise ViewsInvalidError(f"{topic.name}/{queue.tail.queue_id}: units of {ends}")

    def _has_noise_behind(self, queue: ConsumeQueue, end: int) -> bool:
        """Whether what stands behind the units that count was not written there as units."""
        if not all(files.is_blank_behind() for files in queue.files()):
            return True
        if end == queue.end:
            return False
        place, size, _ = queue.unit(end)
        return not self.limit <= place < PLACE_MAX or (size < 0 and size != LOST_SIZE_FIELD)

    def _ends_right(self, queue: ConsumeQueue) -> bool:
        return queue.end == queue.first or self.ends_right(queue)

    def _fill_anew(self, queue: ConsumeQueue, topic: Topic) -> None:
        """Make a queue again whose files hold noise: no offset is given out after it."""
        name, queue_id, end = topic.name, queue.tail.queue_id, queue.end
        if self.refill is None:
            raise ViewsInvalidError(f"{name}/{queue_id}: noise where its files end, at {end}")
        logger.error("queue.noise queue=%s/%d end=%d: it is filled anew from the log",
                     name, queue_id, end)  # fmt: skip
        self.clear(queue)
        self.refill(queue, topic)

    def _has_lost_files(self, queue: ConsumeQueue) -> bool:
        """Whether a queue had units whose files are gone: its folder, or its positions tell."""
        if queue.end > queue.first:
            return False
        tail = queue.tail
        folder = self._folder.queues / tail.topic.decode() / str(tail.queue_id)
        gone = not queue.exists and self._pool.vfs.exists(folder)
        return gone or any(files.end > files.first for files in queue.files())

    def _cut_to_agree(self, queue: ConsumeQueue) -> None:
        """Keep what both sequences of units hold, when the files of one were damaged at rest."""
        if len({files.first for files in queue.files()}) > 1:
            self.clear(queue)
        else:
            queue.truncate(min(files.end for files in queue.files()))

    def clear(self, queue: ConsumeQueue) -> None:
        """Throw the files of a queue away: it is empty, and begins again."""
        tail = queue.tail
        for folder in (self._folder.queues, self._folder.positions):
            self.discard(folder / tail.topic.decode() / str(tail.queue_id))
        queue.reload()

    def _is_stale(self, queue: ConsumeQueue, topic: Topic) -> bool:
        """Whether the files are those of a deleted topic of the same name."""
        if queue.end == queue.first:
            return False
        place, size, _ = queue.unit(queue.end - 1)
        return size != BLANK_SIZE_FIELD and 0 <= place < topic.birth

    def _proven_end(self, queue: ConsumeQueue, end: int) -> int:
        """Return the end of the units that a power loss has certainly left whole.

        Units of records below `limit` were synced; behind them anything may stand. One whose
        record says the same queue and offset shows that all before it are good.
        """
        assert self.proven is not None, "only after power loss"
        while end > queue.first:
            unit = queue.units(end - 1, 1)
            if int.from_bytes(unit[8:12], "big") == BLANK_SIZE_FIELD:
                return end
            if int.from_bytes(unit[:8], "big") < self.limit and self.proven(queue, unit, end - 1):
                return end
            end -= 1
        return end

    def note_ends(self) -> None:
        """Remember where all queues on disk end, before their files are thrown away."""
        self.found.note_all(unopened(self._pool, self._folder, *key) for key in self.on_disk())

    def on_disk(self) -> list[tuple[str, int]]:
        """Return topic and number of every queue that has a folder."""
        vfs, root = self._pool.vfs, self._folder.queues
        with fatal("list", root):
            return [
                (topic, int(name))
                for topic in vfs.names(root)
                for name in vfs.names(root / topic)
                if name.isdecimal()
            ]

    def open_some(self, topics: Mapping[str, Topic], count_max: int) -> bool:
        """Open some of the queues that nobody has asked for yet; true when all are open."""
        if self._unopened is None:
            self._unopened = self.on_disk()
        while self._unopened and count_max:
            name, queue_id = self._unopened.pop()
            if name in topics and (name, queue_id) not in self._by_key:
                self.get(topics[name], queue_id)
                count_max -= 1
        return not self._unopened

    def is_on_disk(self, topic: str, queue_id: int) -> bool:
        """Whether a queue has files."""
        return self._pool.vfs.exists(self._folder.queues / topic / str(queue_id))

    # Writing behind

    def write_some(self, elapsed_ms: int) -> None:
        """Write units to files, a bounded number of queues; so long after the last round."""
        self._write_made()
        order = self._order
        left, cursor = self._writes_now(elapsed_ms), self._cursor
        if not left:
            return
        fresh: list[ConsumeQueue] = []
        for _ in range(min(LOOKED_AT_MAX, len(order))):
            cursor = cursor + 1 if cursor + 1 < len(order) else 0
            queue = order[cursor]
            if not queue.tail.units:
                continue
            if not queue.exists:
                fresh.append(queue)
                if len(fresh) == MADE_MAX:
                    break
                continue
            queue.write_behind()
            self._allowance -= 1
            left -= 1
            if not left:
                break
        self._cursor = cursor
        if fresh and self._making is None:
            self._making = _Making(self._pool, fresh)
            self.submit(self._making.run)
            self._write_made()

    def _writes_now(self, elapsed_ms: int) -> int:
        """Return how many queues may be written in this round."""
        least, most = WRITES_A_MS
        pace = min(max(least, len(self._order) * QUEUES_A_MS), most)
        self._allowance = min(WRITES_MAX, self._allowance + elapsed_ms * pace)
        return WRITES_MAX if self._hurried else max(0, int(self._allowance))

    def _write_made(self) -> None:
        """Write the queues whose first files the worker has made meanwhile."""
        if self._making is not None and self._making.done:
            queues, self._making = self._making.queues, None
            for queue in queues:
                key = (queue.tail.topic.decode(), queue.tail.queue_id)
                if self._by_key.get(key) is queue and not queue.exists:
                    queue.write_behind()

    def write_all(self) -> None:
        """Write all units to their files."""
        for queue in self._order:
            if queue.tail.units:
                queue.write_behind()

    def write_now(self, topic: str) -> None:
        """Write the units of a topic's first queue, unless there is no room: it can wait then."""
        queue = self.find(topic, 0)
        if queue is not None and queue.tail.units:
            with contextlib.suppress(NoSpaceError):
                queue.write_behind()

    def relieve(self) -> None:
        """Write everything when the units in memory exceed their limit; hurry at half of it."""
        pending = sum(
            len(queue.tail.units) + len(queue.tail.positions)
            for queue in self._order
            if queue.tail.units
        )
        self._hurried = pending > self._pending_bytes_max // 2
        if pending > self._pending_bytes_max:
            self.write_all()

    def written_end(self, log_end: int) -> int:
        """Return the log offset below which every record's unit is in its file."""
        # Big-endian numbers are ordered as their bytes are, and there may be thousands.
        places = [queue.tail.units[:8] for queue in self._order if queue.tail.units]
        return int.from_bytes(min(places), "big") if places else log_end

    def unsynced(self) -> list[tuple[ConsumeQueue, int, int]]:
        """Return the queues to sync: from which unit, and up to which they are synced then."""
        return [
            (queue, *queue.plan_sync()) for queue in self._order if queue.synced < queue.written
        ]

    # Cutting and removing

    def truncate(self, end: int, topics: Mapping[str, Topic]) -> None:
        """Forget every unit whose record is at or after a log offset, of unopened queues too."""
        known, self.limit = self.limit, min(self.limit, end)
        if end < known:
            self._open_behind(end, topics)
        for queue in self._order:
            kept = queue.end_below(end)
            if kept < queue.end:
                queue.truncate(kept)

    def _open_behind(self, end: int, topics: Mapping[str, Topic]) -> None:
        """Open the queues whose files have units of records behind a log offset: it cuts them."""
        closed = [key for key in self.on_disk() if key not in self._by_key and key[0] in topics]
        for name, queue_id in closed:
            if unopened(self._pool, self._folder, name, queue_id).last_place >= end:
                self.get(topics[name], queue_id)

    def drop_topic(self, topic: str) -> None:
        """Forget a topic's queues and move its folders out of the way; `empty_trash` removes."""
        if self._making is not None:
            self.drain()  # else it might make files of this topic afterwards
        for key in [key for key in self._by_key if key[0] == topic]:
            queue = self._by_key.pop(key)
            self._order.remove(queue)
            queue.tail.next_offset = DEAD_OFFSET  # whoever holds it is refused
        for folder in (self._folder.queues / topic, self._folder.positions / topic):
            self.discard(folder)

    def drop_all(self, *, keep_tails: bool = False) -> dict[str, Path]:
        """Forget everything, for the views are built anew; return where the units of a topic are.

        With `keep_tails` a queue that comes again has the tail that its writers hold.
        """
        if keep_tails:
            self._kept_tails |= {key: queue.tail for key, queue in self._by_key.items()}
        for queue in self._order:
            queue.tail.next_offset = DEAD_OFFSET  # until it comes again
        self._by_key.clear()
        self._unopened = None
        self._order.clear()
        self.discard_below(self._folder.positions)
        return self.discard_below(self._folder.queues)

    def discard_below(self, folder: Path) -> dict[str, Path]:
        """Discard all that a folder holds; return where it is by name."""
        names = self._pool.vfs.names(folder)
        return {name: target for name in names if (target := self.discard(folder / name))}

    def discard(self, folder: Path) -> Path | None:
        """Move a folder out of the way, on whose files nobody stands any more."""
        vfs = self._pool.vfs
        if not vfs.exists(folder):
            return None
        self._pool.forget_below(folder)
        with fatal("remove", folder):
            while vfs.exists(target := self._folder.trash / str(self._trashed)):
                self._trashed += 1
            vfs.rename(folder, target)
        return target

    def empty_trash(self) -> None:
        """Remove what was discarded; what cannot be removed now is left for the next time."""
        vfs = self._pool.vfs
        for name in vfs.names(self._folder.trash):
            with contextlib.suppress(OSError):
                vfs.remove_folder(self._folder.trash / name)


def _at_once(job: Callable[[], None]) -> None:
    """Stands where the worker will put its own."""
    job()


def not_told(_: ConsumeQueue, __: int) -> None:
    """Stands where the start will put who remembers what is cut off."""


def _is_believed(_: ConsumeQueue) -> bool:
    """Stands where the start will put what compares with the log."""
    return True


def _nothing() -> None:
    """Stands where the worker will put its own."""
