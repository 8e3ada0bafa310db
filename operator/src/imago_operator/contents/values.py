"""Topics, groups and drains as brokers tell them: plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

PERM_WRITE: Final = 2
SYSTEM_PREFIXES: Final = ("%RETRY%", "%DLQ%")


@dataclass(frozen=True, slots=True)
class TopicQueues:
    """A topic's queues on one shard."""

    write: int
    read: int
    perm: int = 6
    online: bool = True
    """Whether the shard has a master."""

    @property
    def number(self) -> int:
        """How many there are: those that are closed to new messages still have a number."""
        return max(self.write, self.read)

    @property
    def open(self) -> int:
        """How many take messages."""
        return self.write if self.perm & PERM_WRITE else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenTopic:
    """A topic, as the registry has it."""

    name: str
    shards: Mapping[int, TopicQueues]
    order: bool = False
    dialects: str = "metaq,rocketmq"
    attributes: Mapping[str, str] = field(default_factory=dict)

    @property
    def open_on(self) -> frozenset[int]:
        """Shards on which it takes messages."""
        return frozenset(shard for shard, queues in self.shards.items() if queues.open)

    @property
    def derived(self) -> bool:
        """Whether it is a group's own: its retries or its dead letters."""
        return self.name.startswith(SYSTEM_PREFIXES)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenBackup:
    """A backup, as brokers tell it."""

    state: str
    """running, done, interrupted or failed."""
    started_ms: int = 0
    until_ms: int = 0
    size: int = 0
    damaged: int = 0
    lacks: str = ""
    """What members' disks had no more; empty: nothing."""
    done: int = 0
    total: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class GroupLag:
    """What a group has not read of a topic."""

    messages: int
    oldest_ms: int | None = None
    """When the oldest of them was stored, ms since 1970."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenGroup:
    """A consumer group, as all shards together know it."""

    name: str
    settings: Mapping[str, Any] | None
    """None: it has only offsets or members."""
    members: tuple[str, ...] = ()
    lags: Mapping[str, GroupLag] = field(default_factory=dict)
    """By topic; topics that the group has offsets of."""
    metaq_members: tuple[str, ...] = ()
    """MetaQ's consumers of the same name: they share neither queues nor offsets with the others."""
    metaq_lags: Mapping[str, GroupLag] = field(default_factory=dict)
    """What they have not read: their offsets are in ZooKeeper, and brokers only read them."""

    @property
    def kept(self) -> bool:
        """Whether brokers have anything of it."""
        return self.settings is not None or bool(self.members or self.lags)

    @property
    def consumers(self) -> int:
        """How many consume, of both kinds."""
        return len(self.members) + len(self.metaq_members)

    @property
    def behind(self) -> Mapping[str, GroupLag]:
        """By topic: what is unread, of both kinds that of those who are further behind.

        Offsets of MetaQ's consumers stay in ZooKeeper for ever: while none of them runs they count
        only where the group has no others.
        """
        found = dict(self.lags)
        for topic, theirs in self.metaq_lags.items():
            ours = found.get(topic)
            if ours is None or (self.metaq_members and theirs.messages > ours.messages):
                found[topic] = theirs
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenGroups:
    """Groups by name, and which shards could not be asked: what they know is missing."""

    groups: Mapping[str, SeenGroup]
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenToken:
    """A bearer token of a user, as brokers show it."""

    number: str
    expires_ms: int
    """0: never."""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedToken:
    """A token that brokers have just made; they do not show it again."""

    number: str
    expires_ms: int
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenUser:
    """A user, as brokers show it: without anything that lets somebody in."""

    name: str
    is_super: bool = False
    enabled: bool = True
    signs: bool = False
    """Whether brokers have a key that its requests are signed with."""
    has_password: bool = False
    rules: tuple[Mapping[str, Any], ...] = ()
    quotas: Mapping[str, int] = field(default_factory=dict)
    tokens: tuple[SeenToken, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenSecret:
    """A Secret of Kubernetes."""

    version: str
    ours: bool
    """Whether it belongs to the observed resource."""
    data: Mapping[str, str] = field(repr=False)
    """Its entries, decoded; those that are no text are left out."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """Annotations of ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenShard:
    """A shard, as far as moves are concerned."""

    id: int
    master: bool = True
    cordoned: bool = False
    draining: bool = False
    drained: bool = False
    to_move: int | None = None
    """Topics that take messages still, while it is drained; None: its master does not say."""
    unread: int = 0
    blocked: str = ""
    """Why the next topic cannot leave."""

    @property
    def free(self) -> bool:
        """Whether topics may come to it."""
        return self.master and not self.cordoned
