"""What the put path needs of each topic: its level, its open queues, the ends of its queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.core.puts.acknowledgement import Acknowledgement
from imago_broker.model import names
from imago_broker.model.topics.sealing import seal_of

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping

    from imago_broker.model.topics.topics import TopicConfig
    from imago_log.store import MessageStore
    from imago_wire.records.record import QueueTail

    Tails = dict[Acknowledgement, dict[str, list[QueueTail | None]]]

LEVELS = frozenset(level.value for level in Acknowledgement)
_NONE: frozenset[int] = frozenset()


class TopicHandle:
    """What the put path needs of one topic, found by one look-up.

    Replaced, never changed, when the topic changes: hold it no longer than one loop turn.
    """

    __slots__ = ("closed", "config", "level", "partitions", "tails")

    def __init__(
        self,
        config: TopicConfig,
        level: Acknowledgement,
        closed: frozenset[int],
        partitions: int,
    ) -> None:
        self.config = config
        self.level = level
        self.closed = closed
        """Partitions that take part in nothing through MetaQ, by its management operation."""
        self.partitions = partitions
        """How many queues take messages, from 0 on."""
        self.tails: list[QueueTail | None] = [None] * partitions
        """Ends of the write queues by number, once they were used."""


class TopicHandles:
    """The handles of all topics, made when they are first asked for."""

    def __init__(
        self,
        configs: Mapping[str, TopicConfig],
        store: MessageStore,
        *,
        default_level: Acknowledgement,
        before_change: Callable[[], None],
    ) -> None:
        """`configs` are the topics of the moment; `before_change` appends the gathered puts."""
        self._configs = configs
        self._store = store
        self._before_change = before_change
        self._default_level = default_level
        self._by_name: dict[str, TopicHandle] = {}
        self.metaq_tails: Tails = {level: {} for level in Acknowledgement}
        """By level, the tails of the topics to which a MetaQ put needs no second look."""
        self.rocketmq_tails: Tails = {level: {} for level in Acknowledgement}
        """The same for RocketMQ's sends: topics that are nobody's own."""
        self.open_tails: dict[str, list[QueueTail | None]] = {}
        """Those of all topics that messages which have waited may go to, whatever the level."""
        self.on_first_put: list[Callable[[QueueTail], None]] = []
        """Told each queue before the first put of this process to it."""
        self._left_out: Container[str] = ()
        self._closed: dict[str, frozenset[int]] = {}
        self._lingering: set[str] = set()
        self.unpublished: set[str] = set()  # MetaQ puts to them get a second look

    def of(self, name: str) -> TopicHandle | None:
        """Return the topic's handle, or None for an unknown topic."""
        handle = self._by_name.get(name)
        if handle is None:
            config = self._configs.get(name)
            if config is None:
                return None
            closed = self._closed.get(name, frozenset())
            handle = TopicHandle(config, self._level(config), closed, self._partitions(config))
            self._by_name[name] = handle
            if config.dual and not closed and name not in self.unpublished:
                self.metaq_tails[handle.level][name] = handle.tails
            if name not in names.CLOSED_TO_SENDERS:
                self.open_tails[name] = handle.tails
                if not name.startswith("%") and name not in self._left_out:
                    self.rocketmq_tails[handle.level][name] = handle.tails
        return handle

    def leave_out(self, names: Container[str]) -> None:
        """Have RocketMQ's sends to these topics get a second look; whoever adds one forgets it."""
        self._left_out = names

    def forget(self, name: str) -> None:
        """Make the topic's handle again when it is next asked for."""
        self._by_name.pop(name, None)
        self.open_tails.pop(name, None)
        for tails in (*self.metaq_tails.values(), *self.rocketmq_tails.values()):
            tails.pop(name, None)

    @property
    def by_name(self) -> Mapping[str, TopicHandle]:
        """The handles made so far, for readers of every message."""
        return self._by_name

    def tail(self, handle: TopicHandle, queue_id: int) -> QueueTail:
        """Return the end of a write queue, kept in the handle from then on."""
        tail = handle.tails[queue_id]
        if tail is None:
            tail = self._store.tail(handle.config.name, queue_id)
            handle.tails[queue_id] = tail
            for told in self.on_first_put:
                told(tail)
        return tail

    def level_of(self, topic: bytes) -> Acknowledgement:
        """Return what a put to this topic waits for when it names no level of its own."""
        handle = self.of(topic.decode("utf-8", "replace"))
        return self._default_level if handle is None else handle.level

    def set_default_level(self, level: Acknowledgement) -> None:
        """Change what puts wait for in topics that name no level."""
        self._default_level = level
        for name in list(self._by_name):
            self.forget(name)

    def linger(self, name: str, lingering: bool) -> None:
        """Take messages of a sealed topic all the same, or no longer."""
        if lingering != (name in self._lingering):
            (self._lingering.add if lingering else self._lingering.discard)(name)
            self._before_change()
            self.forget(name)

    def close_partitions(self, name: str, first: int, last: int) -> bool:
        """Close partitions to MetaQ clients until they are opened or the process ends.

        False, and nothing done, for an unknown topic or numbers that are no range.
        """
        if name not in self._configs or not 0 <= first <= last:
            return False
        numbers = range(first, min(last, names.PARTITIONS_MAX) + 1)
        self._closed[name] = self._closed.get(name, frozenset()) | frozenset(numbers)
        self.forget(name)
        return True

    def open_partitions(self, name: str) -> bool:
        """Open all partitions of a topic again; False for an unknown topic."""
        if name not in self._configs:
            return False
        self.open_all(name)
        self.forget(name)
        return True

    def open_all(self, name: str) -> None:
        """Forget which partitions are closed: the topic is deleted."""
        self._closed.pop(name, None)

    def closed_partitions(self, name: str) -> frozenset[int]:
        """Return the partitions that are closed, also of topics that do not exist."""
        return self._closed.get(name, _NONE)

    def _partitions(self, config: TopicConfig) -> int:
        seal = seal_of(config) if config.name in self._lingering else None
        return config.write_queues if seal is None else seal.write_queues

    def _level(self, config: TopicConfig) -> Acknowledgement:
        text = config.acknowledgement
        return Acknowledgement(text) if text in LEVELS else self._default_level
