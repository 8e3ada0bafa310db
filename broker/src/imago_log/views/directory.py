"""Queues as the store hands them out: by name, opened when they are first asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from imago_log.disk.worker import Background
    from imago_log.metadata.changes import Topic
    from imago_log.metadata.state import Metadata
    from imago_log.views.metaq.materialiser import Materialiser
    from imago_log.views.queues.queue_folders import QueueFolders
    from imago_log.views.queues.queues import Queues
    from imago_log.views.units.consume_queue import ConsumeQueue
    from imago_wire.hot import QueueTail
    from imago_wire.records.record import RecordView

TAKEN_UP_MAX = 8
"""Partitions that one round takes up: opening one reads several files."""


class QueueDirectory:
    """Knows which queues have been asked for, and takes up MetaQ's files of materialised ones."""

    def __init__(
        self,
        metadata: Metadata,
        queues: Queues,
        folders: QueueFolders,
        materialiser: Materialiser,
        background: Background,
    ) -> None:
        self._metadata, self._queues, self._folders = metadata, queues, folders
        self._materialiser, self._background = materialiser, background
        self._tails: dict[tuple[str, int], QueueTail] = {}
        self._untouched: list[tuple[str, int]] | None = None
        """Partitions with MetaQ files that may not be taken up yet; None: not looked for."""

    def tail(self, topic: str, queue_id: int) -> QueueTail:
        """Return the handle that entries of this queue carry; KeyError for an unknown topic.

        The queue is made when it does not exist. A handle dies with its topic: take a new one.
        """
        found = self._tails.get((topic, queue_id))
        return found if found is not None else self._open(topic, queue_id).tail

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return a queue that exists, without making one."""
        queue = self._queues.find(topic, queue_id)
        if queue is not None and (topic, queue_id) in self._tails:
            return queue
        try:
            self._metadata.topic(topic)  # else its name may be any text, and is no folder's
            if queue is None and not self._queues.is_unopened(topic, queue_id):
                return None
            return self._open(topic, queue_id)
        except KeyError:
            return None

    def numbers(self, topic: str) -> list[int]:
        """Return the numbers of a topic's queues, of those on disk and of those made since."""
        try:
            self._metadata.topic(topic)
        except KeyError:
            return []
        name = topic.encode()
        made = {queue.tail.queue_id for queue in self._queues if queue.tail.topic == name}
        return sorted(made.union(self._folders.numbers(topic)))

    def names(self, view: RecordView) -> bool:
        """Whether the unit of its queue names a record."""
        queue = self.find(view.topic.decode("utf-8", "replace"), view.queue_id)
        if queue is None or not queue.first <= view.queue_offset < queue.end:
            return False
        return queue.unit(view.queue_offset)[:2] == (view.physical_offset, view.size)

    def get(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Return a queue, made when it does not exist; KeyError for an unknown topic."""
        queue = self._queues.find(topic, queue_id)
        if queue is not None and (topic, queue_id) in self._tails:
            return queue
        return self._open(topic, queue_id)

    def _open(self, name: str, queue_id: int) -> ConsumeQueue:
        topic = self._metadata.topic(name)
        known = self._queues.find(name, queue_id) is not None
        queue = self._queues.get(topic, queue_id)
        self._tails[name, queue_id] = queue.tail
        if topic.materialised and (not known or not self._materialiser.get(name, queue_id)):
            self._materialiser.open(topic, queue)
        return queue

    # Topics

    def materialise(self, topic: Topic) -> None:
        """Take up the MetaQ files of a topic's open queues."""
        for queue in list(self._queues):
            if queue.tail.topic == topic.name.encode():
                self._materialiser.open(topic, queue)

    def materialise_once(self, topic: Topic) -> None:
        """The same, unless they are taken up already."""
        if not self._materialiser.has(topic):
            self.materialise(topic)
        self._materialiser.take_begins(topic)

    def take_up_some(self) -> None:
        """Take up partitions that nobody has asked for since the start: their files expire, too."""
        if self._untouched is None:
            self._untouched = self._folders.materialised_on_disk()
        for name, queue_id in self._untouched[-TAKEN_UP_MAX:]:
            topic = self._metadata.topics.get(name)
            if topic is not None and topic.materialised:
                self.find(name, queue_id)
        del self._untouched[-TAKEN_UP_MAX:]

    def drop_topic(self, name: str) -> None:
        """Forget a topic's queues, and have their files removed."""
        for key in [key for key in self._tails if key[0] == name]:
            del self._tails[key]
        self._materialiser.drop_topic(name)
        self._queues.drop_topic(name)
        self.empty_trash()

    def forget(self) -> None:
        """Forget all handles: the queues are about to go."""
        self._tails.clear()
        self._untouched = None

    def empty_trash(self) -> None:
        """Submit the removal of what was discarded."""
        self._background.submit(self._folders.empty_trash)
