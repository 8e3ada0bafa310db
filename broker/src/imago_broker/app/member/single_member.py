"""The place of a broker that has no other members beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.model.registry.cluster import Role
from imago_broker.model.registry.shard_status import LocalShardStatus
from imago_broker.ports import ShardRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable


class AloneShard:
    """`imago_broker.ports.ShardControl` of a shard that is not replicated."""

    def __init__(self, epoch: Callable[[], int], waits_for: Callable[[], str]) -> None:
        """`waits_for`: why the broker does not serve yet, "" when it does."""
        self._epoch = epoch
        self._waits_for = waits_for

    def shard_status(self) -> LocalShardStatus:
        """It leads whenever it serves."""
        reason = self._waits_for()
        return LocalShardStatus(
            role=Role.MASTER, epoch=self._epoch(), settled=not reason, reason=reason
        )

    async def handover(self, target: str | None, request_id: str) -> None:
        """There is nobody to give it to."""
        del target, request_id
        raise ShardRefusedError(
            "this shard has one broker and is not replicated",
            cure="Add a member: `imago up --replicas 2`, or a second broker of this shard, and"
            " broker.replicas = 2 for both.",
        )

    async def elect(self, request_id: str, *, allow_data_loss: bool) -> None:
        """It leads already."""
        del request_id, allow_data_loss
        raise ShardRefusedError(
            "this shard has one broker, which leads", cure="There is nothing to do."
        )
