"""What is asked of members step by step: nobody is strict while another cannot comply.

A member that copies the log over TLS alone and one without a certificate cut each other off. So
while pods run that have no certificate, all are asked to be permissive; strict they become in
another round of restarts, however soon after each other both were ordered.

In the same way with the brokers' user in a managed ZooKeeper: whoever closes the nodes to others
locks out those that do not have it. All have it first; then nodes are closed. On the way back all
open them first. Where nobody has ordered it, and a new operator brings it to pods whose spec nobody
changed, its steps are the operator's own: whoever approves the first has approved both.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from imago_operator import names
from imago_operator.desired import registry_access as said_access
from imago_operator.desired import with_registry_access, with_spec
from imago_operator.spec.tls import Strictness
from imago_operator.spec.zookeeper import RegistryAccess

if TYPE_CHECKING:
    from imago_operator.desired import Desired
    from imago_operator.state import Observed, Pod


def staged(desired: Desired, observed: Observed) -> Desired:
    """Return what the cluster is to be for now, given what there is."""
    found = desired
    tls = desired.spec.tls
    if tls is not None and tls.members is Strictness.ENFORCING:
        found = _permissive(desired) if any(map(_cannot_comply, observed.pods)) else desired
    access = registry_access(desired, observed)
    if access is found.registry_access:
        return found
    return with_access(found, access, ordered=_is_ordered(found, observed))


def registry_access(desired: Desired, observed: Observed) -> RegistryAccess:
    """Return who may change the brokers' nodes in a managed ZooKeeper, for now."""
    if desired.spec.zookeeper.managed is None:
        return RegistryAccess.NONE
    wanted = said_access(desired.spec, desired.version)
    there = {pod.registry_access for pod in observed.pods if pod.shard is not None}
    if observed.registry_user_refused and there <= {RegistryAccess.NONE}:
        return RegistryAccess.NONE
    if wanted is RegistryAccess.NONE and RegistryAccess.ENFORCING in there:
        return RegistryAccess.PERMISSIVE
    # Once one has closed the nodes all have the user, or are shut out whatever others do.
    closed = RegistryAccess.ENFORCING in there
    if wanted is RegistryAccess.ENFORCING and RegistryAccess.NONE in there and not closed:
        return RegistryAccess.PERMISSIVE
    return wanted


def _cannot_comply(pod: Pod) -> bool:
    """Whether it is a member without a certificate; one of an edited template goes anyway."""
    return pod.shard is not None and not (pod.certified or pod.edited)


def _is_ordered(desired: Desired, observed: Observed) -> bool:
    """Whether somebody has changed what is said of pods since those that are there were made."""
    pods = (pod for pod in observed.pods if pod.shard is not None)
    return any(pod.annotations.get(names.SPEC_HASH) != desired.spec_hash for pod in pods)


@lru_cache(maxsize=64)
def with_access(desired: Desired, access: RegistryAccess, *, ordered: bool) -> Desired:
    """Return the same value for the same cluster, for what is kept by it."""
    return with_registry_access(desired, access, ordered=ordered)


@lru_cache(maxsize=64)
def _permissive(desired: Desired) -> Desired:
    """Return the same value for the same cluster, for what is kept by it."""
    assert desired.spec.tls is not None
    tls = replace(desired.spec.tls, members=Strictness.PERMISSIVE)
    return with_spec(desired, replace(desired.spec, tls=tls))
