"""How far the log has come by each acknowledgement level, and what a put that waits is short of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.core.puts.acknowledgement import Acknowledgement
from imago_broker.service.puts.put_status import PutStatus

if TYPE_CHECKING:
    from imago_broker.service.puts.gate import ShardGate
    from imago_log.store import MessageStore


class Levels:
    """Of a store, behind the gate of its shard where there are other members."""

    __slots__ = ("_gate", "_store")

    def __init__(self, store: MessageStore, gate: ShardGate | None) -> None:
        self._store = store
        self._gate = gate

    def end(self, level: Acknowledgement) -> int:
        """Log offset below which everything has reached the level."""
        store, gate = self._store, self._gate
        if gate is not None and not gate.alone and not level.needs_replicas:
            return 0
        if level is Acknowledgement.LEADER:
            return store.log_end
        if level is Acknowledgement.LEADER_FSYNC:
            return store.durable_end
        if gate is not None:
            if level is Acknowledgement.REPLICATED:
                return gate.replicated_end
            return min(gate.replicated_durable_end, store.durable_end)
        if level is Acknowledgement.REPLICATED:
            return store.high_watermark
        return min(store.high_watermark, store.durable_end)

    def lack(self, level: Acknowledgement) -> PutStatus:
        """What a put of this level was short of when its time was up."""
        gate = self._gate
        if gate is not None and not gate.safe:
            return PutStatus.NOT_WRITABLE
        if gate is not None and not gate.alone and not level.needs_replicas:
            return PutStatus.NOT_WRITABLE
        if level.needs_replicas:
            if gate is not None and not gate.replicated:
                return PutStatus.SLAVE_UNAVAILABLE
            if level is Acknowledgement.REPLICATED or gate is not None:
                return PutStatus.SLAVE_TIMEOUT
        return PutStatus.FLUSH_TIMEOUT
