"""Carries out a plan, one action after the other, through the ports.

What the planner promises is asked again here, of what it saw and of Kubernetes as it is now: a
mistake in the one is not to be one in the other. Nothing is taken away after an action failed, but
for a setting that brokers refuse and a volume that is not changed: repair does not wait until
somebody has corrected it.
"""

from __future__ import annotations

from functools import singledispatchmethod
from typing import TYPE_CHECKING, Any, Final

from imago_operator.errors import InvalidError, OperatorError, RetryError
from imago_operator.issuing.writing import secret_of
from imago_operator.manifests.common import owner
from imago_operator.manifests.config import registry_user_secret, token_secret
from imago_operator.manifests.environment import registry_access_of
from imago_operator.model import names
from imago_operator.model.actions import (
    ADDITIVE,
    Action,
    Apply,
    Certify,
    ClassClaim,
    Cordon,
    CreateRegistryUser,
    CreateToken,
    DeleteChild,
    DeleteClaim,
    DeletePod,
    Elect,
    FenceMember,
    GrowClaim,
    Handover,
    Hibernate,
    LabelPod,
    LiftFence,
    MarkDrained,
    OwnClaim,
    RaiseLevel,
    SetConfig,
    Stop,
    Uncordon,
)
from imago_operator.model.state import STATEFUL_SET
from imago_operator.promises import broken
from imago_operator.spec.cluster.zookeeper import RegistryAccess

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from imago_operator.model.actions import Drift
    from imago_operator.model.desired import Desired
    from imago_operator.observing.drifts import Drifts
    from imago_operator.observing.observed import ClusterSeen
    from imago_operator.reconcile import Context

NO_ADDRESS_S: Final = 2.0
CLAIM: Final = "PersistentVolumeClaim"


class BrokenPromiseError(Exception):
    """A plan that must not be carried out: a bug."""


def _hinders(action: Action, error: OperatorError) -> bool:
    """Whether nothing is to be taken away after it: whatever it was to change stays as it was."""
    refused = isinstance(action, SetConfig) and isinstance(error, InvalidError)
    return not (refused or isinstance(action, (GrowClaim, ClassClaim)))


def _makes_brokers(action: Action) -> bool:
    """Whether it makes brokers with a user: their template then says that there is a Secret."""
    if not isinstance(action, Apply) or action.manifest["kind"] != STATEFUL_SET:
        return False
    return registry_access_of(action.manifest["spec"]["template"]) is not RegistryAccess.NONE


def corrected(manifest: Mapping[str, Any], drift: Drift) -> str:
    """Return what was put back, with what it was and who had changed it."""
    name = f"{manifest['kind']} {manifest['metadata']['name']}"
    who = f" by {drift.by}" if drift.by else ""
    return f"{name}: {drift.path} was {drift.found}{who}, and is {drift.wanted} again."


class BrokerExecutor:
    """Carries out what brokers are asked for, with the operator's epoch as fence."""

    def __init__(self, seen: ClusterSeen) -> None:
        self._seen = seen

    @singledispatchmethod
    async def do(self, action: Action) -> None:
        """Ask the broker that the action names, or any."""
        raise NotImplementedError(type(action).__name__)

    @do.register
    async def _(self, action: SetConfig) -> None:
        values = {k: list(v) if isinstance(v, tuple) else v for k, v in action.values.items()}
        await self._admin.set_config(
            self._address(action.pod), values, operator_epoch=await self._epoch()
        )

    @do.register
    async def _(self, action: Handover) -> None:
        await self._admin.handover(
            self._address(action.pod),
            uuid=action.uuid,
            epoch=action.epoch,
            operator_epoch=await self._epoch(),
            target=action.target,
        )

    @do.register
    async def _(self, action: Elect) -> None:
        await self._admin.elect(
            self._address(action.pod), uuid=action.uuid, operator_epoch=await self._epoch()
        )

    @do.register
    async def _(self, action: FenceMember) -> None:
        await self._admin.fence(
            self._address(action.pod),
            uuid=action.uuid,
            anyway=action.anyway,
            operator_epoch=await self._epoch(),
        )

    @do.register
    async def _(self, action: LiftFence) -> None:
        # Where all are fenced nobody can say which epoch is in force, and none compares it.
        registry = self._seen.observed.registry
        epoch = await self._epoch() if registry and registry.connected else 0
        await self._admin.lift_fence(self._address(action.pod), operator_epoch=epoch)

    @do.register
    async def _(self, action: RaiseLevel) -> None:
        brokers, epoch = self._seen.reached.brokers, await self._epoch()
        await self._admin.raise_level(brokers, action.level, operator_epoch=epoch)

    @do.register
    async def _(self, action: Cordon) -> None:
        await self._mark(self._admin.cordon, action.shard)

    @do.register
    async def _(self, action: Uncordon) -> None:
        await self._mark(self._admin.uncordon, action.shard)

    @do.register
    async def _(self, action: MarkDrained) -> None:
        await self._mark(self._admin.mark_drained, action.shard)

    async def _mark(self, call: Callable[..., Awaitable[None]], shard: int) -> None:
        await call(self._seen.reached.brokers, shard, operator_epoch=await self._epoch())

    async def _epoch(self) -> int:
        return await self._seen.reached.epoch()

    def _address(self, pod: str) -> str:
        found = self._seen.addresses.get(pod)
        if found is None:
            raise RetryError(f"pod {pod} has no address", delay_s=NO_ADDRESS_S)
        return found

    @property
    def _admin(self) -> Any:
        return self._seen.reached.admin


class Executor:
    """Carries out what one look at one cluster has led to."""

    def __init__(
        self,
        context: Context,
        desired: Desired,
        seen: ClusterSeen,
        new_token: Callable[[], str],
        drifts: Drifts,
    ) -> None:
        """`new_token`: a fresh secret for the brokers' administration."""
        self._context, self._kube = context, context.kube
        self._desired, self._seen = desired, seen
        self._new_token = new_token
        self._drifts = drifts
        self._brokers = BrokerExecutor(seen)
        self.corrected: list[str] = []
        """What was put back, for people."""

    async def carry_out(self, actions: Iterable[Action]) -> list[OperatorError]:
        """Do all that can be done; return what failed, in order."""
        actions = tuple(actions)
        if found := broken(self._desired, self._seen.observed, actions, self._context.now()):
            raise BrokenPromiseError(f"{found}; nothing was done")
        failed: list[OperatorError] = []
        hindered = userless = False
        for action in actions:
            if hindered and not isinstance(action, ADDITIVE):
                break
            if userless and _makes_brokers(action):
                continue
            try:
                self._context.leading()
                await self._do(action)
            except OperatorError as error:
                failed.append(error)
                hindered = hindered or _hinders(action, error)
                userless = userless or isinstance(action, CreateRegistryUser)
        return failed

    @singledispatchmethod
    async def _do(self, action: Action) -> None:
        await self._brokers.do(action)

    # ---- Kubernetes ------------------------------------------------------------------------

    @_do.register
    async def _(self, action: Apply) -> None:
        answer = await self._kube.apply(action.manifest)
        manifest = action.manifest
        found = self._seen.observed.child(manifest["kind"], manifest["metadata"]["name"])
        for drift in self._drifts.applied(action, found, answer):
            self.corrected.append(corrected(manifest, drift))

    @_do.register
    async def _(self, action: Stop | Hibernate) -> None:
        await self._kube.apply(action.manifest)

    @_do.register
    async def _(self, action: Certify) -> None:
        seen = self._seen.observed.certificates
        made = secret_of(self._desired, action, seen, self._context.now())
        await self._kube.apply(made)

    @_do.register
    async def _(self, action: CreateToken) -> None:
        await self._kube.create(token_secret(self._desired, action.name, self._new_token()))

    @_do.register
    async def _(self, action: CreateRegistryUser) -> None:
        await self._kube.create(registry_user_secret(self._desired, action.name, self._new_token()))

    @_do.register
    async def _(self, action: DeleteChild) -> None:
        await self._kube.delete(
            action.kind, self._namespace, action.name, uid=action.uid, orphan=action.orphan
        )

    @_do.register
    async def _(self, action: DeletePod) -> None:
        await self._kube.delete("Pod", self._namespace, action.name, uid=action.uid)

    @_do.register
    async def _(self, action: LabelPod) -> None:
        patch = {"metadata": {"labels": {names.ROLE_LABEL: action.role}}}
        await self._patch("Pod", action.name, action.uid, patch)

    @_do.register
    async def _(self, action: GrowClaim) -> None:
        patch: dict[str, Any] = {"spec": {"resources": {"requests": {"storage": action.size}}}}
        if action.at:
            patch["metadata"] = {"annotations": {names.GROWN: action.at}}
        await self._patch(CLAIM, action.name, action.uid, patch)

    @_do.register
    async def _(self, action: ClassClaim) -> None:
        patch = {
            "metadata": {"annotations": {names.ATTRIBUTES_CLASS: action.attributes_class}},
            "spec": {"volumeAttributesClassName": action.attributes_class},
        }
        await self._patch(CLAIM, action.name, action.uid, patch)

    @_do.register
    async def _(self, action: OwnClaim) -> None:
        owners = [owner(self._desired)] if action.owned else []
        await self._patch(CLAIM, action.name, action.uid, {"metadata": {"ownerReferences": owners}})

    @_do.register
    async def _(self, action: DeleteClaim) -> None:
        """Delete a claim; its pod must be absent by name, or never have run on this claim again."""
        pod = await self._kube.get("Pod", self._namespace, action.name.removeprefix("data-"))
        if pod is not None and not self._given_up(action):
            raise RetryError(f"{action.name}: its pod still exists", delay_s=NO_ADDRESS_S)
        await self._kube.delete(CLAIM, self._namespace, action.name, uid=action.uid)

    def _given_up(self, action: DeleteClaim) -> bool:
        """Whether the claim's node is gone, so that its pod cannot run."""
        members = self._seen.observed.status.replaced_members
        return any(m.claim == action.name and m.uid == action.uid for m in members)

    async def _patch(self, kind: str, name: str, uid: str, patch: Mapping[str, Any]) -> None:
        await self._kube.patch(kind, self._namespace, name, uid=uid, patch=patch)

    @property
    def _namespace(self) -> str:
        return self._desired.namespace
