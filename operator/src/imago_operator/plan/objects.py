"""What only adds something: objects, roles, settings, new shards. It never waits for health."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imago_operator.certificates.clients import plan as clients_plan
from imago_operator.certificates.ends import ending
from imago_operator.certificates.plan import CONDITION, ISSUED, CertificatesPlan
from imago_operator.certificates.plan import plan as certificates_plan
from imago_operator.manifests.brokers import stateful_set
from imago_operator.manifests.common import applied_hash, child
from imago_operator.manifests.config import config_of
from imago_operator.manifests.render import render
from imago_operator.manifests.services import outside_name
from imago_operator.model import names
from imago_operator.model.actions import (
    Apply,
    CreateRegistryUser,
    CreateToken,
    DeleteChild,
    LabelPod,
    OwnClaim,
    SetConfig,
    Uncordon,
)
from imago_operator.model.listeners import is_learnt, listener_ports, outside
from imago_operator.model.outside import balancer
from imago_operator.model.state import STATEFUL_SET, ConditionFinding
from imago_operator.model.wording import counted
from imago_operator.plan import moving, troubles
from imago_operator.plan.drift import drifted, foreign
from imago_operator.plan.members.leaving import size
from imago_operator.plan.registry import registry
from imago_operator.plan.restarts import trying
from imago_operator.plan.rows import PlanRow, PlanStep
from imago_operator.spec.kinds import API_VERSION
from imago_operator.spec.schema.common import Retention

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from imago_operator.manifests.common import Manifest
    from imago_operator.model.actions import Action
    from imago_operator.model.state import OwnedObject, Pod
    from imago_operator.plan.look import ClusterLook

ZONE: Final = "broker.zone"
REBALANCE: Final = "ImagoRebalance"
REPLICAS: Final = "spec.replicas"
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
    made = [each for m in manifests for each in _applied(look, m)]
    actions += made
    actions += _unwanted(look, [*manifests, *(dict(each.manifest) for each in made)])
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
    elif all(finding.reason == ISSUED for finding in found.findings):
        found = CertificatesPlan(found.actions, _unnamed(look) or found.findings)
    clients = clients_plan(look.desired, seen, look.now)
    # One condition: what clients wait for is said where members have what they need.
    content = all(finding.reason == ISSUED for finding in found.findings)
    return PlanStep(
        row=PlanRow.CHILDREN,
        actions=(*found.actions, *clients.actions),
        findings=(
            *((content and clients.findings) or found.findings),
            *ending(look.desired, seen, look.now),
        ),
        next="look again whether brokers have their certificates",
    )


def _unnamed(look: ClusterLook) -> tuple[ConditionFinding, ...]:
    """Say that brokers tell clients what their certificates cannot name.

    Admission lets no such listener in; one that was there before goes on.
    """
    spec = look.desired.spec
    ways = [way.name for way in outside(spec) if spec.tls and way.advertised_host_template is None]
    if not ways:
        return ()
    text = (
        f"Listener {', '.join(ways)}: brokers advertise the address of their node, which no"
        " certificate names; clients that check names refuse them."
    )
    return (ConditionFinding(type=CONDITION, holds=False, reason="AddressNotNamed", message=text),)


def wanted(look: ClusterLook) -> tuple[Manifest, ...]:
    """Return every object that the cluster is to have now."""
    sets = look.observed.sets()
    # A set that was to be made anew is made anew, also where its shard goes: it has the pods.
    orphans = {pod.shard for pod in look.observed.pods if not pod.deleting}
    leaving = [n for n in look.victims if n in sets or n in orphans or _is_needed(look, n)]
    shards = [*look.targets, *leaving]
    without = look.stopped | look.sleeping
    return render(
        look.desired,
        shards,
        stopped=without,
        servers_sleep=look.servers_sleep,
        servers=look.servers,
        learnt=_learnt(look, shards),
        behind=_behind(look),
    )


def _behind(look: ClusterLook) -> set[str]:
    """Return the pods that lack listeners' ports, with the bootstrap Service's name if all do."""
    wanted_ports = set(listener_ports(look.desired.spec))
    brokers = [pod for pod in look.observed.pods if pod.shard is not None]
    found = {pod.name for pod in brokers if pod.ports is not None and wanted_ports - pod.ports}
    all_are = brokers and len(found) == len(brokers)
    return found | ({names.bootstrap(look.desired.name)} if all_are else set())


def _learnt(look: ClusterLook, shards: Iterable[int]) -> Iterator[tuple[str, str, str]]:
    """Yield the addresses that brokers' load balancers have got: pod, listener, address."""
    desired = look.desired
    for way in filter(is_learnt, desired.spec.listeners):
        for shard in shards:
            for ordinal in range(desired.members_there):
                pod = names.pod(desired.name, shard, ordinal)
                if address := balancer(look.observed, outside_name(pod, way)):
                    yield pod, way.name, address


def _is_needed(look: ClusterLook, number: int) -> bool:
    """Whether a shard that goes has something left: its brokers must run to be read out."""
    return look.informed and not look.empty(number)


def _applied(look: ClusterLook, manifest: Manifest) -> tuple[Apply, ...]:
    """Return how an object becomes what it is to be; nothing: it is, or must wait."""
    found = look.observed.child(manifest["kind"], manifest["metadata"]["name"])
    number = manifest["metadata"]["labels"].get(names.SHARD_LABEL)
    if manifest["kind"] == STATEFUL_SET and number and moving.holds_back(look, int(number)):
        return ()
    whole = manifest
    if manifest["kind"] == STATEFUL_SET and manifest["spec"]["replicas"]:
        manifest = _sized(look, whole)
    drift = () if found is None else drifted(manifest, found)
    why = difference(look, manifest)
    if why and _is_scaled_up(look, found, whole, manifest):
        why, drift = "", tuple(one for one in drift if one.path != REPLICAS)
    drift = foreign(drift) if why else drift
    why = why or ("drifted" if drift else "")
    if not why or (found is not None and (found.deleting or is_made_anew(found, manifest))):
        return ()
    if found is not None and not drift and _keeps_template(look, found):
        return tuple(Apply(each, why) for each in trying.kept(look, found, manifest))
    return (Apply(manifest, why, drift),)


def _keeps_template(look: ClusterLook, found: OwnedObject) -> bool:
    if found.kind != STATEFUL_SET or found.shard is None or not found.template:
        return False
    return trying.held_back(look, found.shard)


def _is_scaled_up(
    look: ClusterLook, found: OwnedObject | None, whole: Manifest, manifest: Manifest
) -> bool:
    """Whether somebody has scaled a set up, and who is too many has to stay for now."""
    if found is None or manifest is whole:
        return False
    return manifest["spec"]["replicas"] == found.replicas and not difference(look, whole)


def _sized(look: ClusterLook, manifest: Manifest) -> Manifest:
    """Return a shard's StatefulSet with as many members as it is to have for now."""
    number = manifest["metadata"]["labels"].get(names.SHARD_LABEL)
    if number is None:
        return manifest  # of ZooKeeper's servers
    return stateful_set(look.desired, int(number), replicas=size(look, int(number)))


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


def _unwanted(look: ClusterLook, manifests: Iterable[Manifest]) -> Iterator[Action]:
    kept = {(m["kind"], m["metadata"]["name"]) for m in manifests}
    kept |= {("ConfigMap", name) for name in _configs(look)}
    for found in look.observed.children:
        gone = (found.kind, found.name) not in kept and not found.deleting
        if gone and found.kind in REMOVABLE:
            yield DeleteChild(found.kind, found.name, found.uid)


def _configs(look: ClusterLook) -> Iterator[str]:
    """Yield the settings that pods were made with, or may be made with at this moment.

    A node that starts again needs them for the pods that were on it.
    """
    for pod in look.observed.pods:
        yield pod.config
    for found in look.observed.sets().values():
        yield config_of(found.template)
        seen = found.live.get("status", {}).get("observedGeneration")
        if seen is not None and seen != found.live["metadata"].get("generation"):
            # Its controller may still make pods of the template before.
            yield from (c.name for c in look.observed.children if c.kind == "ConfigMap")


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
