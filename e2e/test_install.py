"""A person installs the operator by helm, applies a cluster, and sends the first messages."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from imago_e2e.clients import load

if TYPE_CHECKING:
    from imago_e2e.brokers import Brokers
    from imago_e2e.operator import Operator
    from imago_testing.java.driver import JavaDriver

FIRST_MESSAGE_SECONDS_MAX = 300.0


@pytest.mark.smoke
def test_first_messages_within_five_minutes(
    operator: Operator,
    whole: Brokers,
    drivers: dict[str, JavaDriver],
    topic: str,
    account: list[str],
) -> None:
    with load(whole, drivers, topic) as running:
        seconds = time.monotonic() - operator.began
        account.append(running.finish())
    shown = operator.kube.run("get", "imago", "-A")
    account += [f"first messages after {seconds:.0f} s", *shown.splitlines()]
    # Where the operator was there before, nothing was installed.
    assert operator.began == 0.0 or seconds < FIRST_MESSAGE_SECONDS_MAX
