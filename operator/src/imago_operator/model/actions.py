"""What is done about a cluster, one call each: plain values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """A field of an object that is not as we applied it."""

    path: str
    found: str
    wanted: str
    by: str = ""
    """Who changed it, by the name that Kubernetes knows; empty: somebody took it away."""


@dataclass(frozen=True, slots=True)
class Apply:
    """Apply a manifest from the server's side, as its only owner."""

    manifest: Mapping[str, Any]
    why: str = "differs"
    drift: tuple[Drift, ...] = ()
    """What somebody has changed, and is put back."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Apply a StatefulSet that has no pods any more."""

    manifest: Mapping[str, object]
    shard: int


@dataclass(frozen=True, slots=True)
class Hibernate:
    """Apply a StatefulSet without pods; they come back with all that is on their claims."""

    manifest: Mapping[str, object]
    shard: int | None = None
    """None: that of ZooKeeper's servers."""


@dataclass(frozen=True, slots=True)
class CreateToken:
    """Make the Secret with the admin token, unless it is there; the token is random."""

    name: str


@dataclass(frozen=True, slots=True)
class CreateRegistryUser:
    """Make the Secret with the brokers' user in a managed ZooKeeper."""

    name: str


@dataclass(frozen=True, slots=True)
class DeleteChild:
    """Delete a child that is no longer wanted, if it is still the one that was seen."""

    kind: str
    name: str
    uid: str
    orphan: bool = False
    """Whether what it owns stays: pods of a StatefulSet that is made anew."""


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete a pod in the background, if it is still the one that was seen."""

    name: str
    uid: str
    shard: int | None
    why: str


@dataclass(frozen=True, slots=True)
class LabelPod:
    """Say on a pod which role its broker has."""

    name: str
    uid: str
    role: str


@dataclass(frozen=True, slots=True)
class GrowClaim:
    """Ask for a larger volume."""

    name: str
    uid: str
    size: str
    at: str = ""
    """The moment, to be noted on it where its disk is full; empty: the spec asks for it."""


@dataclass(frozen=True, slots=True)
class ClassClaim:
    """Ask for a volume of another VolumeAttributesClass."""

    name: str
    uid: str
    attributes_class: str


@dataclass(frozen=True, slots=True)
class OwnClaim:
    """Have a claim go with the cluster, or stay when it goes."""

    name: str
    uid: str
    owned: bool


@dataclass(frozen=True, slots=True)
class DeleteClaim:
    """Delete a claim and what was on it, if it is still the one that was seen."""

    name: str
    uid: str
    shard: int


@dataclass(frozen=True, slots=True)
class SetConfig:
    """Change settings of one running broker."""

    pod: str
    values: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Handover:
    """Have the master in a pod give leadership away."""

    pod: str
    uuid: str
    shard: int
    epoch: int
    target: str = ""
    """Who is to lead, by uuid; empty: whoever is best."""


@dataclass(frozen=True, slots=True)
class Elect:
    """Have the broker in a pod lead its shard, though it may lack acknowledged messages."""

    pod: str
    uuid: str
    shard: int


@dataclass(frozen=True, slots=True)
class FenceMember:
    """Have the broker in a pod keep its log and serve nobody."""

    pod: str
    uuid: str
    shard: int
    anyway: bool = False
    """Whether clients of the shard may be refused for it."""


@dataclass(frozen=True, slots=True)
class LiftFence:
    """Have the broker in a pod that is fenced serve again."""

    pod: str
    uuid: str


@dataclass(frozen=True, slots=True)
class RaiseLevel:
    """Have brokers use what they all understand; none that understands less starts again."""

    level: int


@dataclass(frozen=True, slots=True)
class Cordon:
    """Have a shard take no new topics."""

    shard: int


@dataclass(frozen=True, slots=True)
class Uncordon:
    """Have a shard take new topics again; it is no longer on record as drained."""

    shard: int


@dataclass(frozen=True, slots=True)
class MarkDrained:
    """Put on record, under the operator's epoch, that a shard has nothing anybody needs."""

    shard: int


class CertificateWork(Enum):
    """What is done to a Secret."""

    NEW_AUTHORITY = "make an authority"
    NEXT_AUTHORITY = "make the next authority, and have members trust it"
    SWITCH_AUTHORITY = "have the next authority sign"
    DROP_AUTHORITY = "trust the former authority no more"
    ISSUE = "give members of a shard a certificate"
    TRUST = "send members of a shard whom to trust"


@dataclass(frozen=True, slots=True)
class Certify:
    """Write the Secret of an authority, of a shard's members, or of ZooKeeper's servers."""

    work: CertificateWork
    holder: int | str | None = None
    clients: bool = False
    """Whether it is the authority that signs for clients."""


Action = (
    Apply
    | Certify
    | Stop
    | Hibernate
    | CreateToken
    | CreateRegistryUser
    | DeleteChild
    | DeletePod
    | LabelPod
    | GrowClaim
    | ClassClaim
    | OwnClaim
    | DeleteClaim
    | SetConfig
    | Handover
    | Elect
    | FenceMember
    | LiftFence
    | RaiseLevel
    | Cordon
    | Uncordon
    | MarkDrained
)
ADDITIVE: Final = (
    Apply,
    Certify,
    CreateToken,
    CreateRegistryUser,
    LabelPod,
    GrowClaim,
    ClassClaim,
    SetConfig,
    LiftFence,
    Uncordon,
)
"""What may be done though not everything is known: nothing goes away by it."""


def destructive(actions: Iterable[Action]) -> list[Action]:
    """Return the actions that take something away, move it or stop it."""
    return [action for action in actions if not isinstance(action, ADDITIVE)]
