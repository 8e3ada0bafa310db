"""How far the consumer groups of RocketMQ clients have come."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from imago_broker.service.known_readers import KnownReaders
from imago_log.errors import DiskFullError
from imago_wire.record_format.references import is_light

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from imago_log.store import MessageStore

logger = logging.getLogger(__name__)

KIND = "offset"
GATHER_SECONDS = 0.1
CHANGES_MAX = 2000
"""Changes in one metadata record; more are written as several."""

_Queue = tuple[str, str, int]


class ConsumerOffsets:
    """Committed offsets by group, topic and queue; kept in the log's metadata.

    Commits are gathered for at most 100 ms into one metadata record; a query first writes what it
    is about to tell, so that nobody is told an offset that a crash takes back.
    """

    def __init__(
        self,
        store: MessageStore,
        *,
        loop: asyncio.AbstractEventLoop,
        keeps_light: Callable[[str, int], bool] = lambda _topic, _offset: True,
    ) -> None:
        """`keeps_light`: whether progress in a light queue is kept, see `LightQueues.keeps`."""
        self._store = store
        self._loop = loop
        self.readers = KnownReaders(store)
        """Who reads a topic and has no offset in it here."""
        self._offsets: dict[str, dict[str, dict[int, int]]] = {}
        self._dirty: set[_Queue] = set()
        self._moved: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None
        self.on_forgotten: list[Callable[[Iterable[_Queue]], None]] = []
        """Told the queues of deleted groups and topics."""
        self.on_set: list[Callable[[Sequence[_Queue]], None]] = []
        """Told the queues in which a group was reset, or goes back by itself."""
        self._keeps_light = keeps_light
        self.refresh(store.meta(KIND))

    def refresh(self, changed: Iterable[str]) -> None:
        """Read these entries again: the leader's log has changed them, or nobody has yet."""
        stored = self._store.meta(KIND)
        for key in changed:
            value = stored.get(key)
            try:
                group, topic, queue_id = parse_key(key)
                if value is None:
                    self._of(group, topic).pop(queue_id, None)
                else:
                    self._of(group, topic)[queue_id] = int(value)
            except (TypeError, ValueError):
                # One entry that nobody understands must not keep a broker from starting.
                logger.warning("offset_unreadable key=%r value=%r", key, value)

    def lost_leadership(self) -> None:
        """Forget what was committed here and is not in the log: another member decides now."""
        self._cancel_timer()
        dirty, self._dirty = self._dirty, set()
        self.refresh([key_of(queue) for queue in dirty])

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Note a group's progress. It may go back: the consumer decides."""
        if is_light(topic) and not self._keeps_light(topic, offset):
            return
        queues = self._of(group, topic)
        before = queues.get(queue_id, -1)
        if before == offset:
            return
        queues[queue_id] = offset
        self._dirty.add((group, topic, queue_id))
        if self._timer is None:
            self._timer = self._loop.call_later(GATHER_SECONDS, self._flush_in_time)
        if offset < before:
            self._tell_set([(group, topic, queue_id)])

    def query(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the committed offset, or None when there is none."""
        if (group, topic, queue_id) in self._dirty:
            self.flush()
        return self._offsets.get(group, {}).get(topic, {}).get(queue_id)

    def of_group(self, group: str) -> Mapping[str, Mapping[int, int]]:
        """Return all of a group's offsets: topic to queue to offset."""
        self.flush()
        return {topic: dict(queues) for topic, queues in self._offsets.get(group, {}).items()}

    def noted(self, group: str) -> Mapping[str, Mapping[int, int]]:
        """Return the same without writing it first: for figures, which a crash may take back."""
        return self._offsets.get(group, {})

    def take_moved(self) -> set[str]:
        """Return the groups whose progress was written since the last call."""
        moved, self._moved = self._moved, set()
        return moved

    def of_topic(self, topic: str) -> Mapping[str, Mapping[int, int]]:
        """Return all offsets in a topic: group to queue to offset."""
        self.flush()
        return {
            group: dict(topics[topic]) for group, topics in self._offsets.items() if topic in topics
        }

    def by_topic(self) -> dict[str, dict[str, Mapping[int, int]]]:
        """Return all offsets there are: topic to group to queue to offset."""
        self.flush()
        found: dict[str, dict[str, Mapping[int, int]]] = {}
        for group, topics in self._offsets.items():
            for topic, queues in topics.items():
                if queues:
                    found.setdefault(topic, {})[group] = dict(queues)
        return found

    def in_queue(self, topic: str, queue_id: int) -> Mapping[str, int]:
        """Return how far each group is in a queue that has an offset anywhere in its topic."""
        return {
            group: topics[topic].get(queue_id, 0)
            for group, topics in self._offsets.items()
            if topic in topics
        }

    def groups(self) -> list[str]:
        """Return the groups that have an offset anywhere."""
        return sorted(self._offsets)

    def reset(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Set several queues of a topic at once, written before this returns."""
        self._of(group, topic).update(offsets)
        self._dirty.update((group, topic, queue_id) for queue_id in offsets)
        self.flush()
        logger.info("offsets_reset group=%s topic=%s queues=%d", group, topic, len(offsets))
        self._tell_set([(group, topic, queue_id) for queue_id in offsets])

    def reset_each(self, group: str, queue_id: int, offsets: Mapping[str, int]) -> None:
        """Set a queue in each of several topics at once, written before this returns."""
        for topic, offset in offsets.items():
            self._of(group, topic)[queue_id] = offset
        queues = [(group, topic, queue_id) for topic in offsets]
        self._dirty.update(queues)
        self.flush()
        logger.info("offsets_reset group=%s topics=%d", group, len(offsets))
        self._tell_set(queues)

    def forget_group(self, group: str) -> None:
        """Drop all offsets of a group."""
        self.readers.forget_group(group)
        topics = self._offsets.pop(group, {})
        self._forget((group, topic, queue) for topic, queues in topics.items() for queue in queues)

    def forget_topic(self, topic: str) -> None:
        """Drop all offsets in a topic."""
        self.readers.forget_topic(topic)
        gone: list[_Queue] = []
        for group, topics in list(self._offsets.items()):
            gone += ((group, topic, queue) for queue in topics.pop(topic, {}))
            if not topics:
                del self._offsets[group]
        self._forget(gone)

    def flush(self) -> None:
        """Write what is gathered; DiskFullError: it stays gathered."""
        self._cancel_timer()
        if not self._dirty:
            return
        if not self._store.leading:
            self.lost_leadership()
            return
        changes = [(KIND, key_of(queue), self._value(queue)) for queue in sorted(self._dirty)]
        for at in range(0, len(changes), CHANGES_MAX):
            self._store.put_meta(changes[at : at + CHANGES_MAX])
        self._moved.update(group for group, _, _ in self._dirty)
        self._dirty.clear()

    def _flush_in_time(self) -> None:
        """Write what is gathered; on a disk without room again and again until there is some."""
        try:
            self.flush()
        except DiskFullError as error:
            logger.warning("offsets_wait queues=%d reason=%s", len(self._dirty), error)
            self._timer = self._loop.call_later(GATHER_SECONDS, self._flush_in_time)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _of(self, group: str, topic: str) -> dict[int, int]:
        return self._offsets.setdefault(group, {}).setdefault(topic, {})

    def _forget(self, queues: Iterable[_Queue]) -> None:
        gone = list(queues)
        self._dirty.update(gone)
        self.flush()
        for listener in self.on_forgotten:
            listener(gone)

    def _tell_set(self, queues: Sequence[_Queue]) -> None:
        for listener in self.on_set:
            listener(queues)

    def _value(self, queue: _Queue) -> Any:
        group, topic, queue_id = queue
        return self._offsets.get(group, {}).get(topic, {}).get(queue_id)


def key_of(queue: _Queue) -> str:
    """Return what names a queue of a group in the metadata."""
    # A topic's name cannot contain the separator: see the rules for names.
    group, topic, queue_id = queue
    return f"{group}@{topic}@{queue_id}"


def parse_key(key: str) -> _Queue:
    """Return the group, topic and queue that are named. ValueError: none are."""
    group, topic, queue_id = key.rsplit("@", 2)
    return group, topic, int(queue_id)
