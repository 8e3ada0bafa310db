"""Which member of the shard a consumer should ask next: the broker id that answers to pulls carry.

RocketMQ's clients keep the id by queue and send the queue's next pull to the member that has it in
the route they know. The master is 0 in every new route, every other member its replica's number
plus one; a route from before a failover has the former master as 0 and the new one among the
others. Clients read routes again every 30 s only, and on no answer's code, so that the id is what
brings a consumer to the new master at once.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from imago_wire.remoting.bodies.route import MASTER_ID

if TYPE_CHECKING:
    from imago_broker.model.registry.cluster import BrokerRecord
    from imago_broker.ports import Registry
    from imago_broker.processors.rocketmq.identity import RocketmqIdentity
    from imago_broker.processors.rocketmq.pull.memory_window import MemoryWindow
    from imago_broker.service.serving_rules import ServingRules

_OFFSET = slice(28, 36)


class Directions:
    """Ids for the answers of one broker."""

    def __init__(
        self,
        *,
        identity: RocketmqIdentity,
        registry: Registry,
        serving_rules: ServingRules,
        memory: MemoryWindow,
        rng: random.Random | None = None,
    ) -> None:
        self._identity = identity
        self._registry = registry
        self._serving_rules = serving_rules
        self._memory = memory
        self._rng = rng or random.Random()  # noqa: S311  spreads load, no secret

    def after(self, body: bytes, queue_id: int) -> int:
        """Return whom to ask after these records: a slave for as long as they are old ones.

        Old records are read from the disk, which slaves can do as well; new ones are in memory.
        """
        serving_rules = self._serving_rules
        if not serving_rules.slave_reads or not self._is_old(body):
            return MASTER_ID
        if not serving_rules.leads:
            own = self._registry.registered
            return MASTER_ID if own is None else own.replica + 1
        slaves = self._slaves()
        return slaves[queue_id % len(slaves)].replica + 1 if slaves else MASTER_ID

    def to_master(self) -> int:
        """Return the master's id for a client whose route nobody knows.

        With a new route it is 0; with one from before the failover that may be this very broker,
        and the master is found by its replica's number. Each of the two is tried in turn: the
        master, once reached, answers with what is right.
        """
        leader = self._serving_rules.role.current.leader
        if leader is None or leader.replica < 0 or self._rng.random() < 0.5:
            return MASTER_ID
        return leader.replica + 1

    def _is_old(self, body: bytes) -> bool:
        first = int.from_bytes(body[_OFFSET], "big")
        return not self._memory.holds(first)

    def _slaves(self) -> list[BrokerRecord]:
        own = self._registry.registered
        return [
            broker
            for broker in self._registry.view().brokers
            if broker.broker_name == self._identity.broker_name
            and broker.replica >= 0
            and (own is None or broker.uuid != own.uuid)
        ]
