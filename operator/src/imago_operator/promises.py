"""What no plan may do, asked once more of the plan that is about to be carried out.

It is written apart from the planner on purpose: it looks only at actions and at what was seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_operator.actions import (
    DeleteChild,
    DeleteClaim,
    DeletePod,
    Elect,
    Handover,
    MarkDrained,
    Stop,
)
from imago_operator.state import STATEFUL_SET

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from imago_operator.actions import Action
    from imago_operator.desired import Desired
    from imago_operator.state import Observed, Pod, Shard


def broken(desired: Desired, observed: Observed, actions: Sequence[Action]) -> list[str]:
    """Return every promise that the actions would break."""
    return [
        *_disturbed(desired, observed, actions),
        *_pods(observed, actions),
        *_claims(observed, actions),
        *_shards(observed, actions),
    ]


def _pod(observed: Observed, name: str) -> Pod | None:
    return next((pod for pod in observed.pods if pod.name == name), None)


def _shard(observed: Observed, number: int) -> Shard | None:
    registry = observed.registry
    return registry.shards.get(number) if registry and registry.connected else None


def _disturbed(desired: Desired, observed: Observed, actions: Sequence[Action]) -> Iterator[str]:
    """A member that serves is taken away only while all members of its shard serve."""
    named = [a.name for a in actions if isinstance(a, DeletePod)]
    named += [a.pod for a in actions if isinstance(a, Handover)]
    shards = []
    for name in named:
        pod = _pod(observed, name)
        if pod is not None and pod.serving and pod.shard is not None:
            shards.append(pod.shard)
            serving = sum(other.serving for other in observed.pods_of(pod.shard))
            if serving < desired.replicas:
                yield f"{name} serves, and its shard lacks a member"
    if len(shards) != len(set(shards)):
        yield "two members of one shard"
    if len(set(shards)) > desired.spec.update_policy.max_unavailable_shards:
        yield f"{len(set(shards))} shards at a time"


def _pods(observed: Observed, actions: Sequence[Action]) -> Iterator[str]:
    deleted = [action for action in actions if isinstance(action, DeletePod)]
    if len({action.shard for action in deleted}) != len(deleted):
        yield "two pods of one shard"
    for action in deleted:
        pod = _pod(observed, action.name)
        if pod is None or (pod.uid, pod.shard) != (action.uid, action.shard):
            yield f"pod {action.name} is not the one that was seen"


def _claims(observed: Observed, actions: Sequence[Action]) -> Iterator[str]:
    """A claim goes with a drained shard and on record, or on record as lost."""
    listed = set(observed.status.scale_down.claims) if observed.status.scale_down else set()
    lost = {(m.claim, m.uid) for m in observed.status.replaced_members}
    pods = {f"data-{pod.name}" for pod in observed.pods}
    uids = {claim.name: claim.uid for claim in observed.claims}
    for action in actions:
        if not isinstance(action, DeleteClaim):
            continue
        shard = _shard(observed, action.shard)
        drained = shard is not None and shard.drained
        if uids.get(action.name) != action.uid:
            yield f"claim {action.name} is not the one that was seen"
        elif drained and action.name in listed and action.name not in pods:
            continue
        elif (action.name, action.uid) not in lost or shard is None or not shard.in_sync:
            yield f"claim {action.name} may be needed"


def _shards(observed: Observed, actions: Sequence[Action]) -> Iterator[str]:
    for action in actions:
        match action:
            case Stop(shard=shard) if not _empty(observed, shard):
                yield f"shard-{shard} is stopped before it is empty"
            case DeleteChild(kind="StatefulSet", orphan=False) if _has_pods(observed, action.name):
                yield f"StatefulSet {action.name} has pods"
            case MarkDrained(shard=shard) if not _read_out(observed, shard):
                yield f"shard-{shard} is not empty"
            case Elect(shard=shard) if not _lost(observed, shard):
                yield f"shard-{shard} has members in sync"
            case _:
                pass


def _has_pods(observed: Observed, name: str) -> bool:
    child = observed.child(STATEFUL_SET, name)
    return child is None or child.replicas != 0


def _read_out(observed: Observed, number: int) -> bool:
    left = observed.remaining.get(number)
    return left is not None and left.nothing


def _lost(observed: Observed, number: int) -> bool:
    """Whether nobody leads the shard, and nobody in sync can."""
    shard = _shard(observed, number)
    return shard is not None and not shard.in_sync and shard.master is None


def _empty(observed: Observed, number: int) -> bool:
    """Whether a shard is on record as drained, or never had a member."""
    registry = observed.registry
    if registry is None or not registry.connected:
        return False
    shard = registry.shards.get(number)
    return shard is None or shard.drained
