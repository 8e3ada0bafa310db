"""A person gives a cluster the next version's image while unmodified clients work, and takes it
back: they notice nothing, and brokers of both versions get on.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from imago_e2e import versions
from imago_e2e.clients import load
from imago_e2e.kube import until
from imago_e2e.operator import until_ready

if TYPE_CHECKING:
    from imago_e2e.brokers import Brokers
    from imago_testing.java.driver import JavaDriver

GAP_SECONDS_MAX = 1.0
ROLLED_SECONDS_MAX = 300.0


def test_upgrading_the_image_is_not_noticed(
    whole: Brokers, drivers: dict[str, JavaDriver], topic: str, account: list[str]
) -> None:
    with load(whole, drivers, topic) as running:
        try:
            for version in (versions.following(), versions.current()):
                seconds = _give(whole, version)
                running.go_on(100)
                account.append(f"{version}: rolled in {seconds:.0f} s, gaps: {running.gaps()}")
                assert whole.versions() == {version}
                greets = {versions.NEXT_START in _said(whole, name) for name in whole.names()}
                assert greets == {version == versions.following()}
        finally:
            _give(whole, versions.current())
        account.append(running.finish())
        running.unharmed()
        assert max(running.gaps().values()) <= GAP_SECONDS_MAX


def _give(brokers: Brokers, version: str) -> float:
    """Have all brokers run a version's image; return the seconds that took."""
    image = f"imago/broker:{version}"
    patch = json.dumps({"spec": {"image": image}})
    named = ("imc", brokers.name, "-n", brokers.namespace)
    brokers.kube.run("patch", *named, "--type=merge", "-p", patch)

    def rolled() -> bool:
        return {pod["spec"]["containers"][0]["image"] for pod in brokers.pods()} == {image}

    seconds = until(rolled, f"all brokers run {image}", seconds_max=ROLLED_SECONDS_MAX)
    brokers.settled()
    until_ready(brokers.kube, "imc", brokers.namespace, brokers.name, seconds_max=60)
    return seconds


def _said(brokers: Brokers, pod: str) -> str:
    return brokers.kube.run("logs", pod, "-n", brokers.namespace)
