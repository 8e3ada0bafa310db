"""Topics, groups, offsets and delay progress: key-value state that lives in the log.

A change is the body of a record of the reserved topic `IMAGO_META`, so it is ordered with the
messages and copied with them. In memory stands the state at the log's end; a JSON file holds a
snapshot that names its log offset. Before the oldest log file goes, the whole state is written to
the log again, so that the log alone is always enough. See docs/formats/log.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from imago_log.metadata.changes import META_TOPIC, QUEUE_KIND, TOPIC_KIND, Topic
from imago_log.metadata.image import SNAPSHOT_FORMAT, MetadataImage
from imago_log.metadata.producers import PRODUCER_KIND, Producers
from imago_wire.crc import crc31
from imago_wire.errors import WrongError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from imago_log.metadata.changes import JSON, Change


class Metadata:
    """The state at one log offset, `end`."""

    def __init__(self) -> None:
        meta = Topic(META_TOPIC, 0, 0, dual=False, value={})
        self.builtin = {META_TOPIC: meta}
        self.topics: dict[str, Topic] = {}
        self.values: dict[str, dict[str, JSON]] = {}
        """By kind and key; topics are apart."""
        self.public: dict[str, dict[str, JSON]] = {}
        """The topics' own values by name, as given."""
        self.producers = Producers()
        """What idempotent producers have sent: told by records, stated by changes."""
        self.end = 0
        """All changes in the log below it are in the state."""
        self.version = 0
        """Grows with every change."""
        self.restated = 0
        """Log offset from which the log alone holds the whole state."""
        self.unsure = False
        """Changes may be lost in damage of the log."""

    @property
    def snapshot_version(self) -> int:
        """Grows with every change of what a snapshot holds."""
        return self.version + self.producers.version

    def topic(self, name: str) -> Topic:
        """Return a topic, `IMAGO_META` included. KeyError when unknown."""
        found = self.topics.get(name)
        return found if found is not None else self.builtin[name]

    def kind(self, kind: str) -> dict[str, JSON]:
        """Return the live mapping of one kind."""
        return self.values.setdefault(kind, {})

    def apply(self, changes: Iterable[Change], log_offset: int) -> list[str]:
        """Take over changes; return the topics whose queues are no longer valid."""
        ended: list[str] = []
        self.version += 1
        for kind, key, value in changes:
            if kind == TOPIC_KIND:
                if self._apply_topic(key, value, log_offset):
                    ended.append(key)
                    self.producers.drop_topic(key)
            elif kind == PRODUCER_KIND:
                self.producers.state(key, value, log_offset)
            elif value is None:
                self.kind(kind).pop(key, None)
            else:
                self.kind(kind)[key] = value
        return ended

    def ends_topic(self, changes: Iterable[Change]) -> bool:
        """Whether `apply` may make queues of a topic invalid."""
        for kind, key, value in changes:
            old = self.topics.get(key) if kind == TOPIC_KIND else None
            if old is not None and (value is None or int(value["incarnation"]) != old.incarnation):
                return True
        return False

    def become(self, other: Metadata) -> tuple[list[Change], list[str]]:
        """Replace the state in place: holders of a mapping see it.

        Return the changes, and the topics whose queues are no longer valid.
        """
        wanted = {(kind, key): value for kind, key, value in other.whole()}
        known = {(kind, key): value for kind, key, value in self.whole()}
        changes = [(*name, wanted.get(name)) for name in known if known[name] != wanted.get(name)]
        changes += [(*name, wanted[name]) for name in wanted if name not in known]
        ended = self.apply(changes, 0)
        self.end, self.restated = other.end, other.restated
        return changes, ended

    def adopt(self, other: Metadata) -> None:
        """Become another state, which nobody else holds, before anybody has seen this one."""
        self.topics, self.values, self.public = other.topics, other.values, other.public
        self.producers = other.producers
        self.end, self.version, self.restated = other.end, other.version, other.restated

    def reach(self, end: int) -> None:
        """Note that all changes in the log below an offset are in the state."""
        self.end = end

    def note_restated(self, log_offset: int) -> None:
        """Note that the log alone holds the whole state from an offset on."""
        self.restated = log_offset

    def doubt(self, unsure: bool = True) -> None:
        """Note that changes may be lost in damage of the log, or that none are."""
        self.unsure = unsure

    def take_producers(self, other: Metadata) -> None:
        """Take over what idempotent producers have sent, as another state has it."""
        self.version += self.producers.version + 1
        self.producers = other.producers

    def unknown_topics(self, other: Metadata, log_end: int) -> frozenset[str]:
        """Return the topics of another state whose messages are in no queue of this one."""
        return frozenset(
            name
            for name, topic in other.topics.items()
            if topic.birth < log_end
            and (name not in self.topics or self.topics[name].incarnation != topic.incarnation)
        )

    def _apply_topic(self, name: str, value: JSON | None, log_offset: int) -> bool:
        old = self.topics.get(name)
        if value is None:
            self.topics.pop(name, None)
            self.public.pop(name, None)
            ends = self.kind(QUEUE_KIND)
            for key in [key for key in ends if key.rpartition("/")[0] == name]:
                del ends[key]
            return old is not None
        birth = value.get("birth")
        if birth is None:
            birth = log_offset
        incarnation = int(value["incarnation"])
        if old is not None and old.incarnation == incarnation:
            birth = old.birth
        topic = Topic(name, incarnation, int(birth), bool(value["dual"]), value["value"])
        if old is not None and old.incarnation == incarnation:
            old.take_value(topic.value)
        else:
            self.topics[name] = topic
        self.public[name] = topic.value
        return old is not None and old.incarnation != incarnation

    def image(self, end: int) -> MetadataImage:
        """Return the state as it is now, for the log offset `end`: no change is behind `self.end`.

        It stays as it is, whatever is applied here afterwards.
        """
        return MetadataImage(
            end=end,
            restated=self.restated,
            topics=self.topics.copy(),
            public=self.public.copy(),
            values={kind: values.copy() for kind, values in self.values.items()},
            producers=self.producers.image(),
        )

    def whole(self) -> list[Change]:
        """Return the changes that make this state out of nothing, but for producers."""
        return list(self.image(self.end).changes())

    def snapshot(self) -> bytes:
        """Return the file that holds this state: a line with a checksum, then JSON."""
        return self.snapshot_at(self.end)

    def snapshot_at(self, end: int) -> bytes:
        """The same, when the log has no change between `self.end` and `end`."""
        return self.image(end).encode()

    @classmethod
    def from_snapshot(cls, data: bytes) -> Metadata:
        """Read `snapshot`'s form. ValueError: it is damaged."""
        checksum, _, rest = data.partition(b"\n")
        content = rest.removesuffix(b"\n")
        if not checksum.isdigit() or int(checksum) != crc31(content):
            raise WrongError("checksum does not match")
        found = orjson.loads(content)
        if found["format"] != SNAPSHOT_FORMAT:
            raise WrongError(f"format {found['format']}")
        metadata = cls()
        metadata.apply(((kind, key, value) for kind, key, value in found["changes"]), 0)
        metadata.end, metadata.restated = int(found["end"]), int(found["restated"])
        metadata.producers.load(found.get("producers", ()), metadata.end)
        return metadata
