"""Settings of the coordinator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

from imago_broker.core.shard.leader_lease import lease_until
from imago_broker.model.registry.cluster import SHARD_MAX
from imago_wire.errors import WrongError

if TYPE_CHECKING:
    from collections.abc import Callable


def random_id() -> str:
    """Return a name that no other cluster has."""
    return uuid4().hex


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorConfig:
    """What one process needs to know to take part in a cluster."""

    cluster: str = "imago"
    """Name below which the registry stands: `/imago/<cluster>`."""
    metaq_root: str = "/meta"
    """Root of the public tree that MetaQ clients read (their `zk.zkRoot`)."""
    new_id: Callable[[], str] = random_id
    """Names the cluster, where this process is the first one of it."""
    alone: bool = False
    """Nobody else can reach the registry: no tree for clients is kept, and no lease ends."""
    metaq_broker_id_base: int = 0
    """MetaQ's broker id of shard 0; raise it beside original brokers in the same tree."""
    metaq_slave: int = -1
    """From 0 on: whoever leads a shard stands in MetaQ's tree as this slave of another master."""
    metaq_hidden: bool = False
    """Whether nothing of us stands in MetaQ's tree: another master has the broker id."""
    metaq_config_checksum: int = 0
    """Unsigned CRC-32 of the configuration file: MetaQ's `master_config_checksum`."""
    session_timeout_ms: int = 6000
    """How long others keep our place when they hear nothing from us."""
    connect_timeout_ms: int = 15000
    operation_timeout_ms: int = 10000
    relay_ms: int = 0
    """How long former masters pass their clients' requests on; MetaQ's clients are told of a
    planned change of master within that time, one after the other."""
    stranger_wait_ms: int = -1
    """How long a registration waits for another holder of its MetaQ broker id to go; -1: as long
    as his session may take to end after his death, the session time-out and 2 s."""

    def __post_init__(self) -> None:
        if not self.cluster or set(self.cluster) & set("/\0") or self.cluster in (".", ".."):
            raise WrongError(f"cluster: {self.cluster!r} cannot be the name of a node")
        if not self.metaq_root.startswith("/") or self.metaq_root.endswith("/"):
            raise WrongError(f"metaq.zk_root: {self.metaq_root!r}, must look like /meta")
        if not 0 <= self.metaq_broker_id_base <= SHARD_MAX:
            raise WrongError(
                f"metaq.broker_id_base: {self.metaq_broker_id_base}, must be 0 to {SHARD_MAX}"
            )
        if self.session_timeout_ms < 2000:
            raise WrongError(
                f"session_timeout_ms: {self.session_timeout_ms}, must be at least 2000"
            )

    @property
    def lease_ms(self) -> int:
        """How long after a call that was answered others surely keep our place.

        A third of the session time-out is left for clocks that run at different speeds.
        """
        return lease_until(0, self.session_timeout_ms)

    @property
    def stranger_wait_seconds(self) -> float:
        if self.stranger_wait_ms >= 0:
            return self.stranger_wait_ms / 1000
        return self.session_timeout_ms / 1000 + 2
