"""By which spec a cluster is worked on: its own, or the last one that was accepted.

An edit may be wrong: a value, a key, a version that the operator does not run. Brokers keep what
they have; who looks after them must not go blind meanwhile. So the last spec that was accepted is
kept in the status, where an operator that has just begun finds it, before anything is done by it.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from imago_operator.model.desired import Desired, UnreadableSpec, desired_of
from imago_operator.model.versions import step_problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_operator.model.desired import OperatorInfo

SPEC_SIZE_MAX: Final = 256 * 1024
"""Of a spec that is kept, in characters: a status must not outgrow what Kubernetes stores."""


def in_force(manifest: Mapping[str, Any], operator: OperatorInfo) -> Desired | UnreadableSpec:
    """Return what an ImagoCluster is to be: by its spec, or by the last one that was accepted.

    Where there is none, or the operator refuses that, too, it is what can be read of the spec:
    enough to observe by, and never acted on.
    """
    found, status = desired_of(manifest, operator), manifest.get("status") or {}
    problem = found if isinstance(found, UnreadableSpec) else _step(found, status)
    if problem is None:
        return found
    if kept := status.get("acceptedSpec"):
        before = desired_of({**manifest, "spec": json.loads(kept)}, operator)
        if isinstance(before, Desired):
            return replace(before, problem=problem)
    if not status.get("clusterId"):
        return problem  # it never began: there is nothing to observe
    seen = _readable(manifest, operator)
    return problem if seen is None else replace(seen, problem=problem, observed_only=True)


def kept_form(desired: Desired) -> str | None:
    """Return a spec as it is kept; None: it is too large."""
    text = json.dumps(desired.resource.spec, sort_keys=True, separators=(",", ":"))
    return text if len(text) <= SPEC_SIZE_MAX else None


def _step(desired: Desired, status: Mapping[str, Any]) -> UnreadableSpec | None:
    text = step_problem(status.get("version"), desired.version, status.get("featureLevel"))
    if text is None:
        return None
    return UnreadableSpec(resource=desired.resource, problem=text, reason="DowngradeRefused")


def _readable(manifest: Mapping[str, Any], operator: OperatorInfo) -> Desired | None:
    """Return what the spec says, whatever its version; else the same without settings."""
    spec = manifest.get("spec") or {}
    brokers = {name: said for name, said in spec.get("brokers", {}).items() if name != "config"}
    for said in (spec, {**spec, "brokers": brokers}):
        found = desired_of({**manifest, "spec": said}, operator, any_version=True)
        if isinstance(found, Desired):
            return found
    return None
