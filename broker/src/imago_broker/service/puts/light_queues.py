"""RocketMQ's light queues (LMQ): which there are, and which messages go to them.

A light queue is a topic of the store with one queue, made by the first message for it. No client
makes or changes it, and no list, route or registry shows it. While they are switched on, each name
of the kind counts as a topic that is there.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from imago_broker.errors import RequestError
from imago_broker.model import names
from imago_broker.model.topics.topics import DIALECTS, TopicConfig
from imago_wire.record_format import properties as props
from imago_wire.record_format.entries import ENTRY_TAIL
from imago_wire.record_format.layout import CLIENT_PROPERTIES_BYTES_MAX
from imago_wire.record_format.references import (
    ALLOWED,
    ALLOWED_PROPERTY,
    LIGHT_QUEUE_ID,
    LITE_PREFIX,
    OFFSETS,
    is_light,
    lite_parent,
    lite_queue,
    named_queues,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from imago_log.store import MessageStore
    from imago_wire.records.record import Entry

logger = logging.getLogger(__name__)

NAMES_MAX: Final = 1000
"""Light queues that one message may name: each costs a record."""
OFFSET_SIZE: Final = 20
"""What an offset of a message that waits may need in its properties, with the comma."""
LOOKS_MAX: Final = 500
"""Light queues that one clean-up looks at."""
EXPIRING_MS: Final = 120_000
"""After which it is looked again whether lite topics are of use."""
IDLE_MINUTES_MIN: Final = 15
"""None goes before it has got nothing for as long, whatever its topic says; as at RocketMQ."""
_LITE: Final = LITE_PREFIX.encode()
_LIGHT: Final = "light"
"""In the stored value of a topic: it is a light queue."""


class LightEntry(tuple):  # type: ignore[type-arg]  # an Entry, and what it has beside it
    """The entry of a message that light queues have, too: see `light_puts`."""

    names: Sequence[str]
    """All that it names; what is no light queue gets no offset."""


class LightQueues:
    """The light queues of a shard. Changes are in the log before these methods return."""

    def __init__(self, store: MessageStore) -> None:
        self.enabled = False
        self.queues_max = 20_000
        self.pending = 0
        """Entries made here that are to be appended; never too few."""
        self.obstacles: list[Callable[[], str | None]] = []
        """Each says why no light queue may be made now, or None."""
        self.on_gone: list[Callable[[str], None]] = []
        """Told each light queue that is deleted."""
        self._store = store
        self._names = {name for name, value in store.topics().items() if is_stored_light(value)}
        self._left: list[str] = []
        """What the clean-up has still to look at."""
        self._log_start: int | None = None  # that of the last clean-up
        self._maybe_idle: list[str] = []
        self._looked_ms = 0

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def __len__(self) -> int:
        return len(self._names)

    def all(self) -> list[TopicConfig]:
        """Return the settings of those that are there, switched on or not."""
        return [_config(name) for name in sorted(self._names)]

    def below(self, topic: str) -> list[str]:
        """Return those that are lite topics of a topic."""
        prefix = lite_queue(topic, "")
        return [name for name in self._names if name.startswith(prefix)]

    def owns(self, name: str) -> bool:
        """Whether nobody may make an ordinary topic of this name."""
        return name in self._names or self._may_be(name)

    def topic_problem(self, name: str, *, ordinary: bool) -> str | None:
        """Return why nobody may make or change a topic of this name, or None."""
        owned = not ordinary and self.owns(name)
        return "it is a light queue, and no client makes one" if owned else None

    def _may_be(self, name: str) -> bool:
        """Whether there are light queues of this name: lite topics need no switch."""
        return is_light(name) and (self.enabled or lite_parent(name) != "")

    def config(self, name: str) -> TopicConfig | None:
        """Return the settings that a light queue has, whether or not it is there; None: no name."""
        if not self._may_be(name) or names.topic_problem(name):
            return None
        return _config(name)

    def ensure(self, wanted: Iterable[str]) -> None:
        """Make those light queues that are not there yet, by one append: all of them, or none.

        RequestError: there are too many, or an ordinary topic has such a name.
        """
        missing = [name for name in dict.fromkeys(wanted) if name not in self._names]
        if not missing:
            return
        if why := next(filter(None, (obstacle() for obstacle in self.obstacles)), None):
            raise RequestError(f"light queue {missing[0]}: {why}")
        for name in missing:
            if name in self._store.topics():
                raise RequestError(
                    f"topic {name} is no light queue: it was made while these were switched off; "
                    "delete it first"
                )
        if len(self._names) + len(missing) > self.queues_max:
            raise RequestError(
                "[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]broker config enableLmq and "
                "enableMultiDispatch, lmq consumeQueue num exceed maxLmqConsumeQueueNum "
                f"config num, default limit 2w. This broker's limit is {self.queues_max}."
            )
        self._store.create_topics(
            {name: {**_config(name).to_json(), _LIGHT: True} for name in missing}
        )
        self._names.update(missing)

    def keeps(self, name: str, position: int) -> bool:
        """Whether a group's position in what may be a light queue is kept.

        Not where there is no such queue, nor behind its end: it was a former one's.
        """
        if name in self._names:
            return position <= self._store.tail(name, LIGHT_QUEUE_ID).next_offset
        return not self._may_be(name) or name in self._store.topics()

    def make_again(self, topic: TopicConfig) -> None:
        """Make a light queue for a message that has waited for it: it may have gone meanwhile.

        RequestError: it cannot be made. A topic that is none is left alone.
        """
        if topic == self.config(topic.name):
            self.ensure([topic.name])

    # Messages

    def named_by(self, topic: str, properties: bytes) -> Sequence[str]:
        """Return what a message to a topic names, if it is to be in light queues at all."""
        if not _has_light_queues(topic) or not (self.enabled or _LITE in properties):
            return ()
        named = named_queues(properties)
        if self.enabled or all(lite_parent(name) == topic for name in named):
            return named
        return ()

    def problem(self, named: Sequence[str], properties: bytes, *, waits: bool) -> str | None:
        """Return why a message cannot be in what it names, or None."""
        if len(named) > NAMES_MAX:
            return f"INNER_MULTI_DISPATCH names {len(named)} queues, at most {NAMES_MAX}"
        for name in named:
            if is_light(name) and (problem := names.topic_problem(name)):
                return f"INNER_MULTI_DISPATCH {name[:64]!r}: {problem}"
        size = len(props.without(properties, (OFFSETS,))) + len(OFFSETS) + 3
        size += OFFSET_SIZE * len(named) if waits else sum(map(self._offset_size, named))
        if size > CLIENT_PROPERTIES_BYTES_MAX:
            return "the properties are too long with the offsets in light queues"
        return None

    def entry(self, entry: Entry, named: Sequence[str]) -> Entry:
        """Return the entry of a message for its own queue and the light queues that it names.

        They are made now, as the message is put now. RequestError: one of them cannot be.
        """
        self.ensure(name for name in named if is_light(name))
        light = LightEntry(entry)
        light.names = named
        self.pending += 1
        return light

    def take_mark(self, topic: str, properties: bytes) -> tuple[bytes, Sequence[str]]:
        """Return the properties of a message that has waited for `topic`, and what it names."""
        if ALLOWED_PROPERTY not in properties:
            return properties, ()
        return props.without(properties, (ALLOWED,)), self.named_by(topic, properties)

    def late_entry(self, entry: Entry, named: Sequence[str]) -> Entry:
        """Return the same of a message that has waited; what cannot be leaves it where it is."""
        if not named:
            return entry
        try:
            return self.entry(entry, named)
        except RequestError as error:
            topic = entry[ENTRY_TAIL].topic.decode("utf-8", "replace")
            logger.warning("light_queues_left_out topic=%s reason=%s", topic, error)
            return entry

    def _offset_size(self, name: str) -> int:
        """Return what the offset in a light queue takes, with room for what comes before it."""
        if not is_light(name):
            return 1
        end = self._store.queue_range(name, LIGHT_QUEUE_ID)[1] if name in self._names else 0
        return len(str(end)) + 6

    # What goes

    def delete(self, wanted: Iterable[str]) -> list[str]:
        """Delete light queues with all that is in them; return which there were."""
        gone = [name for name in wanted if name in self._names]
        if gone:
            self._store.delete_topic(*gone)
            self._forget(gone)
        return gone

    def clean_up(self, before_change: Callable[[], None]) -> None:
        """Delete light queues of which the log has no message any more, some at a time."""
        if self._log_start != self._store.log_start:
            self._log_start = self._store.log_start
            self._left = list(self._names)
        if not self._left:
            return
        before_change()
        looked = self._left[-LOOKS_MAX:]
        del self._left[-LOOKS_MAX:]
        gone = self.delete(name for name in looked if self._is_empty(name))
        if gone:
            logger.info("light_queues_expired count=%d left=%d", len(gone), len(self._names))

    def expire(
        self, minutes_of: Callable[[str], int], now_ms: int, before_change: Callable[[], None]
    ) -> None:
        """Delete lite topics that are of no use any more, some at a time.

        `minutes_of`: for how long those of a topic may get nothing; 0 or less: for ever.
        """
        if not self._maybe_idle:
            if now_ms < self._looked_ms + EXPIRING_MS:
                return
            self._looked_ms = now_ms
            self._maybe_idle = [name for name in self._names if minutes_of(lite_parent(name)) > 0]
        if not self._maybe_idle:
            return
        before_change()
        looked = self._maybe_idle[-LOOKS_MAX:]
        del self._maybe_idle[-LOOKS_MAX:]
        gone = self.delete(
            name
            for name in looked
            if 0 < minutes_of(lite_parent(name)) <= self._idle_minutes(name, now_ms)
        )
        if gone:
            logger.info("lite_topics_expired count=%d left=%d", len(gone), len(self._names))

    def _idle_minutes(self, name: str, now_ms: int) -> int:
        """Return for how long a light queue has got nothing; 0: not long enough to go."""
        end = self._store.tail(name, LIGHT_QUEUE_ID).next_offset
        newest_ms = self._store.store_time(name, LIGHT_QUEUE_ID, end - 1) if end else None
        minutes = 0 if newest_ms is None else (now_ms - newest_ms) // 60_000
        return minutes if minutes >= IDLE_MINUTES_MIN else 0

    def _is_empty(self, name: str) -> bool:
        """Whether the log has no message of a light queue, not even one that nobody sees yet."""
        low, _ = self._store.queue_range(name, LIGHT_QUEUE_ID)
        return low == self._store.tail(name, LIGHT_QUEUE_ID).next_offset

    def refresh(self, changed: Iterable[str], stored: Mapping[str, object]) -> None:
        """Follow what the leader's log says of topics."""
        for name in changed:
            if is_stored_light(stored.get(name)):
                self._names.add(name)
            elif name in self._names:
                self._forget([name])

    def _forget(self, gone: Iterable[str]) -> None:
        for name in gone:
            self._names.discard(name)
            for listener in self.on_gone:
                listener(name)


def is_stored_light(value: object) -> bool:
    """Whether what the store has of a topic says that it is a light queue."""
    return isinstance(value, dict) and value.get(_LIGHT) is True


def _config(name: str) -> TopicConfig:
    config = TopicConfig(name=name, read_queues=1, write_queues=1)
    return replace(config, attributes={DIALECTS: "rocketmq"})


def _has_light_queues(topic: str) -> bool:
    """Whether messages to a topic are put into the light queues that they name."""
    return not (topic in names.BROKERS_ALONE or names.is_derived(topic) or is_light(topic))
