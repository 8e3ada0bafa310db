"""The settings of one topic as a value.

Settings that RocketMQ knows are fields; all others are attributes, text to text, as RocketMQ 5
has them, so that its tools can show and change ours. Queues count per shard.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from imago_broker.model import bounds, names
from imago_broker.model.bounds import as_json
from imago_wire.errors import WrongError

if TYPE_CHECKING:
    from collections.abc import Mapping

PERM_PRIORITY = 8
PERM_READ = 4
PERM_WRITE = 2
PERM_INHERIT = 1
PERM_READ_WRITE = PERM_READ | PERM_WRITE
PERM_ALL = PERM_PRIORITY | PERM_READ_WRITE | PERM_INHERIT

FILTER_TYPES = ("SINGLE_TAG", "MULTI_TAG")

ACKNOWLEDGEMENT = "acknowledgement"
DELETE_WHEN = "delete.when"
DIALECTS = "dialects"
MATERIALISED = "materialised"
METAQ_ARCHIVE = "metaq.archive"
METAQ_BEGIN = "metaq.begin."
"""Before a partition's number: position at which it begins for MetaQ's clients."""
METAQ_FILTER = "metaq.filter."
"""Before a group's name: what MetaQ's consumers of it get of the topic."""
METAQ_PUBLISH = "metaq.publish"
METAQ_STAT = "metaq.stat"
METAQ_SUBSCRIBE = "metaq.subscribe"
RETENTION_BYTES = "retention.bytes"
RETENTION_MS = "retention.ms"
SEALED = "sealed"
"""What a sealed topic was before: see `sealing`."""

OWN_ATTRIBUTES = frozenset(
    {
        ACKNOWLEDGEMENT,
        DELETE_WHEN,
        DIALECTS,
        MATERIALISED,
        METAQ_ARCHIVE,
        METAQ_PUBLISH,
        METAQ_STAT,
        METAQ_SUBSCRIBE,
        RETENTION_BYTES,
        RETENTION_MS,
        SEALED,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """What one shard knows of one topic. Never changed in place: see `with_attributes`."""

    name: str
    read_queues: int = bounds.whole(8, 0, names.PARTITIONS_MAX)
    write_queues: int = bounds.whole(8, 0, names.PARTITIONS_MAX)
    perm: int = bounds.whole(PERM_READ_WRITE, 0, PERM_ALL)
    order: bool = bounds.flag(False)
    sys_flag: int = bounds.whole(0, bounds.INT_LOW, bounds.INT_HIGH)
    filter_type: str = bounds.word(FILTER_TYPES[0], *FILTER_TYPES)
    attributes: Mapping[str, str] = bounds.texts_by_name()

    def __post_init__(self) -> None:
        if problem := names.topic_problem(self.name):
            raise WrongError(problem)
        bounds.require(self)

    @property
    def dual(self) -> bool:
        """Whether MetaQ clients may read the topic, so that its records carry positions."""
        if names.looks_own(self.name) or names.is_derived(self.name):
            return False
        return self.attributes.get(DIALECTS, "metaq,rocketmq") != "rocketmq"

    @property
    def materialised(self) -> bool:
        """Whether the store keeps segment files in MetaQ's own format beside the log."""
        return self.attributes.get(MATERIALISED) == "true"

    @property
    def acknowledgement(self) -> str | None:
        """The level of this topic, or None for the cluster's."""
        return self.attributes.get(ACKNOWLEDGEMENT)

    @property
    def retention_ms(self) -> int | None:
        """How long MetaQ's own files are kept, never the log; None: as long as the log."""
        text = self.attributes.get(RETENTION_MS, "")
        # Whoever sets it is told what is wrong; what stands there all the same breaks no list.
        return int(text) if text.isascii() and text.isdecimal() else None

    @property
    def metaq_publish(self) -> bool:
        """Whether MetaQ producers find the topic."""
        return self.attributes.get(METAQ_PUBLISH) != "false"

    @property
    def metaq_subscribe(self) -> bool:
        """Whether MetaQ consumers find the topic."""
        return self.attributes.get(METAQ_SUBSCRIBE) != "false"

    @property
    def metaq_stat(self) -> bool | None:
        """Whether real-time statistics are kept, or None for the broker's own setting."""
        text = self.attributes.get(METAQ_STAT)
        return None if text is None else text == "true"

    @property
    def queues(self) -> int:
        """How many queues exist: a read-only queue still does."""
        return max(self.read_queues, self.write_queues)

    def with_attributes(self, **changes: str | None) -> TopicConfig:
        """Return a copy with attributes set, or removed where the new value is None.

        Dots in an attribute's name are written as double underscores.
        """
        merged = dict(self.attributes)
        for key, value in changes.items():
            name = key.replace("__", ".")
            if value is None:
                merged.pop(name, None)
            else:
                merged[name] = value
        return replace(self, attributes=merged)

    def to_json(self) -> dict[str, Any]:
        """Return the form that is stored with the log and published in the registry."""
        return {
            "name": self.name,
            "read_queues": self.read_queues,
            "write_queues": self.write_queues,
            "perm": self.perm,
            "order": self.order,
            "sys_flag": self.sys_flag,
            "filter_type": self.filter_type,
            "attributes": dict(self.attributes),
            "dual": self.dual,
        }

    @classmethod
    def said(cls, value: Mapping[str, Any]) -> TopicConfig:
        """Read `to_json`'s form of another broker; ValueError for what no topic can be."""
        return cls(name=names.said_text(value, "name"), **bounds.given(cls, value))

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> TopicConfig:
        """Read `to_json`'s form, also as older versions let it be: within bounds.

        KeyError or ValueError for what nobody can read.
        """
        texts = {str(k): str(v) for k, v in value.get("attributes", {}).items()}
        return cls(name=value["name"], **bounds.mended(cls, {**value, "attributes": texts}))


def perm_problem(perm: object) -> str | None:
    """Return why people may not give a topic this permission, or None.

    RocketMQ's tools may set the bits of its own topics too, which the bounds of the field allow.
    """
    if type(perm) is int and perm in (PERM_READ, PERM_WRITE, PERM_READ_WRITE):
        return None
    return f"perm: {as_json(perm)}, must be 4 (read), 2 (write) or 6 (both)"


def attribute_text(value: bool | int | float | str) -> str:
    """Return an attribute as it is kept: a text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def queues_problem(new: TopicConfig) -> str | None:
    """Return why the topic would be nowhere, or None."""
    return None if new.queues else "no queue to write and none to read: at least 1"


def unread_problem(old: TopicConfig | None, new: TopicConfig) -> str | None:
    """Return why nobody would read what is written from this change on, or None."""
    if new.read_queues >= new.write_queues:
        return None
    if old is not None and old.write_queues - old.read_queues >= new.write_queues - new.read_queues:
        return None
    return (
        f"{new.write_queues} queues to write and {new.read_queues} to read: what is sent to the"
        " others would be read by nobody"
    )
