"""What is asked of members step by step: nobody is strict while another cannot comply.

A member that copies the log over TLS alone and one without a certificate cut each other off. So
while pods run that have no certificate, all are asked to be permissive; strict they become in
another round of restarts, however soon after each other both were ordered.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from imago_operator.desired import with_spec
from imago_operator.spec.tls import Strictness

if TYPE_CHECKING:
    from collections.abc import Iterable

    from imago_operator.desired import Desired
    from imago_operator.state import Pod


def staged(desired: Desired, pods: Iterable[Pod]) -> Desired:
    """Return what the cluster is to be for now, given the pods that there are."""
    tls = desired.spec.tls
    if tls is None or tls.members is Strictness.PERMISSIVE:
        return desired
    return _permissive(desired) if any(map(_cannot_comply, pods)) else desired


def _cannot_comply(pod: Pod) -> bool:
    """Whether it is a member without a certificate; one of an edited template goes anyway."""
    return pod.shard is not None and not (pod.certified or pod.edited)


@lru_cache(maxsize=64)
def _permissive(desired: Desired) -> Desired:
    """Return the same value for the same cluster, for what is kept by it."""
    assert desired.spec.tls is not None
    tls = replace(desired.spec.tls, members=Strictness.PERMISSIVE)
    return with_spec(desired, replace(desired.spec, tls=tls))
