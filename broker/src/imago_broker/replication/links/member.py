"""Who we are to the other members, and who they are: what handshakes are checked against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_broker.model.registry.cluster import BrokerRecord, ClusterView
    from imago_broker.ports import Clock
    from imago_broker.replication.counters import ReplicationCounters
    from imago_log.store import MessageStore


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberIdentity:
    """This member, as its registration says at the moment of each question."""

    shard: int
    uuid: str
    view: Callable[[], ClusterView]
    incarnation: Callable[[], int]
    """Incarnation of our live registration; 0: there is none."""

    @property
    def cluster_id(self) -> str:
        """Id of the cluster; "" before the registry was read."""
        return self.view().cluster_id

    def live(self, uuid: str) -> BrokerRecord | None:
        """Return the live registration of a member of our shard."""
        for record in self.view().members(self.shard):
            if record.uuid == uuid:
                return record
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ThisMember:
    """What each connection of this member to another one has to do with."""

    identity: MemberIdentity
    store: MessageStore
    counters: ReplicationCounters
    clock: Clock
