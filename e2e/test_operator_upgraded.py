"""The next operator, which makes pods another way, restarts nothing by itself; what it would
restart goes one by one, and unnoticed, once a person approves.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from imago_e2e import versions
from imago_e2e.clients import load
from imago_e2e.kube import until
from imago_e2e.operator import condition, status, until_ready

if TYPE_CHECKING:
    from imago_e2e.brokers import Brokers
    from imago_e2e.operator import Operator
    from imago_testing.java.driver import JavaDriver

TOLD_SECONDS_MAX = 90.0
LOOKS_SECONDS = 15.0
ROLLED_SECONDS_MAX = 300.0
GAP_SECONDS_MAX = 1.0


def test_upgrading_the_operator_restarts_no_pod(
    whole: Brokers,
    operator: Operator,
    drivers: dict[str, JavaDriver],
    topic: str,
    account: list[str],
) -> None:
    before, restarts = whole.uids(), _restarts(whole)
    tries = _tries(whole)
    assert tries != {versions.NEXT_TRIES}
    operator.upgrade(image__tag=versions.following())
    try:
        until(lambda: _pending(whole), "an update is pending", seconds_max=TOLD_SECONDS_MAX)
        told = _status(whole)
        account.append(f"approvals: {told['pendingApprovals']}")
        assert told["operatorVersion"] == versions.following()
        # Some looks more: none of them may think better of it.
        end = time.monotonic() + LOOKS_SECONDS
        until(lambda: time.monotonic() > end, "some looks", seconds_max=2 * LOOKS_SECONDS)
        assert (whole.uids(), _restarts(whole)) == (before, restarts)
        with load(whole, drivers, topic) as running:
            _approve(whole, told["pendingApprovals"][0]["id"])
            rolled = until(
                lambda: _tries(whole) == {versions.NEXT_TRIES},
                "all pods are of the next operator's making",
                seconds_max=ROLLED_SECONDS_MAX,
            )
            _settled(whole)
            running.go_on(100)
            account.append(f"approved: rolled in {rolled:.0f} s, gaps: {running.gaps()}")
            account.append(running.finish())
            running.unharmed()
            assert max(running.gaps().values()) <= GAP_SECONDS_MAX
        approved = whole.uids()
    finally:
        operator.upgrade(image__tag="")
    until(
        lambda: _status(whole)["operatorVersion"] == versions.current() and _pending(whole),
        "the former operator would have the former pods",
        seconds_max=TOLD_SECONDS_MAX,
    )
    assert whole.uids() == approved
    _approve(whole, _status(whole)["pendingApprovals"][0]["id"])
    until(lambda: _tries(whole) == tries, "its pods are back", seconds_max=ROLLED_SECONDS_MAX)
    _settled(whole)


def _approve(brokers: Brokers, approval: str) -> None:
    named = ("imc", brokers.name, "-n", brokers.namespace)
    brokers.kube.run("annotate", *named, "--overwrite", f"imago.dev/approve={approval}")


def _settled(brokers: Brokers) -> None:
    brokers.settled()
    until_ready(brokers.kube, "imc", brokers.namespace, brokers.name, seconds_max=60)


def _status(brokers: Brokers) -> dict[str, Any]:
    return dict(status(brokers.kube, "imc", brokers.namespace, brokers.name))


def _pending(brokers: Brokers) -> bool:
    if all(each["type"] != "UpdatePending" for each in _status(brokers).get("conditions", [])):
        return False
    told = condition(brokers.kube, "imc", brokers.namespace, brokers.name, "UpdatePending")
    return bool(told["status"] == "True")


def _tries(brokers: Brokers) -> set[int]:
    """How often pods may fail to start: what the next operator makes otherwise."""
    pods = [pod["spec"]["containers"][0] for pod in brokers.pods()]
    return {pod["startupProbe"]["failureThreshold"] for pod in pods}


def _restarts(brokers: Brokers) -> int:
    return sum(pod["status"]["containerStatuses"][0]["restartCount"] for pod in brokers.pods())
