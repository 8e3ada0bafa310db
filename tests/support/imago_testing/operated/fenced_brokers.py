"""Brokers over the model that can be fenced, and told to use what all of them understand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from imago_operator.model.actions import FenceMember, LiftFence, RaiseLevel

if TYPE_CHECKING:
    from collections.abc import Sequence


class FencedBrokers:
    """What an AdminPort does of it."""

    async def fence(self, broker: str, *, uuid: str, anyway: bool, operator_epoch: int) -> None:
        port: Any = self
        pod = port._pod(broker)
        port._do(FenceMember(pod.name, uuid, pod.shard or 0, anyway), operator_epoch)

    async def lift_fence(self, broker: str, *, operator_epoch: int) -> None:
        port: Any = self
        pod = port._pod(broker)
        port._do(LiftFence(pod.name, pod.broker.uuid), operator_epoch)

    async def raise_level(self, brokers: Sequence[str], level: int, *, operator_epoch: int) -> None:
        assert brokers
        port: Any = self
        port._do(RaiseLevel(level), operator_epoch)
