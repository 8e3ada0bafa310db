"""What only adds something: objects, roles, settings, new shards. It never waits for health."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imago_operator import names
from imago_operator.actions import (
    Apply,
    CreateRegistryUser,
    CreateToken,
    DeleteChild,
    LabelPod,
    OwnClaim,
    SetConfig,
    Uncordon,
)
from imago_operator.certificates.clients import plan as clients_plan
from imago_operator.certificates.plan import CONDITION, ISSUED, CertificatesPlan
from imago_operator.certificates.plan import plan as certificates_plan
from imago_operator.manifests.brokers import stateful_set
from imago_operator.manifests.common import applied_hash, child
from imago_operator.manifests.render import render
from imago_operator.plan import membership, registry, troubles
from imago_operator.plan.drift import drifted, foreign
from imago_operator.plan.rows import PlanRow, PlanStep
from imago_operator.spec.common import Retention
from imago_operator.spec.kinds import API_VERSION
from imago_operator.state import STATEFUL_SET, ConditionFinding
from imago_operator.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_operator.actions import Action, Drift
    from imago_operator.manifests.common import Manifest
    from imago_operator.plan.look import ClusterLook
    from imago_operator.state import OwnedObject, Pod

ZONE: Final = "broker.zone"
REBALANCE: Final = "ImagoRebalance"
REMOVABLE: Final = frozenset({"Service", "PodDisruptionBudget", "NetworkPolicy", "ConfigMap"})
"""Kinds that go when nothing wants them. A StatefulSet never goes this way."""


def children(look: ClusterLook) -> PlanStep:
    """Make every object what it is to be."""
    manifests = wanted(look)
    actions: list[Action] = []
    if look.observed.child("Secret", names.token(look.desired.name)) is None:
        actions.append(CreateToken(names.token(look.desired.name)))
    if registry.user_is_missing(look) and not registry.user_is_lost(look):
        actions.append(CreateRegistryUser(names.registry_user(look.desired.name)))
    actions += [made for m in manifests if (made := _applied(look, m))]
    actions += _unwanted(look, manifests)
    actions += _ownership(look)
    said = ConditionFinding(
        type="ResourcesApplied",
        holds=not actions,
        reason="Applying" if actions else "Applied",
        message=f"Objects to create or change: {len(actions)}." if actions else "",
    )
    return PlanStep(
        row=PlanRow.CHILDREN,
        actions=tuple(actions),
        findings=(said, *troubles.contested(look, manifests)),
        next="look again at what Kubernetes made of it",
    )


def certificates(look: ClusterLook) -> PlanStep:
    """Have members show certificates that the others trust; no pod is restarted for it."""
    shards = sorted({*look.targets, *(n for n in look.victims if _is_needed(look, n))})
    seen = look.observed.certificates
    found = certificates_plan(look.desired, shards, seen, look.now)
    if look.observed.registry_tls_refused:
        text = f"The operator may not read Secret {names.zookeeper_certificate(look.desired.name)}."
        said = ConditionFinding(type=CONDITION, holds=False, reason="SecretRefused", message=text)
        found = CertificatesPlan(found.actions, (said,))
    clients = clients_plan(look.desired, seen, look.now)
    # One condition: what clients wait for is said where members have what they need.
    content = all(finding.reason == ISSUED for finding in found.findings)
    return PlanStep(
        row=PlanRow.CHILDREN,
        actions=(*found.actions, *clients.actions),
        findings=(content and clients.findings) or found.findings,
        next="look again whether brokers have their certificates",
    )


def wanted(look: ClusterLook) -> tuple[Manifest, ...]:
    """Return every object that the cluster is to have now."""
    sets = look.observed.sets()
    # A set that was to be made anew is made anew, also where its shard goes: it has the pods.
    orphans = {pod.shard for pod in look.observed.pods if not pod.deleting}
    leaving = [n for n in look.victims if n in sets or n in orphans or _is_needed(look, n)]
    return render(look.desired, [*look.targets, *leaving], stopped=look.stopped)


def _is_needed(look: ClusterLook, number: int) -> bool:
    """Whether a shard that goes has something left: its brokers must run to be read out."""
    return look.informed and not look.empty(number)


def _applied(look: ClusterLook, manifest: Manifest) -> Apply | None:
    """Return how an object becomes what it is to be; None: it is, or must wait."""
    found = look.observed.child(manifest["kind"], manifest["metadata"]["name"])
    drift = () if found is None else drifted(manifest, found)
    why = difference(look, manifest)
    drift = foreign(drift) if why else drift
    why = why or ("drifted" if drift else "")
    if not why or (found is not None and (found.deleting or is_made_anew(found, manifest))):
        return None
    if found is not None and found.shard is not None and _has_too_many(found, manifest):
        return _one_less(look, found, drift)
    return Apply(manifest, why, drift)


def _has_too_many(found: OwnedObject, manifest: Manifest) -> bool:
    """Whether a shard has more members than it is to have, and not because it stops."""
    wanted = manifest.get("spec", {}).get("replicas") or 0
    return found.kind == STATEFUL_SET and 0 < wanted < (found.replicas or 0)


def _one_less(look: ClusterLook, found: OwnedObject, drift: tuple[Drift, ...]) -> Apply | None:
    """Take the last member away that somebody added, while all others are there and could lead."""
    assert found.shard is not None
    assert found.replicas is not None
    pods = look.observed.pods_of(found.shard)
    last = next((pod for pod in pods if pod.ordinal == found.replicas - 1), None)
    if last is not None and not (look.informed and membership.others_able(look, last)):
        return None
    if last is not None and len(pods) < found.replicas:
        return None  # one that stays is not there: until it is back this one stands in for it
    if any(pod.deleting or pod.ordinal >= found.replicas for pod in pods):
        return None  # the one before it goes
    fewer = stateful_set(look.desired, found.shard, replicas=found.replicas - 1)
    return Apply(fewer, "drifted", drift)


def difference(look: ClusterLook, manifest: Manifest) -> str:
    """Return why an object is applied; empty where it need not be."""
    metadata = manifest["metadata"]
    found = look.observed.child(manifest["kind"], metadata["name"])
    if found is None:
        return "missing"
    if found.deleting or found.annotations.get(names.APPLIED_HASH) == applied_hash(manifest):
        return ""
    return "" if is_made_anew(found, manifest) else "differs"


def is_made_anew(found: OwnedObject, manifest: Manifest) -> bool:
    """Whether the object cannot be changed: claim templates of a StatefulSet are fixed."""
    noted = manifest["metadata"]["annotations"]
    template = found.annotations.get(names.CLAIM_TEMPLATE)
    return found.kind == STATEFUL_SET and template != noted.get(names.CLAIM_TEMPLATE)


def _unwanted(look: ClusterLook, manifests: tuple[Manifest, ...]) -> Iterator[Action]:
    kept = {(m["kind"], m["metadata"]["name"]) for m in manifests}
    for found in look.observed.children:
        gone = (found.kind, found.name) not in kept and not found.deleting
        if gone and found.kind in REMOVABLE:
            yield DeleteChild(found.kind, found.name, found.uid)


def _ownership(look: ClusterLook) -> Iterator[Action]:
    policy = look.desired.spec.brokers.storage.persistent_volume_claim_retention_policy
    owned = policy.when_deleted is Retention.DELETE
    for claim in look.observed.claims:
        if claim.owned != owned:
            yield OwnClaim(claim.name, claim.uid, owned)


def roles(look: ClusterLook) -> PlanStep:
    """Say on pods who leads, for Services and for people."""
    actions = []
    for pod in look.observed.pods:
        role = _role(look, pod)
        if role is not None and pod.role_label != role and not pod.deleting:
            actions.append(LabelPod(pod.name, pod.uid, role))
    return PlanStep(row=PlanRow.ROLES, actions=tuple(actions))


def _role(look: ClusterLook, pod: Pod) -> str | None:
    shard = None if pod.shard is None else look.shard(pod.shard)
    if pod.broker is None or shard is None or not look.informed:
        return None
    return "master" if shard.master == pod.broker.uuid else "slave"


def settings(look: ClusterLook) -> PlanStep:
    """Change what brokers can change while they run."""
    actions = []
    for pod in look.observed.pods:
        if pod.broker is None or pod.deleting:
            continue
        have = pod.broker.config
        desired = dict(look.desired.dynamic)
        desired.pop(ZONE, None)
        if (zone := _zone(look, pod)) is not None:
            desired[ZONE] = zone
        differing = {
            name: value for name, value in desired.items() if name in have and have[name] != value
        }
        if differing:
            actions.append(SetConfig(pod.name, differing))
    said = ConditionFinding(
        type="ConfigApplied",
        holds=not actions,
        reason="Applying" if actions else "Applied",
        message=f"{counted(len(actions), 'broker')} with other settings." if actions else "",
    )
    return PlanStep(
        row=PlanRow.SETTINGS,
        actions=tuple(actions),
        findings=(said,),
        next="read the settings back",
    )


def _zone(look: ClusterLook, pod: Pod) -> str | None:
    """Return the rack of a pod's node, which the pod itself cannot see; None: unknown."""
    nodes = look.observed.nodes
    return look.rack(pod) if nodes is not None and pod.node in nodes else None


def scale_up(look: ClusterLook) -> PlanStep:
    """Bring new shards into use: their objects are made with all others."""
    begun = look.observed.status.scale_down
    returning = set(begun.victims if begun else ())
    actions: list[Action] = [
        Uncordon(n)
        for n in look.targets
        if look.drained(n) and n not in returning and n not in look.observed.kept_empty
    ]
    actions += _fill(look)
    missing = [n for n in look.targets if not _serves(look, n)]
    known = {shard.id for shard in look.observed.status.shards}
    new = [n for n in missing if n not in known]
    said: tuple[ConditionFinding, ...] = ()
    if new and known:
        listed = ", ".join(f"shard-{n}" for n in new)
        text = f"{listed} begins."
        said = (ConditionFinding(type="Reconciling", holds=True, reason="ScalingUp", message=text),)
    return PlanStep(row=PlanRow.SCALE_UP, actions=tuple(actions), findings=said)


def _serves(look: ClusterLook, number: int) -> bool:
    shard = look.shard(number)
    return shard is not None and shard.master is not None


def _fill(look: ClusterLook) -> Iterator[Action]:
    """Give new shards queues of the topics there are, once they serve, if the spec asks for it."""
    before = look.observed.status.shards
    if not look.desired.spec.scale_up.fill or not before:
        return
    served = {shard.id for shard in before if shard.master is not None}
    new = tuple(n for n in look.targets if n not in served and _serves(look, n))
    name = names.fill(look.desired.name, new)
    if new and look.observed.child(REBALANCE, name) is None:
        yield Apply(rebalance(look, name, "Fill", new), "new shards")


def rebalance(look: ClusterLook, name: str, mode: str, shards: tuple[int, ...]) -> Manifest:
    """Return the object that moves queues."""
    spec = {"clusterRef": {"name": look.desired.name}, "mode": mode, "shards": list(shards)}
    return child(look.desired, API_VERSION, REBALANCE, name, "rebalance", {"spec": spec})
