"""Changes of metadata as records carry them, and the topics that the log itself must know.

A change is the body of a record of the reserved topic `IMAGO_META`. See docs/formats/log.md.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from imago_log.errors import ChangeTooLargeError
from imago_wire.errors import WrongError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

META_TOPIC = "IMAGO_META"
TOPIC_KIND = "topic"
QUEUE_KIND = "queue"
"""Next offset and position of a queue whose records are all gone, by `queue_key`."""
SECRET_KINDS = frozenset({"access-user"})
"""Whose values let people in: nothing shows them."""
IDENTITY_KIND = "topic-identity"
"""What tells a topic of an older version from all others, by name: its incarnation, a number."""
LOG_KIND = "log"
"""What the leader says of the log itself: `LOG_START` and `LOG_FORCED`."""
LOG_START = "start"
"""Where the log of every member begins, once they all hold this change."""
LOG_FORCED = "forced"
"""What went last for want of room, before it had expired: log offsets from … to, when, and how
many messages."""
RECORD_BYTES_MAX = 256 << 10
"""A record that holds changes of this size takes no more; the last one may be larger."""
CHANGE_BYTES_MAX = 1 << 20
"""Largest change that anybody outside may ask for: every follower takes a record of it."""
NAME_BYTES_MAX = 255
UNIQUE_FROM = 1 << 62
"""Incarnations from here on are drawn at random; lower ones were places in the log."""
METAQ_BEGIN = "metaq.begin."
"""Attribute before a partition's number: where it begins for MetaQ's clients."""

JSON = Any
Change = tuple[str, str, JSON | None]
"""Kind, key, new value; None removes. Who has given a value away never changes it."""


@dataclass(slots=True)
class Topic:
    """What the log itself needs to know of a topic."""

    name: str
    incarnation: int
    """One of a kind in the world: no other topic has it, wherever and under whatever name."""
    birth: int
    """Log offset of the record that created it: older records of the name are not its own."""
    dual: bool
    """Its records carry MetaQ positions; fixed at creation."""
    value: dict[str, JSON]

    @property
    def fixed(self) -> dict[str, JSON]:
        """What never changes of it, as changes of metadata have it."""
        return {"incarnation": self.incarnation, "birth": self.birth, "dual": self.dual}

    def change(self, value: Mapping[str, JSON]) -> Change:
        """Return the change that makes it, with the value that it has or once had."""
        return TOPIC_KIND, self.name, {**self.fixed, "value": value}

    def take_value(self, value: dict[str, JSON]) -> None:
        """Replace the value in place: holders of the topic see it."""
        self.value = value

    @property
    def attributes(self) -> Mapping[str, str]:
        found = self.value.get("attributes")
        return found if isinstance(found, dict) else {}

    @property
    def materialised(self) -> bool:
        """MetaQ's own files are kept for it."""
        return self.dual and self.attributes.get("materialised") == "true"

    @property
    def retention_ms(self) -> int | None:
        """How long its materialised files are kept, where that is shorter than the log."""
        text = str(self.attributes.get("retention.ms", ""))
        return int(text) if text.isdecimal() else None

    @property
    def delete_when(self) -> str | None:
        """When its expired files go; None: when those of all others go."""
        text = self.attributes.get("delete.when")
        return None if text is None else str(text)

    @property
    def archive(self) -> str:
        """What stays of its expired files: "", arc or zip."""
        return str(self.attributes.get("metaq.archive", ""))

    @property
    def begins(self) -> list[int]:
        """Numbers of the partitions that have a `begin`."""
        numbers = (
            name.removeprefix(METAQ_BEGIN)
            for name in self.attributes
            if name.startswith(METAQ_BEGIN)
        )
        return [int(number) for number in numbers if number.isdecimal()]

    def begin(self, queue_id: int) -> int:
        """Return the position before which MetaQ's clients find nothing in a partition."""
        text = str(self.attributes.get(f"{METAQ_BEGIN}{queue_id}", ""))
        return int(text) if text.isdecimal() else 0

    @property
    def retention_bytes(self) -> int | None:
        """How large one partition's materialised files may grow."""
        text = str(self.attributes.get("retention.bytes", ""))
        return int(text) if text.isdecimal() else None


def check_topic_name(name: str) -> None:
    """ValueError: the name cannot be that of a folder."""
    size = len(name.encode())
    if not 0 < size <= NAME_BYTES_MAX or name in (".", "..") or "/" in name or "\0" in name:
        raise WrongError(f"topic name {name[:64]!r}")


def is_dual(name: str, value: Mapping[str, JSON]) -> bool:
    """Whether a new topic with this value has MetaQ positions."""
    if name == META_TOPIC:
        return False
    stated = value.get("dual")
    if isinstance(stated, bool):
        return stated
    attributes = value.get("attributes") or {}
    system = name.startswith(("SCHEDULE_TOPIC_", "RMQ_SYS_", "rmq_sys_", "%RETRY%", "%DLQ%"))
    return not system and attributes.get("dialects") != "rocketmq"


def random_incarnation() -> int:
    """Return what tells a new topic from all others, of every cluster."""
    return UNIQUE_FROM | secrets.randbits(62)


def queue_key(topic: str, queue_id: int) -> str:
    """Return the key under which a queue's ends are kept; no topic name holds a slash."""
    return f"{topic}/{queue_id}"


def encode_changes(changes: Iterable[Change], *, size_max: int | None = None) -> list[bytes]:
    """Return the bodies of the records that carry the changes, in order.

    A record is closed by what fills it up: changes that are small but for the last one share one,
    so a crash leaves all of them or none.

    ChangeTooLargeError: one of them has more bytes than `size_max`.
    """
    bodies: list[bytes] = []
    group: list[bytes] = []
    size = 0
    for change in changes:
        data = orjson.dumps(change)
        if size_max is not None and len(data) > size_max:
            raise ChangeTooLargeError(change[0], change[1], size=len(data), size_max=size_max)
        if size >= RECORD_BYTES_MAX:
            bodies.append(_body(group))
            group, size = [], 0
        group.append(data)
        size += len(data)
    if group:
        bodies.append(_body(group))
    return bodies


def _body(changes: Sequence[bytes]) -> bytes:
    return b'{"changes":[' + b",".join(changes) + b"]}"


def decode_changes(body: bytes) -> list[Change]:
    """Return the changes of one record. ValueError: it is something else."""
    found = orjson.loads(body)
    changes = found.get("changes") if isinstance(found, dict) else None
    if not isinstance(changes, list):
        raise WrongError("no list of changes")
    return [(str(kind), str(key), value) for kind, key, value in changes]
