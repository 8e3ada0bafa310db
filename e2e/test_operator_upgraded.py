"""A new operator, which would make pods another way, restarts nothing by itself."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from imago_e2e.kube import until
from imago_e2e.operator import condition, status

if TYPE_CHECKING:
    from imago_e2e.brokers import Brokers
    from imago_e2e.operator import Operator

NEXT = "imago/broker-next"
TOLD_SECONDS_MAX = 90.0
LOOKS_SECONDS = 15.0


def test_upgrading_the_operator_restarts_no_pod(
    whole: Brokers, operator: Operator, account: list[str]
) -> None:
    before, restarts = whole.uids(), _restarts(whole)
    operator.upgrade(images__broker=NEXT)
    try:
        until(lambda: _pending(whole), "an update is pending", seconds_max=TOLD_SECONDS_MAX)
        told = status(whole.kube, "imc", whole.namespace, whole.name)
        account.append(f"approvals: {told['pendingApprovals']}")
        # Some looks more: none of them may think better of it.
        end = time.monotonic() + LOOKS_SECONDS
        until(lambda: time.monotonic() > end, "some looks", seconds_max=2 * LOOKS_SECONDS)
        assert (whole.uids(), _restarts(whole)) == (before, restarts)
    finally:
        operator.upgrade(images__broker="imago/broker")
    until(lambda: not _pending(whole), "nothing is pending", seconds_max=TOLD_SECONDS_MAX)
    assert (whole.uids(), _restarts(whole)) == (before, restarts)


def _pending(brokers: Brokers) -> bool:
    found = status(brokers.kube, "imc", brokers.namespace, brokers.name).get("conditions", [])
    if all(each["type"] != "UpdatePending" for each in found):
        return False
    told = condition(brokers.kube, "imc", brokers.namespace, brokers.name, "UpdatePending")
    return bool(told["status"] == "True")


def _restarts(brokers: Brokers) -> int:
    return sum(pod["status"]["containerStatuses"][0]["restartCount"] for pod in brokers.pods())
