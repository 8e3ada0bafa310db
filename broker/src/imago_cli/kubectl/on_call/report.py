"""Everything that somebody needs who was not there, in one file, without secrets."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from imago_cli.clusters.archive import as_text, lacking, write
from imago_cli.clusters.redacting import scrubbed
from imago_cli.exits import CommandError
from imago_cli.kubectl.brokers import AT_ONCE, CONTAINER, ClusterBrokers, name_of
from imago_cli.kubectl.explain import Story
from imago_cli.kubectl.options import Cluster
from imago_cli.kubectl.tool import (
    CLUSTERS,
    GROUPS,
    PIPELINES,
    REBALANCES,
    TOPICS,
    USERS,
    Kubectl,
    KubectlError,
)
from imago_cli.line.declared import Option
from imago_cli.output import counted, print_line
from imago_operator.model import names

if TYPE_CHECKING:
    from collections.abc import Iterator

LINES_MAX: Final = 5000
"""Of the log of one container."""
LOG_CHARS_MAX: Final = 4 * 1024 * 1024
"""The same: a line may be long."""
ASKED: Final = (
    "/admin/v1/status",
    "/admin/v1/cluster",
    "/admin/v1/shard",
    "/admin/v1/restart-check",
    "/admin/v1/config",
)
OWNED: Final = (
    "pods",
    "statefulsets",
    "services",
    "persistentvolumeclaims",
    "configmaps",
    "poddisruptionbudgets",
    "networkpolicies",
)
"""Kinds of Kubernetes whose objects have the cluster's label. No Secret is ever read."""
REFERRING: Final = (TOPICS, GROUPS, USERS, REBALANCES, PIPELINES)


def report(
    cluster: Cluster,
    file: Annotated[
        Path | None,
        Option("--file", "-f", help="File to write; CLUSTER-report-TIME.tar.gz unless given."),
    ] = None,
    *,
    kube: Kubectl,
) -> None:
    """Write resources, objects, events, logs and brokers' answers into one file to hand on.

    No Secret is read, and what looks like one elsewhere is left out; read the file before you pass
    it on all the same. What could not be read is listed in missing.txt.
    """
    found = kube.get(CLUSTERS, cluster)
    now = datetime.now(UTC)
    path = file or Path(f"{cluster}-report-{now:%Y%m%dT%H%M%SZ}.tar.gz")
    parts = Parts(kube, found)
    written = write(path, f"{cluster}-report", dict(parts.all()), parts.missing, now)
    print_line(f"{path}: {counted(written, 'file')}{lacking(parts.missing)}")


class Parts:
    """The files of a report; what could not be read is noted, and the rest is written."""

    def __init__(self, kube: Kubectl, found: dict[str, Any]) -> None:
        self._kube, self._found = kube, found
        self._name = found["metadata"]["name"]
        self.missing: list[str] = []

    def all(self) -> Iterator[tuple[str, str]]:
        """Yield name and content of each file."""
        yield "cluster.json", as_text(self._found)
        yield "explain.txt", "\n".join(Story.of(self._found, ()).lines()) + "\n"
        for kind in REFERRING:
            yield from self._listed(kind, f"resources/{kind.partition('.')[0]}.json", mine=True)
        label = f"{names.CLUSTER_LABEL}={self._name}"
        for kind in OWNED:
            yield from self._listed(kind, f"objects/{kind}.json", labels=label)
        yield from self._listed("events", "objects/events.json")
        yield from self._pods()

    def _listed(
        self, kind: str, file: str, *, labels: str = "", mine: bool = False
    ) -> Iterator[tuple[str, str]]:
        try:
            items = self._kube.all_of(kind, labels=labels)
        except KubectlError as error:
            self._lacks(file, error)
            return
        if mine:
            items = [i for i in items if i["spec"].get("clusterRef", {}).get("name") == self._name]
        yield file, as_text(items)

    def _pods(self) -> Iterator[tuple[str, str]]:
        try:
            brokers = ClusterBrokers(self._kube, self._name)
            label = f"{names.CLUSTER_LABEL}={self._name},{names.COMPONENT_LABEL}={names.ZOOKEEPER}"
            servers = [name_of(pod) for pod in self._kube.all_of("pods", labels=label)]
        except KubectlError as error:
            self._lacks("pods", error)
            return
        of_brokers = [name_of(pod) for pod in brokers.pods]
        logs = [(pod, CONTAINER) for pod in of_brokers] + [(pod, "zookeeper") for pod in servers]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for answers in pool.map(lambda pod: self._answers(brokers, pod), of_brokers):
                yield from answers
            for texts in pool.map(lambda one: self._logs(*one), logs):
                yield from texts

    def _answers(self, brokers: ClusterBrokers, pod: str) -> list[tuple[str, str]]:
        try:
            told = brokers.ask_all(pod, ASKED)
        except CommandError as error:
            self._lacks(f"brokers/{pod}", error)
            return []
        return [
            (f"brokers/{pod}/{path.rpartition('/')[2]}.json", as_text(said))
            for path, (_, said) in told.items()
        ]

    def _logs(self, pod: str, container: str) -> list[tuple[str, str]]:
        found = []
        for which, more in (("", ()), ("-previous", ("--previous",))):
            words = ("logs", pod, "-c", container, f"--tail={LINES_MAX}", *more)
            try:
                text = self._kube.call(*words)
            except KubectlError as error:
                if not more:  # few containers have ended before
                    self._lacks(f"logs/{pod}.txt", error)
                continue
            found.append((f"logs/{pod}{which}.txt", scrubbed(text[-LOG_CHARS_MAX:])))
        return found

    def _lacks(self, what: str, error: CommandError) -> None:
        self.missing.append(f"{what}: {error.message}")
