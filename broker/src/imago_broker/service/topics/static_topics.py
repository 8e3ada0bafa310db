"""The static topics of a shard: kept in the log's metadata, told to the name service."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Final

from imago_broker.model.topics.static_topics import NAMESPACE, StaticMapping, key_of
from imago_broker.ports import CoordinatorError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable, Iterator, Mapping

    from imago_broker.model.topics.topics import TopicConfig
    from imago_broker.ports import SharedMarks
    from imago_log.store import MessageStore

log = logging.getLogger(__name__)

KIND: Final = "static-topic"


class StaticTopics:
    """All mappings of this shard, on each member."""

    def __init__(
        self, store: MessageStore, marks: SharedMarks, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._store, self._marks, self._loop = store, marks, loop
        self._read: dict[str, tuple[object, StaticMapping | None]] = {}
        """What was made of which text; None: nothing could be."""
        self.known: set[str] = set(self._stored)
        """The names of all: read at every request."""
        self._untold: dict[str, str] = {}
        """Topics to publish, and the broker name of this shard."""
        self._telling: asyncio.Task[None] | None = None

    def __contains__(self, topic: object) -> bool:
        return topic in self._stored and self.get(str(topic)) is not None

    def get(self, topic: str) -> StaticMapping | None:
        """Return a topic's mapping; None: its queues are what they seem to be."""
        text = self._stored.get(topic)
        if text is None:
            return None
        known = self._read.get(topic)
        if known is None or known[0] != text:
            known = self._read[topic] = text, _mapping(topic, text)
        return known[1]

    def all(self) -> Iterator[StaticMapping]:
        """Yield all mappings."""
        for topic in list(self._stored):
            mapping = self.get(topic)
            if mapping is not None:
                yield mapping

    def set(self, mapping: StaticMapping) -> None:
        """Have a topic mapped so from now on."""
        text = json.dumps(mapping.to_json(), separators=(",", ":"))
        if self._stored.get(mapping.topic) != text:
            self._store.put_meta([(KIND, mapping.topic, text)])
        self.known.add(mapping.topic)
        self._publish(mapping.topic, mapping.broker)

    def refresh(self, changed: Iterable[str]) -> None:
        """Read these again: the leader's log, or a cut of ours, has changed them."""
        for topic in changed:
            (self.known.add if topic in self._stored else self.known.discard)(topic)

    def start(self) -> None:
        """Publish all of them, on the leader: the registry may have been lost."""
        for mapping in self.all():
            self._publish(mapping.topic, mapping.broker)

    def topic_changed(self, topic: str, config: TopicConfig | None) -> None:
        """Forget the mapping of a topic that is gone."""
        if config is not None or topic not in self._stored or not self._store.leading:
            return
        mapping = self.get(topic)
        self._store.put_meta([(KIND, topic, None)])
        self._read.pop(topic, None)
        self.known.discard(topic)
        if mapping is not None:
            self._publish(topic, mapping.broker)

    def _publish(self, topic: str, broker: str) -> None:
        """Have the name service tell what holds, soon; one after the other."""
        self._untold[topic] = broker
        if self._telling is None:
            self._telling = self._loop.create_task(self._tell_all())

    async def _tell_all(self) -> None:
        while self._untold:
            topic, broker = self._untold.popitem()
            mapping = self.get(topic)
            text = None if mapping is None else json.dumps(mapping.info())
            try:
                await self._marks.put_kv(NAMESPACE, key_of(topic, broker), text)
            except CoordinatorError as error:
                log.warning("static_topic_not_published topic=%s reason=%s", topic, error)
        self._telling = None

    @property
    def _stored(self) -> Mapping[str, object]:
        return self._store.meta(KIND)


def _mapping(topic: str, text: object) -> StaticMapping | None:
    try:
        return StaticMapping.from_json(json.loads(str(text)))
    except ValueError as error:
        # One that cannot be read must not keep a broker from starting: its queues are its own.
        log.warning("static_topic_unreadable topic=%r reason=%s", topic, error)
        return None
