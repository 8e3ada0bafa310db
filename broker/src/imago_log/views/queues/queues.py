"""All queues of a store: found on demand, removed with their topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_log.views.units.consume_queue import end_tail
from imago_wire.hot import QueueTail

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from imago_log.metadata.changes import Topic
    from imago_log.views.queues.first_files import FirstFiles
    from imago_log.views.queues.queue_folders import QueueFolders
    from imago_log.views.queues.queue_loading import Proven, QueueLoader
    from imago_log.views.units.consume_queue import ConsumeQueue


LISTED_TOPICS_MAX = 256
"""Topics whose folders are remembered: those who ask go through all queues of a topic."""


class Queues:
    """The open queues, by topic and number, in the order in which they were opened."""

    def __init__(self, folders: QueueFolders, loader: QueueLoader, first_files: FirstFiles) -> None:
        self.folders, self._loader, self.first_files = folders, loader, first_files
        self._by_key: dict[tuple[str, int], ConsumeQueue] = {}
        self.order: list[ConsumeQueue] = []
        """For those who walk over them in rounds; only to be read."""
        self._kept_tails: dict[tuple[str, int], QueueTail] = {}
        self._unopened: list[tuple[str, int]] | None = None
        self._listed: dict[str, frozenset[int]] = {}
        """Of topics that were asked for: queues with a folder; what was made since is open."""

    def __len__(self) -> int:
        return len(self.order)

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter(self.order)

    # Finding

    def get(self, topic: Topic, queue_id: int, proven: Proven | None = None) -> ConsumeQueue:
        """Return a queue, made when it does not exist yet; `proven`: see `QueueLoader.load`."""
        queue = self._by_key.get((topic.name, queue_id))
        return queue if queue is not None else self._open(topic, queue_id, proven)

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return a queue that is open."""
        return self._by_key.get((topic, queue_id))

    def is_unopened(self, topic: str, queue_id: int) -> bool:
        """Whether a queue that is not open has files, without a look at the disk for each one."""
        listed = self._listed.get(topic)
        if listed is None:
            if len(self._listed) >= LISTED_TOPICS_MAX:
                del self._listed[next(iter(self._listed))]
            listed = self._listed[topic] = frozenset(self.folders.numbers(topic))
        return queue_id in listed and (topic, queue_id) not in self._by_key

    def _open(self, topic: Topic, queue_id: int, proven: Proven | None) -> ConsumeQueue:
        tail = self._kept_tails.pop((topic.name, queue_id), None)
        if tail is None or tail.dual != topic.dual:
            tail = QueueTail(topic.name.encode(), queue_id, dual=topic.dual)
        tail.units.clear()
        tail.positions.clear()
        queue = self.folders.queue(tail, dual=topic.dual)
        self._loader.load(queue, topic, proven)
        self._by_key[topic.name, queue_id] = queue
        self.order.append(queue)
        return queue

    def open_some(self, topics: Mapping[str, Topic], count_max: int) -> bool:
        """Open some of the queues that nobody has asked for yet; true when all are open."""
        if self._unopened is None:
            self._unopened = self.folders.on_disk()
        while self._unopened and count_max:
            name, queue_id = self._unopened.pop()
            if name in topics and (name, queue_id) not in self._by_key:
                self.get(topics[name], queue_id)
                count_max -= 1
        return not self._unopened

    # Cutting and removing

    def truncate(self, end: int, topics: Mapping[str, Topic]) -> None:
        """Forget every unit whose record is at or after a log offset, of unopened queues too."""
        known = self._loader.limit
        self._loader.lower_to(end)
        if end < known:
            self._open_behind(end, topics)
        for queue in self.order:
            kept = queue.lookup.end_below(end)
            if kept < queue.end:
                queue.truncate(kept)

    def _open_behind(self, end: int, topics: Mapping[str, Topic]) -> None:
        """Open the queues whose files have units of records behind a log offset: it cuts them."""
        on_disk = self.folders.on_disk()
        closed = [key for key in on_disk if key not in self._by_key and key[0] in topics]
        for name, queue_id in closed:
            if self.folders.unopened(name, queue_id).lookup.last_place >= end:
                self.get(topics[name], queue_id)

    def drop_topic(self, topic: str) -> None:
        """Forget a topic's queues and discard its folders."""
        self.first_files.settle()  # else some of this topic might be made afterwards
        for key in [key for key in self._by_key if key[0] == topic]:
            queue = self._by_key.pop(key)
            self.order.remove(queue)
            end_tail(queue)
        self._listed.pop(topic, None)
        self.folders.discard_topic(topic)

    def drop_all(self, *, keep_tails: bool = False) -> dict[str, Path]:
        """Forget everything, for the views are built again; return where the units of a topic are.

        With `keep_tails` a queue that comes again has the tail that its writers hold.
        """
        if keep_tails:
            self._kept_tails |= {key: queue.tail for key, queue in self._by_key.items()}
        for queue in self.order:
            end_tail(queue)
        self._by_key.clear()
        self._unopened = None
        self._listed.clear()
        self.order.clear()
        return self.folders.discard_all()
