"""What this broker is in its shard at this moment, for everybody who answers clients.

Whoever answers a request reads `current`; whoever has to do something about a change (wake,
relay, announce) puts a listener into `on_change`. Changed by the replication shell alone, in the
event loop's thread. A broker without replication leads from its start to its end.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from imago_broker.model.registry.cluster import Role

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_broker.model.registry.cluster import BrokerRecord

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardRole:
    """One broker's place in its shard."""

    role: Role
    epoch: int
    """Epoch of the leadership that this broker leads or follows; 0: none is known."""
    leader: BrokerRecord | None = None
    """The leader's live registration; None while nobody leads, and where we lead ourselves."""
    reason: str = ""
    """Why puts are refused, for the answer; empty where they are taken."""

    @property
    def leads(self) -> bool:
        """Whether this broker is the master of its shard."""
        return self.role is Role.MASTER


ALONE = ShardRole(role=Role.MASTER, epoch=0)
"""The only member of a shard that keeps no state in the registry."""


UNSETTLED = ShardRole(role=Role.ELECTING, epoch=0, reason="the shard has no master")
"""A member of a shard that has just started."""


class RoleState:
    """The role as it stands, and who wants to hear of the next one."""

    def __init__(self, current: ShardRole = ALONE) -> None:
        self.current = current
        self.settled_at = 0
        """Log offset that the high watermark has to reach before a new master answers reads: its
        log's end at the election. Before, it may know less than readers have been told."""
        self.on_change: list[Callable[[ShardRole], None]] = []
        """Told each new role, in the order in which they were added."""

    @property
    def leads(self) -> bool:
        """Whether this broker is the master of its shard."""
        return self.current.leads

    def change(self, role: ShardRole) -> None:
        """Take a new role and tell everybody; the same again is no change."""
        if role == self.current:
            return
        self.current = role
        for listener in tuple(self.on_change):
            try:
                listener(role)
            except Exception:
                # The others have to hear of it all the same: a role does not wait for them.
                logger.exception("role_listener_failed listener=%s", listener)
