"""Topics, groups, offsets: every change is a record of the log first."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from imago_log.metadata.changes import (
    CHANGE_BYTES_MAX,
    JSON,
    META_TOPIC,
    TOPIC_KIND,
    Change,
    check_topic_name,
    encode_changes,
    is_dual,
)
from imago_log.metadata.identities import TopicIdentities
from imago_wire.errors import WrongError
from imago_wire.hot import make_entry
from imago_wire.record_format.entries import PLACED_PHYSICAL_OFFSET

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from imago_log.state import StoreState
    from imago_log.views.directory import QueueDirectory
    from imago_log.writing.appender import Appender


class MetadataLog:
    """Appends changes of metadata, then carries them out."""

    def __init__(
        self,
        s: StoreState,
        appender: Appender,
        directory: QueueDirectory,
        draw: Callable[[], int] | None,
    ) -> None:
        """`draw` gives new topics their incarnations."""
        self._store_host, self._clock, self._log = s.config.store_host, s.clock, s.log
        self._metadata, self._appender = s.metadata, appender
        self._directory, self._queues = directory, s.queue_writer
        self.identities = TopicIdentities(s.metadata, self.put, draw)

    def create_topics(self, values: Mapping[str, Mapping[str, JSON]]) -> None:
        """Create topics, or replace the values of existing ones (same incarnation): all, or none.

        Whether a topic has MetaQ positions is fixed when it is created: `value["dual"]` if it is
        there, else true unless its attribute `dialects` is `rocketmq` or it is a system topic.
        ValueError: a name cannot be stored. ChangeTooLargeError: a value is too large.
        """
        changes: list[Change] = [
            (TOPIC_KIND, name, self._content(name, value)) for name, value in values.items()
        ]
        self.put(changes, size_max=CHANGE_BYTES_MAX)
        for name in values:
            topic = self._metadata.topics[name]
            if topic.materialised:
                self._directory.materialise_once(topic)

    def _content(self, name: str, value: Mapping[str, JSON]) -> dict[str, JSON]:
        """Return what the log keeps of a topic. ValueError: the name cannot be stored."""
        check_topic_name(name)
        if name == META_TOPIC:
            raise WrongError(f"{META_TOPIC} is the store's own")
        old = self._metadata.topics.get(name)
        return {
            "incarnation": old.incarnation if old else self.identities.draw(),
            "birth": old.birth if old else None,  # None: this record itself
            "dual": old.dual if old else is_dual(name, value),
            "value": dict(value),
        }

    def delete_topics(self, names: Sequence[str]) -> None:
        """Forget topics and their queues. KeyError when one is unknown: none is forgotten."""
        for name in names:
            if name not in self._metadata.topics:
                raise KeyError(name)
        self.put(self.identities.without(names))
        # The files go only once the deletion cannot be undone by a power loss.
        self._log.sync()
        for name in names:
            self._directory.drop_topic(name)

    def topics(self) -> Mapping[str, dict[str, JSON]]:
        """Values by name, as given to `create_topic`; a live read-only view."""
        return MappingProxyType(self._metadata.public)

    def put_meta(self, changes: Sequence[Change]) -> int:
        """Record (kind, key, value) changes in the log, None removes; return the end offset.

        ChangeTooLargeError: one has more than `CHANGE_BYTES_MAX` bytes; none was recorded.
        """
        for kind, _, _ in changes:
            if kind == TOPIC_KIND:
                raise WrongError("topics change through create_topic and delete_topic")
        return self.put(changes, size_max=CHANGE_BYTES_MAX)

    def meta(self, kind: str) -> Mapping[str, JSON]:
        """Current values of one kind by key; a live read-only view."""
        return MappingProxyType(self._metadata.kind(kind))

    def set_materialised(self, topic: str) -> None:
        """Keep MetaQ's own files for this topic from now on; a replicated topic attribute.

        KeyError: unknown topic. ValueError: the topic has no MetaQ positions.
        """
        found = self._metadata.topics[topic]
        if not found.dual:
            raise WrongError(f"topic {topic} has no MetaQ positions")
        if not found.materialised:
            attributes = {**found.attributes, "materialised": "true"}
            self.create_topics({topic: {**found.value, "attributes": attributes}})

    def put_again(self, changes: Sequence[Change]) -> int:
        """Restate what the log's oldest files hold, or which of them go: it frees the disk."""
        return self.put(changes, frees=True)

    def restate_topics(self, names: Iterable[str]) -> None:
        """Restate topics whose creation is lost in damage."""
        topics = self._metadata.topics
        self.put([topics[name].change(topics[name].value) for name in names if name in topics])

    def put(
        self, changes: Sequence[Change], *, frees: bool = False, size_max: int | None = None
    ) -> int:
        """Append changes; what frees the disk may use the last room there is.

        What is only restated has no `size_max`: it was taken once.
        """
        tail = self._directory.tail(META_TOPIC, 0)
        entries = [
            make_entry(tail, body, born_ms=self._clock(), born_host=self._store_host)
            for body in encode_changes(changes, size_max=size_max)
        ]
        if not entries:
            return self._log.end
        placed = self._appender.write(entries, 0 if frees else self._log.kept // 2)
        self._metadata.apply(changes, placed[0][PLACED_PHYSICAL_OFFSET])
        self._metadata.reach(self._log.end)
        self._queues.write_now(META_TOPIC)
        return self._log.end
