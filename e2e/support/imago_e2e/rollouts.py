"""A change that restarts every broker of a cluster, while something else goes on."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Final

from imago_e2e import machine
from imago_e2e.kube import until
from imago_e2e.operator import until_ready

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_e2e.brokers import Brokers
    from imago_e2e.watching import Watch

ROLLED_SECONDS_MAX: Final = 300.0
SETTLES_SECONDS_MAX: Final = 120.0
SETTING: Final = "broker.drain_seconds"
_VALUES: Final = (11, 12)


class Rollout:
    """Such a change; in a control it is not ordered."""

    def __init__(self, brokers: Brokers, watch: Watch, shards: int, *, real: bool) -> None:
        self.real = real
        self._brokers, self._watch, self._shards = brokers, watch, shards
        self._before = brokers.uids()

    def order(self) -> None:
        if not self.real:
            return
        named = ("imc", self._brokers.name, "-n", self._brokers.namespace)
        now = self._brokers.kube.get(*named)["spec"]["brokers"].get("config", {}).get(SETTING)
        wanted = _VALUES[now == _VALUES[0]]
        patch = json.dumps({"spec": {"brokers": {"config": {SETTING: wanted}}}})
        self._brokers.kube.run("patch", *named, "--type=merge", "-p", patch)

    def under_way(self) -> None:
        """Wait until the first broker is taken away."""
        if self.real:
            until(self._watch.taken, "a rollout is under way", seconds_max=60)

    @contextlib.contextmanager
    def without_power(self, node: str) -> Iterator[None]:
        """Cut a node's power; what anybody deletes there meanwhile was away by itself."""
        with machine.without_power(node):
            self._watch.dark.add(node)
            yield
        self._watch.dark.discard(node)

    def over(self) -> None:
        """Wait until every broker was restarted, and all are whole again."""

        def rolled() -> bool:
            pods = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in self._brokers.pods()}
            return all(uid != self._before[name] for name, uid in pods.items())

        if self.real:
            until(rolled, "all brokers are restarted", seconds_max=ROLLED_SECONDS_MAX)
        self._brokers.settled(self._shards, seconds_max=SETTLES_SECONDS_MAX)
        named = (self._brokers.namespace, self._brokers.name)
        until_ready(self._brokers.kube, "imc", *named, seconds_max=60)
