"""What is asked of members step by step: nobody is strict while another cannot comply.

A member that copies the log over TLS alone and one without a certificate cut each other off. So
while pods run that have no certificate, all are asked to be permissive; strict they become in
another round of restarts, however soon after each other both were ordered.

In the same way with the brokers' user in a managed ZooKeeper: whoever closes the nodes to others
locks out those that do not have it. All have it first; then nodes are closed. On the way back all
open them first. A pod may be away when the operator looks: the template of its StatefulSet counts,
for it says what the pod comes back as, and what it may have been. Where nobody has ordered it, and
a new operator brings it to pods whose spec nobody changed, its steps are the operator's own:
whoever approves the first has approved all.

With TLS among its servers, too: how each meets the others is one of four ways in a row, and all go
from one to the next before any goes on, so that no two are further apart than neighbours.

And with TLS to that ZooKeeper: first every server has both client ports, then every broker uses the
one with TLS, then servers give the plain one up. On the way back every server has both again
before a broker takes the plain one.

How many members count is staged in `members.counting`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from imago_operator.manifests.brokers import has_certificate, spec_hash
from imago_operator.manifests.environment import is_over_tls, registry_access_of
from imago_operator.manifests.zookeeper import quorum_of_servers, said_hash, tls_of_servers
from imago_operator.model import names
from imago_operator.model.desired import RegistrySteps, with_registry_steps, with_spec
from imago_operator.model.desired import quorum_tls as said_quorum
from imago_operator.model.desired import registry_access as said_access
from imago_operator.model.desired import registry_tls as said_tls
from imago_operator.model.state import STATEFUL_SET
from imago_operator.plan.members.counting import counted
from imago_operator.spec.cluster.tls import Strictness
from imago_operator.spec.cluster.zookeeper import QuorumTls, RegistryAccess, RegistryTls

if TYPE_CHECKING:
    from imago_operator.model.desired import Desired
    from imago_operator.model.state import Observed, OwnedObject, Pod


def staged(desired: Desired, observed: Observed) -> Desired:
    """Return what the cluster is to be for now, given what there is."""
    found = desired
    tls = desired.spec.tls
    if tls is not None and tls.members is Strictness.ENFORCING:
        found = _permissive(desired) if _some_cannot_comply(observed) else desired
    servers, over_tls = registry_tls(desired, observed)
    access = registry_access(desired, observed)
    quorum = quorum_tls(desired, observed)
    steps = RegistrySteps(access=access, tls=servers, over_tls=over_tls, quorum=quorum)
    if steps != RegistrySteps.said(found):
        found = with_steps(
            found,
            steps,
            ordered=_is_ordered(found, observed),
            ordered_servers=_is_ordered_of_servers(found, observed),
        )
    return counted(found, observed)


def registry_access(desired: Desired, observed: Observed) -> RegistryAccess:
    """Return who may change the brokers' nodes in a managed ZooKeeper, for now."""
    if desired.spec.zookeeper.managed is None:
        return RegistryAccess.NONE
    wanted = said_access(desired.spec, desired.version)
    there = {pod.registry_access for pod in observed.pods if pod.shard is not None}
    known = there | {registry_access_of(found.template) for found in observed.sets().values()}
    if observed.registry_user_refused and known <= {RegistryAccess.NONE}:
        return RegistryAccess.NONE
    closed = RegistryAccess.ENFORCING in known or has_absent_user(desired, observed, running=True)
    if wanted is RegistryAccess.NONE and closed:
        return RegistryAccess.PERMISSIVE
    # Once one has closed the nodes all have the user, or are shut out whatever others do.
    begun = RegistryAccess.ENFORCING in there
    if wanted is RegistryAccess.ENFORCING and RegistryAccess.NONE in known and not begun:
        return RegistryAccess.PERMISSIVE
    return wanted


def registry_tls(desired: Desired, observed: Observed) -> tuple[RegistryTls, bool]:
    """Return which client ports ZooKeeper's servers have, and whether brokers use that with TLS.

    For now: a broker never has a port alone that some server lacks, be they there or away.
    """
    wanted = said_tls(desired.spec, desired.version)
    servers = {pod.registry_tls for pod in observed.pods if pod.shard is None}
    servers |= {tls_of_servers(c.template) for c in _sets_of_servers(desired, observed)}
    brokers = {pod.registry_over_tls for pod in observed.pods if pod.shard is not None}
    brokers |= {is_over_tls(found.template) for found in observed.sets().values()}
    if observed.registry_tls_refused and servers <= {RegistryTls.NONE}:
        wanted = RegistryTls.NONE
    over_tls = RegistryTls.ENFORCING in servers
    if not over_tls and wanted is not RegistryTls.NONE:
        over_tls = RegistryTls.NONE not in servers
    # Who meets others with TLS has the certificate that clients are shown.
    meets = quorum_tls(desired, observed) is not QuorumTls.NONE
    if wanted is RegistryTls.NONE and (over_tls or True in brokers or meets):
        return RegistryTls.PERMISSIVE, over_tls
    if wanted is RegistryTls.ENFORCING and not (over_tls and False not in brokers):
        return RegistryTls.PERMISSIVE, over_tls
    return wanted, over_tls


def quorum_tls(desired: Desired, observed: Observed) -> QuorumTls:
    """Return how ZooKeeper's servers meet each other, for now.

    One step from where all are, be they there or away; where they differ, one of the two.
    """
    row = list(QuorumTls)
    wanted = row.index(said_quorum(desired.spec, desired.version))
    there = {pod.quorum_tls for pod in observed.pods if pod.shard is None}
    there |= {quorum_of_servers(c.template) for c in _sets_of_servers(desired, observed)}
    if not there:
        return QuorumTls.NONE if observed.registry_tls_refused else row[wanted]
    if observed.registry_tls_refused and there == {QuorumTls.NONE}:
        return QuorumTls.NONE
    if all(pod.ordinal == 0 for pod in observed.pods if pod.shard is None) and all(
        (c.replicas or 0) <= 1 for c in _sets_of_servers(desired, observed)
    ):
        return row[wanted]  # it meets nobody
    known = [row.index(one) for one in there]
    first, last = min(known), max(known)
    if wanted > first:
        return row[min(wanted, first + 1)]
    return row[max(wanted, last - 1)]


def _sets_of_servers(desired: Desired, observed: Observed) -> list[OwnedObject]:
    mine = names.zookeeper(desired.name)
    return [c for c in observed.children if c.name == mine and c.kind == STATEFUL_SET]


def has_absent_user(desired: Desired, observed: Observed, *, running: bool = False) -> bool:
    """Whether a pod is away that may be the brokers' user, and may have closed the nodes.

    `running`: who is there but does not answer is away, too: it has not opened them yet.
    """
    for number, found in observed.sets().items():
        if registry_access_of(found.template) is RegistryAccess.NONE:
            continue
        there = {p.ordinal for p in observed.pods_of(number) if p.broker or not running}
        # Whatever somebody else has scaled it to: those come back.
        if not there.issuperset(range(max(desired.replicas, found.replicas or 0))):
            return True
    return False


def _some_cannot_comply(observed: Observed) -> bool:
    """Whether a member is there, or may come back, that has no certificate."""
    templates = [found.template for found in observed.sets().values()]
    return any(map(_cannot_comply, observed.pods)) or not all(map(has_certificate, templates))


def _cannot_comply(pod: Pod) -> bool:
    """Whether it is a member without a certificate; one of an edited template goes anyway."""
    return pod.shard is not None and not (pod.certified or pod.edited)


def _is_ordered(desired: Desired, observed: Observed) -> bool:
    """Whether somebody has changed what is said of pods since it was last applied to all."""
    notes = [(pod.shard, pod.annotations) for pod in observed.pods if pod.shard is not None]
    for number, found in observed.sets().items():
        notes.append((number, found.template.get("metadata", {}).get("annotations", {})))
    return any(n.get(names.SPEC_HASH) != spec_hash(desired, shard) for shard, n in notes)


def _is_ordered_of_servers(desired: Desired, observed: Observed) -> bool:
    """Whether the same was changed of what is said of ZooKeeper's servers."""
    said = said_hash(replace(desired, servers_step=""))
    notes = [pod.annotations for pod in observed.pods if pod.shard is None]
    templates = (c.template.get("metadata", {}) for c in _sets_of_servers(desired, observed))
    notes += [each.get("annotations", {}) for each in templates]
    return any(each.get(names.SPEC_HASH) != said for each in notes)


@lru_cache(maxsize=512)
def with_steps(
    desired: Desired, steps: RegistrySteps, *, ordered: bool, ordered_servers: bool
) -> Desired:
    """Return the same value for the same cluster, for what is kept by it."""
    return with_registry_steps(desired, steps, ordered=ordered, ordered_servers=ordered_servers)


@lru_cache(maxsize=64)
def _permissive(desired: Desired) -> Desired:
    """Return the same value for the same cluster, for what is kept by it."""
    assert desired.spec.tls is not None
    tls = replace(desired.spec.tls, members=Strictness.PERMISSIVE)
    return with_spec(desired, replace(desired.spec, tls=tls))
