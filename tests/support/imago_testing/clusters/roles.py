"""Another role for a broker in the test's process, without the replication that leads there."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from imago_broker.model.registry.cluster import Role
from imago_broker.service.puts.put_status import PutStatus
from imago_broker.service.role import ALONE, ShardRole

if TYPE_CHECKING:
    from imago_broker.app import Broker

OTHER_ROLES = [Role.SLAVE, Role.ELECTING, Role.FENCED]
LEADER_PORT = 12345


def step_down(broker: Broker, role: Role = Role.SLAVE, *, replica: int = 4) -> None:
    """Have the broker be no master; a slave follows replica `replica` at `LEADER_PORT`."""
    leader = replace(broker.record(), uuid="leader", replica=replica, rocketmq=LEADER_PORT)
    known = leader if role is Role.SLAVE else None
    broker.messages.refuse(PutStatus.NOT_WRITABLE)
    broker.role.change(ShardRole(role=role, epoch=2, leader=known, reason="test"))


def lead_again(broker: Broker) -> None:
    """Have the broker be the master."""
    broker.messages.refuse(None)
    broker.role.change(ALONE)
