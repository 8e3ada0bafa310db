"""A StatefulSet is edited while no operator runs, and a pod is made of that: both are put back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from imago_e2e.kube import is_ready, until
from imago_e2e.operator import until_ready

if TYPE_CHECKING:
    from imago_e2e.brokers import Brokers
    from imago_e2e.operator import Operator

BACK_SECONDS_MAX = 120.0
FIELD, EDITED = "terminationGracePeriodSeconds", 61


def test_a_pod_of_an_edited_template_is_made_anew(
    whole: Brokers, operator: Operator, account: list[str]
) -> None:
    before, name = whole.uids(), f"{whole.name}-s0-2"
    wanted = _grace(whole, name)
    assert wanted != EDITED
    operator.scale(0)
    try:
        patch = json.dumps({"spec": {"template": {"spec": {FIELD: EDITED}}}})
        place = ("-n", whole.namespace)
        whole.kube.run("patch", "sts", f"{whole.name}-s0", *place, "--type=merge", "-p", patch)
        whole.kube.run("delete", "pod", name, *place, "--wait=false")
        until(lambda: _grace(whole, name) == EDITED, f"{name} is of it", seconds_max=60)
        whole.settled()
    finally:
        operator.scale(1)
    seconds = until(
        lambda: _grace(whole, name) == wanted and is_ready(_pod(whole, name)),
        f"{name} is as the operator makes it",
        seconds_max=BACK_SECONDS_MAX,
    )
    account.append(f"made anew {seconds:.0f} s after the operator was back")
    whole.settled()
    until_ready(whole.kube, "imc", whole.namespace, whole.name, seconds_max=60)
    after = whole.uids()
    assert {pod for pod, uid in after.items() if uid != before[pod]} == {name}


def _pod(brokers: Brokers, name: str) -> dict[str, object]:
    return dict(brokers.kube.get("pod", name, "-n", brokers.namespace))


def _grace(brokers: Brokers, name: str) -> int:
    found = brokers.kube.get("pod", name, "-n", brokers.namespace)
    return int(found["spec"][FIELD])
