"""What the operator needs from outside: Kubernetes, and the brokers' administration.

Both raise `RetryError` for what passes by itself and `BlockedError` for what needs a fact to
change; anything else is a bug. Every call may be repeated: it asks for a state, or names by uid or
epoch what it means, so that a late one does nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from imago_operator.model.state import Probe, RegistryView, RemainingContent


class KubePort(Protocol):
    """Kubernetes, as far as it is needed."""

    async def apply(self, manifest: Mapping[str, Any]) -> Mapping[str, Any]:
        """Apply from the server's side with `names.MANAGER`, taking fields over by force."""

    async def apply_status(self, manifest: Mapping[str, Any]) -> None:
        """Apply a status, as a field manager of its own."""

    async def list(
        self, kind: str, namespace: str, *, labels: str = ""
    ) -> Sequence[Mapping[str, Any]]:
        """Return all objects of a kind; RetryError when it is not sure that they are all."""

    async def get(self, kind: str, namespace: str, name: str) -> Mapping[str, Any] | None:
        """Return one object as the server has it now; None if there is none."""

    async def create(self, manifest: Mapping[str, Any]) -> None:
        """Create an object unless one of the name is there."""

    async def delete(
        self, kind: str, namespace: str, name: str, *, uid: str, orphan: bool = False
    ) -> None:
        """Delete in the background, only the object of this uid; gone already is done."""

    async def patch(
        self, kind: str, namespace: str, name: str, *, uid: str, patch: Mapping[str, Any]
    ) -> None:
        """Merge a patch into the object of this uid."""

    async def event(self, about: Mapping[str, Any], type_: str, reason: str, message: str) -> None:
        """Record an event; repeats are merged."""


class AdminCalls(Protocol):
    """The brokers' HTTP. `broker`: base address of one; changing calls carry the epoch."""

    async def registry(self, brokers: Sequence[str]) -> RegistryView | None:
        """Return the snapshot of the first broker that answers, None if nobody does.

        GET /admin/v1/cluster.
        """

    async def probe(self, broker: str) -> Probe | None:
        """Return what a broker says of itself.

        GET /admin/v1/status, config, restart-check and restart-done.
        """

    async def remaining(self, brokers: Sequence[str], shard: int) -> RemainingContent | None:
        """Return what is left in a shard that is to go; None: nobody can say.

        GET /admin/v1/shards/{shard}/remaining.
        """

    async def raise_epoch(self, brokers: Sequence[str]) -> int:
        """Take over: raise the operator's epoch, so that an older operator is refused.

        POST /admin/v1/operator-epoch.
        """

    async def handover(
        self, broker: str, *, uuid: str, epoch: int, operator_epoch: int, target: str = ""
    ) -> None:
        """Have a master give leadership away; BlockedError when it no longer leads.

        POST /admin/v1/handover with `brokerId`, `epoch` and, unless empty, `target`.
        """

    async def elect(self, broker: str, *, uuid: str, operator_epoch: int) -> None:
        """Have a broker lead though messages may be lost.

        POST /admin/v1/elect with `brokerId` and `allowDataLoss`.
        """

    async def fence(self, broker: str, *, uuid: str, anyway: bool, operator_epoch: int) -> None:
        """Have a broker keep its log and serve nobody; BlockedError where its shard needs it.

        POST /admin/v1/fence with `brokerId` and `anyway`.
        """

    async def lift_fence(self, broker: str, *, operator_epoch: int) -> None:
        """Have a broker that is fenced serve again: DELETE /admin/v1/fence."""

    async def raise_level(self, brokers: Sequence[str], level: int, *, operator_epoch: int) -> None:
        """Raise the cluster's feature level, for good: POST /admin/v1/features."""

    async def set_config(
        self, broker: str, values: Mapping[str, object], *, operator_epoch: int
    ) -> None:
        """Change settings of one running broker: PATCH /admin/v1/config."""

    async def cordon(self, brokers: Sequence[str], shard: int, *, operator_epoch: int) -> None:
        """Have a shard take no new topics: POST /admin/v1/shards/{shard}/cordon."""

    async def uncordon(self, brokers: Sequence[str], shard: int, *, operator_epoch: int) -> None:
        """Take a shard back, also from the record of drained ones.

        POST /admin/v1/shards/{shard}/uncordon.
        """

    async def mark_drained(
        self, brokers: Sequence[str], shard: int, *, operator_epoch: int
    ) -> None:
        """Put on record that a shard is empty; BlockedError when it is not.

        POST /admin/v1/shards/{shard}/drained: its master looks once more itself.
        """
