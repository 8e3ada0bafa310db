"""What the operator asks of brokers and has them do: the AdminPort."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from imago_operator.brokers.answers import probe_of, read, registry_of, remaining_of
from imago_operator.brokers.http import RETRY_S, SilentError
from imago_operator.errors import OperatorError, RetryError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from imago_operator.brokers.http import BrokerCalls
    from imago_operator.model.state import Probe, RegistryView, RemainingContent

ASKED_AT_ONCE: Final = 3
"""Brokers that are asked for the same snapshot together: one may just have died."""
RAISES_MAX: Final = 5


class AdminClient:
    """The brokers of one cluster, as `ports.AdminPort` describes them."""

    def __init__(
        self, calls: BrokerCalls, epoch_seen: Callable[[int], None] = lambda _: None
    ) -> None:
        """`epoch_seen`: told the operator's epoch that each snapshot speaks of."""
        self._calls, self._epoch_seen = calls, epoch_seen

    async def registry(self, brokers: Sequence[str]) -> RegistryView | None:
        silent: RegistryView | None = None
        for start in range(0, len(brokers), ASKED_AT_ONCE):
            batch = brokers[start : start + ASKED_AT_ONCE]
            found = await asyncio.gather(*(self._registry(broker) for broker in batch))
            for registry in found:
                if registry is not None and registry.connected:
                    return registry
                silent = silent or registry
        return silent

    async def _registry(self, broker: str) -> RegistryView | None:
        answer = await self._asked(broker, "/admin/v1/cluster")
        registry = None if answer is None else read(registry_of, answer)
        if registry is not None:
            self._epoch_seen(registry.operator_epoch)
        return registry

    async def probe(self, broker: str) -> Probe | None:
        status = await self._asked(broker, "/admin/v1/status")
        if status is None:
            return None
        config, check, done = await asyncio.gather(
            self._asked(broker, "/admin/v1/config"),
            self._asked(broker, "/admin/v1/restart-check"),
            self._asked(broker, "/admin/v1/restart-done"),
        )
        return read(probe_of, status, config, check, done)

    async def remaining(self, brokers: Sequence[str], shard: int) -> RemainingContent | None:
        for broker in brokers:
            answer = await self._asked(broker, f"/admin/v1/shards/{shard}/remaining")
            left = None if answer is None else read(remaining_of, answer)
            if left is not None:
                return left
        return None

    async def raise_epoch(self, brokers: Sequence[str]) -> int:
        for _ in range(RAISES_MAX):
            registry = await self.registry(brokers)
            if registry is None or not registry.connected:
                break
            raised = registry.operator_epoch + 1
            try:
                await self._calls.change_at_any(
                    "POST", brokers, "/admin/v1/operator-epoch", {"epoch": raised}, epoch=None
                )
            except SilentError:
                raise
            except RetryError:
                continue  # somebody was faster, or brokers had not seen it yet
            return raised
        raise RetryError("no broker could raise the operator's epoch", delay_s=RETRY_S)

    async def handover(
        self, broker: str, *, uuid: str, epoch: int, operator_epoch: int, target: str = ""
    ) -> None:
        body: dict[str, Any] = {"brokerId": uuid, "epoch": epoch}
        if target:
            body["target"] = target
        await self._change("POST", broker, "/admin/v1/handover", body, operator_epoch)

    async def elect(self, broker: str, *, uuid: str, operator_epoch: int) -> None:
        body = {"brokerId": uuid, "allowDataLoss": True}
        await self._change("POST", broker, "/admin/v1/elect", body, operator_epoch)

    async def fence(self, broker: str, *, uuid: str, anyway: bool, operator_epoch: int) -> None:
        body = {"brokerId": uuid, "anyway": anyway, "why": "the annotation imago.dev/fenced"}
        await self._change("POST", broker, "/admin/v1/fence", body, operator_epoch)

    async def lift_fence(self, broker: str, *, operator_epoch: int) -> None:
        await self._change("DELETE", broker, "/admin/v1/fence", {}, operator_epoch)

    async def raise_level(self, brokers: Sequence[str], level: int, *, operator_epoch: int) -> None:
        # Members that are not there are of pods that are no more: all that are wanted have been
        # seen, and one of an older version would refuse to start.
        body = {"level": level, "withoutAbsent": True}
        await self._calls.change_at_any(
            "POST", brokers, "/admin/v1/features", body, epoch=operator_epoch
        )

    async def set_config(
        self, broker: str, values: Mapping[str, object], *, operator_epoch: int
    ) -> None:
        await self._change("PATCH", broker, "/admin/v1/config", dict(values), operator_epoch)

    async def cordon(self, brokers: Sequence[str], shard: int, *, operator_epoch: int) -> None:
        await self._mark(brokers, shard, "cordon", operator_epoch)

    async def uncordon(self, brokers: Sequence[str], shard: int, *, operator_epoch: int) -> None:
        await self._mark(brokers, shard, "uncordon", operator_epoch)

    async def mark_drained(
        self, brokers: Sequence[str], shard: int, *, operator_epoch: int
    ) -> None:
        await self._mark(brokers, shard, "drained", operator_epoch)

    async def _mark(self, brokers: Sequence[str], shard: int, what: str, epoch: int) -> None:
        path = f"/admin/v1/shards/{shard}/{what}"
        await self._calls.change_at_any("POST", brokers, path, {}, epoch=epoch)

    async def _change(
        self, method: str, broker: str, path: str, body: Mapping[str, Any], epoch: int
    ) -> None:
        await self._calls.change(method, broker, path, body, epoch=epoch)

    async def _asked(self, broker: str, path: str) -> Any:
        """Return the answer; None where there is none to rely on."""
        try:
            return await self._calls.get(broker, path)
        except OperatorError:
            return None
