"""ZooKeeper's nodes belong to the brokers, in a new cluster and in one that was open until now."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from imago_e2e import clusters, strangers
from imago_e2e.brokers import Brokers
from imago_e2e.clients import load
from imago_e2e.kube import until
from imago_e2e.operator import status, until_ready

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_e2e.kube import Kube
    from imago_e2e.operator import Operator
    from imago_testing.java.driver import JavaDriver

PLAIN, OPEN = "e2e-plain", "e2e-open"
SAMPLE: Final = Path(__file__).parents[1] / "manifests" / "samples" / "laptop.yaml"
MOVED_SECONDS_MAX: Final = 300
TELLING: Final = "IMAGO__ZOOKEEPER__PROTECT"


@pytest.fixture(name="plain")
def _plain(kube: Kube, operator: Operator) -> Iterator[Brokers]:
    """The cluster of the quickstart, as it is."""
    assert operator.installed()
    kube.run("apply", "-n", kube.namespace(PLAIN), "-f", str(SAMPLE))
    brokers = Brokers(kube, PLAIN, "laptop")
    brokers.settled(1, 1)
    until_ready(kube, "imc", PLAIN, "laptop", seconds_max=60)
    yield brokers
    kube.delete_namespace(PLAIN)


@pytest.fixture(name="opened")
def _opened(kube: Kube, operator: Operator) -> Iterator[Brokers]:
    """A cluster of three members whose nodes are everybody's."""
    assert operator.installed()
    managed = {"replicas": 1, "storage": {"size": "1Gi"}, "authentication": "None"}
    yield clusters.make(
        kube, clusters.manifest(kube.namespace(OPEN), zookeeper={"managed": managed})
    )
    kube.delete_namespace(OPEN)


def test_a_cluster_is_closed_to_who_reaches_its_zookeeper(
    kube: Kube,
    plain: Brokers,
    client_pod: str,
    drivers: dict[str, JavaDriver],
    topic: str,
    account: list[str],
) -> None:
    assert _open(plain) == {}
    strangers.start(kube, plain, client_pod)
    with load(plain, drivers, topic) as running:
        paths = _of_brokers(plain)
        assert {"/imago/laptop/id", "/meta/brokers/ids/0/master"} <= set(paths)
        assert strangers.taken(kube, plain, client_pod, paths) == []
        running.go_on(100)
        account.append(f"{len(paths)} nodes tried; meanwhile: " + running.finish())
        running.unharmed()


def test_an_open_cluster_is_closed_while_clients_work(
    kube: Kube,
    opened: Brokers,
    client_pod: str,
    drivers: dict[str, JavaDriver],
    topic: str,
    account: list[str],
) -> None:
    said = _open(opened)
    assert (said.get("status"), said.get("reason")) == ("True", "AsSpecified")
    strangers.start(kube, opened, client_pod)
    harmless = [f"/imago/{opened.name}"]
    assert len(strangers.taken(kube, opened, client_pod, harmless)) == 5, "all of it can be done"
    with load(opened, drivers, topic) as running:
        patch = json.dumps({"spec": {"zookeeper": {"managed": {"authentication": None}}}})
        kube.run("patch", "imc", opened.name, "-n", OPEN, "--type=merge", "-p", patch)
        seconds = until(
            lambda: _told(opened) == {"true"},
            "every broker has closed its nodes",
            seconds_max=MOVED_SECONDS_MAX,
        )
        opened.settled()
        until_ready(kube, "imc", OPEN, opened.name, seconds_max=60)
        until(lambda: _open(opened) == {}, "the cluster says so", seconds_max=60)
        assert strangers.taken(kube, opened, client_pod, _of_brokers(opened)) == []
        running.go_on(100)
        account.append(f"closed in {seconds:.0f} s, gaps: {running.gaps()}")
        account.append(running.finish())
        running.unharmed()


def _of_brokers(brokers: Brokers) -> list[str]:
    """Return the nodes that are the brokers' alone: MetaQ's clients keep their groups."""
    found = strangers.nodes_of(brokers)
    return [path for path in found if not path.startswith("/meta/consumers")]


def _open(brokers: Brokers) -> dict[str, Any]:
    """Return what the cluster says of open nodes; nothing, where they are closed."""
    said = status(brokers.kube, "imc", brokers.namespace, brokers.name).get("conditions", ())
    return next((dict(one) for one in said if one["type"] == "RegistryOpen"), {})


def _told(brokers: Brokers) -> set[str]:
    """Return what brokers are told of whether they close their nodes."""
    told = [
        {one["name"]: one.get("value", "") for one in pod["spec"]["containers"][0]["env"]}
        for pod in brokers.pods()
    ]
    return {each.get(TELLING, "") for each in told}
