"""The settings of one topic as a value.

Settings that RocketMQ knows are fields; all others are attributes, text to text, as RocketMQ 5
has them, so that its tools can show and change ours. Queues count per shard.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from imago_broker.model import names

if TYPE_CHECKING:
    from collections.abc import Mapping

PERM_PRIORITY = 8
PERM_READ = 4
PERM_WRITE = 2
PERM_INHERIT = 1
PERM_READ_WRITE = PERM_READ | PERM_WRITE

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
    read_queues: int = 8
    write_queues: int = 8
    perm: int = PERM_READ_WRITE
    order: bool = False
    sys_flag: int = 0
    filter_type: str = "SINGLE_TAG"
    attributes: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if problem := names.topic_problem(self.name):
            raise ValueError(problem)
        for what in ("read_queues", "write_queues"):
            if not 0 <= getattr(self, what) <= names.PARTITIONS_MAX:
                raise ValueError(
                    f"{what}: {getattr(self, what)}, must be 0 to {names.PARTITIONS_MAX}"
                )
        if not 0 <= self.perm <= 15:
            raise ValueError(f"perm: {self.perm}, must be 0 to 15")

    @property
    def dual(self) -> bool:
        """Whether MetaQ clients may read the topic, so that its records carry positions."""
        if names.is_system(self.name) or names.is_derived(self.name):
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
    def from_json(cls, value: Mapping[str, Any]) -> TopicConfig:
        """Read `to_json`'s form; ValueError or TypeError for anything else."""
        return cls(
            name=value["name"],
            read_queues=int(value["read_queues"]),
            write_queues=int(value["write_queues"]),
            perm=int(value.get("perm", PERM_READ_WRITE)),
            order=bool(value.get("order", False)),
            sys_flag=int(value.get("sys_flag", 0)),
            filter_type=str(value.get("filter_type", "SINGLE_TAG")),
            attributes={str(k): str(v) for k, v in value.get("attributes", {}).items()},
        )


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
