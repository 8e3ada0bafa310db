"""Whether this member of its shard may serve a request now: one rule for both protocols.

Every row of the protocols' tables says which of the four kinds it is. What a refused client is
told is the protocol's business; why, is said here.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from imago_broker.model.registry.cluster import Role
from imago_broker.model.registry.seen import record_at

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_broker.service.role import RoleState
    from imago_log.store import MessageStore

UNSETTLED = "this broker has just become the master and waits for the other members"
NO_LEASE = "this broker has not heard from the registry for so long that another may lead"


class Asks(Enum):
    """What a request asks of the member that serves it."""

    MEMBER = "nothing: every member answers, in every role"
    MESSAGES = "messages that all in-sync members have: the master, or a slave that serves reads"
    STATE = "what only the master knows for certain: progress of groups, ends of queues"
    CHANGE = "a change, which is the master's alone"


# Bound once: an enumeration finds its members again each time that they are named.
_MEMBER, _CHANGE = Asks.MEMBER, Asks.CHANGE


def always() -> bool:
    """Nobody else can ever lead."""
    return True


class ServingRules:
    """What this member of its shard serves, as requests need it."""

    def __init__(
        self,
        store: MessageStore,
        role: RoleState,
        *,
        slave_reads: bool = False,
        lease_holds: Callable[[], bool] = always,
        listener: str = "",
    ) -> None:
        """`listener`: where the clients come in that are told where the master is."""
        self.role = role
        self._listener = listener
        self.slave_reads = slave_reads
        """Whether members that do not lead serve reads."""
        self.lease_holds = lease_holds
        """Whether nobody else can lead by now; asked of a master only."""
        self._store = store

    def at(self, listener: str) -> ServingRules:
        """Return the same rules for clients of another listener."""
        return ServingRules(
            self._store,
            self.role,
            slave_reads=self.slave_reads,
            lease_holds=self.lease_holds,
            listener=listener,
        )

    @property
    def leads(self) -> bool:
        """Whether this broker is the master of its shard."""
        return self.role.current.leads

    @property
    def settled(self) -> bool:
        """Whether the master knows at least what any reader has been told."""
        settled_at = self.role.settled_at
        return not settled_at or self._store.high_watermark >= settled_at

    def refusal(self, asks: Asks) -> str | None:
        """Return why a request of this kind is not served here now; None: it is."""
        if asks is _MEMBER:
            return None
        if self.role.current.leads:
            if asks is not _CHANGE and not self.settled:
                return UNSETTLED
            return None if self.lease_holds() else NO_LEASE
        if asks is Asks.MESSAGES and self.slave_reads and self.role.current.role is Role.SLAVE:
            return None
        return self._not_the_master()

    def _not_the_master(self) -> str:
        leader = self.role.current.leader
        if leader is not None and self._listener:
            leader = record_at(leader, self._listener)
        if leader is not None:
            where = (
                f"the master of the shard is {leader.rocketmq_address} (MetaQ {leader.metaq_url})"
            )
        else:
            where = "the shard has no master at the moment"
        return f"this broker is not the master, {where}"
