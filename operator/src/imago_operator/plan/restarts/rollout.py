"""Restarts of outdated pods, so that clients see none of it.

In each shard first a member that is not in sync, then those that do not lead, then the master
after it handed over. The broker itself says whether it may go, ready or not. A member in sync goes
only while all others of its shard could lead, and in only as many shards at a time as the policy
says, all in one rack. Members that their shards lack anyway go in no more shards at a time. What
never runs is no member: `repair.stuck` takes care of it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from imago_operator.certificates.state import QUORUM, ZOOKEEPER
from imago_operator.manifests.zookeeper_start import KNOWN_S
from imago_operator.model import names
from imago_operator.model.actions import DeletePod, Handover
from imago_operator.model.desired import clients_ca_secret
from imago_operator.model.state import ConditionFinding, PlanWait, written
from imago_operator.model.wording import counted
from imago_operator.plan import membership
from imago_operator.plan.restarts import trying
from imago_operator.plan.restarts.permission import cause, held, obstacle, revision
from imago_operator.plan.rows import PlanRow, PlanStep
from imago_operator.spec.cluster.cluster_status import Rollout
from imago_operator.spec.cluster.tls import AuthorityMode
from imago_operator.spec.cluster.zookeeper import QuorumTls, RegistryTls

if TYPE_CHECKING:
    from imago_operator.model.actions import Action
    from imago_operator.model.state import Pod, Shard
    from imago_operator.plan.look import ClusterLook

UNAVOIDABLE_ALONE: Final = frozenset(
    {"noMasterAfter", "belowMinInSync", "singleReplica", "unreplicatedBytes"}
)
"""What a member alone answers; brokers of earlier versions count its whole log as not copied."""
UNAVOIDABLE_FEW: Final = frozenset({"belowMinInSync"})
CURRENT_MAX: Final = 16
"""Pods that a status names as being restarted."""
FOUND_S: Final = 35.0
"""For how long after a server of ZooKeeper came back others may look for it at its former address:
DNS servers keep an answer for 30 s at most, and so does Java in servers that run since before."""

KUBELET_S: Final = 90
"""How long a kubelet may take to write what a Secret says."""
QUORUM_KNOWN_S: Final = KUBELET_S + 2 * KNOWN_S
"""How long after its certificate was written every server knows and shows it alone."""
KNOWN: Final = "ZooKeeper's servers to know their certificate"
BY_ANOTHER: Final = AuthorityMode.CERT_MANAGER


def rollout(look: ClusterLook) -> PlanStep | None:
    """Return the next restarts, or what they wait for."""
    outdated = [pod for pod in look.observed.pods if _concerned(look, pod)]
    findings, approvals = held(look, outdated)
    due = [pod for pod in outdated if not obstacle(look, pod)]
    memory: dict[str, Any] = {"pending_approvals": approvals} if approvals != _pending(look) else {}
    if not due and (absent := _absent(look)):
        return _last_ones(look, absent, (*findings,), memory)
    if not due:
        if look.observed.status.rollout is not None:
            memory["rollout"] = None  # it is over
        if not (findings or memory):
            return None
        return PlanStep(row=PlanRow.ROLLOUT, findings=findings, record=memory)
    actions, blocked = _zookeeper(look, due) or _brokers(look, due)
    why = cause(look, due[0])
    said = ConditionFinding(
        type="Updating",
        holds=True,
        reason=why,
        message=f"{counted(len(due), 'pod')} to restart"
        + (f"; blocked by: {blocked}." if blocked else "."),
    )
    progress = _progress(look, due, why, actions, blocked)
    if progress != look.observed.status.rollout:
        memory["rollout"] = progress
    timeout = look.desired.spec.update_policy.ready_timeout.seconds
    if any(_is_just_back(look, pod) for pod in look.observed.pods_of(None)):
        timeout = max(timeout, 2 * FOUND_S)
    if blocked == KNOWN:
        timeout = max(timeout, 2 * QUORUM_KNOWN_S)
    wait = (
        PlanWait(key=f"restart {blocked}", message=blocked, deadline_s=timeout) if blocked else None
    )
    return PlanStep(
        row=PlanRow.ROLLOUT,
        actions=tuple(actions),
        wait=wait,
        findings=(*findings, said),
        record=memory,
        next=f"restart {due[0].name}" if blocked else "its shard is in sync again",
    )


def _absent(look: ClusterLook) -> list[str]:
    """Return the pods that were restarted and are not back yet."""
    begun = look.observed.status.rollout
    return [name for name in (begun.current if begun else ()) if not _is_back(look, name)]


def _is_back(look: ClusterLook, name: str) -> bool:
    """Whether a pod serves again as its shard needs it; one that is not to be there does not."""
    pod = next((pod for pod in look.observed.pods if pod.name == name), None)
    if pod is None:
        shards = {
            names.pod(look.desired.name, n, m): n
            for n in look.running
            for m in range(look.desired.replicas)
        }
        return name not in shards and not name.startswith(names.zookeeper(look.desired.name))
    return pod.serving and (pod.shard is None or membership.able(look, pod))


def _last_ones(
    look: ClusterLook,
    absent: list[str],
    findings: tuple[ConditionFinding, ...],
    memory: dict[str, Any],
) -> PlanStep:
    """Wait for those that were restarted last: until they are back the restart is not over."""
    begun = look.observed.status.rollout
    assert begun is not None, "they are of it"
    blocked = f"{', '.join(absent)} to be back"
    progress = replace(
        begun,
        remaining=0,
        current=tuple(absent),
        blocked_by=blocked,
        updated=begun.updated + begun.remaining,
    )
    if progress != begun:
        memory["rollout"] = progress
    said = ConditionFinding(
        type="Updating", holds=True, reason=begun.cause, message=f"Waits for {blocked}."
    )
    timeout = look.desired.spec.update_policy.ready_timeout.seconds
    return PlanStep(
        row=PlanRow.ROLLOUT,
        wait=PlanWait(key=f"restart {blocked}", message=blocked, deadline_s=timeout),
        findings=(*findings, said),
        record=memory,
        next="all pods are of the newest template",
    )


def _concerned(look: ClusterLook, pod: Pod) -> bool:
    here = pod.shard is None or pod.shard in look.running
    return here and not pod.deleting and look.outdated(pod)


def _pending(look: ClusterLook) -> tuple[object, ...]:
    return look.observed.status.pending_approvals


def _progress(
    look: ClusterLook, due: list[Pod], why: str, actions: list[Action], blocked: str
) -> Rollout:
    target = revision(look)
    before = look.observed.status.rollout
    if before is not None and before.revision != target:
        before = None
    current = [a.name for a in actions if isinstance(a, DeletePod)]
    current += [a.pod for a in actions if isinstance(a, Handover)]
    current += [name for name in (before.current if before else ()) if not _is_back(look, name)]
    return Rollout(
        revision=target,
        cause=why,
        updated=before.updated + max(0, before.remaining - len(due)) if before else 0,
        remaining=len(due),
        current=tuple(dict.fromkeys(current))[:CURRENT_MAX],
        blocked_by=blocked or None,
        started_at=before.started_at if before else written(look.now),
    )


def _zookeeper(look: ClusterLook, due: list[Pod]) -> tuple[list[Action], str] | None:
    """Restart servers of ZooKeeper, one at a time, before any broker; None: not concerned."""
    if look.servers is None:
        return None
    there = look.servers.there
    servers = look.observed.pods_of(None)
    down = [pod for pod in servers if not pod.serving]
    mine = [pod for pod in due if pod.shard is None]
    needs = look.desired.registry_tls is not RegistryTls.NONE
    missing = _registry_certificate_missing(look, needed=needs) or _quorum_is_not_known(look)
    if mine and missing:
        return [], missing
    for pod in [pod for pod in mine if not pod.serving]:
        # Of several that are not ready one may be about to be: without it there is no majority.
        alone = len(down) == 1 and len(servers) >= there
        if alone or (membership.overdue(look, pod) and not membership.another_goes(look, pod)):
            return [_delete(look, pod)], ""
    if down or len(servers) < there:
        return [], f"{counted(len(down), 'server') if down else 'missing servers'} of ZooKeeper"
    if mine and (back := [pod for pod in servers if _is_just_back(look, pod)]):
        return [], f"{back[0].name} to be found by the others"
    if mine:
        return [_delete(look, mine[-1])], ""
    return None


def _quorum_is_not_known(look: ClusterLook) -> str:
    """Return what servers wait for that meet others with TLS; empty: nothing.

    One that begins has the certificate that was written last, and shows it at once: all others
    have to trust it before, and to show nothing else.
    """
    seen, sending = look.observed.certificates, (QuorumTls.SENDING, QuorumTls.ENFORCING)
    servers = look.observed.pods_of(None)
    found = seen.members.get(ZOOKEEPER) if seen is not None else None
    if found is None or look.desired.quorum_tls is QuorumTls.NONE:
        return ""
    own = look.desired.spec.tls is None or look.desired.spec.tls.ca.mode is not BY_ANOTHER
    if own and not found.data.get(QUORUM):
        return f"{QUORUM} in Secret {names.zookeeper_certificate(look.desired.name)}"
    since = found.since
    if since is None or not any(pod.quorum_tls in sending for pod in servers):
        return ""
    # Who was ready before it was written began with another, or with none.
    if all(pod.turned is not None and pod.turned > since for pod in servers):
        return ""
    known = (look.now - since).total_seconds() >= QUORUM_KNOWN_S
    return "" if known else KNOWN


def _is_just_back(look: ClusterLook, pod: Pod) -> bool:
    """Whether a server of several may be elected while the others do not find it yet."""
    if pod.turned is None or len(look.observed.pods_of(None)) == 1:
        return False
    # A node's clock may be ahead of ours.
    return abs((look.now - pod.turned).total_seconds()) < FOUND_S


def _brokers(look: ClusterLook, due: list[Pod]) -> tuple[list[Action], str]:
    """Return the restarts of one pass, and what the first one that is not among them waits for."""
    actions: list[Action] = []
    blocked = ""
    disturbed = {n: _racks(look, n) for n in look.running if membership.lacks(look, n)}
    restarting = {n for n in look.running if membership.restarts(look, n)}
    for number in sorted({pod.shard for pod in due if pod.shard is not None}):
        if missing := _certificate_missing(look, number):
            blocked = blocked or missing
            continue
        if first := trying.waits(look, number):
            blocked = blocked or first
            continue
        pods = [pod for pod in due if pod.shard == number]
        if behind := [pod for pod in pods if _is_free(look, pod)]:
            if _too_many(look, restarting | {number}):
                blocked = (
                    blocked or f"shard-{number}: shards {sorted(restarting)} to be whole again"
                )
                continue
            actions.append(_delete(look, behind[0]))
            restarting.add(number)
            continue
        action, why = _restart(look, number, pods, disturbed)
        blocked = blocked or why
        if action is not None:
            actions.append(action)
            disturbed[number] = {look.rack(_pod_of(look, action))}
            restarting.add(number)
    return actions, "" if actions else blocked


def _certificate_missing(look: ClusterLook, number: int) -> str:
    """Return the Secret without which a new pod of the shard would not start; empty: it is there.

    An issuer may be misspelt: members that run are not given up for ones that cannot.
    """
    seen = look.observed.certificates
    if seen is None:
        return ""
    if look.desired.spec.tls is None:
        return _registry_certificate_missing(look, needed=look.desired.registry_over_tls)
    if (name := clients_ca_secret(look.desired)) and (
        seen.clients is None or not seen.clients.trusted
    ):
        return f"Secret {name}"
    if number not in seen.members and number in seen.read:
        return f"Secret {names.certificate(look.desired.name, number)}"
    return _registry_certificate_missing(look, needed=look.desired.registry_over_tls)


def _registry_certificate_missing(look: ClusterLook, *, needed: bool) -> str:
    """Return the same of ZooKeeper's; `needed`: whether the pods in question have its files."""
    seen = look.observed.certificates
    if not needed or seen is None or ZOOKEEPER in seen.members or ZOOKEEPER not in seen.read:
        return ""
    return f"Secret {names.zookeeper_certificate(look.desired.name)}"


def _too_many(look: ClusterLook, shards: set[int]) -> bool:
    """Whether the policy forbids restarts in all of these shards at a time."""
    return len(shards) > look.desired.spec.update_policy.max_unavailable_shards


def _is_free(look: ClusterLook, pod: Pod) -> bool:
    """Whether a member may go that its shard lacks anyway: it is not in sync, and all others are.

    Where others lack, too, it gets the time that the policy gives to be ready: of several that
    have just begun one may be the first to serve again.
    """
    if membership.needed(look, pod) or membership.another_goes(look, pod):
        return False
    if membership.overdue(look, pod):
        return True
    return membership.others_able(look, pod) and not refused(look, pod)


def _restart(
    look: ClusterLook, number: int, pods: list[Pod], disturbed: dict[int, set[str]]
) -> tuple[Action | None, str]:
    if lacking := membership.lacks(look, number):
        return None, lacking
    if len(disturbed) >= look.desired.spec.update_policy.max_unavailable_shards:
        return None, f"shard-{number}: shards {sorted(disturbed)} to be whole again"
    shard = look.shard(number)
    if shard is None or shard.master is None:
        return None, f"shard-{number}: a master"
    pod = _first(pods, shard)
    others = set().union(*disturbed.values()) if disturbed else set()
    if others and (others != {look.rack(pod)} or "" in others):
        return None, f"{pod.name}: the other rack to be whole again"
    return _gate(look, pod, shard)


def _gate(look: ClusterLook, pod: Pod, shard: Shard) -> tuple[Action | None, str]:
    """Ask the broker's own answer; the master hands over before it goes."""
    if objection := refused(look, pod):
        return None, objection
    assert pod.broker is not None
    if shard.master == pod.broker.uuid and look.desired.replicas > 1:
        return Handover(pod.name, pod.broker.uuid, shard.id, shard.epoch or 0), ""
    return _delete(look, pod), ""


def refused(look: ClusterLook, pod: Pod) -> str:
    """Return why the broker says that it must not go now; empty: it may, or it does not answer."""
    if pod.broker is None:
        return ""
    if pod.broker.restart is None:
        return f"{pod.name} to answer its restart check"
    risks = set(pod.broker.restart.risks) - unavoidable(look)
    return f"{pod.name}: {', '.join(sorted(risks))}" if risks else ""


def unavoidable(look: ClusterLook) -> frozenset[str]:
    """Return the risks that every restart has with this number of members."""
    if look.desired.replicas == 1:
        return UNAVOIDABLE_ALONE
    return UNAVOIDABLE_FEW if look.desired.replicas <= look.desired.min_in_sync else frozenset()


def _first(pods: list[Pod], shard: Shard) -> Pod:
    """Return the pod that goes first: one that does not lead, where there is one."""
    following = [p for p in pods if p.broker and p.broker.uuid != shard.master]
    return following[-1] if following else pods[0]


def _racks(look: ClusterLook, number: int) -> set[str]:
    pods = look.observed.pods_of(number)
    return {look.rack(pod) for pod in pods if not membership.able(look, pod)} or {""}


def _pod_of(look: ClusterLook, action: Action) -> Pod:
    name = action.name if isinstance(action, DeletePod) else getattr(action, "pod", "")
    return next(pod for pod in look.observed.pods if pod.name == name)


def _delete(look: ClusterLook, pod: Pod) -> DeletePod:
    return DeletePod(pod.name, pod.uid, pod.shard, cause(look, pod))
