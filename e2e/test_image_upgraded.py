"""A person gives a cluster another image while unmodified clients work: they notice nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from imago_e2e import clusters
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
    image = f"imago/broker-next:{clusters.version()}"
    if image in _images(whole):
        image = f"imago/broker:{clusters.version()}"
    with load(whole, drivers, topic) as running:
        patch = json.dumps({"spec": {"image": image}})
        named = ("imc", whole.name, "-n", whole.namespace)
        whole.kube.run("patch", *named, "--type=merge", "-p", patch)
        seconds = until(
            lambda: _images(whole) == {image},
            f"all brokers run {image}",
            seconds_max=ROLLED_SECONDS_MAX,
        )
        whole.settled()
        until_ready(whole.kube, "imc", whole.namespace, whole.name, seconds_max=60)
        running.go_on(100)
        account.append(f"rolled in {seconds:.0f} s, gaps: {running.gaps()}")
        account.append(running.finish())
        running.unharmed()
        assert max(running.gaps().values()) <= GAP_SECONDS_MAX


def _images(brokers: Brokers) -> set[str]:
    return {pod["spec"]["containers"][0]["image"] for pod in brokers.pods()}
