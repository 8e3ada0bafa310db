"""What is read off the status of a pod: whether it runs, since when, and if not why."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from imago_operator.model import names
from imago_operator.model.state import CANNOT_BEGIN, NO_IMAGE, STUCK

Manifest = Mapping[str, Any]

WORDS_MAX: Final = 300
"""Of what a container says of its end, in characters: a condition tells of several pods."""
SERVERS: Final = frozenset({names.BROKER, names.ZOOKEEPER})
"""Names of the containers that serve, in pods that may have others beside them."""


def waiting(status: Manifest) -> str | None:
    """Return why a pod's server does not run: the worst reason of containers, or the scheduler's.

    One whose own container runs does not wait, whatever containers beside it do.
    """
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition.get("reason") or "Unschedulable")
    servers = status.get("containerStatuses") or ()
    if any(c.get("name") in SERVERS and "running" in c.get("state", {}) for c in servers):
        return None
    containers = [*(status.get("initContainerStatuses") or ()), *servers]
    states = [container.get("state", {}).get("waiting") or {} for container in containers]
    reasons = [str(state["reason"]) for state in states if state.get("reason")]
    return next((reason for reason in reasons if reason in STUCK), next(iter(reasons), None))


def unscheduled(status: Manifest) -> str:
    """Return what the scheduler says of a pod that it finds no node for; empty: it has one."""
    said = {c["type"]: c for c in status.get("conditions") or ()}.get("PodScheduled", {})
    return str(said.get("message") or "") if said.get("status") == "False" else ""


def missing_image(item: Manifest) -> str:
    """Return the image that a container of a pod waits for and cannot have; empty: none."""
    status, spec = item.get("status", {}), item.get("spec", {})
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    images = {one["name"]: str(one.get("image") or "") for one in containers}
    for one in (
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ):
        reason = (one.get("state", {}).get("waiting") or {}).get("reason")
        if reason in NO_IMAGE:
            return images.get(one["name"], "")
    return ""


def failure(status: Manifest) -> str:
    """Return how a container of a pod that is not ready ended last, or why it cannot begin.

    Those that run before the server count, too; those beside it do not.
    """
    servers = status.get("containerStatuses") or ()
    mine = [one for one in servers if one.get("name") in SERVERS]
    for one in (*(status.get("initContainerStatuses") or ()), *mine):
        now, before = one.get("state") or {}, one.get("lastState") or {}
        ended = now.get("terminated") or before.get("terminated") or {}
        if ended.get("exitCode", 0) != 0:
            how = str(ended.get("reason") or "Error")
            code = ended["exitCode"]
            said = f"{one['name']} ended with code {code}"
            said = said if how == "Error" else f"{said} ({how})"
            return f"{said}: {words}" if (words := _shortened(ended.get("message"))) else said
        waits = now.get("waiting") or {}
        if waits.get("reason") in CANNOT_BEGIN and waits.get("message"):
            return f"{one['name']} cannot begin: {_shortened(waits['message'])}"
    return ""


def _shortened(said: Any) -> str:
    """Return the last words of a container in one line: the end says most."""
    lines = (line.strip() for line in str(said or "").splitlines())
    text = " / ".join(line for line in lines if line)
    return text if len(text) <= WORDS_MAX else f"… {text[-WORDS_MAX:]}"


def turned(status: Manifest) -> datetime | None:
    """Return since when a pod is ready, or is not; None: Kubernetes does not say."""
    conditions = {c["type"]: c for c in status.get("conditions") or ()}
    said = conditions.get("Ready", {}).get("lastTransitionTime")
    return datetime.fromisoformat(said) if said else None
