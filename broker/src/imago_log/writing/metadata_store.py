"""The half of a store that keeps topics, groups, offsets: changes of metadata as records."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import MappingProxyType
from typing import TYPE_CHECKING

from imago_log.metadata.state import (
    CHANGE_BYTES_MAX,
    JSON,
    META_TOPIC,
    TOPIC_KIND,
    Change,
    Topic,
    check_topic_name,
    encode_changes,
    is_dual,
)
from imago_log.reading.reader import QueueReader
from imago_wire.hot import make_entry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from imago_log.commitlog.flusher import Worker
    from imago_log.lifecycle.parts import Parts
    from imago_wire.record import Entry, Placed


class MetadataStore(QueueReader, ABC):
    """Metadata of one store; every change is appended to the log first."""

    def __init__(self, parts: Parts, clock: Callable[[], int], worker: Worker) -> None:
        super().__init__(parts, worker.submit)
        self._clock, self._worker = clock, worker

    @abstractmethod
    def _append(self, entries: Sequence[Entry], leave: int) -> list[Placed]:
        """Write entries of the store's own; not stopped by a full disk while there is room.

        DiskFullError: there is not, with so many bytes left in the last file.
        """

    def create_topic(self, name: str, value: Mapping[str, JSON]) -> None:
        """Create a topic, or replace the value of an existing one (same incarnation).

        Whether a topic has MetaQ positions is fixed when it is created: `value["dual"]` if it is
        there, else true unless its attribute `dialects` is `rocketmq` or it is a system topic.
        ValueError: the name cannot be stored. ChangeTooLargeError: the value is too large.
        """
        check_topic_name(name)
        if name == META_TOPIC:
            raise ValueError(f"{META_TOPIC} is the store's own")
        old = self._metadata.topics.get(name)
        content = {
            "incarnation": old.incarnation if old else self._log.end + 1,
            "birth": old.birth if old else None,  # None: this record itself
            "dual": old.dual if old else is_dual(name, value),
            "value": dict(value),
        }
        self._put_changes([(TOPIC_KIND, name, content)], size_max=CHANGE_BYTES_MAX)
        topic = self._metadata.topics[name]
        if topic.materialised and not (old and self._is_open_materialised(topic)):
            self._open_materialised(topic)

    def delete_topic(self, name: str) -> None:
        """Forget a topic and its queues. KeyError when unknown."""
        if name not in self._metadata.topics:
            raise KeyError(name)
        self._put_changes([(TOPIC_KIND, name, None)])
        # The files go only once the deletion cannot be undone by a power loss.
        self._log.sync()
        self._drop_topic(name)

    def _drop_topic(self, name: str) -> None:
        for key in [key for key in self._tails if key[0] == name]:
            del self._tails[key]
        self._parts.materialiser.drop_topic(name)
        self._queues.drop_topic(name)
        self._worker.submit(self._queues.empty_trash)

    def topics(self) -> Mapping[str, dict[str, JSON]]:
        """Values by name, as given to `create_topic`; a live read-only view."""
        return MappingProxyType(self._metadata.public)

    def put_meta(self, changes: Sequence[Change]) -> int:
        """Record (kind, key, value) changes in the log, None removes; return the end offset.

        ChangeTooLargeError: one has more than `CHANGE_BYTES_MAX` bytes; none was recorded.
        """
        for kind, _, _ in changes:
            if kind == TOPIC_KIND:
                raise ValueError("topics change through create_topic and delete_topic")
        return self._put_changes(changes, size_max=CHANGE_BYTES_MAX)

    def meta(self, kind: str) -> Mapping[str, JSON]:
        """Current values of one kind by key; a live read-only view."""
        return MappingProxyType(self._metadata.kind(kind))

    def set_materialised(self, topic: str) -> None:
        """Keep MetaQ's own files for this topic from now on; a replicated topic attribute.

        KeyError: unknown topic. ValueError: the topic has no MetaQ positions.
        """
        found = self._metadata.topics[topic]
        if not found.dual:
            raise ValueError(f"topic {topic} has no MetaQ positions")
        if not found.materialised:
            attributes = {**found.attributes, "materialised": "true"}
            self.create_topic(topic, {**found.value, "attributes": attributes})

    def _put_changes(
        self, changes: Sequence[Change], *, frees: bool = False, size_max: int | None = None
    ) -> int:
        """Append changes; what is said in order to free the disk may use the last room there is.

        What is only said again has no `size_max`: it was taken once.
        """
        tail = self.tail(META_TOPIC, 0)
        born_host = self._parts.config.store_host
        entries = [
            make_entry(tail, body, born_ms=self._clock(), born_host=born_host)
            for body in encode_changes(changes, size_max=size_max)
        ]
        if not entries:
            return self._log.end
        placed = self._append(entries, 0 if frees else self._log.kept // 2)
        self._metadata.apply(changes, placed[0][1])
        self._metadata.end = self._log.end
        self._queues.write_now(META_TOPIC)
        return self._log.end

    def _is_open_materialised(self, topic: Topic) -> bool:
        return any(found.topic is topic for found in self._parts.materialiser)

    def _open_materialised_once(self, topic: Topic) -> None:
        if not self._is_open_materialised(topic):
            self._open_materialised(topic)

    def _open_materialised(self, topic: Topic) -> None:
        for queue in list(self._queues):
            if queue.tail.topic == topic.name.encode():
                self._parts.materialiser.open(topic, queue, self._log.start)
