"""The registry: who brokers are to it, and one that is there already."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from imago_operator.spec.schema.fields import described
from imago_operator.spec.schema.rule import Rule

EXTERNAL: Final = "spec.zookeeper.external"
SERVER_PATTERN: Final = r"^[A-Za-z0-9.-]+:[0-9]{1,5}$"


class RegistryAccess(StrEnum):
    """Who may change the brokers' nodes in a managed ZooKeeper."""

    NONE = "None"
    PERMISSIVE = "Permissive"
    ENFORCING = "Enforcing"


class RegistryTls(StrEnum):
    """Which ports the servers of a managed ZooKeeper have for clients."""

    NONE = "None"
    """The plain one."""
    PERMISSIVE = "Permissive"
    """Both."""
    ENFORCING = "Enforcing"
    """The one with TLS."""


class QuorumTls(StrEnum):
    """How a server of a managed ZooKeeper meets the others, in the order of a move to TLS.

    Two that are next to each other here understand each other, and no others do.
    """

    NONE = "None"
    """Without TLS."""
    ACCEPTING = "Accepting"
    """Without TLS, and it accepts both."""
    SENDING = "Sending"
    """With TLS, and it accepts both."""
    ENFORCING = "Enforcing"
    """With TLS alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperTls:
    """TLS between brokers and an external ZooKeeper."""

    secret_name: str = described(
        "Secret with ca.crt, the authorities that sign for its servers; with clientCertificate"
        " also tls.crt and tls.key. `servers` names the secure client ports then.",
        size_max=253,
        size_min=1,
    )
    client_certificate: bool = described(
        "Whether brokers show it the certificate tls.crt.", default=False
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperAuth:
    """Who brokers are to an external ZooKeeper."""

    secret_name: str = described(
        "Secret with username and password of all brokers (scheme digest).",
        size_max=253,
        size_min=1,
    )
    protect: bool = described(
        "Whether only that user may change the brokers' nodes, and others only read those that"
        " MetaQ's clients need. Running brokers without a user need false until all have one.",
        default=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalZooKeeper:
    """A ZooKeeper that is there already."""

    servers: tuple[str, ...] = described(
        "Servers of the ensemble, as host:port.",
        size_min=1,
        size_max=15,
        item_pattern=SERVER_PATTERN,
        item_size_max=260,
    )
    chroot: str = described(
        "Path below which all nodes are stored, MetaQ's tree included. Immutable.",
        default="",
        pattern=r"^(/[A-Za-z0-9_.-]+)*$",
        size_max=200,
    )
    client_servers: tuple[str, ...] = described(
        "The same servers as MetaQ's clients reach them, which speak no TLS; unless given,"
        " `servers`.",
        default=(),
        size_max=15,
        item_pattern=SERVER_PATTERN,
        item_size_max=260,
    )
    tls: ZooKeeperTls | None = described(
        "TLS between brokers and ZooKeeper; without it nothing is encrypted.", default=None
    )
    auth: ZooKeeperAuth | None = described(
        "The brokers' user; without it all clients of ZooKeeper may change their nodes.",
        default=None,
    )


def _protects(node: Any) -> bool:
    return bool("auth" in node and node["auth"]["protect"])


RULES: Final[tuple[Rule, ...]] = (
    Rule(
        path=EXTERNAL,
        cel="!has(self.auth) || !self.auth.protect || has(oldSelf.auth)",
        holds_after=lambda node, old: not _protects(node) or "auth" in old,
        message="brokers that run have no user yet: set auth.protect false first",
    ),
    Rule(
        path=EXTERNAL,
        cel="has(self.auth) || !has(oldSelf.auth) || !oldSelf.auth.protect",
        holds_after=lambda node, old: "auth" in node or not _protects(old),
        message="nodes are for the user alone: set auth.protect false before auth goes",
    ),
)
